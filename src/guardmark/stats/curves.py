"""What a defense would do at every threshold: the points of the ROC and PR curves.

A sample is blocked when its score is at or above the threshold; samples of equal score are
blocked together. Nothing between two points can be reached, so nothing is interpolated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from guardmark.core.estimate import Ratio
from guardmark.stats.arguments import require_equal_lengths, require_fraction
from guardmark.stats.columns import label_column, number_column
from guardmark.stats.normal import two_sided_z

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

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

    thresholds: NDArray[np.float64]
    blocked_attacks: NDArray[np.int64]
    blocked_benign: NDArray[np.int64]
    attacks: int
    benign: int

    @property
    def undefined(self) -> str:
        """Why no rate over thresholds exists, or empty."""
        return "" if self.attacks and self.benign else _ONE_CLASS


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """A rate along a curve with its confidence band.

    Attributes:
        values: The rate at each point, shape (t,).
        low: Lower limit at each point.
        high: Upper limit at each point.
        method: What the band promises, and by which formula.
    """

    values: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    method: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RocCurve:
    """True against false positive rate at every threshold.

    Attributes:
        thresholds: Falling, shape (t,). The first point is +infinity: nothing is blocked.
        true_positive_rate: Blocked share of the attacks.
        false_positive_rate: Blocked share of the benign samples.
        confidence: Nominal coverage of the bands.
        reason: Why there are no points, or empty.
    """

    thresholds: NDArray[np.float64]
    true_positive_rate: Band
    false_positive_rate: Band
    confidence: float
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionRecallCurve:
    """Precision against recall at every threshold, for one mix of attacks and benign.

    Attributes:
        thresholds: Falling, shape (t,).
        precision: Share of attacks among the blocked.
        recall: Blocked share of the attacks.
        prevalence: Share of attacks in the data: precision means nothing without it.
        confidence: Nominal coverage of the bands.
        reason: Why there are no points, or empty.
    """

    thresholds: NDArray[np.float64]
    precision: Band
    recall: Band
    prevalence: float | None
    confidence: float
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AveragePrecision:
    """Average precision, beside the mix it holds for.

    Attributes:
        value: The average precision in [0, 1], or None when undefined.
        prevalence: Share of attacks in the data, what a coin reaches, or None without samples.
        attacks: Attacks behind it.
        benign: Benign samples behind it.
        reason: Why the value is undefined, or empty.
    """

    value: float | None
    prevalence: float | None
    attacks: int
    benign: int
    reason: str = ""


def count_at_thresholds(labels: ArrayLike, scores: ArrayLike) -> ThresholdCounts:
    """Count what every distinct threshold would block.

    Args:
        labels: True for an attack, shape (n,).
        scores: Higher means more like an attack, shape (n,). Any unit, finite.

    Returns:
        The counts; one class only is allowed and shows in `undefined`.

    Raises:
        ValueError: On unequal lengths, a label other than 0 and 1, or a score that is NaN or
            infinite.
    """
    attack = label_column(labels)
    score = number_column(scores, name="scores")
    require_equal_lengths(labels=len(attack), scores=len(score))
    order = np.argsort(-score, kind="stable")
    score, attack = score[order], attack[order]
    last = np.flatnonzero(np.append(score[1:] != score[:-1], True)) if score.size else order
    hits = np.cumsum(attack, dtype=np.int64)[last]
    attacks = int(attack.sum())
    return ThresholdCounts(
        thresholds=score[last],
        blocked_attacks=hits,
        blocked_benign=last.astype(np.int64) + 1 - hits,
        attacks=attacks,
        benign=attack.size - attacks,
    )


def roc_curve(
    labels: ArrayLike, scores: ArrayLike, *, confidence: float = 0.95, simultaneous: bool = False
) -> RocCurve:
    """Draw the points of the ROC curve with confidence bands.

    Args:
        labels: True for an attack, shape (n,).
        scores: Higher means more like an attack, shape (n,).
        confidence: Nominal coverage, strictly between 0 and 1.
        simultaneous: False: Wilson limits that hold at one threshold fixed beforehand. True:
            limits that hold for both rates at all thresholds at once, so also at a threshold
            chosen by looking at the curve.

    Returns:
        The curve, from "block nothing" to "block all"; without points when one class is missing.

    Raises:
        ValueError: As `count_at_thresholds`, or if `confidence` is not in (0, 1).

    References:
        Wilson (1927); Campbell (1994), Statistics in Medicine 13:499, with the sharp constant of
        Massart (1990) for the simultaneous band.
    """
    counts = count_at_thresholds(labels, scores)
    require_fraction("confidence", confidence)
    empty = bool(counts.undefined)
    thresholds = np.empty(0) if empty else np.concatenate(([np.inf], counts.thresholds))

    def along(blocked: NDArray[np.int64], total: int) -> Band:
        starting = np.empty(0, np.int64) if empty else np.concatenate(([0], blocked))
        if simultaneous:
            return _simultaneous_band(starting, total, confidence)
        return _wilson_band(starting, np.full(len(starting), total), confidence)

    return RocCurve(
        thresholds=thresholds,
        true_positive_rate=along(counts.blocked_attacks, counts.attacks),
        false_positive_rate=along(counts.blocked_benign, counts.benign),
        confidence=confidence,
        reason=counts.undefined,
    )


def precision_recall_curve(
    labels: ArrayLike, scores: ArrayLike, *, confidence: float = 0.95
) -> PrecisionRecallCurve:
    """Draw the points of the precision-recall curve with pointwise bands.

    Precision is undefined where nothing is blocked, so the curve starts at the highest score.

    Args:
        labels: True for an attack, shape (n,).
        scores: Higher means more like an attack, shape (n,).
        confidence: Nominal coverage, strictly between 0 and 1.

    Returns:
        The curve with Wilson limits at each threshold (for precision given the number blocked);
        without points when one class is missing.

    Raises:
        ValueError: As `count_at_thresholds`, or if `confidence` is not in (0, 1).
    """
    counts = count_at_thresholds(labels, scores)
    require_fraction("confidence", confidence)
    used = slice(0, 0) if counts.undefined else slice(None)
    hits = counts.blocked_attacks[used]
    flagged = hits + counts.blocked_benign[used]
    return PrecisionRecallCurve(
        thresholds=counts.thresholds[used],
        precision=_wilson_band(hits, flagged, confidence),
        recall=_wilson_band(hits, np.full(len(hits), counts.attacks), confidence),
        prevalence=_prevalence(counts),
        confidence=confidence,
        reason=counts.undefined,
    )


def average_precision(labels: ArrayLike, scores: ArrayLike) -> AveragePrecision:
    """Average the precision over the attacks, in steps over thresholds.

    Never by trapezoids, which run through points no threshold reaches and flatter the curve.

    Args:
        labels: True for an attack, shape (n,).
        scores: Higher means more like an attack, shape (n,).

    Returns:
        The value beside its prevalence; undefined when one class is missing.

    Raises:
        ValueError: As `count_at_thresholds`.

    References:
        Davis & Goadrich (2006), doi:10.1145/1143844.1143874.
    """
    counts = count_at_thresholds(labels, scores)
    value = None
    if not counts.undefined:
        gained = np.diff(counts.blocked_attacks, prepend=0) / counts.attacks
        flagged = counts.blocked_attacks + counts.blocked_benign
        value = float(np.sum(gained * counts.blocked_attacks / flagged))
    return AveragePrecision(
        value=value,
        prevalence=_prevalence(counts),
        attacks=counts.attacks,
        benign=counts.benign,
        reason=counts.undefined,
    )


def partial_auc(
    labels: ArrayLike, scores: ArrayLike, *, max_fpr: float, standardised: bool = False
) -> Ratio:
    """Measure the area under the ROC curve up to a false positive rate.

    Args:
        labels: True for an attack, shape (n,).
        scores: Higher means more like an attack, shape (n,).
        max_fpr: Right end of the area, in (0, 1].
        standardised: False: the raw area, between 0 and `max_fpr`. True: McClish's form, 0.5
            for a coin and 1 for a perfect score.

    Returns:
        The area without an interval; the method says which of the two it is. Undefined when one
        class is missing.

    Raises:
        ValueError: As `count_at_thresholds`, or if `max_fpr` is not in (0, 1].

    References:
        McClish (1989), doi:10.1177/0272989X8900900307.
    """
    if not 0 < max_fpr <= 1:
        raise ValueError(f"max_fpr must be in (0, 1], got {max_fpr}")
    counts = count_at_thresholds(labels, scores)
    value = None
    if not counts.undefined:
        value = _area_up_to(counts, max_fpr)
        if standardised:
            coin = max_fpr * max_fpr / 2
            value = 0.5 * (1 + (value - coin) / (max_fpr - coin))
    return Ratio(
        value=value,
        low=None,
        high=None,
        confidence=0.95,
        method=f"partial AUC, FPR 0 to {max_fpr:g}, {'McClish' if standardised else 'raw'}",
        trials=counts.attacks + counts.benign,
        reason=counts.undefined or "no interval is computed for a partial area",
    )


def _area_up_to(counts: ThresholdCounts, max_fpr: float) -> float:
    tpr = np.concatenate(([0.0], counts.blocked_attacks / counts.attacks))
    fpr = np.concatenate(([0.0], counts.blocked_benign / counts.benign))
    inside = int(np.searchsorted(fpr, max_fpr, side="right"))
    if inside < len(fpr):
        # The segment that crosses the border is cut where it crosses: here, alone, the line
        # between two points is meant, as ties half of the whole area mean it too.
        share = (max_fpr - fpr[inside - 1]) / (fpr[inside] - fpr[inside - 1])
        height = tpr[inside - 1] + share * (tpr[inside] - tpr[inside - 1])
        tpr = np.append(tpr[:inside], height)
        fpr = np.append(fpr[:inside], max_fpr)
    return float(np.sum(np.diff(fpr) * (tpr[1:] + tpr[:-1]) / 2))


def _prevalence(counts: ThresholdCounts) -> float | None:
    total = counts.attacks + counts.benign
    return counts.attacks / total if total else None


def _wilson_band(
    successes: NDArray[np.int64], trials: NDArray[np.int64], confidence: float
) -> Band:
    z2 = two_sided_z(confidence) ** 2
    rate = successes / trials
    centre = (successes + z2 / 2) / (trials + z2)
    half = np.sqrt(z2 * (rate * (1 - rate) * trials + z2 / 4)) / (trials + z2)
    return Band(
        values=rate,
        low=np.where(successes == 0, 0.0, np.maximum(centre - half, 0.0)),
        high=np.where(successes == trials, 1.0, np.minimum(centre + half, 1.0)),
        method="pointwise, wilson",
    )


def _simultaneous_band(blocked: NDArray[np.int64], total: int, confidence: float) -> Band:
    # Each axis gets the square root of the coverage: the two classes are independent samples.
    miss = 1 - math.sqrt(confidence)
    rate = blocked / total if total else blocked.astype(np.float64)
    half = math.sqrt(math.log(2 / miss) / (2 * total)) if total else 0.0
    return Band(
        values=rate,
        low=np.maximum(rate - half, 0.0),
        high=np.minimum(rate + half, 1.0),
        method="simultaneous, dkw",
    )
