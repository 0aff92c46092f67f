"""Do the limits of differences of amounts hold, whose means are skewed and whose rows are crossed?

Amounts are drawn lognormal with effects of tasks, injections and crossings. One arm adds to the
other (a guard that is paid for), ends some of its cases (a guard that blocks early), does both, or
draws anew what a case takes (a model at a temperature).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from tests.soak.cells import Floats, Ints, Marks, SoakCell, holds
from tests.soak.test_crossed import (
    STEPS,
    WEIGHTS,
    Effects,
    Size,
    all_crossings,
    chance,
    draw_effects,
    intercept,
    some_crossings,
)

from guardmark.stats.paired.amounts import amounts_over_these, crossed_amounts
from guardmark.stats.time_series import autocorrelation_time

RUNS = 300
Draw = Callable[[np.random.Generator, int], Marks]


class Making(NamedTuple):
    """How two arms come to spend what they spend.

    Attributes:
        name: What the second arm does to the first.
        amounts: Effects on the logarithm of what a case takes.
        share: Share of the cases that are ended early, 0 for none.
        ends: Effects on the logit of that share.
    """

    name: str
    amounts: Effects
    share: float = 0.0
    ends: Effects = (0, 0, 0)

    @property
    def setting(self) -> str:
        """The making, spelled out."""
        told = f"{self.name}, effects {'/'.join(f'{each:g}' for each in self.amounts)}"
        if not self.share:
            return told
        return f"{told}, {self.share:.0%} ended with effects {'/'.join(map(str, self.ends))}"


class Drawn(NamedTuple):
    """Amounts of both arms in each crossing, and the mean differences that are true."""

    ours: Floats
    theirs: Floats
    over_these: float
    over_all: float


MAKINGS = (
    Making("adds", (0.5, 0.5, 0.5)),
    Making("adds", (1, 0, 0.5)),
    Making("adds", (0.3, 0.3, 1)),
    Making("adds", (0.8, 0.8, 0)),
    Making("adds, or not", (0, 0, 0), 0.05, (1, 1, 1)),
    Making("draws anew", (0.5, 0.5, 0.5)),
    Making("draws anew", (1, 1, 0)),
    Making("ends", (0.5, 0.5, 0.5), 0.05, (0, 0, 0)),
    Making("ends", (0.5, 0.5, 0.5), 0.1, (2, 4, 0)),
    Making("ends", (0.8, 0.3, 0.3), 0.3, (4, 2, 1)),
    Making("ends", (1, 0, 0.3), 0.1, (0, 8, 0)),
    Making("ends", (1, 0, 0.3), 0.6, (0, 8, 0)),
    Making("adds a tenth and ends", (0.5, 0.5, 0.5), 0.05, (1, 1, 1)),
    Making("adds a tenth and ends", (0.5, 0.5, 0.5), 0.1, (1, 1, 1)),
    Making("adds a tenth and ends", (0.8, 0.3, 0.3), 0.3, (2, 8, 0)),
)


def _normalized(logs: Floats, effects: Effects) -> Floats:
    """Turn effects into amounts whose mean over all tasks and injections is 1."""
    amounts: Floats = np.exp(logs - float(np.square(effects).sum()) / 2.0)
    return amounts


def draw_amounts(rng: np.random.Generator, size: Size, making: Making) -> Drawn:
    """Draw one run."""
    task, injection, cell = making.amounts
    strengths = injection * rng.standard_normal((1, size[1]))
    first = _normalized(strengths + draw_effects(rng, size, (task, 0, cell)), making.amounts)
    of_these = np.exp(strengths - injection**2 / 2.0)
    if making.name == "adds":
        return Drawn(first, np.zeros(size), float(of_these.mean()), 1.0)
    if making.name == "draws anew":
        again = _normalized(strengths + draw_effects(rng, size, (task, 0, cell)), making.amounts)
        return Drawn(first, again, 0.0, 0.0)
    ends = making.ends
    mean = intercept(making.share, float(np.hypot(np.hypot(*ends[:2]), ends[2])))
    shifts = ends[1] * rng.standard_normal((1, size[1]))
    within = float(np.hypot(ends[0], ends[2]))
    of_each = chance(mean + shifts[..., None] + within * STEPS) @ WEIGHTS
    logits = mean + shifts + draw_effects(rng, size, (ends[0], 0, ends[2]))
    is_ended = rng.random(size) < chance(logits)
    if making.name == "adds, or not":
        kept = 1.0 - of_each
        truth = float((of_these * kept).mean())
        return Drawn(first * ~is_ended, np.zeros(size), truth, 1.0 - making.share)
    added = 0.0
    if making.name == "adds a tenth and ends":
        added = 0.1
    return Drawn(
        first * (1.0 + added) - first * is_ended,
        first,
        float((of_these * (added - of_each)).mean()),
        added - making.share,
    )


def over_these(size: Size, making: Making) -> Draw:
    """Runs in which the limits over tasks like these, and these injections, hold."""

    def marks(rng: np.random.Generator, sets: int) -> Marks:
        tasks, injections = all_crossings(rng, size)
        for _ in range(sets):
            drawn = draw_amounts(rng, size, making)
            gap = amounts_over_these(
                drawn.ours[tasks, injections], drawn.theirs[tasks, injections], groups=tasks
            )
            yield holds(gap.low, drawn.over_these, gap.high)

    return marks


def over_all(
    size: Size,
    making: Making,
    crossings: Callable[[np.random.Generator, Size], tuple[Ints, Ints]] = all_crossings,
) -> Draw:
    """Runs in which the limits over tasks and injections like these hold."""

    def marks(rng: np.random.Generator, sets: int) -> Marks:
        for _ in range(sets):
            tasks, injections = crossings(rng, size)
            drawn = draw_amounts(rng, size, making)
            gap = crossed_amounts(
                drawn.ours[tasks, injections],
                drawn.theirs[tasks, injections],
                first=tasks,
                second=injections,
            )
            yield holds(gap.low, drawn.over_all, gap.high)

    return marks


def over_suites(sizes: tuple[Size, ...], making: Making) -> Draw:
    """Runs in which the limits over several suites hold."""

    def marks(rng: np.random.Generator, sets: int) -> Marks:
        grids = [all_crossings(rng, size) for size in sizes]
        first, second = (np.concatenate(column) for column in zip(*grids, strict=True))
        strata = np.repeat(np.arange(len(sizes)), [len(grid[0]) for grid in grids])
        for _ in range(sets):
            parts = [draw_amounts(rng, size, making) for size in sizes]
            ours = [part.ours[grid] for part, grid in zip(parts, grids, strict=True)]
            theirs = [part.theirs[grid] for part, grid in zip(parts, grids, strict=True)]
            gap = crossed_amounts(
                np.concatenate(ours),
                np.concatenate(theirs),
                first=first,
                second=second,
                strata=strata,
            )
            yield holds(gap.low, parts[0].over_all, gap.high)

    return marks


def in_spells(tasks: int, *, correlation: float) -> Draw:
    """Runs in which times hang together from call to call, and tell nothing of their tasks."""

    def marks(rng: np.random.Generator, sets: int) -> Marks:
        codes = np.repeat(np.arange(tasks), 6)
        for _ in range(sets):
            logs = np.empty(len(codes))
            last = rng.standard_normal()
            for at in range(len(codes)):
                last = correlation * last + np.sqrt(1 - correlation**2) * rng.standard_normal()
                logs[at] = 0.5 * last
            times = np.exp(logs - 0.125)
            gap = amounts_over_these(
                times,
                np.zeros(len(times)),
                groups=codes,
                autocorrelation=autocorrelation_time(times),
            )
            yield holds(gap.low, 1.0, gap.high)

    return marks


def _sized(size: Size) -> str:
    return f"{size[0]} tasks, {size[1]} injections"


OVER_THESE = [
    SoakCell(
        figure="difference of amounts over these injections, groups are tasks",
        setting=f"{_sized(size)}, {making.setting}",
        runs=RUNS,
        marks=over_these(size, making),
    )
    for size in ((10, 1), (20, 1), (100, 1), (10, 5), (16, 9), (20, 14), (40, 14))
    for making in MAKINGS
]
OVER_ALL = [
    SoakCell(
        figure="difference of amounts over crossed rows",
        setting=f"{_sized(size)}, {making.setting}",
        runs=RUNS,
        marks=over_all(size, making),
    )
    for size in ((10, 2), (21, 5), (10, 7), (20, 7), (10, 9), (20, 12), (40, 14), (100, 14))
    for making in MAKINGS
]
INCOMPLETE = [
    SoakCell(
        figure="difference of amounts over crossed rows, 30 % of the crossings lack",
        setting=f"{_sized(size)}, {making.setting}",
        runs=RUNS,
        marks=over_all(size, making, some_crossings),
    )
    for size in ((20, 12), (40, 14))
    for making in MAKINGS
]
OF_SUITES = [
    SoakCell(
        figure="difference of amounts over crossed rows of several suites",
        setting=f"{', '.join(f'{size[0]} x {size[1]}' for size in sizes)}, {making.setting}",
        runs=RUNS,
        marks=over_suites(sizes, making),
    )
    for sizes in (((16, 9), (20, 7), (21, 5)), ((20, 12), (16, 9)))
    for making in MAKINGS
]
IN_SPELLS = [
    SoakCell(
        figure="difference of times that hang together",
        setting=f"{tasks} tasks of 6 cases, correlation {correlation:g} from call to call",
        runs=RUNS,
        marks=in_spells(tasks, correlation=correlation),
        at_least=promised,
    )
    for tasks in (20, 60)
    for correlation, promised in ((0.3, 0.93), (0.6, 0.93), (0.9, 0.9))
]
CELLS = (*OVER_THESE, *OVER_ALL, *INCOMPLETE, *OF_SUITES, *IN_SPELLS)


@pytest.mark.parametrize(
    "cell",
    [OVER_THESE[4], OVER_THESE[13], OVER_ALL[-20], OVER_ALL[-5]],
    ids=lambda cell: cell.name,
)
def test_limits_of_amounts_hold_where_students_fail(cell: SoakCell) -> None:
    """Where one case of twenty is ended early, Student's limits hold the truth in half the runs."""
    assert cell.keeps(cell.draw(200))
