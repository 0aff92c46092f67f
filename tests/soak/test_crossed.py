"""Do the limits of crossed rows hold? Tasks and injections are drawn anew in each simulated run."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pytest
from tests.soak.cells import Floats, Ints, Marks, SoakCell, holds

from guardmark.stats.paired.crossed import crossed_difference
from guardmark.stats.rates.clustered import EffectiveCounts
from guardmark.stats.rates.crossed import crossed_rate, rate_over_these
from guardmark.stats.rates.selection import rate_of_chosen

Draw = Callable[[np.random.Generator, int], Marks]
Size = tuple[int, int]
Effects = tuple[float, float, float]
"""Standard deviations on the logit scale, of tasks, injections and crossings."""

SIZES: tuple[Size, ...] = ((16, 9), (20, 7), (21, 5), (40, 14))
RUNS = 300
RATES = (0.02, 0.05, 0.1, 0.3, 0.6)
EFFECTS: tuple[Effects, ...] = (
    (0, 0, 0),
    (0, 2, 0),
    (1, 1, 1),
    (2, 4, 0),
    (2, 4, 2),
    (1, 8, 2),
    (8, 1, 0),
    (4, 8, 4),
    (8, 8, 0),
)
SUITES: tuple[Size, ...] = ((16, 9), (20, 7), (21, 5))
STEPS = np.linspace(-8.0, 8.0, 2001)
WEIGHTS = np.exp(-(STEPS**2) / 2.0) / np.exp(-(STEPS**2) / 2.0).sum()


def chance(logits: Floats) -> Floats:
    """Bring logits to chances."""
    chances: Floats = 1.0 / (1.0 + np.exp(-np.clip(logits, -500.0, 500.0)))
    return chances


@functools.cache
def intercept(rate: float, spread: float) -> float:
    """Find the mean on the logit scale at which the rate over all levels is this one."""
    low, high = -60.0, 60.0
    for _ in range(60):
        middle = (low + high) / 2.0
        if float(chance(middle + spread * STEPS) @ WEIGHTS) < rate:
            low = middle
        else:
            high = middle
    return low


def draw_effects(rng: np.random.Generator, size: Size, effects: Effects) -> Floats:
    """Draw what levels and crossings add to the mean."""
    task, injection, cell = effects
    added: Floats = (
        task * rng.standard_normal((size[0], 1))
        + injection * rng.standard_normal((1, size[1]))
        + cell * rng.standard_normal(size)
    )
    return added


def draw_table(rng: np.random.Generator, size: Size, *, rate: float, effects: Effects) -> Floats:
    """Draw the chance of every crossing, its levels from all there may be."""
    mean = intercept(rate, float(np.hypot(np.hypot(*effects[:2]), effects[2])))
    return chance(mean + draw_effects(rng, size, effects))


def some_crossings(rng: np.random.Generator, size: Size) -> tuple[Ints, Ints]:
    """Draw crossings of which 30 % lack; each task meets between one injection and all."""
    while True:
        met = rng.random(size) < rng.beta(1.4, 0.6, (size[0], 1))
        met[np.arange(size[0]), rng.integers(0, size[1], size[0])] = True
        if met.any(axis=0).sum() > 1:
            tasks, injections = np.nonzero(met)
            return tasks, injections


def all_crossings(rng: np.random.Generator, size: Size) -> tuple[Ints, Ints]:
    """Return every crossing."""
    del rng
    tasks, injections = np.nonzero(np.ones(size))
    return tasks, injections


Crossings = Callable[[np.random.Generator, Size], tuple[Ints, Ints]]
Table = Callable[[np.random.Generator, Size, float], Floats]


def logistic(effects: Effects) -> Table:
    """Crossings of random effects on the logit scale."""

    def table(rng: np.random.Generator, size: Size, rate: float) -> Floats:
        return draw_table(rng, size, rate=rate, effects=effects)

    return table


def product(rng: np.random.Generator, size: Size, rate: float) -> Floats:
    """The strength of an injection times the weakness of a task, each Beta."""
    mean = float(np.sqrt(rate))
    shape = (0.7 * mean, 0.7 * (1.0 - mean))
    drawn: Floats = rng.beta(*shape, (size[0], 1)) * rng.beta(*shape, (1, size[1]))
    return drawn


def all_or_none(rng: np.random.Generator, size: Size, rate: float) -> Floats:
    """An injection works on 83 % of all tasks or on none."""
    works = rng.random((1, size[1])) < rate / 0.83
    drawn: Floats = np.where(works, 0.83, 0.0) * np.ones(size)
    return drawn


def crossed_rates(
    size: Size, *, rate: float, table: Table, crossings: Crossings = all_crossings
) -> Draw:
    """Runs in which the crossed limits hold the rate."""

    def marks(rng: np.random.Generator, sets: int) -> Marks:
        for _ in range(sets):
            tasks, injections = crossings(rng, size)
            hit = rng.random(len(tasks)) < table(rng, size, rate)[tasks, injections]
            estimate = crossed_rate(hit, first=tasks, second=injections)
            yield holds(estimate.low, rate, estimate.high)

    return marks


def rates_of_suites(rates: tuple[float, ...], *, effects: Effects) -> Draw:
    """Runs in which the limits over several suites hold the rate of all their rows."""

    def marks(rng: np.random.Generator, sets: int) -> Marks:
        grids = [all_crossings(rng, size) for size in SUITES]
        first, second = (np.concatenate(column) for column in zip(*grids, strict=True))
        counts = [len(grid[0]) for grid in grids]
        strata = np.repeat(np.arange(len(SUITES)), counts)
        truth = float(np.dot(rates, counts)) / sum(counts)
        for _ in range(sets):
            chances = np.concatenate(
                [
                    draw_table(rng, size, rate=rate, effects=effects)[grid]
                    for size, rate, grid in zip(SUITES, rates, grids, strict=True)
                ]
            )
            hit = rng.random(len(chances)) < chances
            estimate = crossed_rate(hit, first=first, second=second, strata=strata)
            yield holds(estimate.low, truth, estimate.high)

    return marks


def these_injections(size: Size, *, rate: float, effects: Effects) -> Draw:
    """Runs in which the limits over these injections hold their own rate over all tasks."""

    def marks(rng: np.random.Generator, sets: int) -> Marks:
        tasks, injections = all_crossings(rng, size)
        task, injection, cell = effects
        mean = intercept(rate, float(np.hypot(np.hypot(task, injection), cell)))
        within = float(np.hypot(task, cell))
        for _ in range(sets):
            strengths = mean + injection * rng.standard_normal((1, size[1]))
            truth = float(np.mean(chance(strengths.T + within * STEPS) @ WEIGHTS))
            others = draw_effects(rng, size, (task, 0.0, cell))
            hit = rng.random(len(tasks)) < chance(strengths + others)[tasks, injections]
            estimate = rate_over_these(hit, groups=tasks)
            yield holds(estimate.low, truth, estimate.high)

    return marks


def like_arms(size: Size, *, rate: float, effects: Effects, shared: float) -> Draw:
    """Runs in which two arms of one rate, which share a part of what stops them, are told apart."""

    def marks(rng: np.random.Generator, sets: int) -> Marks:
        tasks, injections = all_crossings(rng, size)
        mean = intercept(rate, float(np.hypot(np.hypot(*effects[:2]), effects[2])))
        for _ in range(sets):
            common = draw_effects(rng, size, effects) * np.sqrt(shared)
            arms = []
            for _ in range(2):
                own = draw_effects(rng, size, effects) * np.sqrt(1.0 - shared)
                arms.append(rng.random(len(tasks)) < chance(mean + common + own)[tasks, injections])
            one, other = arms
            gap = crossed_difference(one & ~other, other & ~one, first=tasks, second=injections)
            yield not holds(gap.low, 0.0, gap.high)

    return marks


def lowest_arm(arms: int, size: Size, *, rate: float, effects: Effects, shared: float) -> Draw:
    """Runs in which the limits of the lowest of alike arms hold their rate."""

    def marks(rng: np.random.Generator, sets: int) -> Marks:
        tasks, injections = all_crossings(rng, size)
        mean = intercept(rate, float(np.hypot(np.hypot(*effects[:2]), effects[2])))
        for _ in range(sets):
            common = draw_effects(rng, size, effects) * np.sqrt(shared)
            rates = []
            for _ in range(arms):
                own = draw_effects(rng, size, effects) * np.sqrt(1.0 - shared)
                hit = rng.random(len(tasks)) < chance(mean + common + own)[tasks, injections]
                rates.append(crossed_rate(hit, first=tasks, second=injections))
            chosen = rate_of_chosen(
                [EffectiveCounts.of(each) for each in rates],
                at=min(range(arms), key=lambda at: rates[at].successes),
                is_lowest=True,
                shares_samples=True,
            )
            yield chosen is not None and holds(chosen.rate.low, rate, chosen.rate.high)

    return marks


def unlike_arms(size: Size, *, rate: float, effects: tuple[Effects, Effects]) -> Draw:
    """Runs in which arms of one rate are told apart that lose other things (whole levels, rows)."""

    def marks(rng: np.random.Generator, sets: int) -> Marks:
        tasks, injections = all_crossings(rng, size)
        for _ in range(sets):
            one, other = (
                rng.random(len(tasks))
                < draw_table(rng, size, rate=rate, effects=each)[tasks, injections]
                for each in effects
            )
            gap = crossed_difference(one & ~other, other & ~one, first=tasks, second=injections)
            yield not holds(gap.low, 0.0, gap.high)

    return marks


def better_arms(size: Size, *, rates: tuple[float, float], effects: Effects) -> Draw:
    """Runs in which the limits hold the difference to an arm that stops a part of what got by."""

    def marks(rng: np.random.Generator, sets: int) -> Marks:
        tasks, injections = all_crossings(rng, size)
        for _ in range(sets):
            bare = (
                rng.random(len(tasks))
                < draw_table(rng, size, rate=rates[0], effects=effects)[tasks, injections]
            )
            passed = draw_table(rng, size, rate=rates[1] / rates[0], effects=effects)
            guarded = bare & (rng.random(len(tasks)) < passed[tasks, injections])
            gap = crossed_difference(
                bare & ~guarded, guarded & ~bare, first=tasks, second=injections
            )
            yield holds(gap.low, rates[0] - rates[1], gap.high)

    return marks


def _named(size: Size, rate: float, effects: Effects) -> str:
    return (
        f"{size[0]} tasks, {size[1]} injections, rate {rate:g}, "
        f"effects {effects[0]:g}, {effects[1]:g} and {effects[2]:g}"
    )


GRID = [
    SoakCell(
        figure="rate of crossed rows",
        setting=_named(size, rate, effects),
        runs=RUNS,
        marks=crossed_rates(size, rate=rate, table=logistic(effects)),
    )
    for size in (*SIZES, (12, 30), (60, 20))
    for rate in RATES
    for effects in EFFECTS
]
INCOMPLETE = [
    SoakCell(
        figure="rate of crossed rows, 30 % of the crossings lack",
        setting=_named(size, rate, effects),
        runs=RUNS,
        marks=crossed_rates(size, rate=rate, table=logistic(effects), crossings=some_crossings),
    )
    for size in SIZES
    for rate in RATES
    for effects in EFFECTS
]
OTHER_MAKINGS = [
    SoakCell(
        figure=f"rate of crossed rows, {name}",
        setting=f"{size[0]} tasks, {size[1]} injections, rate {rate:g}",
        runs=RUNS,
        marks=crossed_rates(size, rate=rate, table=table),
        at_least=promised,
    )
    for name, table, promised in (
        ("product of Beta strengths", product, 0.93),
        ("an injection works on 83 % of all tasks or on none", all_or_none, 0.9),
    )
    for size in SIZES
    for rate in RATES
]
OF_SUITES = [
    SoakCell(
        figure="rate of crossed rows of three suites",
        setting=f"rates {', '.join(f'{each:g}' for each in rates)}, effects {effects}",
        runs=RUNS,
        marks=rates_of_suites(rates, effects=effects),
    )
    for rates in ((0.1, 0.1, 0.1), (0.01, 0.2, 0.05), (0.5, 0.02, 0.001), (0.6, 0.6, 0.3))
    for effects in EFFECTS
]
OVER_THESE = [
    SoakCell(
        figure="rate over these injections, groups are tasks",
        setting=_named(size, rate, effects),
        runs=RUNS,
        marks=these_injections(size, rate=rate, effects=effects),
    )
    for size in SIZES
    for rate in RATES
    for effects in EFFECTS
]
LIKE_ARMS = [
    SoakCell(
        figure="two arms of one rate told apart over crossed rows",
        setting=f"{_named(size, rate, effects)}, {shared:.0%} shared",
        runs=RUNS,
        marks=like_arms(size, rate=rate, effects=effects, shared=shared),
        at_most=0.07,
    )
    for size in SIZES
    for rate in (0.05, 0.1, 0.3, 0.6)
    for effects in EFFECTS[::2]
    for shared in (0.0, 0.6)
]
UNLIKE_ARMS = [
    SoakCell(
        figure="two arms of one rate that lose other things told apart over crossed rows",
        setting=f"{size[0]} tasks, {size[1]} injections, rate {rate:g}, effects {one} and {other}",
        runs=RUNS,
        marks=unlike_arms(size, rate=rate, effects=(one, other)),
        at_most=0.07,
    )
    for size in SIZES
    for rate in (0.05, 0.1, 0.3, 0.5)
    for one, other in (
        ((0, 0, 0), (0, 8, 0)),
        ((0, 0, 0), (0, 20, 0)),
        ((0, 0, 0), (8, 0, 0)),
        ((8, 0, 0), (0, 20, 0)),
    )
]
BETTER_ARMS = [
    SoakCell(
        figure="difference of two arms over crossed rows",
        setting=f"{size[0]} tasks, {size[1]} injections, {rates[0]:g} and {rates[1]:g}, {effects}",
        runs=RUNS,
        marks=better_arms(size, rates=rates, effects=effects),
    )
    for size in SIZES
    for rates in ((0.9, 0.1), (0.9, 0.6), (0.5, 0.4), (0.2, 0.02))
    for effects in EFFECTS[::2]
]
LOWEST_ARMS = [
    SoakCell(
        figure="attack success of the lowest of alike arms",
        setting=(
            f"{arms} arms, {size[0]} tasks, {size[1]} injections, rate {rate:g}, "
            f"effects {'/'.join(map(str, effects))}, half shared"
        ),
        marks=lowest_arm(arms, size, rate=rate, effects=effects, shared=0.5),
        runs=RUNS,
    )
    for arms in (4, 8)
    for size in ((20, 7), (40, 14))
    for rate, effects in ((0.1, (1, 1, 1)), (0.3, (2, 4, 0)))
]

CELLS = (
    *GRID,
    *INCOMPLETE,
    *OTHER_MAKINGS,
    *OF_SUITES,
    *OVER_THESE,
    *LIKE_ARMS,
    *UNLIKE_ARMS,
    *BETTER_ARMS,
    *LOWEST_ARMS,
)
SHORT = [
    GRID[size * 45 + 9 * rate + effect] for size in (2, 3) for rate, effect in ((0, 5), (3, 7))
]


@pytest.mark.parametrize(
    "cell", [*SHORT, UNLIKE_ARMS[0], BETTER_ARMS[0]], ids=lambda cell: cell.name
)
def test_crossed_limits_hold_where_others_fail(cell: SoakCell) -> None:
    """Few injections that differ much: where groups of tasks cover a third of the runs."""
    assert cell.keeps(cell.draw(200))
