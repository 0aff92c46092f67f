"""How well scores tell attacks from benign samples: the area under the ROC curve.

The area is the chance that an attack scores above a benign sample, ties counted half. `labels` are
true for an attack, `scores` finite and higher for what is more like an attack, `groups` name each
sample's group (None: every sample alone), all of shape (n,); `confidence` is in (0, 1); unequal
lengths, another label or a NaN raise `ValueError`. One class only is undefined. One
sample (or group) in a class, scores without variance, and over groups an area of 0 or 1 have no
interval, with the reason.

Over groups, the placements behind DeLong's variance are summed by group, each over the square root
of the share of its class outside its group: where every group is one sample, that is DeLong's
variance again. Student's t has the degrees of freedom of the class with fewer, or heavier, groups.
Source: DeLong, DeLong & Clarke-Pearson (1988), doi:10.2307/2531595; Sun & Xu (2014),
doi:10.1109/LSP.2014.2337313, for the ranks; Obuchowski (1997), Biometrics 53:567, for sums by
group; Imbens & Kolesar (2016), doi:10.1162/REST_a_00552, for the share outside (HC2).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from guardmark.core.estimate import Difference
from guardmark.core.values import dataclass
from guardmark.stats.arguments import group_column, require_fraction, scored_samples
from guardmark.stats.distributions import (
    as_p_value,
    t_upper_tail,
    two_sided_p,
    two_sided_t,
    two_sided_z,
)
from guardmark.stats.figures import Ratio
from guardmark.stats.rates.clustered import group_freedom, satterthwaite_freedom

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from guardmark.stats.arguments import Flags, Floats, Ints

_HALVINGS = 60
_ONE_CLASS = "scores need both attacks and benign samples"
_AT_THE_END = "an area of 0 or 1 shows no variance to build an interval on"
_TOO_FEW_SAMPLES = "an interval needs two attacks and two benign samples"
_NO_VARIANCE = "the scores show no variance to build an interval on"
_TOO_FEW_GROUPS = "an interval needs two groups with attacks and two with benign samples"
_NO_GROUP_VARIANCE = "the scores show no variance between groups"


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
class Placements:
    """Share of the other class that each sample is placed right against, ties half.

    Attributes:
        attacks: One entry an attack: the share of benign samples it scores above.
        benign: One entry a benign sample: the share of attacks that score above it.
    """

    attacks: Floats
    benign: Floats

    @property
    def area(self) -> float:
        """The area under the ROC curve: the mean placement."""
        return float(self.attacks.mean())


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Standard error of a figure, and how well it is known.

    Attributes:
        error: None when undefined; 0.0 where nothing varies.
        freedom: Degrees of freedom of Student's t.
        reason: Why it is undefined, or empty.
    """

    error: float | None = None
    freedom: float = math.inf
    reason: str = ""

    def half_width(self, confidence: float) -> float:
        """Return how far the limits lie from the figure."""
        return two_sided_t(confidence, self.freedom) * (self.error or 0.0)

    def p_value(self, z: float) -> float:
        """Return the chance of a statistic at least as far from 0."""
        if math.isinf(self.freedom):
            return two_sided_p(z)
        return as_p_value(2 * t_upper_tail(abs(z), self.freedom))


def auc(
    labels: ArrayLike,
    scores: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    confidence: float = 0.95,
) -> Auc:
    """Estimate the area.

    Where every sample stands alone the interval is Newcombe's (his method 5): all areas that lie
    within the quantile of the error they would have themselves, so it holds for classes of unlike
    size and for an area of 0 or 1. Over groups it is DeLong's by group, on the logit scale.
    Source: Newcombe (2006), doi:10.1002/sim.2324; Hanley & McNeil (1982),
    doi:10.1148/radiology.143.1.7063747.
    """
    require_fraction("confidence", confidence)
    rows = _Rows.read(labels, scores, groups)
    attacks = int(rows.attack.sum())
    benign = len(rows.attack) - attacks
    area, low, high, spread = None, None, None, Spread(reason=_ONE_CLASS)
    if rows.has_both:
        placed = place(rows.attack, rows.score)
        area, spread = placed.area, rows.spread(placed)
    reason, is_alone = spread.reason, rows.groups is None or rows.groups == len(rows.attack)
    if area is not None and not reason:
        is_at_end = area in {0.0, 1.0}
        if is_at_end and not is_alone:
            reason = _AT_THE_END
        elif not is_at_end and not spread.error:
            reason = rows.no_variance
    if area is not None and not reason:
        if is_alone:
            low, high = newcombe_limits(area, attacks, benign, confidence=confidence)
        else:
            low, high = logit_limits(area, spread.half_width(confidence))
    ratio = Ratio(
        value=area,
        low=low,
        high=high,
        confidence=confidence,
        method="newcombe" if is_alone else f"{rows.method}, logit",
        trials=len(rows.attack),
        groups=rows.groups,
        reason=reason,
    )
    return Auc(ratio=ratio, standard_error=spread.error, attacks=attacks, benign=benign)


def compare_auc(
    labels: ArrayLike,
    first: ArrayLike,
    *,
    second: ArrayLike,
    groups: ArrayLike | None = None,
    confidence: float = 0.95,
) -> AucComparison:
    """Test two areas over the same samples with DeLong's paired test; see `auc`.

    Where neither the areas nor anything else differs, z is 0 and p is 1 by convention. Where the
    areas differ but show no variance, and with one sample (or group) in a class, there is no test.
    """
    require_fraction("confidence", confidence)
    rows = _Rows.read(labels, first, groups)
    other = scored_samples(labels, second)[1]
    areas: tuple[float | None, float | None] = (None, None)
    gap, z, low, high, spread = None, None, None, None, Spread(reason=_ONE_CLASS)
    if rows.has_both:
        a, b = place(rows.attack, rows.score), place(rows.attack, other)
        areas, gap = (a.area, b.area), a.area - b.area
        # Taken on the differences of the placements: the sum of variances less twice the covariance
        # would leave rounding noise where two defenses score alike.
        spread = rows.spread(Placements(attacks=a.attacks - b.attacks, benign=a.benign - b.benign))
    if gap is not None and spread.error:
        z, half = gap / spread.error, spread.half_width(confidence)
        low, high = max(gap - half, -1.0), min(gap + half, 1.0)
    elif gap == 0 and spread.error == 0:
        z = 0.0
    difference = Difference(
        value=gap,
        low=low,
        high=high,
        confidence=confidence,
        method=rows.method,
        p_value=None if z is None else spread.p_value(z),
        test="" if z is None else f"paired {rows.method}",
        pairs=len(rows.attack),
        groups=rows.groups,
        reason=rows.no_variance if spread.error == 0 else spread.reason,
    )
    return AucComparison(first=areas[0], second=areas[1], z=z, difference=difference)


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


def newcombe_limits(
    area: float, attacks: int, benign: int, *, confidence: float
) -> tuple[float, float]:
    """Return Newcombe's limits (method 5) of an area over so many samples of either class.

    The limits are the areas whose own error puts them a normal quantile away from the area seen.
    """
    z = two_sided_z(confidence)
    extra = (attacks + benign) / 2.0 - 1.0

    def is_within(other: float) -> bool:
        spread = extra * (1.0 - other) / (2.0 - other) + extra * other / (1.0 + other)
        variance = other * (1.0 - other) * (1.0 + spread) / (attacks * benign)
        return abs(other - area) <= z * math.sqrt(variance)

    ends = []
    for end in (0.0, 1.0):
        outside, inside = end, area
        if area == end:
            ends.append(end)
            continue
        for _ in range(_HALVINGS):
            middle = (outside + inside) / 2.0
            outside, inside = (outside, middle) if is_within(middle) else (middle, inside)
        ends.append(inside)
    return ends[0], ends[1]


def logit_limits(value: float, half_width: float) -> tuple[float, float]:
    """Return limits on the logit scale, inside (0, 1) but for rounding.

    `value` is strictly between 0 and 1, `half_width` quantile times standard error, not negative.
    """
    half = half_width / (value * (1 - value))
    centre = math.log(value) - math.log1p(-value)
    return _expit(centre - half), _expit(centre + half)


def spread_by_group(parts: Floats, *, attack: Flags, codes: Ints) -> Spread | None:
    """Return the spread of a figure from the influence of each sample, over the size of its class.

    None where a class has fewer than two groups.
    """
    sides = [(side, np.bincount(codes[side])) for side in (attack, ~attack)]
    freedom = min(group_freedom(sizes[sizes > 0]) for _, sizes in sides)
    if freedom < 1:
        return None
    seen = parts.copy()
    for side, sizes in sides:
        seen[side] /= np.sqrt(1 - sizes[codes[side]] / sizes.sum())
    squares = np.bincount(codes, weights=seen).astype(np.float64) ** 2
    variance = float(squares.sum())
    if variance < 1e-24:  # rounding noise
        return Spread(error=0.0)
    return Spread(error=math.sqrt(variance), freedom=satterthwaite_freedom(squares, freedom))


def _expit(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(max(x, -745.0)) / (1 + math.exp(x))


def _variance_of_mean(shares: Floats) -> float:
    count, around = len(shares), shares - shares.mean()
    return float(around @ around) / (count - 1) / count


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """Scored samples and their groups."""

    attack: Flags
    score: Floats
    codes: Ints | None

    @classmethod
    def read(cls, labels: ArrayLike, scores: ArrayLike, groups: ArrayLike | None) -> _Rows:
        attack, score = scored_samples(labels, scores)
        codes = None if groups is None else group_column(groups, len(attack))
        return cls(attack=attack, score=score, codes=codes)

    @property
    def has_both(self) -> bool:
        return bool(0 < self.attack.sum() < len(self.attack))

    @property
    def groups(self) -> int | None:
        return None if self.codes is None else int(self.codes.max(initial=-1)) + 1

    @property
    def method(self) -> str:
        return "delong" if self.codes is None else "delong by group"

    @property
    def no_variance(self) -> str:
        return _NO_VARIANCE if self.codes is None else _NO_GROUP_VARIANCE

    def spread(self, placed: Placements) -> Spread:
        """Return the spread of a mean placement, or of a difference of two."""
        if self.codes is None:
            if min(len(placed.attacks), len(placed.benign)) < 2:
                return Spread(reason=_TOO_FEW_SAMPLES)
            variance = _variance_of_mean(placed.attacks) + _variance_of_mean(placed.benign)
            return Spread(error=math.sqrt(variance))
        parts = np.empty(len(self.attack))
        for side, shares in ((self.attack, placed.attacks), (~self.attack, placed.benign)):
            parts[side] = (shares - shares.mean()) / len(shares)
        spread = spread_by_group(parts, attack=self.attack, codes=self.codes)
        return spread or Spread(reason=_TOO_FEW_GROUPS)
