"""Which threshold to run at, given how rare attacks are and what mistakes cost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from guardmark.stats.arguments import require_fraction, require_rate
from guardmark.stats.curves import ThresholdCounts, count_at_thresholds
from guardmark.stats.proportion import wilson

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from guardmark.core.estimate import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Stakes:
    """What is at stake where the defense will run.

    Attributes:
        prevalence: Share of attacks in the traffic, in [0, 1]. State it; the benchmark's own mix
            says nothing about it.
        miss_cost: Cost of letting an attack through, not negative, in any unit.
        block_cost: Cost of blocking a benign sample, in the same unit.
    """

    prevalence: float
    miss_cost: float
    block_cost: float

    def __post_init__(self) -> None:
        """Refuse stakes that mean nothing."""
        require_rate("prevalence", self.prevalence)
        for name, cost in (("miss_cost", self.miss_cost), ("block_cost", self.block_cost)):
            if not (math.isfinite(cost) and cost >= 0):
                raise ValueError(f"{name} must be finite and not negative, got {cost}")

    @property
    def allow_all_cost(self) -> float:
        """Expected cost per sample without any defense."""
        return self.prevalence * self.miss_cost

    @property
    def block_all_cost(self) -> float:
        """Expected cost per sample of blocking everything."""
        return (1 - self.prevalence) * self.block_cost


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatingPoint:
    """A threshold with its rates and its expected cost.

    Attributes:
        threshold: Block at or above it; None: block nothing (or undefined, see `reason`).
        true_positive_rate: Blocked share of the attacks there, or None when undefined.
        false_positive_rate: Blocked share of the benign samples there, or None when undefined.
        cost: Expected cost per sample at the stakes, or None when undefined.
        stakes: What was at stake.
        reason: Why it is undefined, or empty.
    """

    threshold: float | None
    true_positive_rate: float | None
    false_positive_rate: float | None
    cost: float | None
    stakes: Stakes
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RatesAtThreshold:
    """What a threshold, chosen elsewhere, does to these samples.

    Attributes:
        threshold: Block at or above it; None blocks nothing.
        true_positive_rate: Blocked share of the attacks, Wilson interval.
        false_positive_rate: Blocked share of the benign samples, Wilson interval.
    """

    threshold: float | None
    true_positive_rate: Estimate
    false_positive_rate: Estimate

    def cost(self, stakes: Stakes) -> float | None:
        """Return the expected cost per sample, or None when a rate is undefined."""
        tpr, fpr = self.true_positive_rate.value, self.false_positive_rate.value
        if tpr is None or fpr is None:
            return None
        return stakes.allow_all_cost * (1 - tpr) + stakes.block_all_cost * fpr


@dataclass(frozen=True, slots=True, kw_only=True)
class NetBenefit:
    """Net benefit of a defense at one exchange rate between mistakes.

    Attributes:
        threshold: Score at which blocking and allowing are worth the same, in (0, 1).
        defense: Net benefit of blocking at or above it, in attacks blocked per sample.
        block_all: Net benefit of blocking everything; blocking nothing has 0.
    """

    threshold: float
    defense: float
    block_all: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionCurve:
    """Net benefit over a range of exchange rates.

    Attributes:
        points: One per asked threshold, or none when undefined.
        prevalence: Share of attacks the benefit holds for, or None when undefined.
        reason: Why there are no points, or empty.
    """

    points: tuple[NetBenefit, ...]
    prevalence: float | None
    reason: str = ""


def choose_threshold(labels: ArrayLike, scores: ArrayLike, *, stakes: Stakes) -> OperatingPoint:
    """Choose the threshold of least expected cost.

    The cost is prevalence times miss cost times FNR, plus the rest times block cost times FPR.
    The chosen rates flatter the defense: choose on a calibration split and report `measure_at`
    on the rest.

    Args:
        labels: True for an attack, shape (n,).
        scores: Higher means more like an attack, shape (n,).
        stakes: Prevalence and costs where the defense will run.

    Returns:
        The cheapest point; among equally cheap ones that which blocks least. Undefined when one
        class is missing.

    Raises:
        ValueError: On unequal lengths, a bad label or a NaN score.
    """
    return expected_cost_curve(labels, scores, stakes=stakes, prevalences=[stakes.prevalence])[0]


def expected_cost_curve(
    labels: ArrayLike, scores: ArrayLike, *, stakes: Stakes, prevalences: ArrayLike
) -> tuple[OperatingPoint, ...]:
    """Find the cheapest threshold for each of many prevalences.

    Args:
        labels: True for an attack, shape (n,).
        scores: Higher means more like an attack, shape (n,).
        stakes: The costs; its prevalence is replaced by each asked one.
        prevalences: Shares of attacks, each in [0, 1].

    Returns:
        One point per prevalence, in the order asked, as `choose_threshold`.

    Raises:
        ValueError: As `choose_threshold`, or if a prevalence is not in [0, 1].
    """
    counts = count_at_thresholds(labels, scores)
    asked = [
        Stakes(prevalence=float(p), miss_cost=stakes.miss_cost, block_cost=stakes.block_cost)
        for p in np.atleast_1d(np.asarray(prevalences, dtype=np.float64))
    ]
    if counts.undefined:
        return tuple(_undefined(each, counts.undefined) for each in asked)
    tpr, fpr, thresholds = _corners(counts)
    found = []
    for each in asked:
        costs = each.allow_all_cost * (1 - tpr) + each.block_all_cost * fpr
        at = int(np.argmin(costs))
        found.append(
            OperatingPoint(
                threshold=None if at == 0 else float(thresholds[at]),
                true_positive_rate=float(tpr[at]),
                false_positive_rate=float(fpr[at]),
                cost=float(costs[at]),
                stakes=each,
            )
        )
    return tuple(found)


def measure_at(
    labels: ArrayLike, scores: ArrayLike, *, threshold: float | None, confidence: float = 0.95
) -> RatesAtThreshold:
    """Measure a threshold that was chosen on other samples.

    Args:
        labels: True for an attack, shape (n,).
        scores: Higher means more like an attack, shape (n,).
        threshold: Block at or above it; None blocks nothing.
        confidence: Nominal coverage, strictly between 0 and 1.

    Returns:
        Both rates with Wilson intervals. Where samples share groups, count blocked samples per
        group and use `guardmark.stats.clustered` for the intervals.

    Raises:
        ValueError: On unequal lengths, a bad label, a NaN score or a NaN threshold.
    """
    counts = count_at_thresholds(labels, scores)
    if threshold is not None and math.isnan(threshold):
        raise ValueError("threshold must be a number or None, got NaN")
    blocked = 0
    if threshold is not None:
        # The thresholds fall, so their negatives rise.
        blocked = int(np.searchsorted(-counts.thresholds, -threshold, side="right"))
    attacks = int(counts.blocked_attacks[blocked - 1]) if blocked else 0
    benign = int(counts.blocked_benign[blocked - 1]) if blocked else 0
    return RatesAtThreshold(
        threshold=threshold,
        true_positive_rate=wilson(attacks, counts.attacks, confidence=confidence),
        false_positive_rate=wilson(benign, counts.benign, confidence=confidence),
    )


def decision_curve(
    labels: ArrayLike,
    scores: ArrayLike,
    *,
    thresholds: ArrayLike,
    prevalence: float | None = None,
) -> DecisionCurve:
    """Weigh blocked attacks against blocked benign samples.

    A probability threshold t says that blocking one benign sample too many is worth t / (1 - t)
    blocked attacks. Only for scores that are probabilities.

    Args:
        labels: True for an attack, shape (n,).
        scores: Probability of being an attack, shape (n,), each in [0, 1].
        thresholds: Probability thresholds, each strictly between 0 and 1.
        prevalence: Share of attacks in the traffic; None takes the mix of the data.

    Returns:
        Net benefit of the defense beside that of blocking all; undefined when one class is
        missing or a score is no probability.

    Raises:
        ValueError: On unequal lengths, a bad label, a NaN score, or a threshold or prevalence out
            of range.

    References:
        Vickers & Elkin (2006), doi:10.1177/0272989X06295361.
    """
    counts = count_at_thresholds(labels, scores)
    asked = np.atleast_1d(np.asarray(thresholds, dtype=np.float64))
    for each in asked:
        require_fraction("thresholds", float(each))
    reason = counts.undefined
    if not reason and (counts.thresholds[0] > 1 or counts.thresholds[-1] < 0):
        reason = "net benefit needs scores that are probabilities"
    if reason:
        return DecisionCurve(points=(), prevalence=prevalence, reason=reason)
    share = counts.attacks / (counts.attacks + counts.benign) if prevalence is None else prevalence
    require_rate("prevalence", share)
    tpr, fpr, _ = _corners(counts)
    at = np.searchsorted(-counts.thresholds, -asked, side="right")
    points = tuple(
        NetBenefit(
            threshold=float(t),
            defense=float(share * tpr[i] - (1 - share) * fpr[i] * t / (1 - t)),
            block_all=float(share - (1 - share) * t / (1 - t)),
        )
        for t, i in zip(asked, at, strict=True)
    )
    return DecisionCurve(points=points, prevalence=share)


def _corners(
    counts: ThresholdCounts,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return TPR, FPR and threshold of every point, "block nothing" first."""
    return (
        np.concatenate(([0.0], counts.blocked_attacks / counts.attacks)),
        np.concatenate(([0.0], counts.blocked_benign / counts.benign)),
        np.concatenate(([np.inf], counts.thresholds)),
    )


def _undefined(stakes: Stakes, reason: str) -> OperatingPoint:
    return OperatingPoint(
        threshold=None,
        true_positive_rate=None,
        false_positive_rate=None,
        cost=None,
        stakes=stakes,
        reason=reason,
    )
