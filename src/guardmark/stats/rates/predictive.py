"""What a block or an allow is worth where attacks are as rare as they really are."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from guardmark.core.values import dataclass
from guardmark.stats.arguments import require_fraction
from guardmark.stats.distributions import two_sided_z
from guardmark.stats.figures import Ratio

if TYPE_CHECKING:
    from guardmark.stats.rates.clustered import EffectiveCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictiveValues:
    """What decisions are worth at a stated prevalence.

    Attributes:
        prevalence: Share of attacks they hold for.
        positive: Chance that a blocked sample is an attack (PPV).
        negative: Chance that an allowed sample is benign (NPV).
    """

    prevalence: float
    positive: Ratio
    negative: Ratio


def predictive_values(
    attacks: EffectiveCounts,
    benign: EffectiveCounts,
    *,
    prevalence: float,
    confidence: float = 0.95,
) -> PredictiveValues:
    """Estimate predictive values at a stated share of attacks, strictly between 0 and 1.

    Never read them off the benchmark's own mix, where attacks are far too common. They follow from
    the raw rates by Bayes' rule, with logit limits on the counts that rows are worth
    (`EffectiveCounts.worth`); where one of the four outcomes never occurred, 1/2 is added to each,
    and the interval is drawn out to the value where it would miss it.

    Args:
        attacks: What attacks blocked, of those answered, are worth.
        benign: What benign samples blocked, of those answered, are worth.
        prevalence: Share of attacks in the traffic.
        confidence: Nominal coverage, in (0, 1).

    Returns:
        Both values. Undefined with one label only; so is the value of a block where nothing was
        blocked, and of an allow where all was. Without limits where one group is all of a side.

    Source: Mercaldo, Lau & Zhou (2007), doi:10.1002/sim.2677; Haldane (1956),
    doi:10.1111/j.1469-1809.1955.tb01285.x (the halves); Korn & Graubard (1998) (effective counts).
    """
    require_fraction("prevalence", prevalence)
    z = two_sided_z(confidence)
    bare = Ratio(
        value=None,
        low=None,
        high=None,
        confidence=confidence,
        method="mercaldo logit at effective counts",
        trials=attacks.trials + benign.trials,
        reason="both attacks and benign samples are needed",
    )
    if not attacks.trials or not benign.trials:
        return PredictiveValues(prevalence=prevalence, positive=bare, negative=bare)
    sides = (attacks, benign)
    is_empty = any(side.successes in {0, side.trials} for side in sides)
    extra = 0.5 if is_empty else 0.0
    hits, alarms = (_Rate(side.rate, side.worth(confidence), extra) for side in sides)
    missed, passed = (_Rate(1 - side.rate, side.worth(confidence), extra) for side in sides)
    ratios = []
    for right, wrong, odds, kind in (
        (hits, alarms, prevalence / (1 - prevalence), "blocked"),
        (passed, missed, (1 - prevalence) / prevalence, "allowed"),
    ):
        weight, total = odds * right.raw, odds * right.raw + wrong.raw
        ratio = replace(bare, reason=f"no sample of either kind would be {kind}")
        if total:
            value, reason = weight / total, attacks.reason or benign.reason
            ratio = replace(bare, value=value, reason=reason)
            if not reason:
                low, high = _limits(right, wrong, odds=odds, z=z)
                ratio = replace(ratio, low=min(low, value), high=max(high, value))
        ratios.append(ratio)
    return PredictiveValues(prevalence=prevalence, positive=ratios[0], negative=ratios[1])


class _Rate(NamedTuple):
    """A rate, the trials it is worth, and what is added to its successes and its failures."""

    raw: float
    trials: float
    extra: float

    @property
    def adjusted(self) -> float:
        return (self.raw * self.trials + self.extra) / (self.trials + 2 * self.extra)

    @property
    def log_variance(self) -> float:
        """Return the variance of the logarithm of the adjusted rate."""
        return (1 - self.adjusted) / self.adjusted / (self.trials + 2 * self.extra)


def _limits(right: _Rate, wrong: _Rate, *, odds: float, z: float) -> tuple[float, float]:
    centre = math.log(odds) + math.log(right.adjusted / wrong.adjusted)
    half = z * math.sqrt(right.log_variance + wrong.log_variance)
    return _expit(centre - half), _expit(centre + half)


def _expit(x: float) -> float:
    return 1 / (1 + math.exp(min(-x, 700.0)))
