"""What `guardmark judge` does around its verb: progress, signals, the reports written again."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from guardmark.app.labels.judging import Judged, judge_run, report_quality
from guardmark.app.results.reporting import report
from guardmark.app.run.running import Session
from guardmark.cli.run_output import ProgressLine, interruptible
from guardmark.cli.terminal import tell
from guardmark.engine.progress import Progress
from guardmark.engine.run_monitor import StopSignal
from guardmark.reports.chapters.pipeline_trust import quality_document
from guardmark.reports.document.safe_text import clean
from guardmark.reports.render.json.documents import quality_json
from guardmark.reports.render.terminal import render_terminal

if TYPE_CHECKING:
    from pathlib import Path


def carry_out(run: Path, *, config: Path | None, layer: str, human_labels: Path | None) -> Judged:
    """Judge again and write the reports of the run again."""
    progress, stop = Progress(), StopSignal()
    with interruptible(stop), ProgressLine(progress):
        session = Session(now=datetime.now(UTC), progress=progress, stop=stop, announce=_say)
        judged = judge_run(run, session, config=config, layer=layer, human_labels=human_labels)
    for warning in judged.warnings:
        _say(f"Note: {warning}")
    report(judged.folder.path)
    return judged


def tell_quality(run: Path, *, as_json: bool) -> str:
    """Return what the judges of a run look like, ready to print."""
    found = report_quality(run)
    return quality_json(found) if as_json else render_terminal(quality_document(found))


def _say(text: str) -> None:
    tell(f"{clean(text)}\n")
