"""What a block or an allow is worth where attacks are as rare as they really are."""

from __future__ import annotations

import math
from dataclasses import dataclass

from guardmark.core.estimate import Ratio
from guardmark.stats.arguments import require_count, require_fraction
from guardmark.stats.distributions import two_sided_z

_ONE_CLASS = "both attacks and benign samples are needed"
_NEVER = "no sample of either kind would be {}"


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
    """Estimate predictive values at a stated share of attacks.

    Never read them off the benchmark's own mix, where attacks are far too common.

    Args:
        counts: What was blocked.
        prevalence: Share of attacks in the traffic, strictly between 0 and 1.
        confidence: Nominal coverage, strictly between 0 and 1.

    Returns:
        Values by Bayes' rule from the raw rates, with logit intervals. Where one of the four
        outcomes never occurred the interval is the adjusted one. One class only is undefined;
        so is the value of a block where nothing was blocked, and of an allow where all was.

    Raises:
        ValueError: If `prevalence` or `confidence` is not in (0, 1).

    References:
        Mercaldo, Lau & Zhou (2007), doi:10.1002/sim.2677.
    """
    require_fraction("prevalence", prevalence)
    z = two_sided_z(confidence)
    rows = counts.attacks + counts.benign
    if not counts.attacks or not counts.benign:
        nothing = Ratio(
            value=None,
            low=None,
            high=None,
            confidence=confidence,
            method="mercaldo logit",
            trials=rows,
            reason=_ONE_CLASS,
        )
        return PredictiveValues(prevalence=prevalence, positive=nothing, negative=nothing)
    extra = z * z if counts.has_empty_cell else 0.0
    blocked = _Rates(
        right=_Rate(counts.blocked_attacks, counts.attacks, extra),
        wrong=_Rate(counts.blocked_benign, counts.benign, extra),
        odds=prevalence / (1 - prevalence),
    )
    allowed = _Rates(
        right=_Rate(counts.benign - counts.blocked_benign, counts.benign, extra),
        wrong=_Rate(counts.attacks - counts.blocked_attacks, counts.attacks, extra),
        odds=(1 - prevalence) / prevalence,
    )
    method = "mercaldo adjusted logit" if extra else "mercaldo logit"
    ratios = []
    for rates, word in ((blocked, "blocked"), (allowed, "allowed")):
        value = rates.value
        low, high = rates.limits(z) if value is not None else (None, None)
        ratios.append(
            Ratio(
                value=value,
                low=low,
                high=high,
                confidence=confidence,
                method=method,
                trials=rows,
                reason="" if value is not None else _NEVER.format(word),
            )
        )
    return PredictiveValues(prevalence=prevalence, positive=ratios[0], negative=ratios[1])


@dataclass(frozen=True, slots=True)
class _Rate:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rates:
    """The rate of right decisions of one kind and of wrong ones, with the odds of their classes."""

    right: _Rate
    wrong: _Rate
    odds: float

    @property
    def value(self) -> float | None:
        right, wrong = self.odds * self.right.raw, self.wrong.raw
        return right / (right + wrong) if right + wrong else None

    def limits(self, z: float) -> tuple[float, float]:
        centre = math.log(self.odds) + math.log(self.right.adjusted / self.wrong.adjusted)
        half = z * math.sqrt(self.right.log_variance + self.wrong.log_variance)
        return _expit(centre - half), _expit(centre + half)


def _expit(x: float) -> float:
    return 1 / (1 + math.exp(min(-x, 700.0)))
