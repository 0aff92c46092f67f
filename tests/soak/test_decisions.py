"""Do decisions keep what they promise? Verdicts, gates and early stops of simulated runs.

The short form runs with every test run; `make soak` draws more, and prints each figure with its
Monte Carlo error.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from guardmark.analysis.gate import exceedance
from guardmark.stats.multiplicity import holm
from guardmark.stats.paired.intervals import clustered_bonett_price
from guardmark.stats.rates.clustered import wilson_default_slices
from guardmark.stats.sequential import betting_sequence

Ints = NDArray[np.int64]
SHORT, LONG = 300, 2_000
MOST_FALSE_VERDICTS = 0.07
MOST_BROKEN_GATES = 0.05
MOST_LOST = 0.05


def report(name: str, share: float, runs: int) -> float:
    """Print a share with its Monte Carlo error, and return three of these errors."""
    error = math.sqrt(max(share * (1 - share), 0.25 / runs) / runs)
    print(f"{name}: {share:.3f} +- {error:.3f} ({runs} runs)")  # noqa: T201 - what a soak is for
    return 3 * error


class Null(NamedTuple):
    """Two defenses of one rate: one loses whole families, the other scattered rows."""

    groups: int
    size: int
    rate: float

    def differs(self, runs: int) -> float:
        """Return in which share of runs the test and the interval both find a difference."""
        generator = np.random.default_rng([15, *self[:2], int(1000 * self.rate)])
        found = 0
        for _ in range(runs):
            lost = generator.random(self.groups) < self.rate
            scattered = generator.binomial(self.size, self.rate, self.groups)
            both = np.where(lost, scattered, 0)
            gap = clustered_bonett_price(
                np.where(lost, self.size, 0) - both,
                scattered - both,
                sizes=np.full(self.groups, self.size),
            )
            assert gap.p_value is not None
            assert gap.low is not None
            assert gap.high is not None
            found += gap.p_value < 0.05 and not gap.low <= 0.0 <= gap.high
        return found / runs


NULLS = [Null(k, m, p) for k, m in ((50, 10), (20, 20), (100, 10)) for p in (0.02, 0.05, 0.1, 0.2)]
SHORT_NULLS = [Null(20, 20, 0.05), Null(100, 10, 0.02)]


def told(null: Null) -> str:
    """Spell a cell out."""
    return f"{null.groups} groups of {null.size}, rate {null.rate}"


@pytest.mark.parametrize("null", SHORT_NULLS, ids=told)
def test_equal_rates_with_unlike_errors_are_rarely_told_apart(null: Null) -> None:
    """The cells in which the sign-flip test alone is wrong in a third of runs."""
    share = null.differs(SHORT)
    assert share <= MOST_FALSE_VERDICTS + report(f"verdict, {told(null)}", share, SHORT)


@pytest.mark.soak
@pytest.mark.parametrize("null", NULLS, ids=told)
def test_equal_rates_with_unlike_errors_are_rarely_told_apart_anywhere(null: Null) -> None:
    """All cells."""
    share = null.differs(LONG)
    assert share <= MOST_FALSE_VERDICTS + report(f"verdict, {told(null)}", share, LONG)


def broken_gates(categories: int, size: int, *, variants: int, limit: float, runs: int) -> float:
    """Return how often a gate whose categories all stand at their limit is called broken."""
    generator = np.random.default_rng([16, categories, size, variants])
    groups = size // variants
    shape = (runs * categories, groups)
    chance: float | NDArray[np.float64] = limit
    if variants > 1:
        chance = generator.beta(limit, 1 - limit, shape)  # an intra-group correlation of one half
    events = generator.binomial(variants, chance, shape)
    rates = wilson_default_slices(
        events.ravel(),
        np.full(events.size, variants),
        slices=np.repeat(np.arange(len(events)), groups),
        slice_count=len(events),
    )
    p_values = [exceedance(rate, limit) for rate in rates]
    families = (p_values[at : at + categories] for at in range(0, len(p_values), categories))
    broken = (any(p is not None and p <= 0.025 for p in holm(each)) for each in families)
    return sum(broken) / runs


GATES = [
    (16, 48, 1, 0.1),
    (40, 25, 1, 0.1),
    (16, 48, 1, 0.02),
    (40, 25, 5, 0.1),
    (16, 48, 4, 0.3),
]


@pytest.mark.parametrize("gate", GATES[:2], ids=str)
def test_categories_at_their_limit_rarely_break_a_gate(gate: tuple[int, int, int, float]) -> None:
    """One broken category closes it, so the whole family errs in one run of twenty at most."""
    share = broken_gates(gate[0], gate[1], variants=gate[2], limit=gate[3], runs=SHORT)
    assert share <= MOST_BROKEN_GATES + report(f"gate, {gate}", share, SHORT)


@pytest.mark.soak
@pytest.mark.parametrize("gate", GATES, ids=str)
def test_categories_at_their_limit_rarely_break_a_gate_anywhere(
    gate: tuple[int, int, int, float],
) -> None:
    """All cells."""
    share = broken_gates(gate[0], gate[1], variants=gate[2], limit=gate[3], runs=LONG)
    assert share <= MOST_BROKEN_GATES + report(f"gate, {gate}", share, LONG)


def lost_rates(groups: int, *, runs: int) -> float:
    """Return how often the sequence has lost the rate of rows, where large families fall more."""
    generator = np.random.default_rng([17, groups])
    # Nine families of one row fall in a tenth of cases; one of twenty rows in nine tenths.
    true = (0.9 * 0.1 + 0.1 * 20 * 0.9) / (0.9 + 0.1 * 20)
    lost = 0
    for _ in range(runs):
        large = generator.random(groups) < 0.1
        sizes = np.where(large, 20, 1)
        events = sizes * (generator.random(groups) < np.where(large, 0.9, 0.1))
        found = betting_sequence(events, sizes, largest=20)
        assert found.low is not None
        assert found.high is not None
        lost += not found.low <= true <= found.high
    return lost / runs


@pytest.mark.parametrize("groups", [300])
def test_a_stop_with_rates_tied_to_family_size_keeps_the_rate_of_rows(groups: int) -> None:
    """All looks at once: what the sequence rules out stays ruled out."""
    share = lost_rates(groups, runs=SHORT)
    assert share <= MOST_LOST + report(f"stop, {groups} families", share, SHORT)


@pytest.mark.soak
@pytest.mark.parametrize("groups", [100, 1_000])
def test_a_stop_keeps_the_rate_of_rows_anywhere(groups: int) -> None:
    """All cells."""
    share = lost_rates(groups, runs=LONG)
    assert share <= MOST_LOST + report(f"stop, {groups} families", share, LONG)
