"""`guardmark export`: the records of a run for other tools."""

from __future__ import annotations

import json
from pathlib import Path

import click


def command() -> click.Command:
    """Return the command."""

    @click.command(help="Write the records of RUN for other tools; nothing is called.")
    @click.argument("run", type=click.Path(path_type=Path))
    @click.option(
        "--to",
        "forms",
        required=True,
        help="With commas: csv, inspect, jsonl, minorbench, parquet, svg.",
    )
    @click.option("-o", "--out", type=click.Path(path_type=Path), help="File to write.")
    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    def export(run: Path, forms: str, out: Path | None, as_json: bool) -> None:
        from guardmark.app.results.exporting import export as write
        from guardmark.core.errors import ConfigError

        chosen = [word.strip() for word in forms.split(",") if word.strip()]
        if out is not None and len(chosen) > 1:
            raise ConfigError("--out names one file, but several formats are asked for.")
        for form in chosen:
            written = write(run, form, out=out)
            if as_json:
                found = {"format": form, "path": str(written.path), "records": written.records}
                click.echo(json.dumps(found))
            else:
                click.echo(f"{form:<12}{written.path}  {written.records:,} records")

    return export
