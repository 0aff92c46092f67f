"""Commands in processes that are watched: what each imports, connects to, starts and reads."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import guardmark

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CALLS = {
    "socket.connect",
    "socket.sendto",
    "socket.getaddrinfo",
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "pickle.find_class",
}
"""Audit events that reach out of the process, or turn bytes into code."""

_LISTENER = [shutil.which("sh"), str(Path(guardmark.__file__).parent / "cli/crash.sh")]
"""What `run` starts itself, to say where native code ended it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What a command did."""

    words: tuple[str, ...]
    code: int | None
    seconds: float
    out: str
    err: str
    events: list[str]


class Watcher:
    """A process that has the package loaded and forks itself for each command."""

    def __init__(self, *, env: Mapping[str, str], forbidden: Sequence[str], limit_s: float) -> None:
        """Start it.

        `forbidden` are names of modules, variables and files that no command has a reason to
        touch; a command that takes longer than `limit_s` is ended.
        """
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(limit_s), *forbidden],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **env},
            text=True,
        )

    def __enter__(self) -> Self:
        """Return the process."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self._process.communicate()

    def carry_out(self, words: Sequence[str], *, cwd: Path) -> Watched:
        """Carry out one command in a folder."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([str(cwd), *words]) + "\n")
        self._process.stdin.flush()
        return Watched(words=tuple(words), **json.loads(self._process.stdout.readline()))


def _serve(limit_s: float, forbidden: set[str]) -> None:
    """Carry out what standard input asks for, and tell standard output what each came to."""
    _import_all()
    while order := sys.stdin.readline():
        cwd, *words = json.loads(order)
        with tempfile.TemporaryDirectory() as name:
            scratch = Path(name)
            started = time.monotonic()
            child = os.fork()
            if not child:
                os.chdir(cwd)
                _become(scratch, words, forbidden)
            code = _wait(child, until=started + limit_s)
            result = {
                "code": code,
                "seconds": time.monotonic() - started,
                "out": (scratch / "out").read_text(encoding="utf-8", errors="replace"),
                "err": (scratch / "err").read_text(encoding="utf-8", errors="replace"),
                "events": (scratch / "events").read_text(encoding="utf-8").splitlines(),
            }
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()


def _import_all() -> None:
    """Load every module of the package that loads without an extra, once for all commands."""
    import importlib
    import pkgutil

    for module in pkgutil.walk_packages(guardmark.__path__, "guardmark."):
        if not module.name.endswith(("__main__", "testing.plugin")):
            with contextlib.suppress(ImportError):
                importlib.import_module(module.name)


def _wait(child: int, *, until: float) -> int | None:
    """Return the exit code of a child; None when it had to be killed."""
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _become(scratch: Path, words: list[str], forbidden: set[str]) -> None:
    """Carry out one command and end; all that it reaches for is written down."""
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(scratch / name, os.O_WRONLY | os.O_CREAT), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    events = os.open(scratch / "events", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write_down(event: str, *subjects: object) -> None:
        os.write(events, " ".join([event, *map(repr, subjects)]).encode()[:500] + b"\n")

    def hook(event: str, subjects: tuple[object, ...]) -> None:
        if words[0] == "run" and event == "subprocess.Popen" and subjects[1] == _LISTENER:
            return
        if event in CALLS:
            write_down(event, *subjects)
        elif (event == "import" and str(subjects[0]).split(".")[0] in forbidden) or (
            event == "open" and _stem(subjects[0]) in forbidden
        ):
            write_down(event, subjects[0])

    read = type(os.environ).__getitem__

    def read_noting(self: os._Environ[str], key: str) -> str:
        if key in forbidden:
            write_down("environment", key)
        return read(self, key)

    type(os.environ).__getitem__ = read_noting  # type: ignore[method-assign]
    sys.addaudithook(hook)
    from guardmark.cli import main

    code: object = 0
    try:
        main(words)
    except SystemExit as ended:
        code = ended.code
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


def _stem(path: object) -> str:
    """Return what stands before the first dot of a file's name, compiled modules included."""
    return Path(os.fsdecode(path)).name.split(".")[0] if isinstance(path, str | bytes) else ""


if __name__ == "__main__":
    _serve(float(sys.argv[1]), set(sys.argv[2:]))
