"""Intervals for a rate whose trials share origins, such as the variants of one sample.

Rows of one group resemble each other, so they are worth fewer independent trials than they
number. The default here, `wilson_default`, shrinks the trials by a design effect that moves to
its safe end where the data cannot show it, and is plain Wilson when every group has one row.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from guardmark.core.estimate import Estimate, Ratio
from guardmark.stats.arguments import require_fraction, require_group_counts
from guardmark.stats.cluster_summary import (
    ClusterSummary,
    summarise,
    summarise_rows,
    summarise_slices,
)
from guardmark.stats.distributions import beta_quantile, two_sided_t
from guardmark.stats.normal import two_sided_z
from guardmark.stats.proportion import Limits, wilson, wilson_limits

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

FEW_GROUPS = 10
"""Below this many groups an interval is shown greyed, with the reason."""

_NO_TRIALS = "no trials"
_ONE_GROUP = "one group only: nothing shows how groups differ"


def wilson_default(successes: ArrayLike, sizes: ArrayLike, *, confidence: float = 0.95) -> Estimate:
    """Estimate a rate of grouped rows: the project's default interval.

    Wilson's interval at the effective number of trials, with Student's t at K - 1 degrees of
    freedom for K groups. The design effect is the larger of the linearised and the ANOVA one,
    drawn towards its limit the fewer groups show events (or non-events), since then the
    variation between groups cannot be seen. With one row a group it is plain Wilson.

    Args:
        successes: Rows with the property, one entry a group.
        sizes: Rows, one entry a group; groups without rows are left out.
        confidence: Nominal coverage, strictly between 0 and 1.

    Returns:
        The estimate. Undefined without rows; no bounds with a single group of several rows;
        `few_groups` below 10 groups. 0 of n reads as 0 of n / design effect limit.

    Raises:
        ValueError: On unequal lengths, a bad count, or more successes than rows in a group.

    References:
        This project's construction, docs/explanation/statistics.md; in the family of Korn &
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
    confidence: float = 0.95,
) -> list[Estimate]:
    """Estimate the rate of many slices at once; see `wilson_default`.

    Args:
        successes: Rows with the property, one entry for each group within a slice.
        sizes: Rows, one entry for each group within a slice.
        slices: Index of the slice of each entry, in 0..slice_count - 1.
        slice_count: Slices wanted; one without entries gives an undefined estimate.
        confidence: Nominal coverage, strictly between 0 and 1.

    Raises:
        ValueError: On unequal lengths, a bad count or index, or more successes than rows.
    """
    require_fraction("confidence", confidence)
    summaries = summarise_slices(successes, sizes, slices=slices, slice_count=slice_count)
    return [default_estimate(summary, confidence=confidence) for summary in summaries]


def wilson_default_rows(successes: int, rows: int, *, confidence: float = 0.95) -> Estimate:
    """Estimate a rate of rows that are each a group of their own; see `wilson_default`.

    Args:
        successes: Rows with the property.
        rows: Rows.
        confidence: Nominal coverage, strictly between 0 and 1.

    Returns:
        What `wilson_default` says of as many groups of one row, from the two counts alone.

    Raises:
        ValueError: On a bad count, or more successes than rows.
    """
    require_fraction("confidence", confidence)
    return default_estimate(summarise_rows(successes, rows), confidence=confidence)


def default_estimate(summary: ClusterSummary, *, confidence: float = 0.95) -> Estimate:
    """Turn a summary into the default estimate; see `wilson_default`.

    Args:
        summary: Grouped counts, summarised.
        confidence: Nominal coverage, strictly between 0 and 1.
    """
    rate, limit = summary.rate, summary.design_effect_limit
    if rate is None or limit is None:
        return _estimate(summary, None, confidence=confidence, method="wilson", reason=_NO_TRIALS)
    if summary.singletons:
        limits = wilson_limits(rate, summary.trials, z=two_sided_z(confidence))
        return _estimate(summary, limits, confidence=confidence, method="wilson", effect=1.0)
    method = "wilson_clustered"
    if summary.groups < 2:
        return _estimate(summary, None, confidence=confidence, method=method, reason=_ONE_GROUP)
    effect = _default_design_effect(summary, limit)
    quantile = two_sided_t(confidence, summary.degrees_of_freedom)
    limits = wilson_limits(rate, summary.trials / effect, z=quantile)
    return _estimate(summary, limits, confidence=confidence, method=method, effect=effect)


def survey_logit(successes: ArrayLike, sizes: ArrayLike, *, confidence: float = 0.95) -> Estimate:
    """Estimate a rate of grouped rows with the survey logit interval.

    For comparison; it is undefined exactly where good defenses live, at 0 or all successes.

    Args:
        successes: Rows with the property, one entry a group.
        sizes: Rows, one entry a group; groups without rows are left out.
        confidence: Nominal coverage, strictly between 0 and 1.

    Raises:
        ValueError: On unequal lengths, a bad count, or more successes than rows in a group.

    References:
        Lumley, R package survey, svyciprop(method = "logit").
    """
    require_fraction("confidence", confidence)
    summary, method = summarise(successes, sizes), "survey_logit"
    reason = _survey_reason(summary)
    if reason or summary.rate is None or summary.se_cr1 is None:
        return _estimate(summary, None, confidence=confidence, method=method, reason=reason)
    rate = summary.rate
    centre = math.log(rate / (1.0 - rate))
    spread = summary.se_cr1 / (rate * (1.0 - rate))
    spread *= two_sided_t(confidence, summary.degrees_of_freedom)
    limits = Limits(_from_logit(centre - spread), _from_logit(centre + spread))
    effect = summary.design_effect
    return _estimate(summary, limits, confidence=confidence, method=method, effect=effect)


def survey_beta(successes: ArrayLike, sizes: ArrayLike, *, confidence: float = 0.95) -> Estimate:
    """Estimate a rate of grouped rows with the Korn-Graubard interval.

    For comparison: Clopper-Pearson at an effective number of trials.

    Args:
        successes: Rows with the property, one entry a group.
        sizes: Rows, one entry a group; groups without rows are left out.
        confidence: Nominal coverage, strictly between 0 and 1.

    Raises:
        ValueError: On unequal lengths, a bad count, or more successes than rows in a group.

    References:
        Korn & Graubard (1998), Survey Methodology 24:193; as R survey's
        svyciprop(method = "beta").
    """
    require_fraction("confidence", confidence)
    summary, method = summarise(successes, sizes), "survey_beta"
    reason = _survey_reason(summary)
    if reason or summary.rate is None or summary.se_cr1 is None:
        return _estimate(summary, None, confidence=confidence, method=method, reason=reason)
    rate, tail = summary.rate, (1.0 - confidence) / 2.0
    worth = rate * (1.0 - rate) / summary.se_cr1**2
    by_rows = two_sided_t(confidence, summary.trials - 1)
    worth *= (by_rows / two_sided_t(confidence, summary.degrees_of_freedom)) ** 2
    low = beta_quantile(tail, worth * rate, worth * (1.0 - rate) + 1.0)
    high = beta_quantile(1.0 - tail, worth * rate + 1.0, worth * (1.0 - rate))
    effect = summary.trials / worth
    return _estimate(
        summary, Limits(low, high), confidence=confidence, method=method, effect=effect
    )


def any_per_group(successes: ArrayLike, sizes: ArrayLike, *, confidence: float = 0.95) -> Estimate:
    """Estimate the share of groups with at least one success.

    "Does any variant get through?" is asked of groups, which are independent: plain Wilson.

    Args:
        successes: Rows with the property, one entry a group.
        sizes: Rows, one entry a group; groups without rows are left out.
        confidence: Nominal coverage, strictly between 0 and 1.

    Raises:
        ValueError: On unequal lengths, a bad count, or more successes than rows in a group.
    """
    counts = require_group_counts(successes, sizes)
    hit = int((counts.successes > 0).sum())
    return wilson(hit, len(counts.sizes), confidence=confidence)


def group_mean(successes: ArrayLike, sizes: ArrayLike, *, confidence: float = 0.95) -> Ratio:
    """Estimate the mean of the groups' own rates, each group weighing the same.

    Stands beside the row-weighted rate, in which a group with many rows weighs more.

    Args:
        successes: Rows with the property, one entry a group.
        sizes: Rows, one entry a group; groups without rows are left out.
        confidence: Nominal coverage, strictly between 0 and 1.

    Returns:
        The mean with Student's t interval, cut to [0, 1]. No bounds with fewer than two groups,
        or when all groups have the same rate: the variation cannot be seen then.

    Raises:
        ValueError: On unequal lengths, a bad count, or more successes than rows in a group.
    """
    require_fraction("confidence", confidence)
    counts = require_group_counts(successes, sizes)
    rates, groups = counts.successes / counts.sizes, len(counts.sizes)
    value = float(rates.mean()) if groups else None
    reason = _NO_TRIALS if value is None else _ONE_GROUP if groups < 2 else ""
    if not reason and float(np.ptp(rates)) == 0.0:
        reason = "all groups have the same rate: nothing shows how groups differ"
    limits = None
    if not reason and value is not None:
        error = float(rates.std(ddof=1)) / math.sqrt(groups) * two_sided_t(confidence, groups - 1)
        limits = Limits(max(0.0, value - error), min(1.0, value + error))
    return Ratio(
        value=value,
        low=limits.low if limits else None,
        high=limits.high if limits else None,
        confidence=confidence,
        method="t_of_group_rates",
        trials=int(counts.sizes.sum()),
        groups=groups,
        reason=reason,
    )


def _default_design_effect(summary: ClusterSummary, limit: float) -> float:
    linearised = limit
    if summary.design_effect is not None:
        linearised = min(max(summary.design_effect, 1.0), limit)
    icc = 1.0 if summary.icc is None else min(max(summary.icc, 0.0), 1.0)
    seen = max(linearised, 1.0 + (limit - 1.0) * icc)
    telling = min(summary.groups_with_event, summary.groups_with_non_event)
    weight = telling / (telling + 2.0)
    return weight * seen + (1.0 - weight) * limit


def _estimate(
    summary: ClusterSummary,
    limits: Limits | None,
    *,
    confidence: float,
    method: str,
    effect: float | None = None,
    reason: str = "",
) -> Estimate:
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
        few_groups=0 < summary.groups < FEW_GROUPS and not summary.singletons,
        reason=reason,
    )


def _survey_reason(summary: ClusterSummary) -> str:
    if not summary.trials:
        return _NO_TRIALS
    if summary.groups < 2:
        return _ONE_GROUP
    if summary.successes in {0, summary.trials}:
        return "all rows agree: the variance between groups cannot be seen"
    if not summary.se_cr1:
        return "all groups have the same rate: the variance between groups cannot be seen"
    return ""


def _from_logit(value: float) -> float:
    return 1.0 / (1.0 + math.exp(-value))
