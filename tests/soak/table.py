"""Draw every soak cell, write down what was seen, and tell it in docs/explanation/statistics.md.

`python -m tests.soak.table [--jobs N] [NAME ...]`: cells whose name begins so, or all. Exits with 1
where a promise is not kept.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterable, Sequence
from itertools import groupby
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from tests.soak import (
    test_amounts,
    test_coverage,
    test_crossed,
    test_decisions,
    test_double_sampling,
    test_figures,
    test_needed,
    test_plans,
    test_systems,
)
from tests.soak.cells import Shown, SoakCell

MEASURED: Final = Path(__file__).with_name("measured.csv")
PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "statistics.md"
BEGIN: Final = "<!-- table of make soak -->\n"
END: Final = "<!-- end of the table -->\n"
MANY: Final = 5
"""Of more settings than these in a row the page tells the one that came out worst."""
CELLS: Final[tuple[SoakCell, ...]] = (
    *test_coverage.CELLS,
    *test_figures.CELLS,
    *test_decisions.CELLS,
    *test_plans.CELLS,
    *test_needed.CELLS,
    *test_double_sampling.CELLS,
    *test_crossed.CELLS,
    *test_amounts.CELLS,
    *test_systems.CELLS,
)


def read() -> dict[tuple[str, str], Shown]:
    """Read what the last run has seen."""
    with MEASURED.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))[1:]
    shown = (Shown(*row[:3], float(row[3]), float(row[4]), int(row[5])) for row in rows)
    return {(each.figure, each.setting): each for each in shown}


def write(shown: Iterable[Shown]) -> None:
    """Write what was seen, and the table of the page."""
    kept = [e._replace(share=round(e.share, 4), error=round(e.error, 4)) for e in shown]
    with MEASURED.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(Shown._fields)
        lines.writerows(kept)
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    after = rest.split(END)[1]
    PAGE.write_text(before + BEGIN + table(kept) + END + after, encoding="utf-8")


def table(shown: Sequence[Shown]) -> str:
    """Write the table of the page."""
    lines = [
        "| what | setting | promised | seen | Monte Carlo error | runs |",
        "|---|---|---|--:|--:|--:|",
    ]
    for _, group in groupby(shown, key=lambda each: (each.figure, each.promised)):
        rows = list(group)
        if len(rows) > MANY:
            worst = (max if rows[0].promised.startswith("at most") else min)(
                rows, key=lambda each: each.share
            )
            setting = f"{len(rows)} settings, worst: {worst.setting}"
            rows = [worst._replace(setting=setting)]
        lines += [
            f"| {each.figure} | {each.setting} | {each.promised} | {each.share:.3f} "
            f"| {each.error:.3f} | {each.runs:,} |"
            for each in rows
        ]
    return "\n".join(lines) + "\n"


def _drawn(at: int) -> tuple[int, Shown]:
    return at, CELLS[at].draw()


def main() -> int:
    """Draw, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("names", nargs="*")
    asked = parser.parse_args()
    kept = read() if asked.names else {}
    wanted = [at for at, c in enumerate(CELLS) if c.name.startswith(tuple(asked.names) or "")]
    missed = 0
    with get_context("spawn").Pool(asked.jobs) as pool:
        for at, shown in pool.imap_unordered(_drawn, wanted):
            kept[shown.figure, shown.setting] = shown
            is_kept = CELLS[at].keeps(shown)
            missed += not is_kept
            told = f"{shown.share:.3f} +- {shown.error:.3f}, {shown.promised}"
            sys.stdout.write(f"{CELLS[at].name}: {told}{'' if is_kept else '  MISSED'}\n")
            sys.stdout.flush()
    write(kept[each.figure, each.setting] for each in CELLS)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
