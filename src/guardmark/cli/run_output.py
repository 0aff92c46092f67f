"""What `guardmark run` prints: progress on stderr, verdicts and paths on stdout."""

from __future__ import annotations

import signal
import sys
from contextlib import contextmanager, redirect_stdout
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from guardmark.app.parts.builtin import builtin_config
from guardmark.app.parts.loading import load_config
from guardmark.app.run.running import Session, run
from guardmark.cli.progress import ProgressLine
from guardmark.cli.terminal import tell
from guardmark.core.errors import BudgetReached, UntrustworthyRun
from guardmark.engine.progress import Progress
from guardmark.engine.run_monitor import Abandoned, StopSignal
from guardmark.engine.runner import Ending
from guardmark.reports.document.safe_text import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from guardmark.app.run.running import RunOptions

EXIT_INTERRUPTED = 130
EXIT_UNTRUSTWORTHY = 5
_HANGUP = getattr(signal, "SIGHUP", None)  # neither is there on Windows
_ALARM = getattr(signal, "SIGALRM", None)
_PATIENCE_S = 0.5


def carry_out(config: Path | None, options: RunOptions, *, texts: bool, as_json: bool) -> int:
    """Run, write the reports and print what came out."""
    loaded = load_config(config) if config is not None else builtin_config()
    progress, stop = Progress(), StopSignal()
    try:
        with interruptible(stop), ProgressLine(progress):
            session = Session(now=datetime.now(UTC), progress=progress, stop=stop, announce=_say)
            result = run(loaded, options, session)
    except (BudgetReached, UntrustworthyRun) as error:
        _say(f"{error}\nTo continue: {_same_command()}")
        return error.exit_code
    for warning in result.warnings:
        _say(f"Note: {warning}")
    if result.summary.ending is Ending.INTERRUPTED:
        _say(
            f"Interrupted; {result.summary.stored:,} of {result.summary.planned:,} records are "
            f"stored in {result.folder.path}.\nTo continue: {_same_command()}"
        )
        return EXIT_INTERRUPTED
    if result.summary.ending is Ending.EARLY:
        _say(f"Stopped early: {result.summary.reason}")
    from guardmark.app.results.numerics import load_numpy_for_reports

    load_numpy_for_reports()
    from guardmark.app.results.reporting import finish  # numpy and the report: needed only now

    told = finish(result.folder, loaded.config, formats=loaded.config.report, texts=texts)
    if as_json:
        sys.stdout.write(told.summary_json)
    else:
        sys.stdout.write(told.terminal)
        sys.stdout.write("".join(f"{label:<10}{path}\n" for label, path in told.files))
        sys.stdout.write(told.gate)
    for complaint in told.complaints:
        _say(complaint)
    return EXIT_UNTRUSTWORTHY if told.complaints else told.gate_exit


def _say(text: str) -> None:
    line_start = "\r\x1b[2K" if sys.stderr.isatty() else ""
    tell(f"{line_start}{clean(text)}\n")


def _same_command() -> str:
    import shlex

    return shlex.join(["guardmark", *(word for word in sys.argv[1:] if word != "--fresh")])


@contextmanager
def interruptible(stop: StopSignal) -> Iterator[None]:
    """Turn the first Ctrl-C or termination into an orderly end; the second one ends at once.

    A call that answers at once and does not come back by then is abandoned. What parts print
    meanwhile goes to stderr: stdout carries what the command says, and nothing else.
    """

    def on_signal(number: int, _frame: object) -> None:
        # A terminal that closes may hang up more than once.
        if stop.is_set and number != _HANGUP:
            raise KeyboardInterrupt
        stop.set(signal.Signals(number).name)
        if _ALARM is not None:
            signal.setitimer(signal.ITIMER_REAL, _PATIENCE_S, _PATIENCE_S)

    def on_alarm(_number: int, _frame: object) -> None:
        if stop.is_calling:
            raise Abandoned

    handlers: dict[int, Callable[[int, object], None]] = dict.fromkeys(_signals(), on_signal)
    if _ALARM is not None:
        handlers[_ALARM] = on_alarm
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        if _ALARM is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def _signals() -> Iterator[int]:
    yield from (signal.SIGINT, signal.SIGTERM)
    # Whoever started us with nohup wants no end when the terminal goes.
    if _HANGUP is not None and signal.getsignal(_HANGUP) is not signal.SIG_IGN:
        yield _HANGUP
