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
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from guardmark.core.values import dataclass
from guardmark.stats.arguments import require_count, require_fraction, require_rate
from guardmark.stats.distributions import (
    binomial_at_least,
    binomial_at_most,
    incomplete_beta,
    two_sided_z,
)
from guardmark.stats.paired.intervals import PairedTable, bonett_price, clustered_bonett_price
from guardmark.stats.paired.noninferiority import noninferiority_clustered, noninferiority_tango
from guardmark.stats.rates.clustered import (
    effective_counts,
    is_dominated,
    summarise_slices,
    wilson_default,
    wilson_default_slices,
)
from guardmark.stats.rates.proportion import (
    least_enough,
    trials_for_half_width,
    wilson_limits,
)
from guardmark.stats.sequential import beta_mixture_sequence
from guardmark.stats.special_functions import log_gamma

if TYPE_CHECKING:
    from collections.abc import Callable

    from guardmark.core.estimate import Difference, Estimate
    from guardmark.stats.arguments import Ints

RUNS = 1_000  # simulated runs behind a promise
_SEARCH_RUNS = 200
_SIZE_DRAFTS = 40  # drafts of sizes behind a claim that only depends on them
_CELLS_AT_ONCE = 2_000_000
_MOST_SIMULATED = 2_000
"""Groups above which a report takes the design effect: simulating more takes minutes."""
_POWER_Z = 0.8416212335729143  # normal quantile of 80 % power
_MOST_PAIRS = 100_000
"""More pairs than anybody collects: a report then names no number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How rows fall into groups, and how alike the rows of one group are.

    Attributes:
        rows_per_group: Rows (variants) in each group, where all are of one size.
        icc: Intra-group correlation assumed; plays no part with one row a group.
        sizes: Sizes that groups are drawn from, each as likely; empty where all have
            `rows_per_group`.
    """

    rows_per_group: int = 1
    icc: float = 0.5
    sizes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Raise `ValueError` for groups without rows and for a correlation outside [0, 1]."""
        require_count("rows_per_group", self.rows_per_group, least=1)
        require_rate("icc", self.icc)
        for size in self.sizes:
            require_count("sizes", size, least=1)

    @property
    def scale(self) -> float:
        """Sum of the parameters of the Beta distribution with this correlation."""
        return (1.0 - self.icc) / max(self.icc, 1e-9) + 1e-9

    @property
    def known_sizes(self) -> tuple[int, ...]:
        """The sizes that groups have, or are drawn from."""
        return self.sizes or (self.rows_per_group,)

    @property
    def mean_size(self) -> float:
        """Rows of a group, on average."""
        return sum(self.known_sizes) / len(self.known_sizes)

    @property
    def design_effect(self) -> float:
        """By how much rows in such groups are worth less than as many that stand alone.

        1 + (mean squared size / mean size - 1) icc: Kish, Survey Sampling, 1965.
        """
        squares = sum(size * size for size in self.known_sizes) / len(self.known_sizes)
        return 1.0 + (squares / self.mean_size - 1.0) * self.icc

    def worth(self, alone: int) -> int:
        """Return how many rows in such groups are worth as many that stand alone."""
        return math.ceil(alone * self.design_effect)

    @property
    def is_alone(self) -> bool:
        """Whether every row is a group of its own."""
        return max(self.known_sizes) == 1

    @property
    def is_mixed(self) -> bool:
        """Whether groups differ in size."""
        return len(set(self.known_sizes)) > 1

    def draw_sizes(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Ints:
        """Draw the rows of groups; of one size nothing is drawn."""
        if not self.is_mixed:
            return np.full(shape, self.known_sizes[0], dtype=np.int64)
        return rng.choice(np.array(self.sizes, dtype=np.int64), shape)


ALONE = Layout()  # every row a group of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """A size, and in which share of runs of that size the claim comes out.

    Attributes:
        groups: Groups (seeds) needed; samples or pairs where each has one row.
        chance: Share of runs; None where it depends on a rate that nobody stated.
        error: Monte Carlo standard error of the chance; 0 where it is exact.
        runs: Simulated runs behind the chance; 0 where it is exact.
    """

    groups: int
    layout: Layout
    chance: float | None
    error: float = 0.0
    runs: int = 0

    @property
    def rows(self) -> int:
        """Rows in all; on average where groups differ in size."""
        return round(self.groups * self.layout.mean_size)


def plan_margin(
    margin: float,
    rate: float = 0.5,
    *,
    layout: Layout = ALONE,
    chance: float = 0.95,
    confidence: float = 0.95,
    is_watched: bool = False,
) -> Promise:
    """Return the groups with which a rate's default interval is as narrow as wanted.

    `margin` is the half-width wanted, in (0, 0.5); `rate` is the true rate. `is_watched` says that
    a rule watches the run: its interval holds at any look, and is wider. Samples alone only: with
    groups the sizes of both kinds stand in the same proportion.
    """
    require_fraction("chance", chance)
    start = trials_for_half_width(margin, rate=rate, confidence=confidence)
    if is_watched and not layout.is_alone:
        usual = plan_margin(margin, rate, layout=layout, chance=chance, confidence=confidence)
        alone, watched = (
            plan_margin(margin, rate, chance=chance, confidence=confidence, is_watched=each).rows
            for each in (False, True)
        )
        return replace(usual, groups=math.ceil(usual.groups * watched / alone))

    z = two_sided_z(confidence)

    def is_narrow(events: int, trials: int) -> bool:
        if is_watched:
            sequence = beta_mixture_sequence(events, trials, confidence=confidence)
            return (sequence.high or 1.0) - (sequence.low or 0.0) <= 2 * margin
        limits = wilson_limits(events / trials, trials, z=z)
        return limits.high - limits.low <= 2 * margin

    def by_rows(trials: int) -> float:
        # The interval is narrow where the rate seen is far enough from one half, on either side.
        few = (
            least_enough(lambda past: past > trials // 2 or not is_narrow(past, trials), least=0)
            - 1
        )
        many = trials - few - 1
        below = binomial_at_most(few, trials, rate)
        return 1.0 if few >= many else below + 1.0 - binomial_at_most(many, trials, rate)

    def by_groups(groups: int, runs: int) -> float:
        narrow, rng = 0, np.random.default_rng([1, groups])
        block = max(1, _CELLS_AT_ONCE // groups)
        for done in range(0, runs, block):
            count = min(block, runs - done)
            sizes = layout.draw_sizes(rng, (count, groups))
            events = _draw_events(rng, sizes, rate=rate, layout=layout)
            estimates = wilson_default_slices(
                events.ravel(),
                sizes.ravel(),
                slices=np.repeat(np.arange(count), groups),
                slice_count=count,
                confidence=confidence,
            )
            narrow += sum(
                (each.high or 1.0) - (each.low or 0.0) <= 2 * margin for each in estimates
            )
        return narrow / runs

    return _settle(by_rows, by_groups, layout=layout, chance=chance, start=start)


def plan_decision(
    rate: float,
    limit: float,
    *,
    layout: Layout = ALONE,
    chance: float = 0.8,
    confidence: float = 0.95,
    level: float = 0.025,
) -> Promise:
    """Return the groups with which a rate is shown to lie on its side of a limit.

    Below the limit by the upper end of the default interval, above it by the exact lower bound at
    one-sided error `level`: the rule of a gate. `rate` is the true rate, not the limit.

    Source: enumeration of all counts without groups, simulation with them.
    """
    require_rate("rate", rate)
    require_fraction("limit", limit)
    if rate == limit:
        raise ValueError(f"a rate at its limit ({limit}) is never shown to lie on one side of it")
    z = two_sided_z(confidence)

    def is_shown(seen: float, worth: float) -> bool:
        if rate < limit:
            return wilson_limits(seen, worth, z=z).high <= limit
        # The exact lower bound is above the limit just where this tail is below the level; finding
        # the bound itself would take a search for every count.
        hits, misses = seen * worth, (1.0 - seen) * worth
        return hits > 0 and incomplete_beta(limit, hits, misses + 1.0) < level

    def by_rows(trials: int) -> float:
        if rate < limit:
            few = least_enough(lambda x: x > trials or not is_shown(x / trials, trials), least=0)
            return binomial_at_most(few - 1, trials, rate)
        least = least_enough(lambda x: x > trials or is_shown(x / trials, trials), least=0)
        return 1.0 - binomial_at_most(least - 1, trials, rate)

    def by_groups(groups: int, runs: int) -> float:
        shown, rng = 0, np.random.default_rng([4, groups])
        block = max(1, _CELLS_AT_ONCE // groups)
        for done in range(0, runs, block):
            count = min(block, runs - done)
            sizes, events = [], []
            for _ in range(count):
                drawn = layout.draw_sizes(rng, (groups,))
                sizes.append(drawn)
                events.append(_draw_events(rng, drawn, rate=rate, layout=layout))
            summaries = summarise_slices(
                np.concatenate(events),
                np.concatenate(sizes),
                slices=np.repeat(np.arange(count), groups),
                slice_count=count,
            )
            for counts in map(effective_counts, summaries):
                shown += counts.n_eff > 0 and is_shown(counts.rate, counts.worth(confidence))
        return shown / runs

    spread = max(rate * (1.0 - rate), 1e-4)
    start = max(4, math.ceil(4.0 * spread / (rate - limit) ** 2))
    return _settle(by_rows, by_groups, layout=layout, chance=chance, start=start)


def layout_like(estimate: Estimate) -> Layout:
    """Return a layout whose groups are about as large, as unequal and as alike as an estimate's.

    Half of its groups are small and half large, with the mean and the spread that rows, groups and
    design effect of the estimate leave; an unknown correlation is taken for 1.
    """
    groups = estimate.groups or estimate.trials
    if not groups or groups == estimate.trials:
        return ALONE
    mean = estimate.trials / groups
    icc = 1.0 if estimate.icc is None else min(1.0, max(0.0, estimate.icc))
    most = mean  # the design effect if rows of a group were copies
    if icc > 0.05 and estimate.design_effect is not None:
        most = max(mean, 1.0 + (estimate.design_effect - 1.0) / icc)
    spread = min(math.sqrt(most / mean - 1.0), max(0.0, 1.0 - 1.0 / mean))
    small, large = max(1, round(mean * (1.0 - spread))), max(1, round(mean * (1.0 + spread)))
    return Layout(sizes=(small, large), icc=icc)


def rows_for_margin(estimate: Estimate, margin: float) -> int | None:
    """Return about how many rows, in groups like these, would know a rate as well as wanted.

    In 95 of 100 runs of that size, at the rate seen; None where nothing was seen. The sentence
    "about N would" of every report comes from here or from `rows_to_decide`.
    """
    if estimate.value is None:
        return None
    return _rows_for_margin(
        margin,
        round(estimate.value, 3),
        layout_like(estimate),
        estimate.confidence,
        is_watched=not estimate.effective_n,
    )


def rows_to_decide(estimate: Estimate, limit: float, *, level: float = 0.025) -> int | None:
    """Return about how many rows, in groups like these, would decide about a limit.

    A new set of that size, looked at once, decides in 8 of 10 runs at the rate seen. None where the
    rate seen is the limit, or nothing was seen.
    """
    rate = estimate.value
    if rate is None or not 0.0 < limit < 1.0 or math.isclose(rate, limit, abs_tol=5e-4):
        return None
    return _rows_to_decide(
        round(rate, 3), limit, layout_like(estimate), estimate.confidence, level=level
    )


def pairs_to_tell_apart(
    difference: Difference, *, alpha: float = 0.05, tests: int = 1
) -> int | None:
    """Return about how many pairs, in groups like these, would tell two defenses apart.

    In 8 of 10 runs, if the difference stays: `plan_difference` for pairs that stand alone, times
    the design effect that the width of the interval shows.

    Args:
        difference: The difference that was seen, with its discordant pairs.
        alpha: Error probability of the family, strictly between 0 and 1.
        tests: Tests in the family, at least 1.

    Returns:
        The pairs; None where both err alike, without counts, or where it is more than 100,000.

    Raises:
        ValueError: If `alpha` is not in (0, 1), or there is no test.
    """
    seen = _seen(difference)
    if seen is None or not seen.value:
        return None
    return _pairs_needed(
        abs(seen.value),
        seen.discordance,
        seen.design_effect,
        margin=None,
        alpha=alpha,
        tests=tests,
    )


def pairs_to_decide(
    difference: Difference, margin: float, *, alpha: float = 0.05, tests: int = 1
) -> int | None:
    """Return about how many pairs, in groups like these, would decide about a regression.

    A new set of that size, looked at once, decides in 8 of 10 runs, if the difference stays:
    `plan_regression` for pairs that stand alone, times the design effect of the interval.

    Args:
        difference: The difference that was seen, with its discordant pairs.
        margin: Largest accepted rise, in [0, 1).
        alpha: Error probability of the family, strictly between 0 and 1.
        tests: Tests in the family, at least 1.

    Returns:
        The pairs; None at the margin, without counts, or where it is more than 100,000.

    Raises:
        ValueError: If `alpha` is not in (0, 1), or there is no test.
    """
    seen = _seen(difference)
    if seen is None or math.isclose(seen.value, margin, abs_tol=5e-4):
        return None
    return _pairs_needed(
        seen.value,
        seen.discordance,
        seen.design_effect,
        margin=margin,
        alpha=alpha,
        tests=tests,
    )


def smallest_detectable(difference: Difference, *, largest_group: float) -> float | None:
    """Return about the smallest difference that test and interval find in at least 80 % of runs.

    The half width of the interval, which knows how groups differ, times (z + z_power) / z, with z
    of the interval's coverage and z_power of 80 %; at most 1. None without an interval, and where
    one group holds so large a share (`largest_group`, in [0, 1]) that it dominates: whether
    anything is found then hangs on that group alone.

    Source: the usual power of a normal test, such as Cohen, Statistical Power Analysis, 1988.
    """
    low, high = difference.low, difference.high
    if low is None or high is None or is_dominated(largest_group, difference.groups or 1):
        return None
    return min(1.0, (high - low) / 2 * (1 + _POWER_Z / two_sided_z(difference.confidence)))


class _Seen(NamedTuple):
    """What a paired difference shows of the pairs to come."""

    value: float
    discordance: float
    design_effect: float


def _seen(difference: Difference) -> _Seen | None:
    """Read a difference; None without discordant counts or an interval."""
    first, second, pairs = difference.first_only, difference.second_only, difference.pairs
    if not pairs or difference.value is None or first is None or second is None:
        return None
    if difference.low is None or difference.high is None:
        return None
    neither = pairs - first - second
    table = PairedTable(both=0, first_only=first, second_only=second, neither=neither)
    alone = bonett_price(table, confidence=difference.confidence)
    width = difference.high - difference.low
    design_effect = 1.0
    if alone.low is not None and alone.high is not None and alone.high > alone.low:
        design_effect = max(1.0, (width / (alone.high - alone.low)) ** 2)
    # Rounded, so that near differences share one computation; never past the discordance.
    value = round(difference.value, 3)
    discordance = max(abs(value), round((first + second) / pairs, 3))
    return _Seen(value, discordance, design_effect)


def _pairs_needed(
    value: float,
    discordance: float,
    design_effect: float,
    *,
    margin: float | None,
    alpha: float,
    tests: int,
) -> int | None:
    rough = 8.0 * discordance / (value - (margin or 0.0)) ** 2
    if rough > _MOST_PAIRS:
        return None
    alone = _pairs_alone(value, discordance, margin=margin, alpha=alpha, tests=tests)
    if alone is None:
        return None
    return math.ceil(alone * design_effect)


@lru_cache(maxsize=512)
def _pairs_alone(
    value: float, discordance: float, *, margin: float | None, alpha: float, tests: int
) -> int | None:
    try:
        if margin is None:
            return plan_difference(value, discordance, alpha=alpha, tests=tests).rows
        return plan_regression(margin, value, discordance, alpha=alpha, tests=tests).rows
    except ValueError:  # more than anybody can ask
        return None


@lru_cache(maxsize=512)
def _rows_for_margin(
    margin: float, rate: float, layout: Layout, confidence: float, *, is_watched: bool
) -> int | None:
    try:
        alone = plan_margin(margin, rate, confidence=confidence, is_watched=is_watched).rows
        if _is_beyond_simulation(alone, layout):
            return layout.worth(alone)
        return plan_margin(
            margin, rate, layout=layout, confidence=confidence, is_watched=is_watched
        ).rows
    except ValueError:  # more than anybody can ask
        return None


@lru_cache(maxsize=512)
def _rows_to_decide(
    rate: float, limit: float, layout: Layout, confidence: float, *, level: float
) -> int | None:
    try:
        alone = plan_decision(rate, limit, confidence=confidence, level=level).rows
        if _is_beyond_simulation(alone, layout):
            return layout.worth(alone)
        return plan_decision(rate, limit, layout=layout, confidence=confidence, level=level).rows
    except ValueError:  # more than anybody can ask, or as good as at the limit
        return None


def _is_beyond_simulation(alone: int, layout: Layout) -> bool:
    """Tell whether so many groups are needed that their design effect says it as well."""
    return not layout.is_alone and layout.worth(alone) > _MOST_SIMULATED * layout.mean_size


def plan_zero_events(
    upper: float, *, rate: float | None = None, layout: Layout = ALONE, confidence: float = 0.95
) -> Promise:
    """Return the groups that, all without an event, keep the default interval below a rate.

    The chance is that of no event at the true rate stated; None without one.
    """
    require_fraction("upper", upper)
    require_fraction("confidence", confidence)

    def is_enough(groups: int) -> bool:
        """Tell whether the limit is low enough, for nineteen of twenty drafts of sizes."""
        rng, drafts = np.random.default_rng([3, groups]), _SIZE_DRAFTS if layout.is_mixed else 1
        enough = 0
        for _ in range(drafts):
            sizes = layout.draw_sizes(rng, (groups,))
            high = wilson_default(0 * sizes, sizes, confidence=confidence).high
            enough += high is not None and high <= upper
        return enough >= math.ceil(0.95 * drafts)

    groups, chance = least_enough(is_enough), None
    if rate is not None:
        require_rate("rate", rate)
        spared = [_chance_of_none(rate, rows, layout.scale) for rows in layout.known_sizes]
        chance = (sum(spared) / len(spared)) ** groups
    return Promise(groups=groups, layout=layout, chance=chance)


def _chance_of_none(rate: float, rows: int, scale: float) -> float:
    """Return the chance that a group of so many rows has no event."""
    if rate >= 1.0:
        return 0.0
    return math.exp(math.fsum(math.log1p(-rate * scale / (scale + at)) for at in range(rows)))


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


def plan_regression(
    margin: float,
    difference: float,
    discordance: float,
    *,
    chance: float = 0.8,
    alpha: float = 0.05,
    tests: int = 1,
) -> Promise:
    """Return the pairs with which a gate decides whether a rate rose by more than a margin.

    Below the margin it holds where the whole interval does. Above it, it is broken where the value
    lies above the margin and the rise is shown, by test (after Holm) and interval.

    Args:
        margin: Largest accepted first rate minus second, in [0, 1).
        difference: True first rate minus second, not the margin.
        discordance: Share of pairs on which the two disagree, in [abs(difference), 1].
        chance: Wanted chance of a decision, strictly between 0 and 1.
        alpha: Error probability of the family, strictly between 0 and 1.
        tests: Tests in the family, at least 1.

    Returns:
        Pairs that stand alone, by enumeration of all tables.

    Raises:
        ValueError: If an argument is out of range, or no number of pairs decides.
    """
    require_fraction("chance", chance)
    require_fraction("alpha", alpha)
    least_p = alpha / require_count("tests", tests, least=1)
    if not 0.0 <= margin < 1.0 or difference == margin or abs(difference) > discordance:
        raise ValueError(
            "margin must be in [0, 1) and not the difference, which is at most the discordance; "
            f"got margin {margin}, difference {difference}, discordance {discordance}"
        )
    sides = (discordance + difference) / 2.0, (discordance - difference) / 2.0

    def seen(first: int, second: int, pairs: int) -> Difference:
        rest = pairs - first - second
        table = PairedTable(both=0, first_only=first, second_only=second, neither=rest)
        return bonett_price(table, confidence=1.0 - alpha)

    def reaches_past(first: int, second: int, pairs: int) -> bool:
        gap = seen(first, second, pairs)
        return gap.high is None or gap.high > margin

    def breaks(first: int, second: int, pairs: int) -> bool:
        if first - second <= margin * pairs:
            return False
        gap = seen(first, second, pairs)
        is_found = gap.p_value is not None and gap.p_value < least_p
        return is_found and gap.low is not None and gap.low > 0.0

    def decided(pairs: int) -> float:
        if difference < margin:
            return 1.0 - _enumerate(reaches_past, pairs, sides)
        return _enumerate(breaks, pairs, sides)

    rows = least_enough(lambda pairs: decided(pairs) >= chance)
    return Promise(groups=rows, layout=ALONE, chance=decided(rows))


def _shares(difference: float, discordance: float) -> tuple[float, float]:
    if not 0.0 < difference <= discordance <= 1.0:
        raise ValueError(
            "difference must be above 0 and at most discordance, which is at most 1; "
            f"got {difference} and {discordance}"
        )
    return (discordance + difference) / 2.0, (discordance - difference) / 2.0


def _draw_events(rng: np.random.Generator, sizes: Ints, *, rate: float, layout: Layout) -> Ints:
    """Draw the events of each group, in the shape of their sizes."""
    if layout.is_alone or not 0.0 < rate < 1.0:
        return rng.binomial(sizes, rate)
    scale = layout.scale
    return rng.binomial(sizes, rng.beta(rate * scale, (1 - rate) * scale, sizes.shape))


def _simulated(
    sides: tuple[float, float], layout: Layout, is_shown: Callable[[Ints, Ints, Ints], bool]
) -> Callable[[int, int], float]:
    """Return how often a claim on pairs comes out in simulated groups.

    `sides` are the shares of pairs on which the first, and the second, alone erred.
    """
    first, second = sides
    scale = layout.scale

    def kept(groups: int, runs: int) -> float:
        rng = np.random.default_rng([2, groups])
        shown = 0
        for _ in range(runs):
            sizes = layout.draw_sizes(rng, (groups,))
            differing = _draw_events(rng, sizes, rate=first + second, layout=layout)
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
    if layout.is_alone:
        rows = least_enough(lambda n: by_rows(n) >= chance)
        return Promise(groups=rows, layout=layout, chance=by_rows(rows))
    # Half of what the rows of groups would need, were they independent, is never enough.
    least = max(2, int(start // (2 * layout.mean_size)))
    groups = least_enough(lambda k: by_groups(k, _SEARCH_RUNS) >= chance, least=least, spread=0.03)
    while (kept := by_groups(groups, RUNS)) < chance:
        groups += max(1, groups // 40)
    error = math.sqrt(max(kept * (1.0 - kept), 0.25 / RUNS) / RUNS)
    return Promise(groups=groups, layout=layout, chance=kept, error=error, runs=RUNS)
