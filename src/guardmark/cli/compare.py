"""`guardmark compare`: defenses against each other on the same samples."""

from __future__ import annotations

from pathlib import Path

import click


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
        from guardmark.analysis.compare.compared import Wanted
        from guardmark.app.results.comparing import CompareOptions, compare_runs
        from guardmark.reports.chapters.comparison import comparison_document

        chosen = CompareOptions(
            wanted=Wanted(
                only=tuple(word.strip() for word in only.split(",") if word.strip()),
                against=against,
                listed=samples,
            ),
            margin=margin,
        )
        compared = compare_runs(runs, chosen)
        if as_json:
            from guardmark.reports.compared_json import comparison_json

            click.echo(comparison_json(compared, texts=not no_texts), nl=False)
            return
        document = comparison_document(compared, texts=not no_texts)
        if markdown:
            from guardmark.reports.render.markdown import render_markdown

            click.echo(render_markdown(document, marker="guardmark-comparison"), nl=False)
        else:
            from guardmark.reports.render.terminal import render_terminal

            click.echo(render_terminal(document), nl=False)

    return compare
