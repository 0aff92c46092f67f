"""How much of each room the tests reach: every branch of core, stats and analysis.

    python scripts/branches.py [--elsewhere PERCENT]

Reads what `coverage run` left in `build/coverage`, the command lines that tests start among it, and
ends with 1 where a room reaches less than it must; with `--elsewhere` every other room must reach
that share. What is left in rooms that must be reached whole is named by line. A file that no test
imports counts as not reached. Run by `make coverage`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import coverage

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "guardmark"
LEAST = {"core": 100.0, "stats": 100.0, "analysis": 100.0, "app/verify": 95.0}
"""Rooms, and the percentage of lines and of branches that the tests reach at least."""
NEED_EXTRAS = ("engine/execution/cluster.py", "engine/execution/actors.py", "inference/")
"""Files whose tests need torch or Ray, and run in jobs of their own (`make hf`, `make ray`)."""


def measured() -> dict[str, dict[str, Any]]:
    """Return what coverage says of each file, by its name within the package."""
    whole = coverage.Coverage(config_file=str(ROOT / "pyproject.toml"), data_suffix=False)
    whole.combine(keep=True)
    whole.save()
    report = ROOT / "build" / "coverage" / "report.json"
    files = [str(path) for path in sorted(PACKAGE.rglob("*.py"))]
    whole.json_report(morfs=files, outfile=str(report))
    found = json.loads(report.read_text(encoding="utf-8"))["files"]
    return {Path(name).resolve().relative_to(PACKAGE).as_posix(): of for name, of in found.items()}


def room_of(name: str) -> str:
    """Return the room of a file: a part of `app` that has a figure of its own, or the package."""
    room = next((room for room in LEAST if name.startswith(f"{room}/")), name.partition("/")[0])
    return room if "/" in name else "(door)"


def main() -> None:
    """Print a line for each room, and what is missing where nothing may."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--elsewhere", type=float, default=0.0, help="least of every other room")
    options = parser.parse_args()
    counts: dict[str, Counter[str]] = {}
    missing = []
    for name, of in measured().items():
        if name.startswith(NEED_EXTRAS):
            continue
        summary, room = of["summary"], room_of(name)
        keys = ("num_statements", "covered_lines", "num_branches", "covered_branches")
        counts.setdefault(room, Counter()).update({key: summary[key] for key in keys})
        if LEAST.get(room) == 100.0:
            missing += [f"  {name}:{line}" for line in of["missing_lines"]]
            missing += [f"  {name}:{line} -> {to}" for line, to in of["missing_branches"]]
    too_low = []
    print(f"{'room':<12}{'lines':>8}{'reached':>9}{'branches':>10}{'reached':>9}")
    for room, count in sorted(counts.items()):
        lines = _share(count["covered_lines"], count["num_statements"])
        branches = _share(count["covered_branches"], count["num_branches"])
        print(
            f"{room:<12}{count['num_statements']:>8,}{lines:>8.2f}%"
            f"{count['num_branches']:>10,}{branches:>8.2f}%"
        )
        if min(lines, branches) < LEAST.get(room, options.elsewhere):
            too_low.append(room)
    print(*missing, sep="\n")
    if too_low:
        sys.exit(f"Too little is reached in {', '.join(too_low)}.")


def _share(reached: int, of: int) -> float:
    return 100 * reached / of if of else 100.0


if __name__ == "__main__":
    main()
