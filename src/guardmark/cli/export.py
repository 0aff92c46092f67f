"""`guardmark export`: the records of a run, written for other tools."""

from __future__ import annotations

import json
from pathlib import Path

import click

from guardmark.cli.run_argument import RunPath
from guardmark.cli.terminal import (
    echo,
    echo_json,
    level,
)
from guardmark.core.errors import ConfigError

_PATH = click.Path(path_type=Path)


@click.command(help="Write the records of RUN for other tools; nothing is called.")
@click.argument("run", type=RunPath(), default="last")
@click.option(
    "--to",
    "forms",
    required=True,
    help=(
        "Formats, separated by commas: csv, inspect, jsonl, latex, minorbench, mlflow "
        "(sent to MLFLOW_TRACKING_URI), otel, parquet, pdf, promptfoo, svg; of an attacked run "
        "dataset (what got through, as data for a run) and transcripts (every try)."
    ),
)
@click.option("-o", "--out", type=_PATH, help="File to write.")
@click.option(
    "--layer",
    default="",
    help=(
        "Judging whose verdicts are written; default: the one the figures stand on. "
        "For inspect and minorbench."
    ),
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def export_command(run: Path, forms: str, out: Path | None, layer: str, as_json: bool) -> None:
    """Write records for other tools."""
    from guardmark.app.results.exporting import export as write

    chosen = [word.strip() for word in forms.split(",") if word.strip()]
    if out is not None and len(chosen) > 1:
        raise ConfigError("--out names one file, but several formats are asked for.")
    for form in chosen:
        written = write(run, form, out=out, layer=layer)
        if as_json:
            document = {"format": form, "path": str(written.path), "records": written.records}
            echo_json(json.dumps(document))
        elif level() < 0:
            echo(str(written.path))
        else:
            echo(f"{form:<12}{written.path}  {written.records:,} records")
