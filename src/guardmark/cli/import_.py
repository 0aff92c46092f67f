"""`guardmark import`: a finished run of another tool, as a run of guardmark."""

from __future__ import annotations

from pathlib import Path

import click


def command() -> click.Command:
    """Return the command."""

    @click.command(
        help="Read a finished run of TOOL into records, so that it can be scored, judged and "
        "compared again. Nothing is called. TOOL: minorbench (a folder with results.jsonl)."
    )
    @click.argument("tool")
    @click.argument("path", type=click.Path(path_type=Path))
    @click.option("-o", "--out", type=click.Path(path_type=Path), help="Folder of the run.")
    @click.option("--no-texts", is_flag=True, help="Leave texts out of the reports.")
    @click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
    def import_(tool: str, path: Path, out: Path | None, no_texts: bool, as_json: bool) -> None:
        from datetime import UTC, datetime

        from guardmark.app.finishing import finish
        from guardmark.app.importing import import_run
        from guardmark.cli.terminal import clean

        found = import_run(tool, path, now=datetime.now(UTC), out=out)
        for warning in found.warnings:
            click.echo(clean(f"Note: {warning}"), err=True)
        told = finish(found.folder, found.config, formats=found.config.report, texts=not no_texts)
        if as_json:
            click.echo(told.summary_json, nl=False)
            return
        click.echo(told.terminal, nl=False)
        for label, written in told.files:
            click.echo(f"{label:<10}{written}")

    return import_
