"""Measure guardmark against the floors and print one table.

`python bench/run.py [--rounds N] [--shrink N] [--write] [PART...]`; all parts when none is named.
Beside each ratio stands the one that was last committed (`bench/ratios.json`, kept by `--write`).
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from random import Random
from statistics import median

sys.path.insert(0, str(Path(__file__).parent))

import figures
import local
import processes
from measure import command, floor, middle, ratio, rounds, spend, subject
from reach import reach
from services import isolated, pipeline, routing, wire
from table import Bench, Line, absolute, head, keep, read_kept, relative, show

RESULTS = Path(__file__).parent / "results"
EVERY_REPORT = ("html", "md", "json", "csv")
COMMANDS = 6_400  # samples that a process is asked about
NUMPY_S = 0.11  # importing numpy on the machine of the targets, CPU seconds
FOLDINGS, FOLDING_S = 400, 0.44
"""Foldings of 1,000 texts, and CPU seconds they take on that machine: an estimate, as in
`attacks.FLOOR_US`."""


def t6(bench: Bench) -> list[Line]:
    """In-process regex: CPU per extra sample, everything stored and exported."""
    small, large = bench.size(10_000), bench.size(100_000)

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
    return [*lines, absolute("T6", "beside json and regex", beside, "us/sample", 20.0)]


def t8(bench: Bench) -> list[Line]:
    """Start-up: CPU of whole commands, beside a process that imports numpy.

    The targets are seconds of a machine on which that import takes `NUMPY_S`; a slower machine,
    or a slower hour of the same, is measured by its own import in the same rounds.
    """
    config, every = bench.pattern(100), bench.pattern(100, reports=EVERY_REPORT)
    found = rounds(
        bench.count,
        {
            "numpy": lambda: spend([sys.executable, "-c", "import numpy"]).cpu_s,
            "--help": lambda: spend(command("--help")).cpu_s,
            "run --help": lambda: spend(command("run", "--help")).cpu_s,
            "check": lambda: spend(command("check", config)).cpu_s,
            "run, 100 samples": lambda: spend(bench.run(config)).cpu_s,
            "the same, every report": lambda: spend(bench.run(every)).cpu_s,
        },
    )
    wanted = {
        "--help": 0.15,
        "run --help": 0.20,
        "check": 0.30,
        "run, 100 samples": 0.6,
        "the same, every report": 0.6,
    }
    return [
        relative("T8", name, found, names=(name, "numpy"), wanted=round(limit / NUMPY_S, 2))
        for name, limit in wanted.items()
    ]


def t11(bench: Bench) -> list[Line]:
    """Continue over a stored run, and read it again, against a json.loads loop."""
    source, out = bench.data(bench.size(100_000)), bench.fresh("stored")
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
        relative("T11", "continue over 100,000", found, names=("continue", "data"), wanted=1.5),
        relative("T11", "read 100,000 again", found, names=("rescore", "results"), wanted=1.0),
    ]


def t7(bench: Bench) -> list[Line]:
    """The figures of a million results in columns."""
    tries = [figures.measure() for _ in range(bench.count)]
    found = {name: [each[name] for each in tries] for name in tries[0]}
    lines = [
        relative("T7", "1,000,000 results", found, names=("plain", "floor"), wanted=3.0),
    ]
    for name, what, wanted in (
        ("groups", "the same, 200,000 groups", 0.6),
        ("bootstrap", "F1 over 200,000 groups, 2,000 x", 0.5),
        ("columns", "1,000,000 records to columns", 1.5),
    ):
        lines.append(absolute("T7", what, middle(found, name), "s CPU", wanted))
    return lines


def first_run(bench: Bench) -> list[Line]:
    """From the wheel to a finished report in an environment that knows nothing: wall time."""
    wheel = bench.fresh("wheel")
    spend([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(wheel)])
    folder = bench.fresh("newcomer")
    python = folder / "env" / "bin" / "python"
    try:
        made = spend([sys.executable, "-m", "venv", str(folder / "env")])
        install = [*map(str, (python, "-m", "pip", "install", "-q", *wheel.iterdir()))]
        put_in = spend([*install, "--disable-pip-version-check"])
    except SystemExit:
        print("T13 skipped: the package registry cannot be reached")
        return []
    shown = spend([str(python.parent / "guardmark"), "demo", "-o", str(folder / "run")])
    seconds = made.wall_s + put_in.wall_s + shown.wall_s
    return [absolute("T13", "pip install, then demo", seconds, "s", 60)]


def million(bench: Bench) -> list[Line]:
    """T5: a million in-process samples, streamed."""
    cost = spend(subject("in_process", bench.data(bench.size(1_000_000)), bench.fresh("million")))
    return [absolute("T5", "memory, 1,000,000 in-process", cost.memory_mb, "MB", 250)]


def attacks(bench: Bench) -> list[Line]:
    """T12: operators with their checks, and 500 attacks that nothing gets through, 64 tries each.

    Both stand beside a floor of the same rounds, whose cost on the machine of the targets turns
    20,000 a second and 20 seconds into ratios: a slow hour says nothing about either.
    """
    words = [sys.executable, str(Path(__file__).parent / "attacks.py"), "--json"]
    said = json.loads(subprocess.check_output(words))
    operators = Line(
        target="T12",
        what="attack operator with its check",
        floor=said["floor_us"],
        guardmark=1e6 / said["rate"],
        unit="us CPU",
        ratio=said["ratio"],
        wanted=f"<= {said['wanted']:g} x",
        is_met=said["ratio"] <= said["wanted"],
    )
    blocking: dict[str, object] = {"type": "pattern", "patterns": [".*"], "flags": ["S"]}
    source = bench.data(bench.size(1000))
    config = bench.config("adapt", source, blocking, report=list(EVERY_REPORT))

    def adapt() -> float:
        line = bench.run(config)
        spend(line)
        return spend(command("adapt", line[-1], "--budget", "64")).cpu_s

    found = rounds(
        bench.count,
        {
            "floor": lambda: spend(floor("folding", source, FOLDINGS)).cpu_s,
            "adapt": adapt,
        },
    )
    wanted = round(20 / FOLDING_S)
    what = "adapt, 500 attacks x 64, all blocked"
    return [operators, relative("T12", what, found, names=("adapt", "floor"), wanted=wanted)]


def t10(bench: Bench) -> list[Line]:
    """T10: local models in batches by length; nothing where torch is not installed."""
    if not local.is_possible():
        print("T10 skipped: torch not installed")
        return []
    found = local.measure(bench.count)
    lines = [
        relative("T10", what, found, names=names, wanted=0.7)
        for what, names in (
            ("classifier, batches to pipeline", ("batches", "pipeline")),
            ("classifier, batches to one by one", ("batches", "alone")),
            ("guard model, batches to one by one", ("guard batches", "guard alone")),
        )
    ]
    lines += [
        relative("T10", f"classifier, {name}", found, names=(name, "pipeline"), wanted=wanted)
        for name, wanted in (("onnx", 0.75), ("int8", 0.3))
        if name in found
    ]
    moved = max(found["difference"])
    return [*lines, absolute("T10", "largest difference of a score", moved, "", 1e-5)]


def commands(bench: Bench) -> list[Line]:
    """T14: a defense of type command with a worker that does next to nothing."""
    tries = [processes.measure(COMMANDS // bench.size(COMMANDS)) for _ in range(bench.count)]
    found = {name: [each[name] for each in tries] for name in tries[0]}
    return [
        absolute("T14", what, middle(found, name), "us CPU", wanted)
        for name, what, wanted in (
            ("batches", "a process of its own, batches of 64", 30.0),
            ("alone", "a process of its own, one by one", 90.0),
        )
    ]


def decided(bench: Bench) -> list[Line]:
    """T15: a report of thirty defenses from decisions that are stored already."""
    count, random = bench.size(5_000), Random(7)
    guards = {}
    for number in range(30):
        risk = (0.2 + number / 60, number / 300)  # of an attack, of a benign text: to be blocked
        rows = [
            f"s-{at:07d},{('allow', 'block')[random.random() < risk[at % 2 == 0]]}"
            for at in range(count)
        ]
        path = bench.folder / f"decisions-{number}.csv"
        path.write_text("\n".join(["id,decision", *rows]) + "\n", encoding="utf-8")
        guards[f"g{number:02d}"] = {"type": "decisions", "path": str(path)}
    config = bench.config("decided", bench.data(count), {}, defenses=guards, report=EVERY_REPORT)
    costs = [spend(bench.run(config)) for _ in range(bench.count)]
    what = "30 defenses x 5,000 from stored decisions, every report"
    return [
        absolute("T15", what, median(cost.cpu_s for cost in costs), "s CPU", 20.0),
        absolute("T15", what, median(cost.memory_mb for cost in costs), "MB", 400.0),
    ]


PARTS = {
    "REACH": reach,
    "T6": t6,
    "T7": t7,
    "T8": t8,
    "T10": t10,
    "T11": t11,
    "WIRE": wire,
    "ISOLATED": isolated,
    "ROUTES": routing,
    "W5": pipeline,
    "MILLION": million,
    "T12": attacks,
    "T13": first_run,
    "COMMAND": commands,
    "DECIDED": decided,
}


def main() -> None:
    """Measure what was asked for; print each part as it is done, and keep it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--shrink",
        type=int,
        default=1,
        help="divide the sizes of data by so much: shows that the bench runs, and measures nothing",
    )
    parser.add_argument(
        "--write", action="store_true", help="put what is measured into bench/ratios.json"
    )
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all when none is named")
    chosen = parser.parse_args()
    if chosen.write and chosen.shrink > 1:
        parser.error("--shrink measures nothing that is worth keeping: leave out --write")
    if unknown := [name for name in chosen.parts if name.upper() not in PARTS]:
        parser.error(f"no part is called {', '.join(unknown)}; there are {', '.join(PARTS)}")
    lines: list[Line] = []
    kept = read_kept()
    head()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), chosen.rounds, shrink=chosen.shrink)
        for name in chosen.parts or PARTS:
            found = PARTS[name.upper()](bench)
            for line in found:
                show(line, kept=kept)
            lines += found
            if chosen.shrink == 1:
                _keep(lines, rounds=chosen.rounds)
            if chosen.write:
                keep(found)


def _keep(lines: list[Line], *, rounds: int) -> None:
    RESULTS.mkdir(exist_ok=True)
    machine = {"python": platform.python_version(), "machine": platform.machine()}
    said = {**machine, "rounds": rounds, "lines": [asdict(line) for line in lines]}
    (RESULTS / "bench.json").write_text(json.dumps(said, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
