"""One process of a defense: how it is started and ended, the lines it is sent and those it writes.

Each line is a JSON object: `{"id", "text"}` goes in, an object with the same `id` comes back.
The process ends with ours, however ours ends, and what it prints never mixes with what we print.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import resource
import signal
import subprocess
import sys
import termios
from fcntl import ioctl
from functools import cache
from json.encoder import encode_basestring_ascii
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, NoReturn

from guardmark.canon.visible import spell_hidden
from guardmark.core.outcome import ErrorKind
from guardmark.core.values import dataclass
from guardmark.net.redaction import KNOWN
from guardmark.parsing.objects import read_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

_READ: Final = 1 << 16
_LONGEST_LINE: Final = 1 << 20
_KEPT_ERRORS: Final = 4096  # bytes of what the process says of itself
_QUOTED: Final = 400  # characters of it in a message
_ENDING_S: Final = 0.3  # for a process that closed its output, until it has ended
_PR_SET_PDEATHSIG: Final = 1
_WARM_UP_ID: Final = 0
_MOST_BANNER: Final = 200  # lines before the first answer
_QUIET_S: Final = 3.0  # silence after a line, until the process is asked again
_REPLY_S: Final = 1.0  # for a wrong answer to a question that was asked again
_MOST_ASKED: Final = 3


class ProcessFault(Exception):
    """What a process did in place of an answer."""

    def __init__(self, kind: ErrorKind, message: str) -> None:
        self.kind = kind
        super().__init__(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRecipe:
    """How a process is started; it is ready once it answered a warm-up, or wrote that it is."""

    command: tuple[str, ...]
    folder: Path
    variables: Mapping[str, str]
    memory_mb: int | None = None
    warm_up: str | None = ""
    start_timeout_s: float = 60.0
    resets: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Replies:
    """What came back for some texts: an answer or None for each, the time, and what went wrong."""

    answers: Sequence[Mapping[str, Any] | None]
    took_ns: int
    fault: ProcessFault | None = None


class WorkerProcess:
    """A process that was started, with its pipes on the running loop."""

    __slots__ = (
        "_arrived_ns",
        "_buffer",
        "_errors",
        "_exit",
        "_lines",
        "_loop",
        "_numbers",
        "_process",
        "_unsent",
        "_waiter",
        "asked",
        "is_closed",
        "is_ended",
    )

    def __init__(self, recipe: ProcessRecipe) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - the user's own configuration names it
            recipe.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=recipe.folder,
            env=dict(recipe.variables),
            bufsize=0,
            start_new_session=True,  # Ctrl-C reaches us only: we end the run in order
            preexec_fn=_before_start(recipe.memory_mb),  # noqa: PLW1509 - two calls of the system
        )
        self._loop = asyncio.get_running_loop()
        self._buffer, self._errors, self._unsent = bytearray(), bytearray(), bytearray()
        self._lines: list[bytes] = []
        self._waiter: asyncio.Future[None] | None = None
        self.asked = self._arrived_ns = 0
        self.is_ended = self.is_closed = False
        self._numbers = _numbers_of(self._process)
        for number in self._numbers:
            os.set_blocking(number, False)
        _, output, errors = self._numbers
        self._loop.add_reader(output, self._on_output, output)
        self._loop.add_reader(errors, self._on_errors, errors)
        self._exit = _exit_of(self._process.pid)
        if self._exit is not None:
            self._loop.add_reader(self._exit, self._on_exit, self._exit, output)

    async def become_ready(self, recipe: ProcessRecipe) -> None:
        """Wait until the process answers; what it prints before its first answer is ignored.

        Raises:
            ProcessFault: If it ends, writes something else, or does not come to it in time.
        """
        question = b""
        if recipe.warm_up is not None:
            question = _line(_WARM_UP_ID, recipe.warm_up)
        printed: list[bytes] = []
        try:
            async with asyncio.timeout(recipe.start_timeout_s):
                await self._be_answered(question, printed)
                if recipe.resets:
                    await self.reset(recipe.start_timeout_s)
        except TimeoutError as error:
            wanted = "line of ready"
            if question:
                wanted = "answer to the warm-up text"
            message = f"no {wanted} within {recipe.start_timeout_s:g} s (start_timeout_s)"
            if printed:
                message += f"; it printed {_shown(printed[0])}"
            raise ProcessFault(ErrorKind.TIMEOUT, f"{message}{self._last_words()}") from error

    async def _be_answered(self, question: bytes, printed: list[bytes]) -> None:
        """Wait until each question is answered, or for the line of ready; keep what is printed.

        Whether a line is a banner or a wrong answer cannot be seen. So a process that read the
        question, wrote a line and fell silent is asked again: it is refused when each question
        brings such a line at once, as a progress line every few seconds does not.
        """
        asked = waiting = 1
        wait_s, quiet_s, is_heard = None, None, True
        if question:
            quiet_s = _QUIET_S
        self._send(question)
        while waiting > 0:
            try:
                async with asyncio.timeout(wait_s):
                    lines = await self._more()
            except TimeoutError:
                wait_s = None
                if not is_heard:
                    quiet_s = None  # it is at work: its loading or its first answer takes long
                elif self._has_read() and waiting == asked:
                    if asked == _MOST_ASKED:
                        _refuse(f"no answer to {asked} questions, but lines such as", printed[0])
                    self._send(question)
                    asked, waiting, is_heard = asked + 1, waiting + 1, False
                    wait_s = quiet_s = _REPLY_S
                continue
            waiting -= sum(_is_awaited(line, is_answer=bool(question)) for line in lines)
            printed += lines
            if len(printed) > _MOST_BANNER:
                _refuse(f"{len(printed)} lines and no answer, the first", printed[0])
            wait_s, is_heard = quiet_s, True

    def _has_read(self) -> bool:
        """Whether the process took in all that it was sent."""
        try:
            left = ioctl(self._numbers[0], termios.FIONREAD, bytes(4))
        except OSError:
            return False
        return not self._unsent and not any(left)

    async def reset(self, timeout_s: float) -> None:
        """Have the process forget what it was asked.

        Raises:
            ProcessFault: If it does not confirm that with the same line.
        """
        self._send(b'{"reset": true}\n')
        (line, *more) = await self._in_time(timeout_s)
        if more or (_fields(line) or {}).get("reset") is not True:
            raise ProcessFault(
                ErrorKind.CONTRACT, f'expected {{"reset": true}}, got {_shown(line)}'
            )

    async def exchange(self, texts: Sequence[str], *, timeout_s: float) -> Replies:
        """Send some texts, then read as many answers; they may come in any order."""
        first = self.asked + 1
        self.asked += len(texts)
        answers: list[Mapping[str, Any] | None] = [None] * len(texts)
        left, fault = len(texts), None
        began = perf_counter_ns()
        try:
            self._require_silence()
            self._send(b"".join([_line(first + n, text) for n, text in enumerate(texts)]))
            while left:
                for line in await self._in_time(timeout_s):
                    fields, at = _answer(line, first)
                    if not 0 <= at < len(texts) or answers[at] is not None:
                        _refuse("an answer with another id", line)
                    answers[at] = fields
                    left -= 1
            ended = self._arrived_ns
        except ProcessFault as error:
            fault, ended = error, perf_counter_ns()
        return Replies(answers=answers, took_ns=ended - began, fault=fault)

    def _require_silence(self) -> None:
        """Refuse what came before anything was asked."""
        if self._lines:
            _refuse("a line without a question", self._lines[0])
        if self._buffer:
            _refuse("a line without a question", self._buffer)

    async def _in_time(self, timeout_s: float) -> list[bytes]:
        try:
            async with asyncio.timeout(timeout_s):
                return await self._more()
        except TimeoutError as error:
            message = f"no answer within {timeout_s:g} s (timeout_s){self._last_words()}"
            raise ProcessFault(ErrorKind.TIMEOUT, message) from error

    async def _more(self) -> list[bytes]:
        """Return the lines that came, waiting for one."""
        while not self._lines:
            if len(self._buffer) > _LONGEST_LINE:
                raise ProcessFault(ErrorKind.CONTRACT, f"a line of over {_LONGEST_LINE:,} bytes")
            if self.is_ended:
                raise ProcessFault(ErrorKind.CRASH, await self._ending())
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        lines, self._lines = self._lines, []
        return lines

    async def _ending(self) -> str:
        """Say how the process ended, once it has."""
        end_s = self._loop.time() + _ENDING_S
        while self._process.poll() is None and self._loop.time() < end_s:  # noqa: ASYNC110 - no signal tells
            await asyncio.sleep(0.005)
        self._on_errors(self._numbers[2])
        code = self._process.returncode
        if code is None:
            how = "the process closed its output"
        elif code < 0:
            names = {known.value: known.name for known in signal.Signals}
            how = f"the process was ended by signal {-code} ({names.get(-code, 'unknown')})"
        elif code == 0:
            how = "the process ended with exit code 0, before its input did"
        else:
            how = f"the process ended with exit code {code}"
        return how + self._last_words()

    def _last_words(self) -> str:
        """Quote the last lines of the process about itself, redacted and inert."""
        text = bytes(self._errors).decode("utf-8", "replace").strip()
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        quoted = spell_hidden(KNOWN.text(" | ".join(lines)))
        if len(quoted) > _QUOTED:
            quoted = f"...{quoted[-_QUOTED:]}"
        words = ""
        if self._buffer:
            words = f"; it wrote {_shown(self._buffer)} without an end of the line"
        if quoted:
            words += f"; it said: {quoted}"
        return words

    def _send(self, data: bytes) -> None:
        if self._unsent:
            self._unsent += data
            return
        number = self._numbers[0]
        sent = self._write(number, data)
        if sent < len(data):
            self._unsent += data[sent:]
            self._loop.add_writer(number, self._on_room, number)

    def _write(self, number: int, data: bytes | bytearray) -> int:
        try:
            return os.write(number, data)
        except BlockingIOError:
            return 0
        except OSError:  # it reads no more: its output tells the rest
            return len(data)

    def _on_room(self, number: int) -> None:
        del self._unsent[: self._write(number, self._unsent)]
        if not self._unsent:
            self._loop.remove_writer(number)

    def _on_output(self, number: int) -> None:
        try:
            data = os.read(number, _READ)
        except BlockingIOError:
            return
        self._arrived_ns = perf_counter_ns()
        if not data:
            self.is_ended = True
            self._loop.remove_reader(number)
        elif b"\n" in data:
            *lines, rest = (bytes(self._buffer) + data if self._buffer else data).split(b"\n")
            self._lines += [line for line in lines if line.strip()]
            self._buffer[:] = rest
        else:
            self._buffer += data
            if len(self._buffer) > _LONGEST_LINE:
                self._loop.remove_reader(number)
        self._wake()

    def _on_exit(self, end: int, number: int) -> None:
        """Take what it wrote last; a process that it started may hold its output open for long."""
        self._loop.remove_reader(end)
        self._on_output(number)  # a pipe holds no more than one look takes
        self.is_ended = True
        self._loop.remove_reader(number)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _on_errors(self, number: int) -> None:
        try:
            data = os.read(number, _READ)
        except BlockingIOError:
            return
        if not data:
            self._loop.remove_reader(number)
        self._errors += data
        del self._errors[:-_KEPT_ERRORS]

    def end(self) -> None:
        """End the process and all that it started, at once."""
        if self.is_closed:
            return
        self.is_closed = self.is_ended = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(ProcessFault(ErrorKind.CRASH, "the process was ended"))
        given, output, errors = self._numbers
        if not self._loop.is_closed():
            self._loop.remove_writer(given)
            self._loop.remove_reader(output)
            self._loop.remove_reader(errors)
            if self._exit is not None:
                self._loop.remove_reader(self._exit)
        if self._exit is not None:
            os.close(self._exit)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            self._process.kill()
        self._process.wait()


def _numbers_of(process: subprocess.Popen[bytes]) -> tuple[int, int, int]:
    if process.stdin is None or process.stdout is None or process.stderr is None:
        raise RuntimeError("the process was started without pipes")
    return process.stdin.fileno(), process.stdout.fileno(), process.stderr.fileno()


def _exit_of(pid: int) -> int | None:
    """Return what becomes readable when a process ends, where the system has that."""
    if sys.platform != "linux":
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _line(number: int, text: str) -> bytes:
    # In ASCII: every text arrives character for character, half characters too.
    return b'{"id": %d, "text": %s}\n' % (number, encode_basestring_ascii(text).encode())


def _fields(line: bytes) -> dict[str, Any] | None:
    try:
        fields = read_json(KNOWN.data(line))  # it may repeat a key that it was handed
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    return fields


def _is_awaited(line: bytes, *, is_answer: bool) -> bool:
    """Tell whether a line answers the warm-up text or, where there is none, says it is ready."""
    fields = _fields(line) or {}
    if not is_answer:
        return "ready" in fields
    number = fields.get("id")
    return type(number) is int and number == _WARM_UP_ID


def _answer(line: bytes, first: int) -> tuple[Mapping[str, Any], int]:
    """Return the fields of an answer and which question it is about, counted from the first."""
    fields = _fields(line)
    if fields is None:
        _refuse("no JSON object", line)
    number = fields.get("id")
    if not isinstance(number, int) or isinstance(number, bool):
        return fields, -1
    return fields, number - first


def _refuse(what: str, line: bytes | bytearray) -> NoReturn:
    raise ProcessFault(ErrorKind.CONTRACT, f"{what}: {_shown(line)}")


def _shown(line: bytes | bytearray) -> str:
    return repr(spell_hidden(KNOWN.text(line[:_QUOTED].decode("utf-8", "replace"))[:80]))


@cache
def _libc() -> ctypes.CDLL | None:
    return ctypes.CDLL(None) if sys.platform == "linux" else None


def _before_start(memory_mb: int | None) -> Callable[[], None]:
    """Make what the child does before it becomes the program: bound to us, and to its memory."""
    libc, parent = _libc(), os.getpid()

    def prepare() -> None:
        if libc is not None:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)
        if memory_mb is not None:
            most = memory_mb << 20
            resource.setrlimit(resource.RLIMIT_AS, (most, most))

    return prepare
