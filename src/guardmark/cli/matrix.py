"""`guardmark matrix`: several configurations of one file, measured in turn."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from guardmark.cli.terminal import (
    EXIT_NOT_SHOWN,
    echo_json,
    echo_text,
    tell_interrupted,
    tell_note,
)
from guardmark.core.errors import BudgetReached

if TYPE_CHECKING:
    from guardmark.app.run.matrix import MatrixDone


_PATH = click.Path(path_type=Path)


@click.command(
    help=(
        "Run every row of MATRIX, a file with `global` settings and `rows` that "
        "change them, and put the figures side by side. The same command continues "
        "where it stopped."
    )
)
@click.argument("matrix", type=_PATH)
@click.option("-o", "--out", type=_PATH, required=True, help="Folder of runs and tables.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    help=(
        "Take only N samples, with each label and category in its share: a first "
        "look, and reports say so."
    ),
)
@click.option("--offline", is_flag=True, help="Refuse every call to a service.")
@click.option("--json", "as_json", is_flag=True, help="Print the manifest as JSON.")
def matrix_command(matrix: Path, out: Path, limit: int | None, offline: bool, as_json: bool) -> int:
    """Run several configurations."""
    done = _carry_out_matrix(matrix, out, limit=limit, offline=offline)
    if as_json:
        echo_json(done.folder.file("manifest.json").read_text(encoding="utf-8"))
    else:
        echo_text(done.folder.file("matrix_report.md").read_text(encoding="utf-8"))
    if done.is_interrupted:
        return tell_interrupted()
    if done.is_over_budget:
        return BudgetReached.exit_code
    if all(line.status == "success" for line in done.lines):
        return 0
    return EXIT_NOT_SHOWN


def _carry_out_matrix(path: Path, out: Path, *, limit: int | None, offline: bool) -> MatrixDone:
    from guardmark.app.run.matrix import run_matrix
    from guardmark.app.run.running import RunOptions, Session
    from guardmark.cli.interrupts import interruptible
    from guardmark.engine.supervision import StopSignal

    stop, options = StopSignal(), RunOptions(limit=limit, offline=offline)
    with interruptible(stop):
        # Every row has a clock and counters of its own.
        session = partial(Session, stop=stop, announce=tell_note)
        return run_matrix(path, out, session=session, options=options)
