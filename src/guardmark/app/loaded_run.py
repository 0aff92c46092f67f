"""A run as Python reads it: figures, tables, samples and records."""

from __future__ import annotations

import shutil
import webbrowser
from base64 import b64encode
from dataclasses import dataclass
from html import escape
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from guardmark.analysis.run import analyse_run
from guardmark.app.results.opened_run import find_run, open_run
from guardmark.core.errors import StoreError, UnknownName, needs
from guardmark.core.record import Stage
from guardmark.reports.chapters.run_document import build_document
from guardmark.reports.document.blocks import LineChart
from guardmark.reports.figures.files import figure_svg
from guardmark.store.columns import record_columns, sample_columns
from guardmark.store.reader import RecordReader
from guardmark.store.schema import OUTCOME_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike

    from guardmark.analysis.run import RunAnalysis
    from guardmark.core.record import Record
    from guardmark.core.sample import Sample
    from guardmark.store.columns import RecordColumns, SampleColumns

_FACETS = (
    "category",
    "subcategory",
    "severity",
    "language",
    "variant",
    "technique",
    "source",
    "group",
)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, weakref_slot=True)
class LoadedRun:
    """A run read from its records.

    Attributes:
        folder: Where it lies. Of a run that is not kept, it goes when nothing refers to the run.
        analysis: Every figure of its report.
    """

    folder: Path
    analysis: RunAnalysis

    def __fspath__(self) -> str:
        """Return the folder: a run is taken wherever the path of one is."""
        return str(self.folder)

    def __repr__(self) -> str:
        """Tell the folder, the samples, and a line for each of the first defenses."""
        return f"LoadedRun {self.folder}: {self.analysis!r}"

    def _repr_html_(self) -> str:
        """Draw the verdicts with their figures, and the picture that a report begins with."""
        document = build_document(self.analysis)
        rows = "".join(
            f"<tr><th>{escape(each.title or each.defense)}</th>"
            f"<td>{escape(each.answer or 'baseline')}</td><td>{escape(each.figures)}</td></tr>"
            for each in document.verdicts
        )
        confidence = f"{100 * self.analysis.settings.confidence:g} % intervals in brackets"
        table = f"<table><caption>{confidence}</caption>{rows}</table>"
        plane = next((each for each in document.blocks if isinstance(each, LineChart)), None)
        if plane is None:
            return table
        drawn = b64encode(figure_svg(plane).encode()).decode()
        return f'{table}<img alt="" src="data:image/svg+xml;base64,{drawn}">'

    def save(self, folder: str | PathLike[str]) -> Path:
        """Copy the run to a folder that does not exist yet, and return that folder.

        Args:
            folder: Where to, for example `runs/mine`.

        Raises:
            StoreError: If the folder exists.
        """
        kept = Path(folder)
        if kept.exists():
            raise StoreError(f"{kept} exists.\nNext: name a folder that does not.")
        shutil.copytree(self.folder, kept, ignore=shutil.ignore_patterns(".lock"))
        return kept

    def to_frame(self, by: str = "") -> Any:
        """Return rates as a pandas data frame.

        Args:
            by: Empty for the headline rates, one row a defense; or a facet such as `category`,
                for one row a defense, value of the facet and label.

        Raises:
            ConfigError: If pandas is not installed, or the run has no such facet.
        """
        if by:
            return _pandas().DataFrame(list(self._slice_rows(by)))
        rows = [{"defense": each.name} | each.card.columns() for each in self.analysis.defenses]
        return _pandas().DataFrame(rows)

    def _slice_rows(self, facet: str) -> Iterator[dict[str, Any]]:
        """Yield every slice of a facet."""
        for defense in self.analysis.defenses:
            known = sorted({each.facet for each in defense.slices})
            if facet not in known:
                raise UnknownName("facet of this run", facet, known)
            for table in defense.slices:
                if table.facet != facet:
                    continue
                for each in table.rates:
                    yield {
                        "defense": defense.name,
                        facet: each.name,
                        "label": "attack" if table.is_attack else "benign",
                        "rate": each.rate.value,
                        "low": each.rate.low,
                        "high": each.rate.high,
                        "n": each.rate.trials,
                        "asked": each.asked,
                    }

    def samples_frame(self, *, texts: bool = True) -> Any:
        """Return what each defense decided as a pandas data frame, one row an answer.

        Args:
            texts: Whether the words of each sample stand in a column `text`.

        Raises:
            ConfigError: If pandas is not installed.
        """
        pandas, samples = _pandas(), self.sample_columns()
        table = pandas.DataFrame({"id": list(samples.ids), "is_attack": samples.is_attack})
        for name in _FACETS:
            facet = getattr(samples, name)
            table[name] = pandas.Series(list(facet.names), dtype=object).take(facet.codes).array
        if texts:
            table["text"] = [each.prompt.words for each in self.samples()]
        parts = []
        for defense in self.analysis.defenses:
            records = self.record_columns(defense.name)
            part = table.iloc[records.sample].reset_index(drop=True)
            part["defense"] = defense.name
            part["repeat"] = records.repeat
            part["outcome"] = [OUTCOME_NAMES[code] for code in records.outcome]
            part["score"] = records.score
            latency_ms = pandas.Series(records.latency_ns / 1e6)
            part["latency_ms"] = latency_ms.where(records.latency_ns >= 0)
            parts.append(part)
        return pandas.concat(parts, ignore_index=True)

    def open_report(self) -> Path:
        """Open the HTML report in the browser, and return where it lies.

        Raises:
            StoreError: If the run has no HTML report.
        """
        page = find_run(self.folder).report_html.resolve()
        if not page.exists():
            raise StoreError(f"{page} is missing.\nNext: guardmark.report({str(self.folder)!r})")
        webbrowser.open(page.as_uri())
        return page

    def samples(self) -> Iterator[Sample]:
        """Yield every sample of the run, in order."""
        with self._reader() as reader:
            yield from reader.samples()

    def records(self, defense: str) -> Iterator[Record]:
        """Yield every decision of one defense, by repeat, then sample.

        Args:
            defense: Its name in the run. `record.key.sample` is the place among `samples()`.

        Raises:
            ConfigError: If the run has no such defense.
        """
        with self._reader() as reader:
            _require_defense(reader, defense)
            yield from reader.records(defense=defense, stage=Stage.DEFENSE)

    def sample_columns(self) -> SampleColumns:
        """Return the samples as numpy columns, one row a sample."""
        with self._reader() as reader:
            return sample_columns(reader)

    def record_columns(self, defense: str) -> RecordColumns:
        """Return the decisions of one defense as numpy columns.

        Args:
            defense: Its name in the run.

        Returns:
            One row a record; arrays may be read-only.

        Raises:
            ConfigError: If the run has no such defense.
        """
        with self._reader() as reader:
            _require_defense(reader, defense)
            return record_columns(reader, defense)

    def _reader(self) -> RecordReader:
        return RecordReader(self.folder / "records.sqlite")


def load_run(path: str | PathLike[str]) -> LoadedRun:
    """Read a finished run; nothing is called.

    Args:
        path: The folder of the run.

    Returns:
        Its figures, its samples and its records.

    Raises:
        StoreError: If there is no run, or its records are damaged.
    """
    with open_run(Path(path)) as opened:
        analysis = analyse_run(opened.reader, opened.settings)
        return LoadedRun(folder=opened.folder.path, analysis=analysis)


def _require_defense(reader: RecordReader, name: str) -> None:
    known = reader.defenses()
    if name not in known:
        raise UnknownName("defense of this run", name, known)


def _pandas() -> Any:
    with needs("A data frame needs pandas", "pandas"):
        return import_module("pandas")
