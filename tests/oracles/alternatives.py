"""Published methods kept for comparison: reference cases use them, reports do not.

Arguments mean what they mean at the default that each function names. `confidence` is the nominal
coverage, strictly between 0 and 1; a count or a confidence out of range raises `ValueError`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from guardmark.core.estimate import Difference, Estimate
from guardmark.stats.arguments import (
    Counts,
    number_column,
    require_fraction,
    require_part,
)
from guardmark.stats.distributions import (
    as_p_value,
    beta_quantile,
    chi_square_upper_tail,
    normal_quantile,
    normal_upper_tail,
    two_sided_p,
    two_sided_t,
    two_sided_z,
)
from guardmark.stats.multiplicity import adjust_family
from guardmark.stats.paired.intervals import (
    PairedTable,
    bisect_falling,
    cut_limits,
    estimate_from_table,
    standardise,
    summarise_pairs,
)
from guardmark.stats.paired.significance import mcnemar
from guardmark.stats.rates.clustered import ClusterSummary, estimate_from_summary, summarise
from guardmark.stats.rates.proportion import (
    NO_TRIALS,
    ONE_GROUP,
    Limits,
    estimate_rate,
    undefined_difference,
    wilson_limits,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike

    from guardmark.stats.arguments import Floats
    from guardmark.stats.rates.corrected import JudgeLabels


def wilson_cc(successes: int, trials: int, *, confidence: float = 0.95) -> Estimate:
    """Estimate a rate with the continuity-corrected Wilson interval.

    Beside `guardmark.stats.rates.proportion.wilson`; no better than Clopper-Pearson. Undefined
    without trials; 0 successes start at 0, all successes end at 1.
    Source: Newcombe (1998), Statistics in Medicine 17:857, method 4.
    """
    return estimate_rate(
        successes, trials, limits=_wilson_cc, confidence=confidence, method="wilson_cc"
    )


def clopper_pearson_upper(successes: int, trials: int, *, confidence: float = 0.95) -> Estimate:
    """Bound a rate from above: "the rate is at most x", the whole error probability above it.

    Beside `guardmark.stats.rates.proportion.clopper_pearson`, which splits it between both sides.
    """
    return estimate_rate(
        successes, trials, limits=_upper, confidence=confidence, method="clopper_pearson_upper"
    )


def clopper_pearson_lower(successes: int, trials: int, *, confidence: float = 0.95) -> Estimate:
    """Bound a rate from below; see `clopper_pearson_upper`."""
    return estimate_rate(
        successes, trials, limits=_lower, confidence=confidence, method="clopper_pearson_lower"
    )


def jeffreys(successes: int, trials: int, *, confidence: float = 0.95) -> Estimate:
    """Estimate a rate with the Jeffreys interval, its ends set to 0 and 1.

    Beside `guardmark.stats.rates.proportion.wilson`. Undefined without trials.
    Source: Brown, Cai & DasGupta (2001), doi:10.1214/ss/1009213286, which sets the lower end to 0
    without successes and the upper to 1 without failures.
    """
    return estimate_rate(
        successes, trials, limits=_jeffreys, confidence=confidence, method="jeffreys"
    )


def survey_logit(successes: ArrayLike, sizes: ArrayLike, *, confidence: float = 0.95) -> Estimate:
    """Estimate a rate of grouped rows with the survey logit interval.

    Beside `guardmark.stats.rates.clustered.wilson_default`. It has no limits exactly where good
    defenses live, at 0 or all successes, nor with one group or equal rates in all of them.
    Source: Lumley, R package survey, svyciprop(method = "logit").
    """
    return _survey(
        summarise(successes, sizes), _logit, confidence=confidence, method="survey_logit"
    )


def survey_beta(successes: ArrayLike, sizes: ArrayLike, *, confidence: float = 0.95) -> Estimate:
    """Estimate a rate of grouped rows with the Korn-Graubard interval.

    Beside `guardmark.stats.rates.clustered.wilson_default`: Clopper-Pearson at an effective number
    of trials, without limits where `survey_logit` has none.
    Source: Korn & Graubard (1998), Survey Methodology 24:193; as R survey's svyciprop(method =
    "beta").
    """
    return _survey(summarise(successes, sizes), _beta, confidence=confidence, method="survey_beta")


def newcombe(first: Counts, second: Counts, *, confidence: float = 0.95) -> Difference:
    """Estimate the difference of two independent rates from two Wilson intervals.

    Beside `guardmark.stats.rates.proportion.mover`. The test is the score test of
    `miettinen_nurminen`; undefined when a side has no trials.
    Source: Newcombe (1998), Statistics in Medicine 17:873, method 10.
    """
    one, two = _checked_sides(first, second, confidence)
    limits = None
    if one.trials and two.trials:
        z = two_sided_z(confidence)
        p1, p2 = one.successes / one.trials, two.successes / two.trials
        around1, around2 = wilson_limits(p1, one.trials, z=z), wilson_limits(p2, two.trials, z=z)
        limits = Limits(
            p1 - p2 - math.hypot(p1 - around1.low, around2.high - p2),
            p1 - p2 + math.hypot(around1.high - p1, p2 - around2.low),
        )
    return _independent(one, two, limits, confidence=confidence, method="newcombe_independent")


def miettinen_nurminen(first: Counts, second: Counts, *, confidence: float = 0.95) -> Difference:
    """Estimate the difference of two independent rates by inverting a score test.

    Beside `guardmark.stats.rates.proportion.mover`; undefined when a side has no trials.
    Source: Miettinen & Nurminen (1985), doi:10.1002/sim.4780040211.
    """
    one, two = _checked_sides(first, second, confidence)
    limits = None
    if one.trials and two.trials:
        z = two_sided_z(confidence)
        value = one.successes / one.trials - two.successes / two.trials

        def score(margin: float) -> float:
            return _independent_score(one, two, margin=margin)

        limits = Limits(
            bisect_falling(score, target=z, low=-1.0, high=value),
            bisect_falling(score, target=-z, low=value, high=1.0),
        )
    return _independent(one, two, limits, confidence=confidence, method="miettinen_nurminen")


def newcombe10(table: PairedTable, *, confidence: float = 0.95) -> Difference:
    """Estimate the difference of two paired rates from two Wilson intervals.

    Beside `guardmark.stats.paired.intervals.bonett_price`, with McNemar's mid-p; undefined without
    pairs.
    Source: Newcombe (1998), Statistics in Medicine 17:2635, method 10.
    """
    require_fraction("confidence", confidence)
    limits = _newcombe10(table, two_sided_z(confidence)) if table.pairs else None
    return estimate_from_table(table, limits, confidence=confidence, method="newcombe10")


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedCrosscheck:
    """Grouped paired comparison by other people's methods.

    Attributes:
        difference: First rate minus second, or None without pairs.
        se_cr1: Linearised standard error, or None with fewer than two groups.
        t_low: Lower Wald limit with Student's t, uncut, or None.
        t_high: Upper Wald limit with Student's t, uncut, or None.
        obuchowski_chi2: Obuchowski's statistic, or None when no group is discordant.
        obuchowski_p: Its p; 1 by convention when the statistic is None.
        durkalski_chi2: Durkalski's statistic, or None when no group is discordant.
        durkalski_p: Its p; 1 by convention when the statistic is None.
        reason: Why something is undefined, or empty.
    """

    difference: float | None
    se_cr1: float | None
    t_low: float | None
    t_high: float | None
    obuchowski_chi2: float | None
    obuchowski_p: float
    durkalski_chi2: float | None
    durkalski_p: float
    reason: str = ""


def crosscheck_pairs(
    first_only: ArrayLike, second_only: ArrayLike, *, sizes: ArrayLike, confidence: float = 0.95
) -> PairedCrosscheck:
    """Compare two defenses on grouped samples by Obuchowski, Durkalski and a Wald t.

    Beside `guardmark.stats.paired.intervals.clustered_bonett_price`, with the same arguments.
    Source: Obuchowski (1998), Statistics in Medicine 17:1495; Durkalski, Palesch, Lipsitz & Rust
    (2003), doi:10.1002/sim.1438.
    """
    require_fraction("confidence", confidence)
    counts = summarise_pairs(first_only, second_only, sizes=sizes)
    rows = np.asarray(sizes, dtype=float)
    gaps = (np.asarray(first_only, dtype=float) - np.asarray(second_only, dtype=float))[rows > 0]
    shares = gaps / rows[rows > 0]
    squares, groups = float((gaps**2).sum()), counts.groups
    obuchowski, durkalski, reason = None, None, "" if counts.pairs else "no pairs"
    if squares and groups > 1:
        obuchowski = float(gaps.sum()) ** 2 / squares * (groups - 1) / groups
        durkalski = float(shares.sum()) ** 2 / float((shares**2).sum())
    elif counts.pairs:
        reason = "no discordant group" if groups > 1 else "one group only"
    error = None
    if counts.se_cr1 is not None:
        error = counts.se_cr1 * two_sided_t(confidence, groups - 1)
    value = counts.difference
    return PairedCrosscheck(
        difference=value,
        se_cr1=counts.se_cr1,
        t_low=value - error if value is not None and error is not None else None,
        t_high=value + error if value is not None and error is not None else None,
        obuchowski_chi2=obuchowski,
        obuchowski_p=_p_of_one_degree(obuchowski),
        durkalski_chi2=durkalski,
        durkalski_p=_p_of_one_degree(durkalski),
        reason=reason,
    )


def bonferroni(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjust p values by the number of tests; see `guardmark.stats.multiplicity.holm`."""
    return adjust_family(p_values, lambda values: values * len(values))


def hochberg(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjust p values step by step upwards; see `guardmark.stats.multiplicity.holm`.

    Needs tests that are independent or positively dependent.
    Source: Hochberg (1988), doi:10.1093/biomet/75.4.800.
    """
    return adjust_family(p_values, lambda values: _step_up(values, np.arange(1.0, len(values) + 1)))


def benjamini_hochberg(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjust p values for the expected share of false claims.

    For exploratory tables only; see `guardmark.stats.multiplicity.holm`.
    Source: Benjamini & Hochberg (1995), doi:10.1111/j.2517-6161.1995.tb02031.x.
    """
    return adjust_family(
        p_values, lambda values: _step_up(values, len(values) / np.arange(len(values), 0, -1))
    )


def benjamini_yekutieli(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjust for the expected share of false claims under any dependence.

    For exploratory tables only; see `guardmark.stats.multiplicity.holm`.
    Source: Benjamini & Yekutieli (2001), doi:10.1214/aos/1013699998.
    """

    def adjust(values: Floats) -> Floats:
        ranks = np.arange(len(values), 0, -1)
        return _step_up(values, float((1.0 / ranks).sum()) * len(ranks) / ranks)

    return adjust_family(p_values, adjust)


def mcnemar_power(
    p_small: float, p_large: float, *, pairs: int, alpha: float = 0.05, form: str = "midp"
) -> float:
    """Compute the power of McNemar's test, mid-p or exact, two-sided, by enumeration.

    Rejection on either side counts. `p_small` and `p_large` are the probabilities of a pair
    discordant either way.
    """
    from scipy.stats import binom

    power, share = 0.0, p_large / (p_small + p_large)
    for discordant in range(pairs + 1):
        rejected = [
            one
            for one in range(discordant + 1)
            if getattr(mcnemar(one, discordant - one), f"p_{form}") <= alpha
        ]
        chance = binom.pmf(discordant, pairs, p_small + p_large)
        power += float(chance * binom.pmf(rejected, discordant, share).sum())
    return power


def mcnemar_power_normal(
    p_small: float, p_large: float, *, pairs: int, alpha: float = 0.05
) -> float:
    """Approximate the power of McNemar's test by a normal formula.

    Beside `mcnemar_power`, which enumerates, with the same arguments.
    Source: Miettinen (1968), doi:10.2307/2528300.
    """
    discordance, difference = min(1.0, p_small + p_large), p_large - p_small
    critical = normal_quantile(1.0 - alpha / 2.0) * math.sqrt(discordance)
    spread = math.sqrt(discordance - difference**2)
    gap = difference * math.sqrt(pairs) - critical
    return normal_upper_tail(-gap / spread) if spread else float(gap > 0)


def harrell_davis(values: ArrayLike, quantile: float) -> float | None:
    """Estimate a quantile as a weighted mean of all sorted values.

    Beside `guardmark.stats.quantiles.estimate_quantile`; steadier for few values. None without any.
    Source: Harrell & Davis (1982), doi:10.1093/biomet/69.3.635.
    """
    from scipy.special import betainc

    require_fraction("quantile", quantile)
    numbers = np.sort(number_column(values, name="values"))
    n = len(numbers)
    if not n:
        return None
    edges = np.arange(n + 1) / n
    weights = np.diff(betainc((n + 1) * quantile, (n + 1) * (1 - quantile), edges))
    return float(weights @ numbers)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoweredRate:
    """An unsafe rate by prediction-powered inference."""

    value: float | None = None  # The rate clipped to [0, 1], or None when undefined or refused.
    low: float | None = None  # Lower limit clipped to [0, 1], or None.
    high: float | None = None  # Upper limit clipped to [0, 1], or None.
    raw: float | None = None  # The rate as computed, possibly outside [0, 1].
    raw_low: float | None = None  # Lower limit as computed, or None.
    raw_high: float | None = None  # Upper limit as computed, or None.
    standard_error: float | None = None  # Of the raw rate.
    tuning: float | None = None  # Weight of the judge, in [0, 1].
    trials: int  # Judged responses without a human label.
    labelled: int  # Responses with a human label.
    confidence: float  # Nominal coverage, in (0, 1).
    method: str  # Name of estimator and interval.
    reason: str = ""  # Why something is undefined or refused, or empty.


def ppi_mean(
    judged_unsafe: int,
    trials: int,
    *,
    labels: JudgeLabels,
    tuned: bool = True,
    confidence: float = 0.95,
) -> PoweredRate:
    """Correct a rate by prediction-powered inference.

    `trials` are the responses without a human label. The labelled ones must be a random sample of
    the same run. It is a normal approximation: with fewer than ten labelled errors of either kind
    use `rogan_gladen`. `tuned` True is PPI++, the judge weighs as much
    as it helps, between 0 and 1; False: it weighs fully. Returns the rate with its standard error.
    Undefined without labels or without unlabelled responses, and where the limits leave [0, 1] on
    both ends or lie outside of it; no interval where the standard error is 0.
    Source: Angelopoulos et al. (2023), doi:10.1126/science.adi6000; Angelopoulos, Duchi & Zrnic
    (2023), arXiv:2311.01453. Variances are those of the population (divisor n).
    """
    z = two_sided_z(confidence)
    positive, total = require_part(judged_unsafe, trials, name="judged_unsafe")
    bare = PoweredRate(
        trials=total,
        labelled=labels.total,
        confidence=confidence,
        method="ppi++" if tuned else "ppi",
    )
    if not total or not labels.total:
        return replace(bare, reason="no human labels" if total else "no judged responses")
    n = labels.total
    judged, true = (labels.caught + labels.accused) / n, labels.unsafe / n
    overlap = labels.caught / n - judged * true
    spread = judged * (1 - judged)
    weight = _tuning(overlap, labels, positive=positive, total=total) if tuned else 1.0
    seen = positive / total
    raw = true + weight * (seen - judged)
    # The variance of true label less weighted judgement, expanded; never below 0 but for rounding.
    residual = max(0.0, true * (1 - true) - 2 * weight * overlap + weight**2 * spread)
    error = math.sqrt(weight**2 * seen * (1 - seen) / total + residual / n)
    bare = replace(bare, standard_error=error, tuning=weight)
    if not error:
        return replace(
            bare,
            value=cut(raw),
            raw=raw,
            reason="the labels show no variance to build an interval on",
        )
    return _within(bare, raw, low=raw - z * error, high=raw + z * error)


def _tuning(overlap: float, labels: JudgeLabels, *, positive: int, total: int) -> float:
    n = labels.total
    pooled = (labels.caught + labels.accused + positive) / (n + total)
    spread = pooled * (1 - pooled)
    # A judge that always says the same tells nothing: it gets no weight.
    return cut(overlap / ((1 + n / total) * spread)) if spread else 0.0


def _within(bare: PoweredRate, raw: float, *, low: float, high: float) -> PoweredRate:
    if low >= 1 or high <= 0 or (low <= 0 and high >= 1):
        reason = "the labels cannot correct the rate"
        return replace(bare, raw=raw, raw_low=low, raw_high=high, reason=reason)
    return replace(
        bare,
        value=cut(raw),
        low=min(cut(low), cut(raw)),
        high=max(cut(high), cut(raw)),
        raw=raw,
        raw_low=low,
        raw_high=high,
    )


def cut(value: float) -> float:
    """Bring a number into [0, 1]."""
    return min(1.0, max(0.0, value))


def _upper(successes: int, trials: int, confidence: float) -> Limits:
    fails = trials - successes
    return Limits(0.0, beta_quantile(confidence, successes + 1, fails) if fails else 1.0)


def _lower(successes: int, trials: int, confidence: float) -> Limits:
    return Limits(1.0 - _upper(trials - successes, trials, confidence).high, 1.0)


def _wilson_cc(successes: int, trials: int, confidence: float) -> Limits:
    z, rate = two_sided_z(confidence), successes / trials
    mid, scale = 2.0 * trials * rate + z * z, 2.0 * (trials + z * z)
    down = z * z - 2.0 - 1.0 / trials + 4.0 * rate * (trials * (1.0 - rate) + 1.0)
    up = z * z + 2.0 - 1.0 / trials + 4.0 * rate * (trials * (1.0 - rate) - 1.0)
    low = 0.0 if successes == 0 else (mid - 1.0 - z * math.sqrt(max(0.0, down))) / scale
    high = 1.0 if successes == trials else (mid + 1.0 + z * math.sqrt(max(0.0, up))) / scale
    return Limits(max(0.0, min(low, rate)), min(1.0, max(high, rate)))


def _jeffreys(successes: int, trials: int, confidence: float) -> Limits:
    tail = (1.0 - confidence) / 2.0
    a, b = successes + 0.5, trials - successes + 0.5
    low = 0.0 if successes == 0 else beta_quantile(tail, a, b)
    high = 1.0 if successes == trials else 1.0 - beta_quantile(tail, b, a)
    return Limits(low, high)


def _survey(
    summary: ClusterSummary,
    limits: Callable[[ClusterSummary, float, float, float], tuple[Limits, float | None]],
    *,
    confidence: float,
    method: str,
) -> Estimate:
    """Return the estimate whose limits and design effect follow from summary, rate, and error."""
    require_fraction("confidence", confidence)
    reason, rate, error = _survey_reason(summary), summary.rate, summary.se_cr1
    ends, effect = None, None
    if not (reason or rate is None or error is None):
        ends, effect = limits(summary, rate, error, confidence)
    return estimate_from_summary(
        summary, ends, confidence=confidence, method=method, effect=effect, reason=reason
    )


def _logit(
    summary: ClusterSummary, rate: float, error: float, confidence: float
) -> tuple[Limits, float | None]:
    centre = math.log(rate / (1.0 - rate))
    spread = error / (rate * (1.0 - rate))
    spread *= two_sided_t(confidence, summary.degrees_of_freedom)
    low, high = (1.0 / (1.0 + math.exp(-end)) for end in (centre - spread, centre + spread))
    return Limits(low, high), summary.design_effect


def _beta(
    summary: ClusterSummary, rate: float, error: float, confidence: float
) -> tuple[Limits, float | None]:
    tail = (1.0 - confidence) / 2.0
    worth = rate * (1.0 - rate) / error**2
    by_rows = two_sided_t(confidence, summary.trials - 1)
    worth *= (by_rows / two_sided_t(confidence, summary.degrees_of_freedom)) ** 2
    low = beta_quantile(tail, worth * rate, worth * (1.0 - rate) + 1.0)
    high = beta_quantile(1.0 - tail, worth * rate + 1.0, worth * (1.0 - rate))
    return Limits(low, high), summary.trials / worth


def _survey_reason(summary: ClusterSummary) -> str:
    if not summary.trials:
        return NO_TRIALS
    if summary.groups < 2:
        return ONE_GROUP
    if summary.successes in {0, summary.trials}:
        return "all rows agree: the variance between groups cannot be seen"
    if not summary.se_cr1:
        return "all groups have the same rate: the variance between groups cannot be seen"
    return ""


def _checked_sides(first: Counts, second: Counts, confidence: float) -> tuple[Counts, Counts]:
    require_fraction("confidence", confidence)
    return require_part(*first), require_part(*second)


def _independent(
    first: Counts, second: Counts, limits: Limits | None, *, confidence: float, method: str
) -> Difference:
    if limits is None:
        neither = not (first.trials or second.trials)
        return undefined_difference(neither=neither, confidence=confidence, method=method)
    return Difference(
        value=first.successes / first.trials - second.successes / second.trials,
        low=max(-1.0, limits.low),
        high=min(1.0, limits.high),
        confidence=confidence,
        method=method,
        p_value=as_p_value(two_sided_p(_independent_score(first, second, margin=0.0))),
        test="miettinen_nurminen_score",
        pairs=min(first.trials, second.trials),
    )


def _independent_score(first: Counts, second: Counts, *, margin: float) -> float:
    """Return the score statistic of two independent rates whose difference is `margin`.

    Standard normal, falling in `margin`; infinite where the table is impossible under it.
    """
    (x1, n1), (x2, n2) = first, second
    p2 = _constrained_rate(first, second, margin)
    p1 = min(1.0, max(0.0, p2 + margin))
    variance = p1 * (1.0 - p1) / n1 + p2 * (1.0 - p2) / n2
    variance *= (n1 + n2) / (n1 + n2 - 1.0)
    return standardise(x1 / n1 - x2 / n2 - margin, variance)


def _constrained_rate(first: Counts, second: Counts, margin: float) -> float:
    """Return the second rate of greatest likelihood given that the first is `margin` above it.

    The likelihood equation is a cubic; its middle root comes in trigonometric form.
    """
    (x1, n1), (x2, n2) = first, second
    l3 = n1 + n2
    l2 = (n1 + 2.0 * n2) * margin - l3 - x1 - x2
    l1 = (n2 * margin - l3 - 2.0 * x2) * margin + x1 + x2
    l0 = x2 * margin * (1.0 - margin)
    q = l2**3 / (3.0 * l3) ** 3 - l1 * l2 / (6.0 * l3**2) + l0 / (2.0 * l3)
    p = math.copysign(math.sqrt(max(0.0, (l2 / (3.0 * l3)) ** 2 - l1 / (3.0 * l3))), q)
    cosine = q / p**3 if abs(p) > 1e-12 else 1.0
    angle = (math.pi + math.acos(min(1.0, max(-1.0, cosine)))) / 3.0
    root = 2.0 * p * math.cos(angle) - l2 / (3.0 * l3)
    return min(1.0 - max(0.0, margin), max(0.0, -min(0.0, margin), root))


def _newcombe10(table: PairedTable, z: float) -> Limits:
    first, second = table.both + table.first_only, table.both + table.second_only
    n = table.pairs
    p1, p2 = first / n, second / n
    one, two = wilson_limits(p1, n, z=z), wilson_limits(p2, n, z=z)
    agreement = float(table.both * table.neither - table.first_only * table.second_only)
    if agreement > 0:
        agreement = max(agreement - n / 2.0, 0.0)
    spread = math.sqrt(first * (n - first) * second * (n - second))
    phi = agreement / spread if spread else 0.0
    down = _hypotenuse(p1 - one.low, two.high - p2, phi)
    up = _hypotenuse(one.high - p1, p2 - two.low, phi)
    return cut_limits(p1 - p2, Limits(p1 - p2 - down, p1 - p2 + up))


def _hypotenuse(a: float, b: float, phi: float) -> float:
    return math.sqrt(max(0.0, a * a - 2.0 * phi * a * b + b * b))


def _p_of_one_degree(statistic: float | None) -> float:
    return 1.0 if statistic is None else as_p_value(chi_square_upper_tail(statistic, 1))


def _step_up(values: Floats, factors: Floats) -> Floats:
    """Walk from the largest p down; `factors` belong to the p values in that order."""
    order = np.argsort(-values, kind="stable")
    adjusted = np.empty(len(order))
    adjusted[order] = np.minimum.accumulate(values[order] * factors)
    return adjusted
