"""What `guardmark adapt` does around its verb: signals, reports, what is printed."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from guardmark.app.adapt.adapting import (
    Adapted,
    AdaptOptions,
    adapt,
    parse_budget,
    sort_replays,
    write_repair,
)
from guardmark.app.adapt.target_setup import CANARIES
from guardmark.app.parts.loading import LoadedConfig, load_config
from guardmark.app.results.reporting import report
from guardmark.app.run.running import RunOptions, Session
from guardmark.cli.run_output import interruptible
from guardmark.cli.terminal import tell
from guardmark.core.errors import ConfigError
from guardmark.engine.progress import Progress
from guardmark.engine.run_monitor import StopSignal
from guardmark.reports.document.safe_text import clean

if TYPE_CHECKING:
    from pathlib import Path

    from guardmark.analysis.run import RunAnalysis

Files = tuple[tuple[str, "Path"], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AsTyped:
    """Options of the command as they were typed."""

    budget: str
    out: Path | None
    config: Path | None
    record: Path | None
    replays: tuple[Path, ...]
    canaries: int
    alone: bool
    seeds: int | None


def carry_out(subject: Path | None, typed: AsTyped) -> tuple[RunAnalysis | None, Files]:
    """Attack, write the reports again and read what came out."""
    trace, cassette = sort_replays(typed.replays)
    options = AdaptOptions(
        budget=parse_budget(typed.budget),
        config=typed.config,
        trace=trace,
        record=typed.record,
        replay=cassette,
        canaries=typed.canaries,
        shared_memory=not typed.alone,
        seeds=typed.seeds,
        run=RunOptions(out=typed.out),
    )
    what: LoadedConfig | Path | None = subject
    if subject is not None and subject.suffix in {".yaml", ".yml"}:
        what = load_config(subject)
    elif subject is not None and typed.out is not None:
        raise ConfigError(
            f"-o names the folder of a run that is made first, and {subject} is one already.\n"
            "Next: leave out -o, or name a configuration."
        )
    progress, stop = Progress(), StopSignal()
    with interruptible(stop):
        session = Session(now=datetime.now(UTC), progress=progress, stop=stop, announce=_say)
        done = adapt(what, session, options)
    if done.trace is None:
        _say(f"Interrupted; what was answered is stored. To continue: {_again(done, typed)}")
        return None, ()
    analysis = report(done.folder.path).analysis
    files = (
        ("report", done.folder.report_html),
        ("repair", write_repair(done.folder, analysis.adaptive)),
        ("trace", done.trace),
        ("target", done.folder.target),
    )
    return analysis, tuple((label, path) for label, path in files if path and path.exists())


def _again(done: Adapted, typed: AsTyped) -> str:
    words = ["guardmark", "adapt", str(done.folder.path), "--budget", typed.budget]
    for option, path in (("--config", typed.config), ("--record", typed.record)):
        words += [] if path is None else [option, str(path)]
    words += ["--no-shared-memory"] if typed.alone else []
    words += [] if typed.seeds is None else ["--seeds", str(typed.seeds)]
    words += [] if typed.canaries == CANARIES else ["--canaries", str(typed.canaries)]
    for path in typed.replays:
        words += ["--replay", str(path)]
    return shlex.join(words)


def _say(text: str) -> None:
    tell(f"{clean(text)}\n")
