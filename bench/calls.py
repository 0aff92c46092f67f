"""Count function calls per sample, of Python and of C: a figure that a busy machine cannot move.

`python bench/calls.py` counts and prints them beside `bench/calls.json`; `--write` replaces that
file. Each kind of work is done on two sizes of data in processes of their own, and the difference
is divided by the samples between them, so that starting and reporting a run once drop out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

sys.path.insert(0, str(Path(__file__).parent))

from measure import service
from table import Bench

if TYPE_CHECKING:
    from collections.abc import Callable

    Words = list[list[str]]

HERE: Final = Path(__file__).parent
KEPT: Final = HERE / "calls.json"
ASKED: Final = (300, 1300)
IN_PROCESS: Final = (4000, 14_000)
ATTACKED: Final = (60, 160)
BUDGET: Final = 16
GROWTH: Final = 1.03
"""By how much a count may grow before the test fails: event loops are not quite deterministic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A kind of work that is counted at two sizes.

    Attributes:
        sizes: Samples of the smaller and of the larger run.
        commands: Command lines of one size; the calls of the last one are counted.
    """

    sizes: tuple[int, int]
    commands: Callable[[Bench, ExitStack, int], Words]


def _w1(bench: Bench, stack: ExitStack, count: int) -> Words:
    url = stack.enter_context(service(0))
    return [bench.run(bench.http(count, url))[1:]]


def _guard_model(bench: Bench, stack: ExitStack, count: int) -> Words:
    url = stack.enter_context(service(0, "guard"))
    return [bench.run(bench.guard_model(count, url))[1:]]


def _in_process(bench: Bench, _: ExitStack, count: int) -> Words:
    return [bench.run(bench.pattern(count))[1:]]


def _pipeline(bench: Bench, stack: ExitStack, count: int) -> Words:
    guard, model, judge = (
        stack.enter_context(service(0, kind)) for kind in ("check", "chat", "judge")
    )
    return [bench.run(bench.pipeline(count, guard=guard, model=model, judge=judge))[1:]]


def _adapt(bench: Bench, _: ExitStack, count: int) -> Words:
    blocking: dict[str, object] = {"type": "pattern", "patterns": [".*"], "flags": ["S"]}
    run = bench.run(bench.config(f"adapt-{count}", bench.data(count), blocking))[1:]
    return [run, ["adapt", run[-1], "--budget", str(BUDGET)]]


WORKS: Final = {
    "w1": Work(sizes=ASKED, commands=_w1),
    "guard_model": Work(sizes=ASKED, commands=_guard_model),
    "in_process": Work(sizes=IN_PROCESS, commands=_in_process),
    "pipeline": Work(sizes=ASKED, commands=_pipeline),
    "adapt": Work(sizes=ATTACKED, commands=_adapt),
}


def count_calls(name: str) -> float:
    """Count the calls per sample of a kind of work."""
    work = WORKS[name]
    counts = []
    for size in work.sizes:
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            bench = Bench(Path(folder), 1)
            for words in work.commands(bench, stack, size):
                calls = calls_of(words)
            counts.append(calls)
    return (counts[1] - counts[0]) / (work.sizes[1] - work.sizes[0])


def calls_of(words: list[str]) -> int:
    """Run a command under the profiler in a process of its own; return how many calls it made."""
    done = subprocess.run(
        [sys.executable, str(HERE / "counted.py"), *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )
    if done.returncode:
        raise SystemExit(f"guardmark {' '.join(words)} failed:\n{done.stderr[-2000:]}")
    return int(done.stderr.splitlines()[-1])


def read_kept() -> dict[str, float]:
    """Read the committed counts."""
    kept: dict[str, float] = json.loads(KEPT.read_text(encoding="utf-8"))
    return kept


def main() -> None:
    """Count every kind of work, print it beside the committed count, and keep it if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="replace bench/calls.json")
    parser.add_argument("names", nargs="*", help=f"of {', '.join(WORKS)}; all when none is named")
    chosen = parser.parse_args()
    kept = read_kept() if KEPT.exists() else {}
    found = dict(kept)
    print(f"{'calls per sample':<20}{'now':>10}{'committed':>12}")
    for name in chosen.names or WORKS:
        found[name] = round(count_calls(name), 1)
        print(f"{name:<20}{found[name]:>10,.1f}{kept.get(name, float('nan')):>12,.1f}")
    if chosen.write:
        KEPT.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
