"""What a defense does at every threshold of its score, and which threshold to run at.

A sample is blocked when its score is at or above the threshold; samples of equal score are blocked
together. Nothing between two points can be reached, so nothing is interpolated.

`labels` are true for an attack, `scores` finite and higher for what is more like an attack, both of
shape (n,). Unequal lengths, another label or a NaN raise `ValueError`. With one class missing every
figure is undefined, with the reason. Rates hold for the samples that a threshold was chosen on,
which flatters them: choose on a calibration split and report what `measure_at` finds on the rest.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from guardmark.core.values import dataclass
from guardmark.stats.arguments import require_rate, scored_samples
from guardmark.stats.rates.ratios import Statistic, estimate_ratios

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from guardmark.stats.arguments import Flags, Floats, Ints
    from guardmark.stats.drawing import DrawPlan
    from guardmark.stats.figures import Ratio
    from guardmark.stats.rates.clustered import EffectiveCounts

_ONE_CLASS = "scores need both attacks and benign samples"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdCounts:
    """How many samples of each kind every threshold would block.

    Attributes:
        thresholds: Distinct scores, falling, shape (t,).
        blocked_attacks: Attacks with a score at or above each threshold, shape (t,).
        blocked_benign: Benign samples at or above each threshold, shape (t,).
        attacks: All attacks.
        benign: All benign samples.
    """

    thresholds: Floats
    blocked_attacks: Ints
    blocked_benign: Ints
    attacks: int
    benign: int

    @property
    def undefined(self) -> str:
        """Why no rate over thresholds exists, or empty."""
        return "" if self.attacks and self.benign else _ONE_CLASS


def count_at_thresholds(labels: ArrayLike, scores: ArrayLike) -> ThresholdCounts:
    """Count what every distinct threshold would block.

    One class only is allowed here and shows in `undefined`.
    """
    return place_at_thresholds(*scored_samples(labels, scores))[0]


def place_at_thresholds(attack: Flags, score: Floats) -> tuple[ThresholdCounts, Ints]:
    """Count what every threshold would block, and say which is the last to block each sample."""
    distinct, rising, sizes = np.unique(score, return_inverse=True, return_counts=True)
    hits = np.bincount(rising[attack], minlength=len(distinct))
    counts = ThresholdCounts(
        thresholds=distinct[::-1],
        blocked_attacks=np.cumsum(hits[::-1]),
        blocked_benign=np.cumsum((sizes - hits)[::-1]),
        attacks=int(hits.sum()),
        benign=len(score) - int(hits.sum()),
    )
    return counts, len(distinct) - 1 - rising  # thresholds fall


@dataclass(frozen=True, slots=True, kw_only=True)
class TprAtFpr:
    """Best true positive rate within a limit on the false positive rate.

    Attributes:
        max_fpr: The limit.
        tpr: Blocked share of the attacks, or None when undefined.
        fpr: Blocked share of the benign samples there, or None when undefined.
        threshold: Block at or above it; None when undefined or when every threshold breaks the
            limit.
        resolvable: Whether one benign sample weighs no more than the limit.
        needed_benign: Benign samples from which the limit can be resolved; None: no number can.
        needed_for_proof: Benign samples which, none of them blocked, show with 95 % confidence,
            one-sided, that the limit is kept; None: no number can.
        attacks: Attacks behind the rates.
        benign: Benign samples behind the rates.
        reason: Why something is undefined or not resolvable, or empty.
    """

    max_fpr: float
    tpr: float | None
    fpr: float | None
    threshold: float | None
    resolvable: bool
    needed_benign: int | None
    needed_for_proof: int | None
    attacks: int
    benign: int
    reason: str = ""


def tpr_at_fpr(labels: ArrayLike, scores: ArrayLike, *, max_fpr: float) -> TprAtFpr:
    """Find the highest true positive rate within a false positive limit in [0, 1].

    Returns the rates at the lowest threshold within the limit, ties taken whole. With fewer than 1
    / `max_fpr` benign samples it is marked as not resolvable, with the number needed (a limit of 0
    always is).
    """
    require_rate("max_fpr", max_fpr)
    counts = count_at_thresholds(labels, scores)
    # A product such as 0.07 * 100 may fall a hair short of the whole number it means.
    allowed = math.floor(max_fpr * counts.benign * (1 + 1e-12))
    needed = math.ceil(1 / max_fpr * (1 - 1e-12)) if max_fpr else None
    resolvable = needed is not None and counts.benign >= needed and not counts.undefined
    tpr, fpr, threshold, reason = None, None, None, counts.undefined
    if not reason:
        tpr, fpr = 0.0, 0.0
        usable = int(np.searchsorted(counts.blocked_benign, allowed, side="right"))
        if usable:
            tpr = float(counts.blocked_attacks[usable - 1] / counts.attacks)
            fpr = float(counts.blocked_benign[usable - 1] / counts.benign)
            threshold = float(counts.thresholds[usable - 1])
        if not resolvable:
            needs = f"needs {needed}" if needed else "cannot be shown by any number of"
            reason = f"not resolvable: FPR {max_fpr:g} {needs} benign samples, got {counts.benign}"
    return TprAtFpr(
        max_fpr=max_fpr,
        tpr=tpr,
        fpr=fpr,
        threshold=threshold,
        resolvable=resolvable,
        needed_benign=needed,
        needed_for_proof=_needed_for_proof(max_fpr),
        attacks=counts.attacks,
        benign=counts.benign,
        reason=reason,
    )


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

    threshold: float | None = None
    true_positive_rate: float | None = None
    false_positive_rate: float | None = None
    cost: float | None = None
    stakes: Stakes
    reason: str = ""


def choose_threshold(labels: ArrayLike, scores: ArrayLike, *, stakes: Stakes) -> OperatingPoint:
    """Choose the threshold of least expected cost.

    The cost is prevalence times miss cost times FNR, plus the rest times block cost times FPR.
    Among equally cheap points it is the one that blocks least.
    """
    return expected_cost_curve(labels, scores, stakes=stakes, prevalences=[stakes.prevalence])[0]


def expected_cost_curve(
    labels: ArrayLike, scores: ArrayLike, *, stakes: Stakes, prevalences: ArrayLike
) -> tuple[OperatingPoint, ...]:
    """Choose the threshold for each of many prevalences in [0, 1], in the order asked.

    The costs are those of `stakes`, whose own prevalence plays no part; see `choose_threshold`.
    """
    counts = count_at_thresholds(labels, scores)
    asked = [
        Stakes(prevalence=float(p), miss_cost=stakes.miss_cost, block_cost=stakes.block_cost)
        for p in np.atleast_1d(np.asarray(prevalences, dtype=np.float64))
    ]
    if counts.undefined:
        return tuple(OperatingPoint(stakes=stakes, reason=counts.undefined) for stakes in asked)
    tpr, fpr, thresholds = _corners(counts)
    points = []
    for each in asked:
        costs = each.allow_all_cost * (1 - tpr) + each.block_all_cost * fpr
        at = int(np.argmin(costs))
        points.append(
            OperatingPoint(
                threshold=None if at == 0 else float(thresholds[at]),
                true_positive_rate=float(tpr[at]),
                false_positive_rate=float(fpr[at]),
                cost=float(costs[at]),
                stakes=each,
            )
        )
    return tuple(points)


def price_threshold(
    attacks: EffectiveCounts,
    benign: EffectiveCounts,
    *,
    stakes: Stakes,
    confidence: float = 0.95,
    drawing: DrawPlan | None = None,
) -> Ratio:
    """Estimate the expected cost per sample of a threshold that was chosen on other samples.

    Both sides are counts of what is blocked; limits are quantiles of the cost over draws of both
    rates, as `estimate_ratios` takes them. The cost is in the unit of the stakes, not in [0, 1].
    """

    def cost(hits: Floats, alarms: Floats, _: float) -> Floats:
        priced: Floats = stakes.allow_all_cost * (1.0 - hits) + stakes.block_all_cost * alarms
        return priced

    statistic = Statistic(name="expected cost", figure=cost)
    return estimate_ratios(
        attacks, benign, statistics=[statistic], confidence=confidence, drawing=drawing
    )[0]


def _needed_for_proof(max_fpr: float) -> int | None:
    if max_fpr in {0.0, 1.0}:
        return 1 if max_fpr else None
    return math.ceil(math.log(0.05) / math.log1p(-max_fpr))


def _corners(counts: ThresholdCounts) -> tuple[Floats, Floats, Floats]:
    """Return TPR, FPR and threshold of every point, "block nothing" first."""
    return (
        np.concatenate(([0.0], counts.blocked_attacks / counts.attacks)),
        np.concatenate(([0.0], counts.blocked_benign / counts.benign)),
        np.concatenate(([np.inf], counts.thresholds)),
    )
