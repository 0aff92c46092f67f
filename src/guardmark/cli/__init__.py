"""Words typed by a person: commands as thin shims over the verbs of `app`.

Options and their help live here; what a command does stands in `app`. Begin with `commands.toml`,
the list that `guardmark --help` prints, then the file of a command.
"""

from __future__ import annotations

import errno
import gc
import io
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from guardmark.app.run.error_output import tell
from guardmark.cli.interrupts import ending_signals
from guardmark.cli.outside import outside_cause
from guardmark.cli.terminal import EXIT_INTERRUPTED, INTERRUPTED, in_line, visible
from guardmark.core.errors import ConfigError, GuardmarkError
from guardmark.core.limits import memory_limit
from guardmark.net.redaction import KNOWN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from click.exceptions import ClickException

    from guardmark.cli.outside import OutsideCause

EXIT_FAULT = 70
_BROKEN_PIPE = 141
_PLAIN_WORDS = (("a valid integer range", "a whole number"), ("a valid float range", "a number"))
_GC_THRESHOLD = 50_000
_PATIENCE_S = 0.3


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    # Thousands of long-lived objects are made while modules load; looking for garbage among
    # them at the usual pace costs a tenth of a short command.
    gc.set_threshold(_GC_THRESHOLD, 20, 20)
    _stand_in_for_closed_streams()
    is_process = argv is None
    words = list(argv or ())
    if is_process:
        words = sys.argv[1:]
    debug = "--debug" in words
    try:
        code = _guarded([word for word in words if word != "--debug"], debug=debug)
        if is_process:
            for number in ending_signals():
                signal.signal(number, signal.SIG_IGN)  # nothing is left to be interrupted
    except KeyboardInterrupt:
        code = _interrupted()
    if code == EXIT_INTERRUPTED:
        _leave_at_once(code)
    if is_process:
        gc.freeze()  # looking for garbage once more, while all of it goes, takes 0.1 s
    sys.exit(code)


def _interrupted() -> int:
    tell(f"\n{INTERRUPTED}\n")
    return EXIT_INTERRUPTED


class _ClosedOutput(io.TextIOWrapper):
    """Stands for a standard output that was closed: what is to be printed cannot be."""

    def write(self, text: str) -> int:
        """Refuse a text as the system would; a command that prints nothing does not notice."""
        if text:
            raise OSError(errno.EBADF, "standard output is closed")
        return 0


def _stand_in_for_closed_streams() -> None:
    """Open the standard streams that the caller closed (`>&-`, `<&-`).

    They are opened in this order, so that each takes the number of the one it stands for: no
    file that is opened later is taken for the output of a program that we start. Who closed both
    outputs, as some do that start programs in the background, expects to hear nothing; who
    closed standard output alone is told.
    """
    if sys.stdin is None:
        sys.stdin = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115 - until the end
    if sys.stdout is None:
        nowhere = Path(os.devnull).open("wb")  # noqa: SIM115 - until the end
        if sys.stderr is None:
            sys.stdout = io.TextIOWrapper(nowhere, encoding="utf-8")
        else:
            sys.stdout = _ClosedOutput(nowhere, encoding="utf-8")
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - until the end


def _leave_at_once(code: int) -> None:
    """End without waiting for threads that are inside a call; all that is stored is stored."""
    import threading
    from time import monotonic

    until = monotonic() + _PATIENCE_S
    for thread in threading.enumerate():
        if thread is threading.main_thread() or thread.daemon:
            continue
        thread.join(max(0.0, until - monotonic()))
        if thread.is_alive():
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


def _guarded(words: list[str], *, debug: bool) -> int:
    """Turn what comes out of a command into an exit code and at most a few lines."""
    from guardmark.cli.commands import build

    try:
        if memory_limit() is not None:
            from guardmark.engine.execution.process import load_numpy_within_limit

            load_numpy_within_limit()
        _require_whole_characters(words)
        return _code_of(build()(words, standalone_mode=False, prog_name="guardmark"))
    except GuardmarkError as error:
        return _tell(error, error.exit_code, debug=debug)
    except KeyboardInterrupt:
        return _interrupted()
    except SystemExit as left:
        return _code_of_click(left)
    except Exception as error:  # noqa: BLE001 - the edge of the command line: exit 70
        if isinstance(error, OSError) and error.errno == errno.EIO and not error.filename:
            # The terminal was closed, which is no fault.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return _BROKEN_PIPE
        return _usage_or_fault(error, debug=debug)


def _require_whole_characters(words: Sequence[str]) -> None:
    """Refuse what no shell hands over, though a program that starts this one in Python can."""
    for word in words:
        try:
            os.fsencode(word)
        except UnicodeEncodeError as error:
            raise ConfigError(
                f"{ascii(word)[:80]} holds half a character, which no name or text has.\n"
                "Next: correct it in the command."
            ) from error


def _tell_outside(cause: OutsideCause, error: Exception, *, debug: bool) -> int:
    """Say what ended a command from outside; what is left in the streams is given up."""
    tell(f"{visible(cause.message)}\n")
    if debug:
        _trace(error)
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return cause.exit_code


def _code_of(returned: object) -> int:
    """Return the exit code of a command: 0 where it returns none."""
    if isinstance(returned, int):
        return returned
    return 0


def _code_of_click(left: SystemExit) -> int:
    """Return the exit code where click itself ends the process.

    It ends with 1 when the reader of our output went away (`guardmark show | head`): that is no
    fault, and 1 has another meaning here. Nobody else may end us like that, but for a shell that
    asked how to complete a line.
    """
    if left.code == 1:
        return _BROKEN_PIPE
    if "_GUARDMARK_COMPLETE" in os.environ:
        return 0
    return EXIT_FAULT


def _usage_or_fault(error: Exception, *, debug: bool) -> int:
    """Tell wrong usage, what lies outside guardmark, or a fault of ours; return the code."""
    from click.exceptions import Abort, ClickException

    if isinstance(error, Abort):
        return _interrupted()
    if isinstance(error, ClickException):
        context, path = getattr(error, "ctx", None), "guardmark"
        if context is not None:
            path = context.command_path
        message = _words(error)
        for word, plain in _PLAIN_WORDS:
            message = message.replace(word, plain)
        tell(f"{visible(message)}\nFor help: {path} --help\n")
        return 2
    cause = outside_cause(error)
    if cause is not None:
        return _tell_outside(cause, error, debug=debug)
    return _tell_fault(error, debug=debug)


def _words(error: ClickException) -> str:
    """Say what click found; its hint counts the two dashes as likeness, so it is made anew."""
    from difflib import get_close_matches

    from click.exceptions import NoSuchOption

    if not isinstance(error, NoSuchOption) or error.ctx is None:
        return error.format_message()
    known = []
    for parameter in error.ctx.command.params:
        for name in parameter.opts:
            if name.startswith("--"):
                known.append(name.removeprefix("--"))
    near = get_close_matches(error.option_name.lstrip("-"), known, n=1)
    hint = ""
    if near:
        hint = f" Did you mean '--{near[0]}'?"
    return f"No such option {error.option_name!r}.{hint}"


def _tell(error: GuardmarkError, code: int, *, debug: bool) -> int:
    tell(visible(str(error)).rstrip() + "\n")
    if debug:
        _trace(error)
    return code


def _tell_fault(error: Exception, *, debug: bool) -> int:
    """Say that it is our fault; the traceback goes into the run folder, where one was written."""
    import traceback

    first = (KNOWN.text(str(error)).splitlines() or [""])[0][:300]
    tell(f"A fault of guardmark itself: {type(error).__name__}: {in_line(first)}\n")
    log = _fault_log("".join(traceback.format_exception(error)))
    if log is None:
        tell("Next: the same command with --debug shows the traceback. What was stored is safe.\n")
    else:
        tell(f"The traceback is in {log}; what was stored is safe, and the run can be continued.\n")
    if debug:
        _trace(error)
    return EXIT_FAULT


def _fault_log(text: str) -> Path | None:
    """Write a traceback into the run folder that this command worked in, if there is one."""
    from guardmark.store.run_dir import last_locked

    folder = last_locked()
    if folder is None:
        return None
    path = folder / "fault.log"
    try:
        path.write_text(KNOWN.text(text), encoding="utf-8")
    except OSError:
        return None
    return path


def _trace(error: BaseException) -> None:
    import traceback

    tell(visible("".join(traceback.format_exception(error))))
