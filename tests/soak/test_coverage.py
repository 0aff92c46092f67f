"""Do the default interval and test keep what they promise? Simulated and enumerated.

The short form runs with every test run; `make soak` draws the whole grid (`tests/soak/table.py`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from tests.soak.cells import Ints, Marks, SoakCell, events_of, holds

from guardmark.core.estimate import Estimate
from guardmark.stats.paired.significance import sign_flip
from guardmark.stats.rates.clustered import wilson_default, wilson_default_slices
from guardmark.stats.rates.proportion import wilson

SHORT_SETS, LONG_SETS = 400, 1500
SHORT_FLIPS, LONG_FLIPS = 300, 1000
Draw = Callable[[np.random.Generator, int], Marks]


def draw_sizes(rng: np.random.Generator, pattern: str, shape: tuple[int, int]) -> Ints:
    """Draw how many rows each group of each data set has."""
    if pattern == "1 to 10":
        return rng.integers(1, 11, shape)
    if pattern == "skew":
        return np.where(rng.random(shape) < 0.85, 1, 10)
    return np.full(shape, int(pattern))


def default_rate(groups: int, sizes: str, *, icc: float, rate: float) -> Draw:
    """Runs in which the default 95 % interval holds the true rate."""

    def marks(rng: np.random.Generator, sets: int) -> Marks:
        rows = draw_sizes(rng, sizes, (sets, groups))
        estimates = wilson_default_slices(
            events_of(rng, rows, rate=rate, icc=icc).ravel(),
            rows.ravel(),
            slices=np.repeat(np.arange(sets), groups),
            slice_count=sets,
        )
        return (holds(each.low, rate, each.high) for each in estimates)

    return marks


def grid_cell(groups: int, sizes: str, icc: float, rate: float) -> SoakCell:
    """One setting of the simulation of rates."""
    return SoakCell(
        figure=f"rate, groups of {sizes}",
        setting=f"{groups} groups, ICC {icc:g}, rate {rate:g}",
        marks=default_rate(groups, sizes, icc=icc, rate=rate),
        runs=LONG_SETS,
    )


GRID = [
    grid_cell(groups, sizes, icc, rate)
    for sizes in ("5", "10", "1 to 10", "skew")
    for groups in (20, 50, 100, 200)
    for icc in (0.0, 0.1, 0.3, 0.5, 0.8)
    for rate in (0.01, 0.05, 0.1, 0.3, 0.5)
]
# The cells in which other methods fail worst: small rates, few groups, strong correlation.
SHORT = [
    grid_cell(groups, sizes, icc, rate)
    for groups, sizes, icc, rate in itertools.product(
        (20, 100), ("5", "skew"), (0.0, 0.5, 0.8), (0.01, 0.1, 0.5)
    )
]
SINGLETONS = list(itertools.product((20, 50, 100, 200), (0.01, 0.05, 0.1, 0.3, 0.5)))


@pytest.mark.parametrize("cell", SHORT, ids=lambda cell: cell.name)
def test_the_default_keeps_its_coverage_where_others_fail(cell: SoakCell) -> None:
    """At least 93 % where 95 % is claimed, within the noise of the simulation."""
    assert cell.keeps(cell.draw(SHORT_SETS))


@pytest.mark.parametrize("groups", [20, 50, 100, 200])
def test_singletons_have_exactly_the_coverage_of_wilson(groups: int) -> None:
    """Enumerated, not simulated: the same counts are held for every true rate."""
    ours, theirs = [], []
    for events in range(groups + 1):
        outcomes = [1] * events + [0] * (groups - events)
        ours.append(wilson_default(outcomes, [1] * groups))
        theirs.append(wilson(events, groups))
    for rate in (0.01, 0.05, 0.1, 0.3, 0.5):
        assert exact_coverage(ours, rate) == exact_coverage(theirs, rate)


@pytest.mark.soak
@pytest.mark.parametrize(("groups", "rate"), SINGLETONS)
def test_the_simulation_finds_the_enumerated_coverage(groups: int, rate: float) -> None:
    """So the simulation itself can be trusted where nothing can be enumerated."""
    exact = exact_coverage([wilson(events, groups) for events in range(groups + 1)], rate)
    simulated = grid_cell(groups, "1", 0.0, rate).draw()
    noise = 3.0 * math.sqrt(exact * (1.0 - exact) / LONG_SETS)
    assert simulated.share == pytest.approx(exact, abs=noise + 1e-9)


def exact_coverage(estimates: list[Estimate], rate: float) -> float:
    """Sum the binomial chances of the counts whose interval holds the rate."""
    trials = len(estimates) - 1
    return sum(
        math.comb(trials, events) * rate**events * (1.0 - rate) ** (trials - events)
        for events, estimate in enumerate(estimates)
        if holds(estimate.low, rate, estimate.high)
    )


def false_alarms(groups: int, sizes: str, *, icc: float, discordance: float) -> Draw:
    """Runs in which two like defenses are called different at 0.05 by the test alone."""

    def marks(rng: np.random.Generator, sets: int) -> Marks:
        rows = draw_sizes(rng, sizes, (sets, groups))
        discordant = events_of(rng, rows, rate=discordance, icc=icc)
        # Which side a discordant pair falls to is correlated within a group just as strongly.
        first = events_of(rng, discordant, rate=0.5, icc=icc)
        pairs = zip(first, discordant - first, strict=True)
        return (sign_flip(b, c).p_midp <= 0.05 for b, c in pairs)

    return marks


FLIP_GRID = [
    SoakCell(
        figure=f"test of two like defenses, groups of {sizes}",
        setting=f"{groups} groups, ICC {icc:g}, discordance {discordance:g}",
        marks=false_alarms(groups, sizes, icc=icc, discordance=discordance),
        at_most=0.06,
        runs=LONG_FLIPS,
    )
    for sizes in ("5", "1 to 10")
    for groups in (20, 50, 100)
    for icc in (0.0, 0.3, 0.8)
    for discordance in (0.05, 0.2)
]
SHORT_FLIP_GRID = [each for each in FLIP_GRID[:18] if each.setting.startswith("50 ")]
CELLS = (*GRID, *FLIP_GRID)


@pytest.mark.parametrize("cell", SHORT_FLIP_GRID, ids=lambda cell: cell.name)
def test_like_defenses_are_rarely_called_different(cell: SoakCell) -> None:
    """At most 6 % where 5 % is claimed, within the noise of the simulation."""
    assert cell.keeps(cell.draw(SHORT_FLIPS))
