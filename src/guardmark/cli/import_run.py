"""`guardmark import`: a run of another tool, read into a folder of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from guardmark.cli.terminal import (
    echo,
    tell_output,
)

_PATH = click.Path(path_type=Path)


@click.command(
    help=(
        "Read a finished run of TOOL into records, so that it can be scored, judged "
        "and compared again. Nothing is called. TOOL: agentdojo (its folder of "
        "runs), any-guardrail (outputs as JSON lines), garak (a .report.jsonl), "
        "inspect (a log, .eval or .json), jailbreakbench (an artifact), minorbench "
        "(a folder with results.jsonl), openai-guardrails (its folder of results), "
        "promptfoo (results as JSON), pyrit (its memory, a .db), table (CSV, TSV or "
        "JSON lines with a text, a label and a decision a row)."
    )
)
@click.argument("tool")
@click.argument("path", type=_PATH)
@click.option("-o", "--out", type=_PATH, help="Folder of the run.")
@click.option(
    "--label",
    type=click.Choice(["attack", "benign"]),
    help="inspect, promptfoo, table, any-guardrail: label of samples that state none.",
)
@click.option(
    "--model",
    default="",
    help=("Which target (agentdojo: pipeline) or defense to take, of several in one file."),
)
@click.option(
    "--unsafe",
    default="",
    metavar="NAME=VALUE",
    help="inspect: the score that means harm; also NAME>=NUMBER.",
)
@click.option(
    "--confidence",
    default="",
    type=click.Choice(["", "risk", "certainty"]),
    metavar="[risk|certainty]",
    help="table, any-guardrail: what the column `confidence` means.",
)
@click.option("--no-texts", is_flag=True, help="Leave texts out of the reports.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def import_command(tool: str, path: Path, *, no_texts: bool, as_json: bool, **typed: Any) -> None:
    """Read a run of another tool."""
    from datetime import UTC, datetime

    from guardmark.app.results.reporting import finish
    from guardmark.app.run.importing import import_run
    from guardmark.core.sample import Label
    from guardmark.interchange.imported import Statements

    out, stated_label = typed.pop("out"), typed.pop("label")
    label = None
    if stated_label:
        label = Label(stated_label)
    statements = Statements(label=label, **typed)
    imported = import_run(tool, path, now=datetime.now(UTC), out=out, statements=statements)
    for note in imported.notes:
        echo(f"Note: {note}", err=True)
    finished = finish(
        imported.folder, imported.config, formats=imported.config.report, texts=not no_texts
    )
    tell_output(finished, as_json=as_json)
