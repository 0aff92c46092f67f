"""How well scores tell attacks from benign samples, when every sample stands alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from guardmark.core.estimate import Difference, Ratio
from guardmark.stats.arguments import require_equal_lengths, require_fraction, require_rate
from guardmark.stats.columns import label_column, number_column
from guardmark.stats.curves import count_at_thresholds
from guardmark.stats.normal import two_sided_p, two_sided_z

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

_ONE_CLASS = "scores need both attacks and benign samples"
_AT_THE_END = "an area of 0 or 1 shows no variance to build an interval on"
_TOO_FEW = "an interval needs two attacks and two benign samples"
_NO_VARIANCE = "the scores show no variance to build an interval on"


@dataclass(frozen=True, slots=True, kw_only=True)
class Auc:
    """Area under the ROC curve.

    Attributes:
        ratio: The area with its interval, method and reason.
        standard_error: Standard error of the area, or None when undefined.
        attacks: Attacks behind it.
        benign: Benign samples behind it.
    """

    ratio: Ratio
    standard_error: float | None
    attacks: int
    benign: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AucComparison:
    """Two areas over the same samples.

    Attributes:
        first: Area of the first scores, or None when undefined.
        second: Area of the second scores, or None when undefined.
        z: The statistic of the test, or None when undefined.
        difference: First minus second with interval and p.
    """

    first: float | None
    second: float | None
    z: float | None
    difference: Difference


@dataclass(frozen=True, slots=True, kw_only=True)
class TprAtFpr:
    """Best true positive rate within a limit on the false positive rate.

    Attributes:
        max_fpr: The limit.
        tpr: Blocked share of the attacks, or None when undefined.
        fpr: Blocked share of the benign samples there, or None when undefined.
        threshold: Block at or above it; None when every threshold breaks the limit, so that
            nothing may be blocked, or when undefined.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Placements:
    """Share of the other class that each sample is placed right against, ties half.

    Attributes:
        attacks: One entry an attack: the share of benign samples it scores above.
        benign: One entry a benign sample: the share of attacks that score above it.
    """

    attacks: NDArray[np.float64]
    benign: NDArray[np.float64]

    @property
    def area(self) -> float:
        """The area under the ROC curve: the mean placement."""
        return float(self.attacks.mean())


def auc(labels: ArrayLike, scores: ArrayLike, *, confidence: float = 0.95) -> Auc:
    """Estimate the area under the ROC curve, ties counted half.

    The area is the chance that an attack scores above a benign sample. Where samples share
    groups use `guardmark.stats.clustered_auc` instead.

    Args:
        labels: True for an attack, shape (n,).
        scores: Higher means more like an attack, shape (n,). Any unit, finite.
        confidence: Nominal coverage, strictly between 0 and 1.

    Returns:
        The area, DeLong's standard error (in O(n log n)), and an interval on the logit scale,
        which stays in (0, 1). One class only: undefined. An area of 0 or 1, one sample in a
        class, or equal scores throughout: no interval, with the reason.

    Raises:
        ValueError: On unequal lengths, a bad label, a NaN score or a bad confidence.

    References:
        DeLong, DeLong & Clarke-Pearson (1988), doi:10.2307/2531595; Sun & Xu (2014),
        doi:10.1109/LSP.2014.2337313, for the ranks.
    """
    require_fraction("confidence", confidence)
    attack, score = checked_scores(labels, scores)
    attacks, benign = int(attack.sum()), int((~attack).sum())
    area, error, low, high, reason = None, None, None, None, _ONE_CLASS
    if attacks and benign:
        placements = place(attack, score)
        area = placements.area
        variance = _covariance(placements, placements)
        error = None if variance is None else math.sqrt(variance)
        reason = _no_interval(area, error)
    if area is not None and error is not None and not reason:
        low, high = logit_limits(area, two_sided_z(confidence) * error)
    ratio = Ratio(
        value=area,
        low=low,
        high=high,
        confidence=confidence,
        method="delong, logit",
        trials=attacks + benign,
        reason=reason,
    )
    return Auc(ratio=ratio, standard_error=error, attacks=attacks, benign=benign)


def compare_auc(
    labels: ArrayLike, first: ArrayLike, *, second: ArrayLike, confidence: float = 0.95
) -> AucComparison:
    """Test two areas over the same samples with DeLong's paired test.

    Args:
        labels: True for an attack, shape (n,).
        first: Scores of the first defense, shape (n,).
        second: Scores of the second defense on the same samples, shape (n,).
        confidence: Nominal coverage, strictly between 0 and 1.

    Returns:
        Both areas and their difference. Where neither the areas nor anything else differs, z is 0
        and p is 1 by convention. Where the areas differ but show no variance, and with one sample
        in a class, there is no test and no interval, with the reason.

    Raises:
        ValueError: As `auc`.

    References:
        DeLong, DeLong & Clarke-Pearson (1988), doi:10.2307/2531595.
    """
    z_limit = two_sided_z(require_fraction("confidence", confidence))
    attack, score_a = checked_scores(labels, first)
    score_b = checked_scores(labels, second)[1]
    areas: tuple[float, float] | None = None
    variance, z, reason = None, None, _ONE_CLASS
    if 0 < attack.sum() < len(attack):
        a, b = place(attack, score_a), place(attack, score_b)
        areas = (a.area, b.area)
        variance = _difference_variance(a, b)
        z, reason = _statistic(a.area - b.area, variance)
    half = None if reason or not variance else z_limit * math.sqrt(variance)
    gap = None if areas is None else areas[0] - areas[1]
    return AucComparison(
        first=areas[0] if areas else None,
        second=areas[1] if areas else None,
        z=z,
        difference=Difference(
            value=gap,
            low=None if gap is None or half is None else max(gap - half, -1.0),
            high=None if gap is None or half is None else min(gap + half, 1.0),
            confidence=confidence,
            method="delong",
            p_value=None if z is None else two_sided_p(z),
            test="" if z is None else "paired delong",
            pairs=len(attack),
            reason=reason,
        ),
    )


def tpr_at_fpr(labels: ArrayLike, scores: ArrayLike, *, max_fpr: float) -> TprAtFpr:
    """Find the highest true positive rate within a false positive limit.

    The rule is "block when the score is at or above the threshold"; ties are taken whole and
    nothing is interpolated. The rates hold for the samples they were chosen on: choose on a
    calibration split and report what `guardmark.stats.operating.measure_at` finds on the rest.

    Args:
        labels: True for an attack, shape (n,).
        scores: Higher means more like an attack, shape (n,).
        max_fpr: Highest false positive rate allowed, in [0, 1].

    Returns:
        The rates at the lowest threshold within the limit. With fewer than 1 / `max_fpr` benign
        samples it is marked as not resolvable, with the number needed (a limit of 0 always is);
        one class only is undefined.

    Raises:
        ValueError: On unequal lengths, a bad label, a NaN score, or a limit not in [0, 1].
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


def checked_scores(
    labels: ArrayLike, scores: ArrayLike
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Read labels and scores that belong together.

    Args:
        labels: True for an attack, shape (n,).
        scores: Finite numbers, shape (n,).

    Returns:
        Labels as booleans and scores as floats, both of shape (n,).

    Raises:
        ValueError: On unequal lengths, a bad label or a NaN score.
    """
    attack, score = label_column(labels), number_column(scores, name="scores")
    require_equal_lengths(labels=len(attack), scores=len(score))
    return attack, score


def place(attack: NDArray[np.bool_], score: NDArray[np.float64]) -> Placements:
    """Place every sample against the other class, in one sort.

    Args:
        attack: Labels with both classes present, shape (n,).
        score: Finite scores, shape (n,).

    Returns:
        The placements, in the order of the samples within each class.
    """
    _, inverse = np.unique(score, return_inverse=True)
    of_attack = np.bincount(inverse[attack], minlength=int(inverse.max()) + 1)
    of_benign = np.bincount(inverse[~attack], minlength=len(of_attack))
    below = np.cumsum(of_benign) - of_benign / 2
    above = of_attack.sum() - np.cumsum(of_attack) + of_attack / 2
    return Placements(
        attacks=(below / of_benign.sum())[inverse[attack]],
        benign=(above / of_attack.sum())[inverse[~attack]],
    )


def logit_limits(value: float, half_width: float) -> tuple[float, float]:
    """Build an interval on the logit scale from a half-width on the plain one.

    Args:
        value: Strictly between 0 and 1.
        half_width: Quantile times standard error, not negative.

    Returns:
        Lower and upper limit, strictly inside (0, 1) but for rounding.
    """
    half = half_width / (value * (1 - value))
    centre = math.log(value) - math.log1p(-value)
    return _expit(centre - half), _expit(centre + half)


def _needed_for_proof(max_fpr: float) -> int | None:
    if max_fpr in {0.0, 1.0}:
        return 1 if max_fpr else None
    return math.ceil(math.log(0.05) / math.log1p(-max_fpr))


def _expit(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(max(x, -745.0)) / (1 + math.exp(x))


def _no_interval(area: float, error: float | None) -> str:
    if error is None:
        return _TOO_FEW
    if area in (0.0, 1.0):
        return _AT_THE_END
    return "" if error else _NO_VARIANCE


def _covariance(first: Placements, second: Placements) -> float | None:
    if min(len(first.attacks), len(first.benign)) < 2:
        return None
    return _mean_product(first.attacks, second.attacks) + _mean_product(first.benign, second.benign)


def _mean_product(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    count = len(first)
    return float((first - first.mean()) @ (second - second.mean())) / (count - 1) / count


def _difference_variance(first: Placements, second: Placements) -> float | None:
    # Taken on the differences of the placements: the sum of variances less twice the covariance
    # would leave rounding noise where two defenses score alike.
    apart = Placements(attacks=first.attacks - second.attacks, benign=first.benign - second.benign)
    return _covariance(apart, apart)


def _statistic(gap: float, variance: float | None) -> tuple[float | None, str]:
    if variance is None:
        return None, _TOO_FEW
    if variance > 0:
        return gap / math.sqrt(variance), ""
    if gap == 0:
        return 0.0, _NO_VARIANCE
    return None, _NO_VARIANCE
