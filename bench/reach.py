"""What a sample costs today beside what is wanted, and the floors of the same rounds: `reach`."""

from __future__ import annotations

import re
import sys
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import calls
from measure import command, floor, middle, ratio, rounds, service, spend
from table import Line, absolute, absolute_beside

if TYPE_CHECKING:
    from pathlib import Path

    from table import Bench

IN_FLIGHT = 64
LITTLE, MUCH = 500, 3000
REPORT_S = 3.0
"""20 % less than the 3.7 s of the same machine on 26 November 2026."""
EVERY_REPORT = ("html", "md", "json", "csv")
CLIENTS = {
    "aiohttp": "aiohttp_client",
    "aiohttp, uvloop": "aiohttp_uvloop",
    "pyreqwest, uvloop": "pyreqwest_uvloop",
    "asyncio streams": "streams",
}


def reach(bench: Bench) -> list[Line]:
    """Measure every figure that a sample's cost is judged by."""
    return [
        *_over_http(bench),
        *_whole_commands(bench),
        *_in_process(bench),
        *_report(bench),
        *_counts(),
        absolute("COST", "installation", installed_mb(), "MB", 135),
    ]


def _over_http(bench: Bench) -> list[Line]:
    """CPU per extra sample over a service without delay, beside bare clients."""
    sizes = bench.size(LITTLE), bench.size(MUCH)
    with service(0) as url:

        def slope(make: Any) -> float:
            little, much = (spend(make(size)).cpu_s for size in sizes)
            return (much - little) / (sizes[1] - sizes[0]) * 1e6

        def ours(size: int) -> list[str]:
            return bench.run(bench.http(size, url))

        def bare(name: str, size: int) -> list[str]:
            out = bench.folder / "latencies.json"
            return floor(name, bench.data(size), url, IN_FLIGHT, out)

        parts = {"guardmark": partial(slope, ours)}
        for what, name in CLIENTS.items():
            if find_spec(what.split(",")[0].split(" ")[0]):
                parts[what] = partial(slope, partial(bare, name))
        found = rounds(bench.count, parts)
    lines = [
        Line(
            target="COST",
            what="W1, CPU per extra sample",
            floor=middle(found, "aiohttp"),
            guardmark=middle(found, "guardmark"),
            unit="us",
            ratio=ratio(found, "guardmark", "aiohttp"),
            wanted="<= 1.0 x",
            is_met=ratio(found, "guardmark", "aiohttp") <= 1.0,
        )
    ]
    lines += [
        Line(
            target="BARE",
            what=f"bare {name}, CPU per extra sample",
            floor=middle(found, "aiohttp"),
            guardmark=middle(found, name),
            unit="us",
            ratio=ratio(found, name, "aiohttp"),
            wanted="-",
            is_met=True,
        )
        for name in parts
        if name != "guardmark"
    ]
    return lines


def _whole_commands(bench: Bench) -> list[Line]:
    with service(0) as url:
        found = rounds(
            bench.count,
            {
                "over HTTP": lambda: spend(bench.run(bench.http(100, url))).cpu_s,
                "in process": lambda: (
                    spend(bench.run(bench.pattern(100, reports=("html", "md", "json")))).cpu_s
                ),
                "help": lambda: spend(command("--help")).cpu_s,
                "libraries": lambda: spend(floor("libraries")).cpu_s,
                "libraries, HTTP": lambda: spend(floor("libraries", "aiohttp", "uvloop")).cpu_s,
                "click": lambda: spend([sys.executable, "-c", "import click"]).cpu_s,
            },
        )
    return [
        absolute_beside(
            "COST",
            "100 samples over HTTP",
            found,
            names=("over HTTP", "libraries, HTTP"),
            wanted=0.40,
        ),
        absolute_beside(
            "COST",
            "100 samples in process",
            found,
            names=("in process", "libraries"),
            wanted=0.35,
        ),
        absolute_beside("COST", "guardmark --help", found, names=("help", "click"), wanted=0.04),
    ]


def _in_process(bench: Bench) -> list[Line]:
    small, large = bench.size(10_000), bench.size(100_000)
    memory = []

    def slope() -> float:
        little = spend(bench.run(bench.pattern(small, reports=EVERY_REPORT)))
        much = spend(bench.run(bench.pattern(large, reports=EVERY_REPORT)))
        memory.append(much.memory_mb)
        return (much.cpu_s - little.cpu_s) / (large - small) * 1e6

    def bare() -> float:
        costs = []
        for size in (small, large):
            out = bench.fresh("bare")
            costs.append(spend(floor("in_process", bench.data(size), out)).cpu_s)
        return (costs[1] - costs[0]) / (large - small) * 1e6

    found = rounds(bench.count, {"slope": slope, "bare": bare})
    most = sorted(memory)[len(memory) // 2]
    return [
        absolute_beside(
            "COST",
            "in process, every report",
            found,
            names=("slope", "bare"),
            unit="us/sample",
            wanted=12,
        ),
        absolute("COST", "memory of 100,000 in process", most, "MB", 80),
    ]


def _report(bench: Bench) -> list[Line]:
    """A report over a million records that are stored already."""
    config = bench.pattern(bench.size(1_000_000))
    words = bench.run(config)
    spend(words)
    cost = spend(command("report", words[-1], "-f", ",".join(EVERY_REPORT)))
    return [absolute("COST", "report over 1,000,000 records", cost.cpu_s, "s CPU", REPORT_S)]


def _counts() -> list[Line]:
    kept = calls.read_kept()
    return [
        absolute(
            "COST", f"calls, {name}", calls.count_calls(name), "a sample", calls.GROWTH * limit
        )
        for name, limit in kept.items()
    ]


def installed_mb() -> float:
    """Sum the files of guardmark's dependencies, and of theirs, as they are installed here."""
    sizes: dict[str, int] = {}
    waiting = ["guardmark"]
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in sizes:
            continue
        try:
            package = distribution(name)
        except PackageNotFoundError:
            continue
        sizes[name] = sum(_size(package.locate_file(file)) for file in package.files or ())
        needed = [line for line in package.requires or () if "extra ==" not in line]
        waiting += [re.split(r"[^A-Za-z0-9_.-]", line, maxsplit=1)[0] for line in needed]
    return sum(sizes.values()) / 1e6


def _size(path: Any) -> int:
    file: Path = path
    return file.stat().st_size if file.is_file() else 0


if __name__ == "__main__":
    sys.stdout.write(f"{installed_mb():.0f} MB\n")
