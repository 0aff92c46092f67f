"""Processes of their own, their CPU time, and medians over interleaved rounds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

HERE = Path(__file__).parent
GUARDMARK = str(Path(sys.executable).parent / "guardmark")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a process took.

    Attributes:
        cpu_s: User and system time, children included.
        wall_s: From start to end.
        memory_mb: Peak resident size.
    """

    cpu_s: float
    wall_s: float
    memory_mb: float


def spend(command: Sequence[str], *, started: Callable[[int], None] | None = None) -> Cost:
    """Run a process and measure it from outside; who asks is told its number."""
    start = perf_counter()
    with Path(os.devnull).open("wb") as nowhere:
        child = subprocess.Popen(command, stdout=nowhere, stderr=subprocess.PIPE)
        if started is not None:
            started(child.pid)
        assert child.stderr is not None
        said = child.stderr.read()
        _, status, used = os.wait4(child.pid, 0)
    wall = perf_counter() - start
    if status:
        raise SystemExit(f"{' '.join(command)} failed:\n{said.decode()[-2000:]}")
    return Cost(
        cpu_s=used.ru_utime + used.ru_stime,
        wall_s=wall,
        memory_mb=used.ru_maxrss / 1024,
    )


def floor(name: str, *arguments: object) -> list[str]:
    """Return the command line of a floor."""
    return [sys.executable, str(HERE / "floors.py"), name, *map(str, arguments)]


def subject(name: str, *arguments: object) -> list[str]:
    """Return the command line of guardmark's engine at the same work."""
    return [sys.executable, str(HERE / "subjects.py"), name, *map(str, arguments)]


def command(*arguments: object) -> list[str]:
    """Return a command line of guardmark."""
    return [GUARDMARK, *map(str, arguments)]


def rounds(count: int, parts: Mapping[str, Callable[[], float]]) -> dict[str, list[float]]:
    """Measure several things in turn, again and again, so that load hits them alike."""
    found: dict[str, list[float]] = {name: [] for name in parts}
    for _ in range(count):
        for name, part in parts.items():
            found[name].append(part())
    return found


def middle(found: Mapping[str, Sequence[float]], name: str) -> float:
    """Return the median of one of the things measured."""
    return median(found[name])


def ratio(found: Mapping[str, Sequence[float]], name: str, base: str) -> float:
    """Return the median over rounds of the ratio of two things measured in the same round."""
    return median(a / b for a, b in zip(found[name], found[base], strict=True))


@contextmanager
def service(delay_ms: float, kind: str = "check") -> Iterator[str]:
    """Start the stand-in service; yield its address."""
    child = subprocess.Popen(
        [sys.executable, str(HERE / "server.py"), str(delay_ms), kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with child:
        assert child.stdin is not None
        assert child.stdout is not None
        port = int(child.stdout.readline())
        yield f"http://127.0.0.1:{port}"
        child.stdin.close()


def stats(url: str) -> dict[str, float]:
    """Ask the stand-in service what it saw since the last question."""
    return _ask(f"{url}/stats")


def watch(url: str, process: int) -> None:
    """Ask the service to note a process's CPU time when its next request comes."""
    _ask(f"{url}/watch/{process}")


def _ask(url: str) -> dict[str, float]:
    with urllib.request.urlopen(url) as answer:  # noqa: S310 - our own loopback service
        said: dict[str, float] = json.loads(answer.read())
    return said
