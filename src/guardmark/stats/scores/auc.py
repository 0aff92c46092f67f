"""How well scores tell attacks from benign samples: the area under the ROC curve.

The area is the chance that an attack scores above a benign sample, ties counted half. `labels` are
true for an attack, `scores` finite and higher for what is more like an attack, `groups` name each
sample's group, all of shape (n,); `confidence` is in (0, 1); unequal lengths, another label or a
NaN raise `ValueError`. One class only is undefined. An area of 0 or 1, one sample (or group) in a
class, or scores without variance have no interval, with the reason.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np

from guardmark.core.estimate import Difference, Ratio
from guardmark.stats.arguments import group_column, require_fraction, scored_samples
from guardmark.stats.distributions import (
    as_p_value,
    t_upper_tail,
    two_sided_p,
    two_sided_t,
    two_sided_z,
)
from guardmark.stats.drawing import DrawPlan, draw_weights
from guardmark.stats.rates.clustered import group_freedom

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike

    from guardmark.stats.arguments import Flags, Floats, Ints

    _Area = Callable[[Floats], Floats]

_ONE_CLASS = "scores need both attacks and benign samples"
_AT_THE_END = "an area of 0 or 1 shows no variance to build an interval on"
_TOO_FEW_SAMPLES = "an interval needs two attacks and two benign samples"
_NO_VARIANCE = "the scores show no variance to build an interval on"
_TOO_FEW_GROUPS = "an interval needs two groups with attacks and two with benign samples"
_NO_GROUP_VARIANCE = "the scores show no variance between groups"


@dataclass(frozen=True, slots=True, kw_only=True)
class Auc:
    """Area under the ROC curve."""

    ratio: Ratio  # The area with its interval, method and reason.
    standard_error: float | None  # Standard error of the area, or None when undefined.
    attacks: int  # Attacks behind it.
    benign: int  # Benign samples behind it.


@dataclass(frozen=True, slots=True, kw_only=True)
class AucComparison:
    """Two areas over the same samples."""

    first: float | None  # Area of the first scores, or None when undefined.
    second: float | None  # Area of the second scores, or None when undefined.
    z: float | None  # The statistic of the test, or None when undefined.
    difference: Difference  # First minus second with interval and p.


@dataclass(frozen=True, slots=True, kw_only=True)
class Placements:
    """Share of the other class that each sample is placed right against, ties half."""

    attacks: Floats  # One entry an attack: the share of benign samples it scores above.
    benign: Floats  # One entry a benign sample: the share of attacks that score above it.

    @property
    def area(self) -> float:
        """The area under the ROC curve: the mean placement."""
        return float(self.attacks.mean())


def auc(labels: ArrayLike, scores: ArrayLike, *, confidence: float = 0.95) -> Auc:
    """Estimate the area where every sample stands alone; see `clustered_auc` otherwise.

    Returns the area, DeLong's standard error (in O(n log n)), and an interval on the logit scale,
    which stays in (0, 1).
    Source: DeLong, DeLong & Clarke-Pearson (1988), doi:10.2307/2531595; Sun & Xu (2014),
    doi:10.1109/LSP.2014.2337313, for the ranks.
    """
    require_fraction("confidence", confidence)
    attack, score = scored_samples(labels, scores)
    attacks, benign = int(attack.sum()), int((~attack).sum())
    area, error, low, high, reason = None, None, None, None, _ONE_CLASS
    if attacks and benign:
        placements = place(attack, score)
        area = placements.area
        variance = _variance(placements)
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
    """Test two areas over the same samples, each alone, with DeLong's paired test; see `auc`.

    Where neither the areas nor anything else differs, z is 0 and p is 1 by convention. Where the
    areas differ but show no variance, and with one sample in a class, there is no test.
    """
    z_limit = two_sided_z(require_fraction("confidence", confidence))
    attack, score_a = scored_samples(labels, first)
    score_b = scored_samples(labels, second)[1]
    gap = _Gap(reason=_ONE_CLASS)
    if 0 < attack.sum() < len(attack):
        a, b = place(attack, score_a), place(attack, score_b)
        # Taken on the differences of the placements: the sum of variances less twice the covariance
        # would leave rounding noise where two defenses score alike.
        variance = _variance(Placements(attacks=a.attacks - b.attacks, benign=a.benign - b.benign))
        error = None if variance is None else math.sqrt(variance)
        reason = _TOO_FEW_SAMPLES if error is None else "" if error else _NO_VARIANCE
        gap = _Gap(areas=(a.area, b.area), error=error, reason=reason)
    limits, z = gap.limits(z_limit), gap.statistic
    difference = Difference(
        value=gap.value,
        low=limits[0],
        high=limits[1],
        confidence=confidence,
        method="delong",
        p_value=None if z is None else two_sided_p(z),
        test="" if z is None else "paired delong",
        pairs=len(attack),
        reason=gap.reason,
    )
    return AucComparison(first=gap.areas[0], second=gap.areas[1], z=z, difference=difference)


def place(attack: Flags, score: Floats) -> Placements:
    """Place every sample against the other class, in one sort.

    Both classes must be present. Placements come in the order of the samples within each class.
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
    """Return limits on the logit scale, inside (0, 1) but for rounding.

    `value` is strictly between 0 and 1, `half_width` quantile times standard error, not negative.
    """
    half = half_width / (value * (1 - value))
    centre = math.log(value) - math.log1p(-value)
    return _expit(centre - half), _expit(centre + half)


def clustered_auc(
    labels: ArrayLike,
    scores: ArrayLike,
    *,
    groups: ArrayLike,
    confidence: float = 0.95,
    drawing: DrawPlan | None = None,
) -> Auc:
    """Estimate the area where samples share groups.

    Returns the area with the standard error of a bootstrap of whole groups, drawn apart for groups
    of attacks, of benign samples and of both, and an interval on the logit scale with Student's t
    (degrees of freedom: the lower `group_freedom` of both classes). `drawing` None: seed 0, 2,000
    draws.
    Source: Obuchowski (1997), Biometrics 53:567, for the problem; Rutter (2000), Academic Radiology
    7:413, for the bootstrap of whole groups.
    """
    require_fraction("confidence", confidence)
    attack, score = scored_samples(labels, scores)
    members = _read_groups(groups, attack)
    plan = drawing or DrawPlan()
    error, low, high, reason = None, None, None, _ONE_CLASS
    area = place(attack, score).area if 0 < attack.sum() < len(attack) else None
    if area is not None:
        reason = _TOO_FEW_GROUPS if members.degrees_of_freedom < 1 else ""
    if area is not None and not reason:
        error = _spread(_draw(members, _area_of(attack, score, members.codes), plan))
        reason = _AT_THE_END if area in {0.0, 1.0} else "" if error else _NO_GROUP_VARIANCE
    if area is not None and error is not None and not reason:
        t = two_sided_t(confidence, members.degrees_of_freedom)
        low, high = logit_limits(area, t * error)
    return Auc(
        ratio=Ratio(
            value=area,
            low=low,
            high=high,
            confidence=confidence,
            method="group bootstrap, logit",
            trials=len(attack),
            groups=members.count,
            replicates=0 if error is None else plan.replicates,
            reason=reason,
        ),
        standard_error=error,
        attacks=int(attack.sum()),
        benign=int((~attack).sum()),
    )


def compare_clustered_auc(
    labels: ArrayLike,
    scores: tuple[ArrayLike, ArrayLike],
    *,
    groups: ArrayLike,
    confidence: float = 0.95,
    drawing: DrawPlan | None = None,
) -> AucComparison:
    """Compare two areas over the same samples where samples share groups.

    `scores` are those of the first and of the second defense. Every draw of `clustered_auc` serves
    both, so that what they share cancels. Undefined cases are those of `compare_auc`, over groups.
    """
    require_fraction("confidence", confidence)
    attack, first = scored_samples(labels, scores[0])
    second = scored_samples(labels, scores[1])[1]
    members = _read_groups(groups, attack)
    freedom, gap = members.degrees_of_freedom, _Gap(reason=_ONE_CLASS)
    if 0 < attack.sum() < len(attack):
        areas = (place(attack, first).area, place(attack, second).area)
        gap = _Gap(areas=areas, reason=_TOO_FEW_GROUPS if freedom < 1 else "")
    if not gap.reason:
        plan, drawn = drawing or DrawPlan(), []
        for score in (first, second):
            key = sha256(score.tobytes() + attack.tobytes() + members.codes.tobytes()).digest()
            if key not in plan.kept:
                plan.kept[key] = _draw(members, _area_of(attack, score, members.codes), plan)
            drawn.append(plan.kept[key])
        error = _spread(drawn[0] - drawn[1])
        gap = replace(gap, error=error, reason="" if error else _NO_GROUP_VARIANCE)
    z = gap.statistic
    limits = gap.limits(two_sided_t(confidence, freedom)) if gap.error else (None, None)
    difference = Difference(
        value=gap.value,
        low=limits[0],
        high=limits[1],
        confidence=confidence,
        method="group bootstrap",
        p_value=None if z is None else as_p_value(2 * t_upper_tail(abs(z), freedom)),
        test="" if z is None else "group bootstrap t",
        pairs=len(attack),
        groups=members.count,
        reason=gap.reason,
    )
    return AucComparison(first=gap.areas[0], second=gap.areas[1], z=z, difference=difference)


def _expit(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(max(x, -745.0)) / (1 + math.exp(x))


def _no_interval(area: float, error: float | None) -> str:
    if error is None:
        return _TOO_FEW_SAMPLES
    if area in (0.0, 1.0):
        return _AT_THE_END
    return "" if error else _NO_VARIANCE


def _variance(placed: Placements) -> float | None:
    if min(len(placed.attacks), len(placed.benign)) < 2:
        return None
    return _variance_of_mean(placed.attacks) + _variance_of_mean(placed.benign)


def _variance_of_mean(shares: Floats) -> float:
    count, around = len(shares), shares - shares.mean()
    return float(around @ around) / (count - 1) / count


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gap:
    """Two areas and the standard error of their difference."""

    areas: tuple[float | None, float | None] = (None, None)
    error: float | None = None
    reason: str

    @property
    def value(self) -> float | None:
        first, second = self.areas
        return None if first is None or second is None else first - second

    @property
    def statistic(self) -> float | None:
        if self.value is None or self.error is None:
            return None
        return self.value / self.error if self.error else 0.0 if self.value == 0 else None

    def limits(self, quantile: float) -> tuple[float | None, float | None]:
        if self.value is None or not self.error:
            return None, None
        half = quantile * self.error
        return max(self.value - half, -1.0), min(self.value + half, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Groups:
    """The groups of rows, and which carry which class."""

    codes: Ints
    strata: list[Ints]
    count: int
    degrees_of_freedom: float


def _read_groups(groups: ArrayLike, attack: Flags) -> _Groups:
    codes = group_column(groups, len(attack))
    attacks, benign = (np.bincount(codes[side], minlength=1) for side in (attack, ~attack))
    with_attacks, with_benign = np.flatnonzero(attacks), np.flatnonzero(benign)
    both = np.intersect1d(with_attacks, with_benign)
    return _Groups(
        codes=codes,
        strata=[np.setdiff1d(with_attacks, both), np.setdiff1d(with_benign, both), both],
        count=len(with_attacks) + len(with_benign) - len(both),
        degrees_of_freedom=min(
            group_freedom(side[side > 0]) if side.any() else 0.0 for side in (attacks, benign)
        ),
    )


def _area_of(attack: Flags, score: Floats, codes: Ints) -> _Area:
    """Return a function from whole weights of groups, (b, K), to areas, (b,): sums are exact."""
    order = np.argsort(score, kind="stable")
    attacks, benign = order[attack[order]], order[~attack[order]]
    sides = [np.searchsorted(score[benign], score[attacks], side=s) for s in ("left", "right")]
    of_attacks, of_benign = codes[attacks], codes[benign]

    def areas(weights: Floats) -> Floats:
        below = np.zeros((len(weights), len(benign) + 1))
        np.cumsum(weights[:, of_benign], axis=1, out=below[:, 1:])
        won, lined_up = np.zeros(len(weights)), weights[:, of_attacks]
        for side in sides:  # a tie is half a win
            won += np.einsum("ij,ij->i", lined_up, below[:, side]) / 2
        area: Floats = won / (lined_up.sum(axis=1) * below[:, -1])
        return area

    return areas


def _draw(members: _Groups, area: _Area, drawing: DrawPlan) -> Floats:
    blocks = draw_weights(members.strata, drawing=drawing, rows=len(members.codes))
    return np.concatenate([area(weights) for weights in blocks])


def _spread(drawn: Floats) -> float:
    """Return the standard deviation; rounding noise over equal draws counts as none."""
    spread = float(np.std(drawn, ddof=1))
    return spread if spread > 1e-12 else 0.0
