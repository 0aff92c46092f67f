"""Intervals for a rate whose trials share origins, such as the variants of one sample.

Rows of one group resemble each other, so they are worth fewer independent trials than they number.
The default here, `wilson_default`, shrinks the trials by a design effect that moves to its safe end
where the data cannot show it, and is plain Wilson when every group has one row.

`successes` and `sizes` are events and rows, one entry a group, groups without rows left out;
`confidence` is in (0, 1). Unequal lengths, a bad count, or more successes than rows in a group
raise `ValueError`. `weights` say how many such groups each entry stands for; None: one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from guardmark.core.estimate import Estimate
from guardmark.core.values import dataclass
from guardmark.stats.arguments import (
    GroupCounts,
    require_counts,
    require_equal_lengths,
    require_fraction,
    require_group_counts,
    require_part,
)
from guardmark.stats.distributions import incomplete_beta, two_sided_t, two_sided_z
from guardmark.stats.rates.proportion import NO_TRIALS, ONE_GROUP, Limits, wilson, wilson_limits

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from guardmark.stats.arguments import Flags, Floats, Ints

FEW_GROUPS = 10  # below this many groups an interval is shown greyed, with the reason
_ANY_LOOK = "its limits hold at any look, and stand on no effective count"
DOMINANT_SHARE = 0.2
"""A group with more than this share of the rows, and twice the mean group, dominates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveCounts:
    """What the rows of one slice are worth: counts that every figure of the slice stands on.

    Wilson's limits depend on n and the quantile q only by q squared / n, so Student's t at `n_eff`
    is the normal quantile at n_eff (z / t)^2 trials. `worth` gives that number, which carries few
    groups into any other interval (Korn & Graubard 1998 adjust Clopper-Pearson so).

    A group *dominates* when it holds more than a fifth of the rows and more than twice the mean
    group. The variance between groups then hangs on it, and K - 1 overstates what is known of it:
    the degrees of freedom are n / d_max - 1 = (sum m)^2 / sum m^2 - 1 (Kish's number of equal
    groups, less one), at least 1. With half of all rows in one group coverage rose from .87 to .98.

    Attributes:
        successes: Rows with the property.
        trials: Rows.
        groups: Groups they fall into.
        n_eff: Independent rows they are worth: trials / design effect; 0 where nothing shows it.
        degrees_of_freedom: Of Student's t; None where every group has one row: normal quantile.
        largest_group: Share of the rows in the largest group; 0 without rows.
        reason: Why `n_eff` is 0, or empty.
    """

    successes: int
    trials: int
    groups: int
    n_eff: float
    degrees_of_freedom: float | None = None
    largest_group: float = 0.0
    reason: str = ""

    @classmethod
    def of(cls, estimate: Estimate) -> EffectiveCounts:
        """Read what an estimate stands on."""
        return cls(
            successes=estimate.successes,
            trials=estimate.trials,
            groups=estimate.trials if estimate.groups is None else estimate.groups,
            n_eff=estimate.effective_n or 0.0,
            degrees_of_freedom=estimate.degrees_of_freedom,
            largest_group=estimate.largest_group or 0.0,
            reason="" if estimate.effective_n else estimate.reason or _ANY_LOOK,
        )

    @property
    def rate(self) -> float:
        """Row-weighted share of successes; 0 without rows."""
        return self.successes / max(1, self.trials)

    def quantile(self, confidence: float) -> float:
        """Return the two-sided quantile that goes with `n_eff`: t, or normal without groups."""
        if self.degrees_of_freedom is None:
            return two_sided_z(confidence)
        return two_sided_t(confidence, self.degrees_of_freedom)

    def worth(self, confidence: float) -> float:
        """Return the independent trials that the normal quantile may be used with."""
        if self.degrees_of_freedom is None:
            return self.n_eff
        return self.n_eff * (two_sided_z(confidence) / self.quantile(confidence)) ** 2


def exceedance(estimate: Estimate, limit: float) -> float | None:
    """Return the one-sided exact p of "the rate is at most the limit", where counts are known.

    Source: Clopper & Pearson (1934); Korn & Graubard (1998), Survey Methodology 24:193.
    """
    if not estimate.effective_n or estimate.value is None:
        return None
    worth = EffectiveCounts.of(estimate).worth(estimate.confidence)
    hits = estimate.value * worth
    return incomplete_beta(limit, hits, worth - hits + 1.0) if hits else 1.0


def is_dominated(largest_group: float, groups: int) -> bool:
    """Tell whether a group with this share of the rows dominates; see `EffectiveCounts`."""
    return largest_group > max(DOMINANT_SHARE, 2.0 / groups)


def group_freedom(sizes: ArrayLike) -> float:
    """Return the degrees of freedom of an interval over at least two groups of these sizes.

    Groups less one, or fewer where one group dominates; see `EffectiveCounts`.
    """
    rows = np.asarray(sizes, dtype=float)
    total = float(rows.sum())
    return _freedom(len(rows), float(rows.max()) / total, total**2 / float(rows @ rows))


def satterthwaite_freedom(squares: Floats, freedom: float) -> float:
    """Return fewer degrees of freedom where a few squares carry the sum (Satterthwaite 1946)."""
    excess = float(squares @ squares) / float(squares.sum()) ** 2 - 1 / len(squares)
    return max(1.0, min(freedom, 2 / excess)) if excess > 0 else freedom


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSummary:
    """What grouped counts say about a rate and about how groups differ.

    Attributes:
        successes: Rows with the property.
        trials: Rows.
        groups: Groups with at least one row.
        rate: Row-weighted rate, or None without rows.
        group_mean: Mean of the groups' own rates, or None without rows.
        se_cr0: Clustered standard error without small-sample factor, or None.
        se_cr1: The same times sqrt(K / (K - 1)), or None with fewer than two groups.
        icc: Intra-group correlation by analysis of variance; None where undefined.
        design_effect: Variance against that of independent rows, unclipped; None where undefined.
        design_effect_limit: The design effect if the intra-group correlation were 1.
        largest_group: Share of the rows in the largest group, or None without rows.
        degrees_of_freedom: Groups minus one.
        groups_with_event: Groups with at least one success.
        groups_with_non_event: Groups with at least one failure.
        singletons: Whether every group has one row.
    """

    successes: int
    trials: int
    groups: int
    rate: float | None
    group_mean: float | None
    se_cr0: float | None
    se_cr1: float | None
    icc: float | None
    design_effect: float | None
    design_effect_limit: float | None
    largest_group: float | None
    degrees_of_freedom: int
    groups_with_event: int
    groups_with_non_event: int
    singletons: bool


def summarise(successes: ArrayLike, sizes: ArrayLike) -> ClusterSummary:
    """Summarise one set of grouped counts; every figure is a sum over groups.

    Source: Miller (2024), arXiv:2411.00640 (CR0); Ridout, Demetrio & Firth (1999),
    doi:10.1111/j.0006-341X.1999.00137.x (ICC); Kish (1965) (design effect).
    """
    counts = require_group_counts(successes, sizes)
    return _summaries(counts, np.zeros(len(counts.sizes), dtype=np.int64), 1)[0]


def summarise_slices(
    successes: ArrayLike,
    sizes: ArrayLike,
    *,
    slices: ArrayLike,
    slice_count: int,
    weights: Ints | None = None,
) -> list[ClusterSummary]:
    """Summarise many slices at once, in a single pass over the counts.

    Args:
        successes: Rows with the property, one entry for each group within a slice.
        sizes: Rows, one entry for each group within a slice.
        slices: Index of the slice of each entry, in 0..slice_count - 1, or `ValueError`.
        slice_count: Slices wanted; one without entries gives an undefined summary.
        weights: How many such groups each entry stands for, at least 1.
    """
    index = require_counts("slices", slices)
    rows = require_counts("sizes", sizes)
    require_equal_lengths(slices=len(index), sizes=len(rows))
    if len(index) and int(index.max()) >= slice_count:
        raise ValueError(f"slices must be below {slice_count}, got {index.max()}")
    counts, used = require_group_counts(successes, rows), rows > 0
    return _summaries(counts, index[used], slice_count, None if weights is None else weights[used])


def wilson_default(successes: ArrayLike, sizes: ArrayLike, *, confidence: float = 0.95) -> Estimate:
    """Estimate a rate of grouped rows: the project's default interval.

    Wilson's interval at the effective number of trials, with Student's t at K - 1 degrees of
    freedom for K groups (fewer where one group dominates: see `EffectiveCounts`). The design effect
    is the larger of the linearised and the ANOVA one, drawn towards its limit the fewer groups show
    events (or non-events), since then the variation between groups cannot be seen. Undefined
    without rows; no bounds with a single group of several rows; `few_groups` below 10 groups. 0 of
    n reads as 0 of n / design effect limit.
    Source: this project's construction, docs/explanation/statistics.md; in the family of Korn &
    Graubard (1998) and Franco, Little, Louis & Slud (2019), doi:10.1093/jssam/smy019.
    """
    require_fraction("confidence", confidence)
    return default_estimate(summarise(successes, sizes), confidence=confidence)


def wilson_default_slices(
    successes: ArrayLike,
    sizes: ArrayLike,
    *,
    slices: ArrayLike,
    slice_count: int,
    weights: Ints | None = None,
    confidence: float = 0.95,
) -> list[Estimate]:
    """Estimate the rate of many slices at once, as `summarise_slices` cuts them."""
    require_fraction("confidence", confidence)
    summaries = summarise_slices(
        successes, sizes, slices=slices, slice_count=slice_count, weights=weights
    )
    return [default_estimate(summary, confidence=confidence) for summary in summaries]


def wilson_default_rows(successes: int, rows: int, *, confidence: float = 0.95) -> Estimate:
    """Estimate the rate of rows that are each a group of their own, from two counts."""
    events, trials = require_part(successes, rows)
    often = np.array([events, trials - events])
    return wilson_default_slices(
        [1, 0], [1, 1], slices=[0, 0], slice_count=1, weights=often, confidence=confidence
    )[0]


def default_estimate(summary: ClusterSummary, *, confidence: float = 0.95) -> Estimate:
    """Turn a summary into the default estimate; see `wilson_default`."""
    limits, effect, freedom = None, None, None
    method = "wilson" if summary.singletons else "wilson_clustered"
    counts = effective_counts(summary)
    if counts.n_eff:
        limits = wilson_limits(counts.rate, counts.n_eff, z=counts.quantile(confidence))
        effect, freedom = counts.trials / counts.n_eff, counts.degrees_of_freedom
    return estimate_from_summary(
        summary,
        limits,
        confidence=confidence,
        method=method,
        effect=effect,
        freedom=freedom,
        reason=counts.reason,
    )


def effective_counts(summary: ClusterSummary) -> EffectiveCounts:
    """Say what the rows of a summary are worth, by the rules of `wilson_default`."""
    limit, largest = summary.design_effect_limit, summary.largest_group
    worth, freedom, reason = 0.0, None, ""
    if limit is None or largest is None:
        reason = NO_TRIALS
    elif summary.singletons:
        worth = float(summary.trials)
    elif summary.groups < 2:
        reason = ONE_GROUP
    else:
        worth = summary.trials / _default_design_effect(summary, limit)
        freedom = _freedom(summary.groups, largest, summary.trials / limit)
    return EffectiveCounts(
        successes=summary.successes,
        trials=summary.trials,
        groups=summary.groups,
        n_eff=worth,
        degrees_of_freedom=freedom,
        largest_group=largest or 0.0,
        reason=reason,
    )


def any_per_group(
    successes: ArrayLike,
    sizes: ArrayLike,
    *,
    weights: Ints | None = None,
    confidence: float = 0.95,
) -> Estimate:
    """Estimate the share of groups with at least one success.

    "Does any variant get through?" is asked of groups, which are independent: plain Wilson.
    """
    counts = require_group_counts(successes, sizes)
    used = np.asarray(sizes) > 0
    weight = np.ones(len(counts.sizes), dtype=np.int64) if weights is None else weights[used]
    hit = int(weight[counts.successes > 0].sum())
    return wilson(hit, int(weight.sum()), confidence=confidence)


def _summaries(
    counts: GroupCounts, slices: Ints, slice_count: int, weights: Ints | None = None
) -> list[ClusterSummary]:
    """Reduce groups to slices; every sum is one weighted `bincount`."""
    if weights is None:
        counts, slices, weights = _kinds(counts, slices, slice_count)
    events, rows = counts

    def total(values: Floats | Ints | Flags) -> Floats:
        each = values if weights is None else values * weights
        return np.bincount(slices, weights=each, minlength=slice_count).astype(float)

    groups, trials, successes = total(rows > 0).astype(int), total(rows), total(events)
    with np.errstate(divide="ignore", invalid="ignore"):
        own_rate, shares = (successes / trials)[slices], events / rows
        residual = total((events - own_rate * rows) ** 2)
        between = total(rows * (shares - own_rate) ** 2)
    largest = np.zeros(slice_count)
    np.maximum.at(largest, slices, rows.astype(float))
    within, squares = total(events * (1.0 - shares)), total(rows * rows)
    seen = (total(shares), total(events > 0), total(events < rows))
    columns = (groups, successes, trials, residual, between, within, squares, *seen, largest)
    sums = zip(*(column.tolist() for column in columns), strict=True)
    return [_summary(_Sums(*row)) for row in sums]


def _kinds(
    counts: GroupCounts, slices: Ints, slice_count: int
) -> tuple[GroupCounts, Ints, Ints | None]:
    """Keep groups of a slice with equal counts once, with their number: they add the same."""
    events, rows = counts
    most = int(rows.max(initial=0)) + 1
    if slice_count * most * most > len(rows):  # hardly any are equal
        return counts, slices, None
    often = np.bincount((slices * most + rows) * most + events)
    kinds = np.flatnonzero(often)
    slices, rows = np.divmod(kinds // most, most)
    return GroupCounts(kinds % most, rows), slices, often[kinds]


class _Sums(NamedTuple):
    """Sums over the groups of one slice."""

    groups: int
    successes: float
    trials: float
    residual: float
    between: float
    within: float
    squares: float
    shares: float
    with_event: float
    with_non_event: float
    largest: float


def _freedom(groups: int, largest_group: float, kish: float) -> float:
    """Return K - 1, or Kish's number of groups less one where one dominates."""
    return max(1.0, kish - 1.0) if is_dominated(largest_group, groups) else groups - 1.0


def _summary(sums: _Sums) -> ClusterSummary:
    """Summarise the groups of one slice; without rows nothing is known of them."""
    groups, successes, trials = sums.groups, sums.successes, sums.trials
    rate: float | None = None
    se_cr0: float | None = None
    group_mean: float | None = None
    limit: float | None = None
    largest: float | None = None
    if trials:
        rate = successes / trials
        se_cr0 = math.sqrt(sums.residual) / trials
        limit = sums.squares / trials
        largest = sums.largest / trials
    if groups:
        group_mean = sums.shares / groups
    se_cr1: float | None = None
    if se_cr0 is not None and groups > 1:
        se_cr1 = se_cr0 * math.sqrt(groups / (groups - 1))
    design_effect: float | None = None
    if rate is not None and se_cr1 is not None:
        binomial = rate * (1.0 - rate) / trials
        if binomial > 0:
            design_effect = se_cr1**2 / binomial
    return ClusterSummary(
        successes=int(successes),
        trials=int(trials),
        groups=groups,
        rate=rate,
        group_mean=group_mean,
        se_cr0=se_cr0,
        se_cr1=se_cr1,
        icc=_anova_icc(sums),
        design_effect=design_effect,
        design_effect_limit=limit,
        largest_group=largest,
        degrees_of_freedom=max(groups - 1, 0),
        groups_with_event=int(sums.with_event),
        groups_with_non_event=int(sums.with_non_event),
        singletons=trials == groups,
    )


def _anova_icc(sums: _Sums) -> float | None:
    """Return the ANOVA intra-group correlation; None without variation or spare rows."""
    groups, trials = sums.groups, sums.trials
    if groups < 2 or trials <= groups:
        return None
    mean_between = sums.between / (groups - 1)
    mean_within = sums.within / (trials - groups)
    usual_size = (trials - sums.squares / trials) / (groups - 1)
    variance = mean_between + (usual_size - 1.0) * mean_within
    return (mean_between - mean_within) / variance if variance > 0 else None


def _default_design_effect(summary: ClusterSummary, limit: float) -> float:
    linearised = limit
    if summary.design_effect is not None:
        linearised = min(max(summary.design_effect, 1.0), limit)
    icc = 1.0 if summary.icc is None else min(max(summary.icc, 0.0), 1.0)
    seen = max(linearised, 1.0 + (limit - 1.0) * icc)
    telling = min(summary.groups_with_event, summary.groups_with_non_event)
    weight = telling / (telling + 2.0)
    return weight * seen + (1.0 - weight) * limit


def estimate_from_summary(
    summary: ClusterSummary,
    limits: Limits | None,
    *,
    confidence: float,
    method: str,
    effect: float | None = None,
    freedom: float | None = None,
    reason: str = "",
) -> Estimate:
    """Return the estimate of summarised counts with its limits, or the reason for none."""
    return Estimate(
        successes=summary.successes,
        trials=summary.trials,
        low=limits.low if limits else None,
        high=limits.high if limits else None,
        confidence=confidence,
        method=method,
        groups=summary.groups,
        effective_n=summary.trials / effect if effect else None,
        design_effect=effect,
        icc=summary.icc,
        group_mean=summary.group_mean,
        degrees_of_freedom=freedom,
        largest_group=summary.largest_group,
        few_groups=0 < summary.groups < FEW_GROUPS and not summary.singletons,
        reason=reason,
    )
