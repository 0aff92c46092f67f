"""Commands without the time that loading takes: each in a fork of a process that has loaded all.

The command line is still a process of its own, with its own folder, environment, streams, signals
and exit code. What is left out is what the system does the same way every time: starting Python
and reading modules. Tests of just that start a process: they do not come here.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import threading
import traceback
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

IS_POSSIBLE: Final = sys.platform == "linux"
"""Elsewhere a fork of a process with libraries in it is not safe, or there is none."""
_FIXED_AT_START: Final = ("PYTHON", "LC_", "LANG", "LD_", "OPENBLAS", "OMP_", "MALLOC", "COVERAGE")
"""Beginnings of variables that Python and its libraries look at only when they start."""
_LOADED_LATE: Final = ("scipy.special", "scipy.stats", "jinja2", "aiohttp.web", "encodings.idna")
_NOT_LOADED: Final = ("guardmark.__main__", "guardmark.inference", "guardmark.testing")
_ROOT: Final = Path(__file__).resolve().parents[2]
_MOST_ORDER: Final = 1 << 20  # bytes


_AT_START: Final = dict(os.environ)
_NO_BYTE_CODE: Final = "PYTHONDONTWRITEBYTECODE"


def can_carry_out(environment: Mapping[str, str]) -> bool:
    """Tell whether a command with these variables does the same in a fork."""
    return IS_POSSIBLE and _start_variables(environment) == _start_variables(_AT_START)


def _start_variables(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(_FIXED_AT_START) and name != _NO_BYTE_CODE
    }


class LoadedProcess:
    """A process that has loaded guardmark, and waits for orders until this one ends."""

    def __init__(self) -> None:
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._turn = threading.Lock()
        with theirs:
            # It ends when its end of the pair is the last one.
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                cwd=_ROOT,
                env=_AT_START,
                pass_fds=[theirs.fileno()],
                stdout=subprocess.DEVNULL,
            )
        atexit.register(self.close)

    def close(self) -> None:
        """Give no more orders, and wait until the process ended."""
        self._orders.close()
        self._process.wait()

    def begin(
        self,
        words: Sequence[str],
        streams: Sequence[int],
        *,
        cwd: Path,
        environment: Mapping[str, str],
    ) -> Command:
        """Begin a command with three streams."""
        order = {"words": list(words), "cwd": str(cwd), "environment": dict(environment)}
        ours, theirs = socket.socketpair()
        with theirs, self._turn:
            socket.send_fds(self._orders, [json.dumps(order).encode()], [*streams, theirs.fileno()])
        return Command(words=words, told=ours)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command under way, and where it is told how it ended."""

    words: Sequence[str]
    told: socket.socket

    def wait(self, timeout_s: float) -> int:
        """Wait for its end; return its code as `subprocess` tells it.

        Raises:
            subprocess.TimeoutExpired: If it took too long; then it is killed.
        """
        self.told.settimeout(timeout_s)
        with self.told, self.told.makefile("r") as lines:
            pid = int(lines.readline())
            try:
                return int(lines.readline())
            except TimeoutError as error:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(list(self.words), timeout_s) from error


@cache
def loaded_process() -> LoadedProcess:
    """Start it where it is needed first."""
    return LoadedProcess()


def _serve(orders: socket.socket) -> None:
    """Load all modules; then fork for each order, until nobody is left who could give one."""
    import guardmark

    for module in pkgutil.walk_packages(guardmark.__path__, "guardmark."):
        if not module.name.startswith(_NOT_LOADED):
            with suppress(ImportError):  # of an extra that is not installed
                importlib.import_module(module.name)
    for name in _LOADED_LATE:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    while True:
        order, streams, _, _ = socket.recv_fds(orders, _MOST_ORDER, 4)
        _bury()
        if not order:
            return
        if os.fork() == 0:
            orders.close()
            _wait_for_command(json.loads(order), streams)
        for each in streams:
            os.close(each)


def _bury() -> None:
    """Let forks that ended go; so the time that they took is counted with that of this process."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _wait_for_command(order: dict[str, Any], streams: Sequence[int]) -> None:
    """Fork once more, and tell how that ended."""
    pid = os.fork()
    if pid == 0:
        _become_command(order, streams)
    for each in streams[:3]:
        os.close(each)
    with closing(socket.socket(fileno=streams[3])) as told:
        told.sendall(f"{pid}\n".encode())
        _, status = os.waitpid(pid, 0)
        with suppress(BrokenPipeError):  # it had taken too long
            told.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def _become_command(order: dict[str, Any], streams: Sequence[int]) -> None:
    """Do what `python -m guardmark` does."""
    for number, each in enumerate(streams[:3]):
        os.dup2(each, number)
    for each in streams:
        os.close(each)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.dont_write_bytecode = bool(os.environ.get(_NO_BYTE_CODE))
    sys.path[0] = order["cwd"]
    sys.argv = ["guardmark", *order["words"]]
    code: Any = 0
    try:
        runpy.run_module("guardmark", run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        code = ended.code
    except BaseException:  # noqa: BLE001 - as Python itself ends
        traceback.print_exc()
        code = 1
    _end(0 if code is None else code)


def _end(code: int) -> None:
    """End as Python does: threads, what is to be done at the end, streams."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with suppress(OSError, ValueError):
                stream.flush()
    os._exit(code)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
