"""`guardmark import`: a finished run of another tool, as a run of guardmark."""

from __future__ import annotations

from pathlib import Path

import click


def command() -> click.Command:
    """Return the command."""

    @click.command(
        help="Read a finished run of TOOL into records, so that it can be scored, judged and "
        "compared again. Nothing is called. TOOL: garak (a .report.jsonl), inspect (a log, .eval "
        "or .json), jailbreakbench (an artifact), minorbench (a folder with results.jsonl), "
        "promptfoo (results as JSON)."
    )
    @click.argument("tool")
    @click.argument("path", type=click.Path(path_type=Path))
    @click.option("-o", "--out", type=click.Path(path_type=Path), help="Folder of the run.")
    @click.option(
        "--label",
        type=click.Choice(["attack", "benign"]),
        help="inspect, promptfoo: label of samples that state none.",
    )
    @click.option("--model", default="", help="promptfoo: the target to take, of several.")
    @click.option(
        "--unsafe",
        default="",
        metavar="NAME=VALUE",
        help="inspect: the score that means harm; also NAME>=NUMBER.",
    )
    @click.option("--no-texts", is_flag=True, help="Leave texts out of the reports.")
    @click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
    def import_(
        tool: str,
        path: Path,
        out: Path | None,
        label: str | None,
        model: str,
        unsafe: str,
        no_texts: bool,
        as_json: bool,
    ) -> None:
        from datetime import UTC, datetime

        from guardmark.app.results.reporting import finish
        from guardmark.app.run.importing import import_run
        from guardmark.core.sample import Label
        from guardmark.importers.imported import Statements
        from guardmark.reports.document.safe_text import clean

        said = Statements(label=Label(label) if label else None, model=model, unsafe=unsafe)
        found = import_run(tool, path, now=datetime.now(UTC), out=out, said=said)
        for warning in found.warnings:
            click.echo(clean(f"Note: {warning}"), err=True)
        told = finish(found.folder, found.config, formats=found.config.report, texts=not no_texts)
        if as_json:
            click.echo(told.summary_json, nl=False)
            return
        click.echo(told.terminal, nl=False)
        for name, written in told.files:
            click.echo(f"{name:<10}{written}")

    return import_
