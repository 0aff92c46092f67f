"""`guardmark report`: the reports of finished runs, written again."""

from __future__ import annotations

from pathlib import Path

import click

_FORMATS = ("html", "md", "json", "csv", "junit", "sarif")


def command() -> click.Command:
    """Return the command."""

    @click.command(
        help="Write the reports of RUNs again from their records. Nothing is called; a new "
        "--threshold decides anew from stored scores."
    )
    @click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
    @click.option("-f", "--format", "formats", help=f"With commas: {', '.join(_FORMATS)}.")
    @click.option("--threshold", multiple=True, metavar="NAME=X", help="Block from score X on.")
    @click.option(
        "--choose",
        multiple=True,
        metavar="NAME=FPR",
        help="Print the threshold that blocks most within this false positive rate, as a fragment "
        "of a configuration, and keep it as thresholds.yaml.",
    )
    @click.option("--no-texts", is_flag=True, help="Leave prompt texts out: hashes only.")
    @click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
    def report(
        runs: tuple[Path, ...],
        formats: str | None,
        threshold: tuple[str, ...],
        choose: tuple[str, ...],
        no_texts: bool,
        as_json: bool,
    ) -> None:
        from guardmark.app.results.reporting import parse_thresholds
        from guardmark.app.results.reporting import report as write_report

        chosen = _formats(formats)
        for path in runs:
            if choose:
                from guardmark.app.results.threshold_choice import choose_thresholds

                fragment = choose_thresholds(path, choose)
                click.echo(fragment.text, nl=False)
                click.echo(f"thresholds {fragment.path}", err=True)
                continue
            told = write_report(
                path,
                formats=chosen,
                thresholds=parse_thresholds(threshold),
                texts=not no_texts,
            )
            if as_json:
                click.echo(told.summary_json, nl=False)
                continue
            click.echo(told.terminal, nl=False)
            for label, written in told.files:
                click.echo(f"{label:<10}{written}")

    return report


def _formats(said: str | None) -> tuple[str, ...]:
    from guardmark.core.errors import UnknownName

    chosen = tuple(word.strip() for word in (said or "").split(",") if word.strip())
    for word in chosen:
        if word not in _FORMATS:
            raise UnknownName("report format", word, _FORMATS)
    return chosen
