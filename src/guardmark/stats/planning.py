"""How many samples a claim needs, before any is run: by the analysis that a run will get.

A size is promised only as far as the tool keeps it: simulated runs (or, without groups, all tables
of pairs) are analysed with the functions that reports use, and the share in which the claim comes
out is returned with its Monte Carlo error. Groups are beta-binomial, or Dirichlet-multinomial for
pairs, of one intra-group correlation.

`confidence`, `chance` and `alpha` are strictly between 0 and 1, rates and correlations in [0, 1];
what is out of range raises `ValueError`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from guardmark.stats.arguments import require_count, require_fraction, require_rate
from guardmark.stats.distributions import binomial_at_least, binomial_at_most
from guardmark.stats.paired.intervals import PairedTable, bonett_price, clustered_bonett_price
from guardmark.stats.paired.noninferiority import noninferiority_clustered, noninferiority_tango
from guardmark.stats.rates.clustered import wilson_default, wilson_default_slices
from guardmark.stats.rates.proportion import least_enough, trials_for_half_width, wilson_half_width
from guardmark.stats.special_functions import log_gamma

if TYPE_CHECKING:
    from collections.abc import Callable

    from guardmark.core.estimate import Difference
    from guardmark.stats.arguments import Ints

RUNS = 1_000  # simulated runs behind a promise
_SEARCH_RUNS = 200
_CELLS_AT_ONCE = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How rows fall into groups, and how alike the rows of one group are."""

    rows_per_group: int = 1  # Rows (variants) in each group.
    icc: float = 0.5  # Intra-group correlation assumed; plays no part with one row a group.

    def __post_init__(self) -> None:
        """Refuse groups without rows and correlations that are none."""
        require_count("rows_per_group", self.rows_per_group, least=1)
        require_rate("icc", self.icc)

    @property
    def scale(self) -> float:
        """Sum of the parameters of the Beta distribution with this correlation."""
        return (1.0 - self.icc) / max(self.icc, 1e-9) + 1e-9


ALONE = Layout()  # every row a group of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """A size, and in which share of runs of that size the claim comes out."""

    groups: int  # Groups (seeds) needed; samples or pairs where each has one row.
    layout: Layout
    chance: float | None  # Share of runs; None where it depends on a rate that nobody stated.
    error: float = 0.0  # Monte Carlo standard error of the chance; 0 where it is exact.
    runs: int = 0  # Simulated runs behind the chance; 0 where it is exact.

    @property
    def rows(self) -> int:
        """Rows in all."""
        return self.groups * self.layout.rows_per_group


def plan_margin(
    margin: float,
    rate: float = 0.5,
    *,
    layout: Layout = ALONE,
    chance: float = 0.95,
    confidence: float = 0.95,
) -> Promise:
    """Return the groups with which a rate's default interval is as narrow as wanted.

    `margin` is the half-width wanted, in (0, 0.5); `rate` is the true rate.
    """
    require_fraction("chance", chance)
    start = trials_for_half_width(margin, rate=rate, confidence=confidence)

    def is_narrow(events: int, trials: int) -> bool:
        return wilson_half_width(events / trials, trials, confidence=confidence) <= margin

    def by_rows(trials: int) -> float:
        # The interval is narrow where the rate seen is far enough from one half, on either side.
        few = (
            least_enough(lambda past: past > trials // 2 or not is_narrow(past, trials), least=0)
            - 1
        )
        many = trials - few - 1
        below = binomial_at_most(few, trials, rate) if few >= 0 else 0.0
        return 1.0 if few >= many else below + 1.0 - binomial_at_most(many, trials, rate)

    def by_groups(groups: int, runs: int) -> float:
        narrow, rng = 0, np.random.default_rng([1, groups])
        block = max(1, _CELLS_AT_ONCE // groups)
        for done in range(0, runs, block):
            count = min(block, runs - done)
            events = _draw_events(rng, (count, groups), rate=rate, layout=layout)
            estimates = wilson_default_slices(
                events.ravel(),
                np.full(count * groups, layout.rows_per_group),
                slices=np.repeat(np.arange(count), groups),
                slice_count=count,
                confidence=confidence,
            )
            narrow += sum(
                (each.high or 1.0) - (each.low or 0.0) <= 2 * margin for each in estimates
            )
        return narrow / runs

    return _settle(by_rows, by_groups, layout=layout, chance=chance, start=start)


def plan_zero_events(
    upper: float, *, rate: float | None = None, layout: Layout = ALONE, confidence: float = 0.95
) -> Promise:
    """Return the groups that, all without an event, keep the default interval below a rate.

    The chance is that of no event at the true rate stated; None without one.
    """
    require_fraction("upper", upper)
    require_fraction("confidence", confidence)

    def is_enough(groups: int) -> bool:
        empty, sizes = np.zeros(groups, dtype=np.int64), np.full(groups, layout.rows_per_group)
        high = wilson_default(empty, sizes, confidence=confidence).high
        return high is not None and high <= upper

    groups, chance = least_enough(is_enough), None
    if rate is not None:
        require_rate("rate", rate)
        rows, scale = layout.rows_per_group, layout.scale
        spared = math.fsum(
            math.log1p(-rate * scale / (scale + at)) for at in range(rows) if rate < 1
        )
        chance = math.exp(groups * spared) if rate < 1 else 0.0
    return Promise(groups=groups, layout=layout, chance=chance)


def plan_difference(
    difference: float,
    discordance: float,
    *,
    layout: Layout = ALONE,
    chance: float = 0.8,
    alpha: float = 0.05,
    tests: int = 1,
) -> Promise:
    """Return the groups with which two defenses are told apart on the same samples.

    Told apart is what the verdict of a report takes: the default paired test below `alpha`,
    two-sided, after Holm over `tests` (of which the others may find nothing), and an interval of
    confidence 1 - `alpha` without 0.

    Args:
        difference: True difference of both rates, above 0 and at most the discordance.
        discordance: Share of pairs on which the two disagree, at most 1.
        layout: How pairs fall into groups.
        chance: Wanted chance of a verdict.
        alpha: Error probability of the family.
        tests: Tests in the family, at least 1.
    """
    require_fraction("chance", chance)
    require_fraction("alpha", alpha)
    least_p = alpha / require_count("tests", tests, least=1)
    sides = _shares(difference, discordance)

    def is_told(gap: Difference) -> bool:
        return gap.p_value is not None and gap.p_value < least_p and (gap.low or 0.0) > 0.0

    def decides(first: int, second: int, pairs: int) -> bool:
        rest = pairs - first - second
        table = PairedTable(both=0, first_only=first, second_only=second, neither=rest)
        return is_told(bonett_price(table, confidence=1.0 - alpha))

    def is_shown(first: Ints, second: Ints, sizes: Ints) -> bool:
        price = clustered_bonett_price(first, second, sizes=sizes, confidence=1.0 - alpha)
        return is_told(price)

    return _settle(
        lambda pairs: _enumerate(decides, pairs, sides),
        _simulated(sides, layout, is_shown),
        layout=layout,
        chance=chance,
        start=max(8, math.ceil(8.0 * discordance / difference**2)),
    )


def plan_noninferiority(
    margin: float,
    discordance: float,
    *,
    difference: float = 0.0,
    layout: Layout = ALONE,
    chance: float = 0.8,
    alpha: float = 0.05,
) -> Promise:
    """Return the groups with which "not worse by the margin" is shown.

    Args:
        margin: Largest accepted first rate minus second, in (0, 1), fixed beforehand.
        discordance: Share of pairs on which the two disagree, in (0, 1].
        difference: True first rate minus second assumed, below the margin.
        layout: How pairs fall into groups.
        chance: Wanted chance of showing it.
        alpha: One-sided error probability, in (0, 0.5).

    Source: Tango (1998), Statistics in Medicine 17:891, by enumeration of all tables without
    groups.
    """
    require_fraction("margin", margin)
    require_fraction("chance", chance)
    if not -discordance <= difference < margin or not 0.0 < discordance <= 1.0:
        raise ValueError(
            "discordance must be in (0, 1], difference in [-discordance, margin); "
            f"got {discordance} and {difference} with margin {margin}"
        )
    sides = (discordance + difference) / 2.0, (discordance - difference) / 2.0

    def decides(first: int, second: int, pairs: int) -> bool:
        test = noninferiority_tango(first, second, pairs=pairs, margin=margin, alpha=alpha)
        return not test.is_noninferior

    def is_shown(first: Ints, second: Ints, sizes: Ints) -> bool:
        test = noninferiority_clustered(first, second, sizes=sizes, margin=margin, alpha=alpha)
        return test.is_noninferior

    return _settle(
        lambda pairs: 1.0 - _enumerate(decides, pairs, sides),
        _simulated(sides, layout, is_shown),
        layout=layout,
        chance=chance,
        start=max(8, math.ceil(6.0 * discordance / (margin - difference) ** 2)),
    )


def _shares(difference: float, discordance: float) -> tuple[float, float]:
    if not 0.0 < difference <= discordance <= 1.0:
        raise ValueError(
            "difference must be above 0 and at most discordance, which is at most 1; "
            f"got {difference} and {discordance}"
        )
    return (discordance + difference) / 2.0, (discordance - difference) / 2.0


def _draw_events(
    rng: np.random.Generator, shape: tuple[int, int], *, rate: float, layout: Layout
) -> Ints:
    """Draw the events of each group, shape (runs, groups)."""
    if layout.rows_per_group == 1 or not 0.0 < rate < 1.0:
        return rng.binomial(layout.rows_per_group, rate, shape)
    scale = layout.scale
    return rng.binomial(layout.rows_per_group, rng.beta(rate * scale, (1 - rate) * scale, shape))


def _simulated(
    sides: tuple[float, float], layout: Layout, is_shown: Callable[[Ints, Ints, Ints], bool]
) -> Callable[[int, int], float]:
    """Return how often a claim on pairs comes out in simulated groups.

    `sides` are the shares of pairs on which the first, and the second, alone erred.
    """
    first, second = sides
    scale = layout.scale

    def kept(groups: int, runs: int) -> float:
        rng, sizes = np.random.default_rng([2, groups]), np.full(groups, layout.rows_per_group)
        shown = 0
        for _ in range(runs):
            differing = _draw_events(rng, (1, groups), rate=first + second, layout=layout)[0]
            part = rng.beta(first * scale + 1e-12, second * scale + 1e-12, groups)
            one = rng.binomial(differing, part)
            shown += is_shown(one, differing - one, sizes)
        return shown / runs

    return kept


def _enumerate(
    decides: Callable[[int, int, int], bool], pairs: int, sides: tuple[float, float]
) -> float:
    """Return the chance of a table for which `decides`, asked of both counts and the pairs.

    It does from some number of first-only pairs on, which rises with the second-only ones.
    """
    first, second = sides
    reach = 8.0 * math.sqrt(pairs * second * (1.0 - second)) + 8.0
    least = max(0, math.floor(pairs * second - reach))
    most = min(pairs, math.ceil(pairs * second + reach)) if second else 0
    others = np.arange(least, most + 1)
    bound = least_enough(lambda one: one > pairs - least or decides(one, least, pairs), least=0)
    bounds = []
    for other in others.tolist():
        while bound <= pairs - other and not decides(bound, other, pairs):
            bound += 1
        bounds.append(min(bound, pairs - other + 1))
    log_mass = math.lgamma(pairs + 1.0) - log_gamma(others + 1.0) - log_gamma(pairs - others + 1.0)
    if second:
        log_mass += others * math.log(second) + (pairs - others) * math.log1p(-second)
    split = min(1.0, first / (1.0 - second))
    tails = [
        binomial_at_least(at, rest, split)
        for at, rest in zip(bounds, (pairs - others).tolist(), strict=True)
    ]
    return min(1.0, float(np.exp(log_mass) @ np.array(tails)))


def _settle(
    by_rows: Callable[[int], float],
    by_groups: Callable[[int, int], float],
    *,
    layout: Layout,
    chance: float,
    start: int,
) -> Promise:
    """Return a number of groups with which the promise is kept as often as wanted.

    Without groups it is the least, and exact; else the least to a few percent, by simulation.
    """
    if layout.rows_per_group == 1:
        rows = least_enough(lambda n: by_rows(n) >= chance)
        return Promise(groups=rows, layout=layout, chance=by_rows(rows))
    # Half of what the rows of one group would need, were they independent, is never enough.
    least = max(2, start // (2 * layout.rows_per_group))
    groups = least_enough(lambda k: by_groups(k, _SEARCH_RUNS) >= chance, least=least, spread=0.03)
    while (kept := by_groups(groups, RUNS)) < chance:
        groups += max(1, groups // 40)
    error = math.sqrt(max(kept * (1.0 - kept), 0.25 / RUNS) / RUNS)
    return Promise(groups=groups, layout=layout, chance=kept, error=error, runs=RUNS)
