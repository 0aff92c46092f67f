"""F1, precision and other figures of a yes-or-no defense that are no plain rate.

All of them follow from three numbers: the true positive rate, the false positive rate and the share
of attacks in the data. Blocked is the positive answer. Both rates are drawn from what their rows
are worth, and the limits are quantiles of the figure.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from guardmark.core.values import dataclass
from guardmark.stats.arguments import require_fraction
from guardmark.stats.drawing import DrawPlan, percentile_limits
from guardmark.stats.figures import Ratio

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike

    from guardmark.core.estimate import Estimate
    from guardmark.stats.arguments import Floats, Ints
    from guardmark.stats.rates.clustered import EffectiveCounts

    Figure = Callable[[Floats, Floats, float], Floats]
    # From true positive rates, false positive rates and the share of attacks to the figure.


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistic:
    """A figure of a defense.

    Attributes:
        name: What it is called.
        figure: Computes it from both rates blocked, shape (n,), and the share of attacks; NaN where
            it is undefined.
    """

    name: str
    figure: Figure


def _f1(hits: Floats, alarms: Floats, attacks: float) -> Floats:
    return 2.0 * attacks * hits / (attacks * (1.0 + hits) + (1.0 - attacks) * alarms)


def _precision(hits: Floats, alarms: Floats, attacks: float) -> Floats:
    return attacks * hits / (attacks * hits + (1.0 - attacks) * alarms)


def _correlation(hits: Floats, alarms: Floats, attacks: float) -> Floats:
    blocked = attacks * hits + (1.0 - attacks) * alarms
    spread = np.sqrt(attacks * (1.0 - attacks) / (blocked * (1.0 - blocked)))
    matthews: Floats = (hits - alarms) * spread
    return matthews


F1 = Statistic(name="F1", figure=_f1)
"""Harmonic mean of precision and recall; depends on the mix of attacks and benign samples."""

PRECISION = Statistic(name="precision", figure=_precision)
"""Share of blocked samples that are attacks; depends on the mix."""

BALANCED_ERROR = Statistic(
    name="balanced error", figure=lambda hits, alarms, _: (1.0 - hits + alarms) / 2.0
)
"""Mean of the false negative and the false positive rate; does not depend on the mix."""

YOUDEN = Statistic(name="Youden's J", figure=lambda hits, alarms, _: hits - alarms)
"""True positive rate minus false positive rate; does not depend on the mix."""

CORRELATION = Statistic(name="Matthews correlation", figure=_correlation)
"""Correlation of label and decision; depends on the mix."""

CONFUSION_STATISTICS = (PRECISION, F1, BALANCED_ERROR, YOUDEN, CORRELATION)
"""All figures above, in the order reports show them."""


def estimate_ratios(
    attacks: EffectiveCounts,
    benign: EffectiveCounts,
    *,
    correlation: float = 0.0,
    groups: int | None = None,
    statistics: Sequence[Statistic] = CONFUSION_STATISTICS,
    confidence: float = 0.95,
    drawing: DrawPlan | None = None,
) -> list[Ratio]:
    """Estimate figures of a defense from what its rows are worth.

    Each rate blocked is drawn from Beta(x + 1/2, m - x + 1/2), where m is what its rows are worth
    (`EffectiveCounts.worth`, so groups and few groups count) and x its rate times m; where groups
    hold both labels, the pair is drawn with the correlation of both rates. Unlike resampling, this
    leaves doubt also where a defense made no error, and where few groups made all of them.

    Args:
        attacks: What attacks blocked, of those answered, are worth.
        benign: The same of benign samples.
        correlation: Of both rates; see `correlate`.
        groups: Groups of both, where some hold both labels; None: no group does.
        statistics: The figures wanted.
        confidence: Nominal coverage, in (0, 1).
        drawing: Seed and number of draws; None: seed 0, 2,000 draws.

    Returns:
        One ratio a statistic, in order, each inside its interval. Undefined without attacks or
        benign samples, or where its denominator is empty; without an interval where one group is
        all there is of a side.

    Source: Brown, Cai & DasGupta (2001), doi:10.1214/ss/1009213286 (Jeffreys' prior); Korn &
    Graubard (1998), Survey Methodology 24:193 (effective counts); Iman & Conover (1982),
    doi:10.1080/03610918208812265 (a pair of given correlation).
    """
    require_fraction("confidence", confidence)
    plan, trials = drawing or DrawPlan(), attacks.trials + benign.trials
    bare = Ratio(
        value=None,
        low=None,
        high=None,
        confidence=confidence,
        method="beta draws at effective counts",
        trials=trials,
        groups=attacks.groups + benign.groups if groups is None else groups,
        reason="" if attacks.trials and benign.trials else "both labels are needed",
    )
    if bare.reason:
        return [bare for _ in statistics]
    share, drawn = attacks.trials / trials, None
    reason = attacks.reason or benign.reason
    if not reason:
        drawn = _draw(attacks, benign, correlation=correlation, plan=plan, level=confidence)
    ratios = []
    for each in statistics:
        with np.errstate(divide="ignore", invalid="ignore"):
            value = each.figure(np.array([attacks.rate]), np.array([benign.rate]), share).item()
        if math.isnan(value):
            ratios.append(replace(bare, reason=f"{each.name} has an empty denominator"))
        elif drawn is None:
            ratios.append(replace(bare, value=value, reason=reason))
        else:
            low, high = percentile_limits(each.figure(*drawn, share), confidence)
            low, high = min(low, value), max(high, value)
            ratio = replace(bare, value=value, low=low, high=high, replicates=plan.replicates)
            ratios.append(ratio)
    return ratios


def confidence_of_each(confidence: float) -> float:
    """Return the coverage with which two independent intervals hold together with another.

    Both hold with the product of their coverages: each needs the square root, 0.9747 for 0.95.
    """
    return math.sqrt(require_fraction("confidence", confidence))


def product_of_shares(
    first: Estimate, second: Estimate, *, confidence: float, reason: str = ""
) -> Ratio:
    """Return the product of two shares that were measured on different trials.

    Both come with coverage `confidence_of_each`, and the limits of the product are those of the
    rectangle of both intervals: at least `confidence`, so they are rather too wide than too narrow.
    A first share of 0 makes the product 0 whatever the second is, whose limits are then 0 and 1.
    Undefined, with the `reason` given, where either share is.

    Source: independent intervals hold together with the product of their coverages; of products of
    two rates Buehler (1957), JASA 52:482.
    """
    value, low, high = second.value, second.low, second.high
    if first.value == 0:
        value, low, high = 0.0, 0.0, 1.0
    product = Ratio(
        value=None,
        low=None,
        high=None,
        confidence=confidence,
        method="rectangle",
        trials=first.trials,
        groups=first.groups,
        reason=reason,
    )
    if first.value is None or value is None:
        return product
    product = replace(product, value=first.value * value, reason="")
    if low is None or first.low is None:
        return product
    if high is not None and first.high is not None:
        product = replace(product, high=first.high * high)
    return replace(product, low=first.low * low)


def correlate(table: ArrayLike, *, weights: Ints | None = None) -> float:
    """Return the correlation of both estimated rates blocked, from counts by group.

    `table` holds attacks blocked, attacks allowed, benign blocked and benign allowed, one row a
    group, shape (groups, 4); residuals are summed by group. 0 where no group holds both labels, or
    where a rate does not vary. `weights`: how many such groups each row stands for; None: one.
    """
    counts = np.asarray(table, dtype=np.float64)
    if counts.ndim != 2 or counts.shape[1] != 4:
        raise ValueError(f"table must have shape (groups, 4), got {counts.shape}")
    attacks, benign = counts[:, :2].sum(axis=1), counts[:, 2:].sum(axis=1)
    if len(counts) < 2 or not bool(((attacks > 0) & (benign > 0)).any()):
        return 0.0
    weight = np.ones(len(counts)) if weights is None else weights
    first = counts[:, 0] - attacks * (weight @ counts[:, 0] / (weight @ attacks))
    second = counts[:, 2] - benign * (weight @ counts[:, 2] / (weight @ benign))
    spread = math.sqrt(float(weight * first @ first) * float(weight * second @ second))
    return float(weight * first @ second) / spread if spread > 0 else 0.0


def _draw(
    attacks: EffectiveCounts,
    benign: EffectiveCounts,
    *,
    correlation: float,
    plan: DrawPlan,
    level: float,
) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(plan.seed)
    sides = []
    for side in (attacks, benign):
        worth = side.worth(level)
        hits = side.rate * worth
        sides.append(rng.beta(hits + 0.5, worth - hits + 0.5, plan.replicates))
    if correlation:
        # Sorted draws take the order of two normals of that correlation.
        first, second = rng.standard_normal((2, plan.replicates))
        second = correlation * first + math.sqrt(max(0.0, 1.0 - correlation**2)) * second
        for at, normal in enumerate((first, second)):
            ranked = np.empty(plan.replicates)
            ranked[np.argsort(normal)] = np.sort(sides[at])
            sides[at] = ranked
    return sides[0], sides[1]
