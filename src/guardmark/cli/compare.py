"""`guardmark compare`: defenses against each other on the same samples."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from guardmark.analysis.compare.runs_compared import Compared


def compare_command() -> click.Command:
    """Return the command."""

    @click.command(
        help="Compare the defenses of RUN pair by pair; with several RUNs, the later ones with "
        "the first, over the samples that all of them have. Nothing is called."
    )
    @click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
    @click.option("--only", default="", metavar="A,B", help="Only these defenses.")
    @click.option("--against", default="", metavar="NAME", help="Compare all others with this one.")
    @click.option(
        "--margin",
        type=click.FloatRange(min=0, max=1, min_open=True, max_open=True),
        help="A false positive rate higher by no more than this counts as not worse.",
    )
    @click.option(
        "--samples",
        type=click.IntRange(min=0),
        default=3,
        show_default=True,
        help="Samples to read on which a pair differs, for each side.",
    )
    @click.option("--no-texts", is_flag=True, help="Leave prompt texts out: hashes only.")
    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    @click.option("--markdown", is_flag=True, help="Print Markdown, for a pull request.")
    def compare(
        runs: tuple[Path, ...],
        only: str,
        against: str,
        margin: float | None,
        samples: int,
        no_texts: bool,
        as_json: bool,
        markdown: bool,
    ) -> None:
        from guardmark.analysis.compare.runs_compared import Wanted
        from guardmark.app.results.comparing import CompareOptions, compare_runs

        chosen = CompareOptions(
            wanted=Wanted(
                only=tuple(word.strip() for word in only.split(",") if word.strip()),
                against=against,
                listed=samples,
            ),
            margin=margin,
        )
        compared = compare_runs(runs, chosen)
        form = "json" if as_json else "markdown" if markdown else "terminal"
        click.echo(_drawn(compared, form, texts=not no_texts), nl=False)

    return compare


def _drawn(compared: Compared, form: str, *, texts: bool) -> str:
    if form == "json":
        from guardmark.reports.render.json.documents import comparison_json

        return comparison_json(compared, texts=texts)
    from guardmark.reports.chapters.comparison import comparison_document
    from guardmark.reports.render.markdown import render_markdown
    from guardmark.reports.render.terminal import render_terminal

    document = comparison_document(compared, texts=texts)
    if form == "markdown":
        return render_markdown(document, marker="guardmark-comparison")
    return render_terminal(document)
