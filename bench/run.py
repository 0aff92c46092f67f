"""Measure guardmark against the floors and print one table.

`python bench/run.py [--rounds N] [T6 T7 T8 T11 WIRE MILLION]`; all parts when none is named.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import data
import figures
from measure import command, floor, middle, ratio, rounds, service, spend, stats, subject

RESULTS = Path(__file__).parent / "results"
PATTERN = r"\b(ignore|disregard|forget)\b.{0,40}\b(previous|prior|above|earlier|all)\b"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of the table.

    Attributes:
        target: Which target of the performance page.
        what: What was measured.
        floor: The floor, or None where the target is an absolute figure.
        guardmark: guardmark's figure.
        unit: Of both.
        ratio: guardmark's figure to the floor; the median over rounds.
        wanted: The target.
        is_met: Whether it is reached.
    """

    target: str
    what: str
    floor: float | None
    guardmark: float
    unit: str
    ratio: float | None
    wanted: str
    is_met: bool


class Bench:
    """A working folder and the number of rounds."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder = folder
        self.count = count

    def data(self, count: int) -> Path:
        """Return made-up data of some size."""
        path = self.folder / f"data-{count}.jsonl"
        return path if path.exists() else data.write(path, count)

    def fresh(self, name: str) -> Path:
        """Return an empty folder."""
        path = self.folder / name
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        return path

    def config(self, name: str, source: Path, defense: dict[str, object], **more: object) -> Path:
        """Write a configuration (JSON is YAML)."""
        said = {
            "version": 1,
            "name": name,
            "data": [{"path": str(source)}],
            "defenses": {"guard": defense},
            "report": ["json"],
            **more,
        }
        path = self.folder / f"{name}.yaml"
        path.write_text(json.dumps(said), encoding="utf-8")
        return path

    def pattern(self, count: int) -> Path:
        """Write the configuration of one regular expression."""
        defense = {"type": "pattern", "patterns": [PATTERN], "flags": ["I", "S"]}
        return self.config(f"pattern-{count}", self.data(count), defense)

    def http(self, count: int, url: str) -> Path:
        """Write the configuration of an HTTP service, 64 in flight."""
        defense: dict[str, object] = {
            "type": "http",
            "url": f"{url}/check",
            "body": {"input": {"$input": "text"}},
            "blocked": "$.flagged",
            "score": "$.score",
        }
        return self.config(
            f"http-{count}",
            self.data(count),
            defense,
            run={"concurrency": 64},
            latency={"warmup": 64},
        )

    def run(self, config: Path) -> list[str]:
        """Return the command that runs a configuration into an empty folder."""
        return command("run", config, "-o", self.fresh(f"out-{config.stem}") / "run")


def t6(bench: Bench) -> list[Line]:
    """In-process regex: CPU per extra sample, everything stored and exported."""
    small, large = 10_000, 100_000

    def slope(make: object, *, is_run: bool = False) -> float:
        costs = []
        for count in (small, large):
            out = bench.fresh(f"out-{count}")
            line = bench.run(bench.pattern(count)) if is_run else make(bench.data(count), out)  # type: ignore[operator]
            costs.append(spend(line).cpu_s)
        return (costs[1] - costs[0]) / (large - small) * 1e6

    found = rounds(
        bench.count,
        {
            "floor": lambda: slope(lambda source, out: floor("in_process", source, out)),
            "alone": lambda: slope(lambda source, _: floor("regex_only", source)),
            "engine": lambda: slope(lambda source, out: subject("in_process", source, out)),
            "run": lambda: slope(None, is_run=True),
        },
    )
    base = middle(found, "floor")
    beside = middle(found, "engine") - middle(found, "alone")
    lines = [
        Line(
            target="T6",
            what=what,
            floor=base,
            guardmark=middle(found, name),
            unit="us/sample",
            ratio=ratio(found, name, "floor"),
            wanted="<= 1.75 x",
            is_met=ratio(found, name, "floor") <= 1.75,
        )
        for name, what in (("engine", "store, engine, results.jsonl"), ("run", "guardmark run"))
    ]
    return [*lines, _absolute("T6", "beside json and regex", beside, "us/sample", 20.0)]


def t8(bench: Bench) -> list[Line]:
    """Start-up: CPU of whole commands."""
    config = bench.pattern(100)
    found = rounds(
        bench.count,
        {
            "--help": lambda: spend(command("--help")).cpu_s,
            "run --help": lambda: spend(command("run", "--help")).cpu_s,
            "check": lambda: spend(command("check", config)).cpu_s,
            "run, 100 samples": lambda: spend(bench.run(config)).cpu_s,
        },
    )
    wanted = {"--help": 0.15, "run --help": 0.20, "check": 0.30, "run, 100 samples": 0.6}
    return [_absolute("T8", name, middle(found, name), "s CPU", wanted[name]) for name in found]


def t11(bench: Bench) -> list[Line]:
    """Continue over a stored run, and read it again, against a json.loads loop."""
    source, out = bench.data(100_000), bench.fresh("stored")
    spend(subject("in_process", source, out))
    empty = bench.data(100)
    spend(subject("in_process", empty, bench.fresh("stored-small")))
    small = bench.folder / "stored-small"
    found = rounds(
        bench.count,
        {
            "data": lambda: spend(floor("json_loop", source)).cpu_s,
            "data-small": lambda: spend(floor("json_loop", empty)).cpu_s,
            "results": lambda: spend(floor("json_loop", out / "results.jsonl")).cpu_s,
            "continue": lambda: spend(subject("continue_run", source, out)).cpu_s,
            "continue-small": lambda: spend(subject("continue_run", empty, small)).cpu_s,
            "rescore": lambda: spend(subject("rescore", out)).cpu_s,
            "rescore-small": lambda: spend(subject("rescore", small)).cpu_s,
        },
    )

    def extra(name: str, less: str) -> list[float]:
        return [a - b for a, b in zip(found[name], found[less], strict=True)]

    found["data"], found["results"] = extra("data", "data-small"), extra("results", "data-small")
    found["continue"] = extra("continue", "continue-small")
    found["rescore"] = extra("rescore", "rescore-small")
    return [
        _relative("T11", "continue over 100,000", found, names=("continue", "data"), wanted=1.5),
        _relative("T11", "read 100,000 again", found, names=("rescore", "results"), wanted=1.0),
    ]


def t7(bench: Bench) -> list[Line]:
    """The figures of a million results in columns."""
    tries = [figures.measure() for _ in range(bench.count)]
    found = {name: [each[name] for each in tries] for name in tries[0]}
    lines = [
        _relative("T7", "1,000,000 results", found, names=("plain", "floor"), wanted=3.0),
    ]
    for name, what, wanted in (
        ("groups", "the same, 200,000 groups", 0.6),
        ("bootstrap", "F1 over 200,000 groups, 2,000 x", 0.5),
        ("columns", "1,000,000 records to columns", 1.5),
    ):
        lines.append(_absolute("T7", what, middle(found, name), "s CPU", wanted))
    return lines


def _relative(
    target: str,
    what: str,
    found: dict[str, list[float]],
    *,
    names: tuple[str, str],
    wanted: float,
    unit: str = "s CPU",
) -> Line:
    name, base = names
    value = ratio(found, name, base)
    return Line(
        target=target,
        what=what,
        floor=middle(found, base),
        guardmark=middle(found, name),
        unit=unit,
        ratio=value,
        wanted=f"<= {wanted:g} x",
        is_met=value <= wanted,
    )


def _absolute(  # noqa: PLR0917 - a table's line, read as one
    target: str, what: str, value: float, unit: str, wanted: float
) -> Line:
    return Line(
        target=target,
        what=what,
        floor=None,
        guardmark=value,
        unit=unit,
        ratio=None,
        wanted=f"<= {wanted:g}",
        is_met=value <= wanted,
    )


def wire(bench: Bench) -> list[Line]:
    """T1 to T5 and T9: an HTTP service that takes 50 ms, 64 in flight."""
    small, large = 500, 3000
    seen: dict[str, list[float]] = {
        "floor": [], "cpu": [], "wall": [], "whole": [], "in flight": [], "memory": [],
        "growth": [], "first": [], "connections": [], "p50": [], "p99": [],
    }  # fmt: skip
    with service(50) as url:
        for _ in range(bench.count):
            bare = [
                spend(floor("aiohttp_client", bench.data(count), url, 64)).cpu_s
                for count in (small, large)
            ]
            stats(url)
            little = spend(bench.run(bench.http(small, url)))
            stats(url)
            much = spend(bench.run(bench.http(large, url)))
            counts = stats(url)
            ideal = -(-large // 64) * 0.05
            middle_ms, late_ms = latencies(bench.folder / f"out-http-{large}" / "run")
            seen["p50"].append(middle_ms - 50)
            seen["p99"].append(late_ms - 50)
            seen["first"].append(counts["first"] - much.began)
            seen["floor"].append((bare[1] - bare[0]) / (large - small) * 1e3)
            seen["cpu"].append((much.cpu_s - little.cpu_s) / (large - small) * 1e3)
            seen["wall"].append(counts["span_s"] / ideal)
            seen["whole"].append(much.wall_s / ideal)
            seen["in flight"].append(counts["mean_in_flight"])
            seen["connections"].append(counts["connections"])
            seen["memory"].append(much.memory_mb)
            seen["growth"].append((much.memory_mb - little.memory_mb) / (large - small) * 1024)
    flight = middle(seen, "in flight")
    return [
        _relative(
            "T1", "API, per extra sample", seen,
            names=("cpu", "floor"), wanted=1.5, unit="ms CPU",
        ),
        _absolute("T2", "first request to last answer", middle(seen, "wall"), "x ideal", 1.25),
        _absolute("T2", "whole process", middle(seen, "whole"), "x ideal", 1.40),
        _absolute("T3", "p50 less the service's time, loaded", middle(seen, "p50"), "ms", 5),
        _absolute("T3", "p99 less the service's time, loaded", middle(seen, "p99"), "ms", 20),
        _absolute("T4", "connections", middle(seen, "connections"), "", 64),
        Line(
            target="T4", what="mean in flight of 64", floor=None, guardmark=flight, unit="",
            ratio=None, wanted=">= 58", is_met=flight >= 58,
        ),
        _absolute("T5", "memory, 3,000 API samples", middle(seen, "memory"), "MB", 90),
        _absolute("T5", "growth", middle(seen, "growth"), "kB/sample", 0.2),
        _absolute("T9", "start to first request, wall", middle(seen, "first"), "s", 0.4),
    ]  # fmt: skip


def latencies(folder: Path) -> tuple[float, float]:
    """Return the median and the 99th percentile of a run's latencies, cold calls apart."""
    from guardmark.store.codes import FLAG_COLD
    from guardmark.store.columns import record_columns
    from guardmark.store.records import RecordReader

    with RecordReader(folder / "records.sqlite") as reader:
        columns = record_columns(reader, "guard")
    warm = sorted(columns.latency_ns[(columns.flags & FLAG_COLD) == 0].tolist())
    return warm[len(warm) // 2] / 1e6, warm[len(warm) * 99 // 100] / 1e6


def million(bench: Bench) -> list[Line]:
    """T5: a million in-process samples, streamed."""
    cost = spend(subject("in_process", bench.data(1_000_000), bench.fresh("million")))
    return [_absolute("T5", "memory, 1,000,000 in-process", cost.memory_mb, "MB", 250)]


PARTS = {"T6": t6, "T7": t7, "T8": t8, "T11": t11, "WIRE": wire, "MILLION": million}


def show(lines: list[Line]) -> None:
    """Print the table."""
    print(f"{'':5}{'':37}{'floor':>10}{'guardmark':>11}  {'unit':11}{'ratio':>7}  target")
    for line in lines:
        base = "" if line.floor is None else f"{line.floor:.3g}"
        share = "" if line.ratio is None else f"{line.ratio:.2f}"
        mark = "met" if line.is_met else "MISSED"
        print(
            f"{line.target:5}{line.what:37}{base:>10}{line.guardmark:>11.3g}  {line.unit:11}"
            f"{share:>7}  {line.wanted} {mark}"
        )


def main() -> None:
    """Measure what was asked for, print it, and keep it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all when none is named")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), chosen.rounds)
        lines = [line for name in chosen.parts or PARTS for line in PARTS[name.upper()](bench)]
    show(lines)
    RESULTS.mkdir(exist_ok=True)
    machine = {"python": platform.python_version(), "machine": platform.machine()}
    said = {**machine, "rounds": chosen.rounds, "lines": [asdict(line) for line in lines]}
    (RESULTS / "bench.json").write_text(json.dumps(said, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
