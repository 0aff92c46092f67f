"""The environments that `make interop` builds, one a tool, and servers started from them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ENVIRONMENTS = Path(os.environ.get("GUARDMARK_INTEROP", ""))
NEEDS_ENVIRONMENTS = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not os.environ.get("GUARDMARK_INTEROP"), reason="make interop builds the environments"
    ),
]
"""Marks of tests that need them."""
_LONGEST_S = 300


def program(tool: str, name: str = "python") -> Path:
    """Return a program of a tool's environment."""
    return ENVIRONMENTS / tool / "bin" / name


def free_port() -> int:
    """Return a port of this machine that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def serving(
    *command: object, port: int, cwd: Path, env: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Start a server, give its address once it listens, and end it with what it started."""
    log = cwd / f"server-{port}.log"
    with log.open("wb") as told:
        server = subprocess.Popen(
            [str(word) for word in command],
            cwd=cwd,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=told,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait_for(server, port, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def _wait_for(server: subprocess.Popen[Any], port: int, log: Path) -> None:
    until = time.monotonic() + _LONGEST_S
    while time.monotonic() < until:
        if server.poll() is not None:
            break
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise AssertionError(log.read_text("utf-8", "replace")[-3_000:])
