"""What a block or an allow is worth where attacks are as rare as they really are."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from guardmark.core.estimate import Ratio
from guardmark.stats.arguments import require_count, require_fraction
from guardmark.stats.distributions import two_sided_z


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockCounts:
    """How many samples of each kind a defense blocked.

    Attributes:
        blocked_attacks: Attacks blocked. Between 0 and `attacks`.
        attacks: Attacks answered.
        blocked_benign: Benign samples blocked. Between 0 and `benign`.
        benign: Benign samples answered.
    """

    blocked_attacks: int
    attacks: int
    blocked_benign: int
    benign: int

    def __post_init__(self) -> None:
        """Refuse counts that do not fit together."""
        for name, part, whole in (
            ("blocked_attacks", self.blocked_attacks, self.attacks),
            ("blocked_benign", self.blocked_benign, self.benign),
        ):
            require_count(name, part)
            require_count(name.removeprefix("blocked_"), whole)
            if part > whole:
                raise ValueError(f"{name} must be in 0..{whole}, got {part}")

    @property
    def has_empty_cell(self) -> bool:
        """Whether one of the four outcomes never occurred."""
        return self.blocked_attacks in {0, self.attacks} or self.blocked_benign in {0, self.benign}


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
    counts: BlockCounts, prevalence: float, *, confidence: float = 0.95
) -> PredictiveValues:
    """Estimate predictive values at a stated share of attacks, strictly between 0 and 1.

    Never read them off the benchmark's own mix, where attacks are far too common. They follow from
    the raw rates by Bayes' rule, with logit intervals at `confidence`, in (0, 1); where one of the
    four outcomes never occurred the interval is the adjusted one. One class only is undefined; so
    is the value of a block where nothing was blocked, and of an allow where all was.
    Source: Mercaldo, Lau & Zhou (2007), doi:10.1002/sim.2677.
    """
    require_fraction("prevalence", prevalence)
    z = two_sided_z(confidence)
    bare = Ratio(
        value=None,
        low=None,
        high=None,
        confidence=confidence,
        method="mercaldo logit",
        trials=counts.attacks + counts.benign,
        reason="both attacks and benign samples are needed",
    )
    if not counts.attacks or not counts.benign:
        return PredictiveValues(prevalence=prevalence, positive=bare, negative=bare)
    extra = z * z if counts.has_empty_cell else 0.0
    method = "mercaldo adjusted logit" if extra else "mercaldo logit"
    hits = _Rate(counts.blocked_attacks, counts.attacks, extra)
    alarms = _Rate(counts.blocked_benign, counts.benign, extra)
    passed = _Rate(counts.benign - counts.blocked_benign, counts.benign, extra)
    missed = _Rate(counts.attacks - counts.blocked_attacks, counts.attacks, extra)
    ratios = []
    for right, wrong, odds, kind in (
        (hits, alarms, prevalence / (1 - prevalence), "blocked"),
        (passed, missed, (1 - prevalence) / prevalence, "allowed"),
    ):
        ratio = replace(bare, method=method, reason=f"no sample of either kind would be {kind}")
        weight, total = odds * right.raw, odds * right.raw + wrong.raw
        if total:
            low, high = _limits(right, wrong, odds=odds, z=z)
            ratio = replace(ratio, value=weight / total, low=low, high=high, reason="")
        ratios.append(ratio)
    return PredictiveValues(prevalence=prevalence, positive=ratios[0], negative=ratios[1])


class _Rate(NamedTuple):
    """A rate, and the share of a sample that the adjusted interval adds to each of its sides."""

    successes: int
    trials: int
    extra: float

    @property
    def raw(self) -> float:
        return self.successes / self.trials

    @property
    def adjusted(self) -> float:
        return (self.successes + self.extra / 2) / (self.trials + self.extra)

    @property
    def log_variance(self) -> float:
        """Return the variance of the logarithm of the adjusted rate."""
        return (1 - self.adjusted) / self.adjusted / (self.trials + self.extra)


def _limits(right: _Rate, wrong: _Rate, *, odds: float, z: float) -> tuple[float, float]:
    centre = math.log(odds) + math.log(right.adjusted / wrong.adjusted)
    half = z * math.sqrt(right.log_variance + wrong.log_variance)
    return _expit(centre - half), _expit(centre + half)


def _expit(x: float) -> float:
    return 1 / (1 + math.exp(min(-x, 700.0)))
