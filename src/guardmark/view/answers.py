"""What takes time to make - reports, comparisons - kept until the run changes."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from guardmark.analysis.compare.runs_compared import Wanted
from guardmark.analysis.run import analyse_run
from guardmark.app.results.opened_run import analysis_settings
from guardmark.app.results.reading import compare_runs
from guardmark.reports.chapters.comparison import comparison_document
from guardmark.reports.chapters.run_document import build_document
from guardmark.reports.document.blocks import Bullets, Section, Tone
from guardmark.reports.render.html.page import render_html
from guardmark.store.reader import RecordReader
from guardmark.store.run_dir import RunDir
from guardmark.view.pages import render_sections

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.view.index import RunEntry, RunIndex

_LISTED: Final = 20
_KEPT: Final = 16


class Answers:
    """Makes reports and comparisons once; may be asked from several threads."""

    def __init__(self, index: RunIndex, *, texts: bool) -> None:
        self._index = index
        self._texts = texts
        self._kept = lru_cache(_KEPT)(self._made)

    def page(self, kind: str, *runs: RunEntry) -> str:
        """Return the `report` of a run, the comparison of `two`, or that as a `file` to keep.

        A report is made from the records: anybody may have written the file beside them.
        """
        return self._kept(kind, runs, tuple(self._index.stamp(run.key) for run in runs))

    def _made(self, kind: str, runs: tuple[RunEntry, ...], _stamps: object) -> str:
        return self._rendered(*runs) if kind == "report" else self._compared(kind, runs)

    def _rendered(self, entry: RunEntry) -> str:
        with RecordReader(RunDir(path=entry.folder).records) as reader:
            document = build_document(analyse_run(reader, analysis_settings(reader)))
        return render_html(document, texts=self._texts)

    def _compared(self, kind: str, runs: Sequence[RunEntry]) -> str:
        wanted = Wanted(listed=_LISTED, latency=False)
        compared = compare_runs([run.folder for run in runs], wanted)
        document = comparison_document(compared, texts=self._texts)
        if kind == "file":
            return render_html(document, texts=self._texts)
        caveats = Section(
            id="caveats", title="Note", blocks=(Bullets(lines=document.caveats, tone=Tone.WARNING),)
        )
        sections = (*([caveats] if document.caveats else []), *document.sections)
        file = "&".join(["/compare?file=1", *(f"run={run.key}" for run in runs)])
        level = f"{100 * compared.all[0].confidence:g} % confidence intervals."
        subtitle = f"{document.subtitle} {level}"
        return render_sections("Runs compared", subtitle, sections, file=file)
