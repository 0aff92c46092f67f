"""What `guardmark matrix` does around its verb: progress and signals."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from guardmark.app.run.matrix import MatrixDone, run_matrix
from guardmark.app.run.running import RunOptions, Session
from guardmark.cli.run_output import interruptible
from guardmark.cli.terminal import tell
from guardmark.engine.progress import Progress
from guardmark.engine.run_monitor import StopSignal
from guardmark.reports.document.safe_text import clean

if TYPE_CHECKING:
    from pathlib import Path


def carry_out(path: Path, out: Path, *, limit: int | None, offline: bool) -> MatrixDone:
    """Run a matrix."""
    stop = StopSignal()

    def session() -> Session:
        return Session(now=datetime.now(UTC), progress=Progress(), stop=stop, announce=_say)

    with interruptible(stop):
        options = RunOptions(limit=limit, offline=offline)
        return run_matrix(path, out, session=session, options=options)


def _say(text: str) -> None:
    tell(f"{clean(text)}\n")
