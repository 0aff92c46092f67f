"""`guardmark merge`: shards of a run, or runs of different defenses, as one run."""

from __future__ import annotations

from pathlib import Path

import click

from guardmark.cli.run import tell_run
from guardmark.cli.terminal import (
    tell_line,
)
from guardmark.core.errors import counted

_PATH = click.Path(path_type=Path)


@click.command(
    help=(
        "Join finished RUNs into one new run: all shards of one run (`run --shard`), "
        "or runs of different defenses over the same data. Nothing is called, and "
        "the runs stay as they are."
    )
)
@click.argument("runs", nargs=-1, required=True, type=_PATH)
@click.option("-o", "--out", type=_PATH, required=True, help="Folder of the new run.")
@click.option(
    "--allow-missing",
    is_flag=True,
    help="Merge although shards are missing; every report names them.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def merge_command(runs: tuple[Path, ...], out: Path, *, allow_missing: bool, as_json: bool) -> int:
    """Merge runs."""
    from guardmark.app.run.importing import merge_runs
    from guardmark.app.run.running import Session

    merged = merge_runs(runs, out, now=Session().now, allow_missing=allow_missing)
    stored = merged.analysis.status.stored
    tell_line(f"Merged {counted(len(runs), 'run')} with {counted(stored, 'record')} into {out}")
    return tell_run(merged, as_json=as_json)
