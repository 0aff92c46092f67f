"""Do the default interval and test keep what they promise? Simulated and enumerated.

The short form runs with every test run; the whole grid of 420 cells with `make soak`.
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from guardmark.core.estimate import Estimate
from guardmark.stats.paired.significance import sign_flip
from guardmark.stats.rates.clustered import wilson_default, wilson_default_slices
from guardmark.stats.rates.proportion import wilson

PROMISED = 0.93
MOST_FALSE_ALARMS = 0.06

SIZES = ("1", "5", "10", "1 to 10", "skew")
SHORT_SETS, LONG_SETS = 400, 1500
SHORT_FLIPS, LONG_FLIPS = 300, 1000


class Cell(NamedTuple):
    """One setting of the simulation."""

    groups: int
    sizes: str
    icc: float
    rate: float


GRID = [
    Cell(*cell)
    for cell in itertools.product(
        (20, 50, 100, 200), SIZES, (0.0, 0.1, 0.3, 0.5, 0.8), (0.01, 0.05, 0.1, 0.3, 0.5)
    )
    if cell[1] != "1" or cell[2] == 0.0  # with one row a group there is nothing to correlate
]
CLUSTERED = [cell for cell in GRID if cell.sizes != "1"]
SINGLETONS = [cell for cell in GRID if cell.sizes == "1"]
# The cells in which other methods fail worst: small rates, few groups, strong correlation.
SHORT = [
    Cell(groups, sizes, icc, rate)
    for groups, sizes, icc, rate in itertools.product(
        (20, 100), ("5", "skew"), (0.0, 0.5, 0.8), (0.01, 0.1, 0.5)
    )
]


def draw_sizes(
    generator: np.random.Generator, pattern: str, shape: tuple[int, int]
) -> NDArray[np.int64]:
    """Draw how many rows each group of each data set has."""
    if pattern == "1 to 10":
        return generator.integers(1, 11, shape)
    if pattern == "skew":
        return np.where(generator.random(shape) < 0.85, 1, 10)
    return np.full(shape, int(pattern))


def draw_events(
    generator: np.random.Generator, sizes: NDArray[np.int64], *, rate: float, icc: float
) -> NDArray[np.int64]:
    """Draw beta-binomial events with this intra-group correlation."""
    chance: float | NDArray[np.float64] = rate
    if icc:
        scale = (1.0 - icc) / icc
        chance = generator.beta(rate * scale, (1.0 - rate) * scale, sizes.shape)
    return generator.binomial(sizes, chance)


def coverage(cell: Cell, sets: int, *, seed: int) -> float:
    """Return how often the default 95 % interval holds the true rate."""
    generator = np.random.default_rng([seed, GRID.index(cell)])
    sizes = draw_sizes(generator, cell.sizes, (sets, cell.groups))
    events = draw_events(generator, sizes, rate=cell.rate, icc=cell.icc)
    estimates = wilson_default_slices(
        events.ravel(),
        sizes.ravel(),
        slices=np.repeat(np.arange(sets), cell.groups),
        slice_count=sets,
    )
    held = [
        estimate.low <= cell.rate <= estimate.high
        for estimate in estimates
        if estimate.low is not None and estimate.high is not None
    ]
    assert len(held) == sets
    return sum(held) / sets


def three_errors(share: float, sets: int) -> float:
    """Return three Monte-Carlo standard errors of a share."""
    return 3.0 * math.sqrt(share * (1.0 - share) / sets)


def named(cell: Cell) -> str:
    """Spell a cell out."""
    return f"{cell.groups} groups of {cell.sizes}, icc {cell.icc}, rate {cell.rate}"


@pytest.mark.parametrize("cell", SHORT, ids=named)
def test_the_default_keeps_its_coverage_where_others_fail(cell: Cell) -> None:
    """At least 93 % where 95 % is claimed, within the noise of the simulation."""
    floor = PROMISED - three_errors(PROMISED, SHORT_SETS)
    assert coverage(cell, SHORT_SETS, seed=1) >= floor


@pytest.mark.soak
@pytest.mark.parametrize("cell", CLUSTERED, ids=named)
def test_the_default_keeps_its_coverage_everywhere(cell: Cell) -> None:
    """The whole grid of grouped cells."""
    floor = PROMISED - three_errors(PROMISED, LONG_SETS)
    assert coverage(cell, LONG_SETS, seed=2) >= floor


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
@pytest.mark.parametrize("cell", SINGLETONS, ids=named)
def test_the_simulation_finds_the_enumerated_coverage(cell: Cell) -> None:
    """So the simulation itself can be trusted where nothing can be enumerated."""
    exact = exact_coverage(
        [wilson(events, cell.groups) for events in range(cell.groups + 1)], cell.rate
    )
    simulated = coverage(cell, LONG_SETS, seed=3)
    assert simulated == pytest.approx(exact, abs=three_errors(exact, LONG_SETS) + 1e-9)


def exact_coverage(estimates: list[Estimate], rate: float) -> float:
    """Sum the binomial chances of the counts whose interval holds the rate."""
    trials = len(estimates) - 1
    return sum(
        math.comb(trials, events) * rate**events * (1.0 - rate) ** (trials - events)
        for events, estimate in enumerate(estimates)
        if estimate.low is not None
        and estimate.high is not None
        and estimate.low <= rate <= estimate.high
    )


class FlipCell(NamedTuple):
    """One setting of the simulated comparison of two like defenses."""

    groups: int
    sizes: str
    icc: float
    discordance: float


FLIP_GRID = [
    FlipCell(*cell)
    for cell in itertools.product((20, 50, 100), ("5", "1 to 10"), (0.0, 0.3, 0.8), (0.05, 0.2))
]
SHORT_FLIP_GRID = [cell for cell in FLIP_GRID if cell.groups == 50 and cell.sizes == "5"]


def false_alarms(cell: FlipCell, sets: int, *, seed: int) -> float:
    """Return how often two like defenses are called different at 0.05."""
    generator = np.random.default_rng([seed, FLIP_GRID.index(cell)])
    sizes = draw_sizes(generator, cell.sizes, (sets, cell.groups))
    discordant = draw_events(generator, sizes, rate=cell.discordance, icc=cell.icc)
    # Which side a discordant pair falls to is correlated within a group just as strongly.
    first = draw_events(generator, discordant, rate=0.5, icc=cell.icc)
    pairs = zip(first, discordant - first, strict=True)
    return sum(sign_flip(b, c).p_midp <= 0.05 for b, c in pairs) / sets


def spelled(cell: FlipCell) -> str:
    """Spell a cell out."""
    return f"{cell.groups} groups of {cell.sizes}, icc {cell.icc}, discordance {cell.discordance}"


@pytest.mark.parametrize("cell", SHORT_FLIP_GRID, ids=spelled)
def test_like_defenses_are_rarely_called_different(cell: FlipCell) -> None:
    """At most 6 % where 5 % is claimed, within the noise of the simulation."""
    ceiling = MOST_FALSE_ALARMS + three_errors(MOST_FALSE_ALARMS, SHORT_FLIPS)
    assert false_alarms(cell, SHORT_FLIPS, seed=1) <= ceiling


@pytest.mark.soak
@pytest.mark.parametrize("cell", FLIP_GRID, ids=spelled)
def test_like_defenses_are_rarely_called_different_everywhere(cell: FlipCell) -> None:
    """The whole grid."""
    ceiling = MOST_FALSE_ALARMS + three_errors(MOST_FALSE_ALARMS, LONG_FLIPS)
    assert false_alarms(cell, LONG_FLIPS, seed=2) <= ceiling
