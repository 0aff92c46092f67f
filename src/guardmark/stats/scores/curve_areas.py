"""Areas under curves of thresholds: average precision, and the ROC curve up to a limit.

`labels` are true for an attack, `scores` finite and higher for what is more like an attack,
`groups` name each sample's group (None: every sample alone), all of shape (n,); `confidence` is in
(0, 1). Unequal lengths, another label or a NaN raise `ValueError`. One class only is undefined.

Limits are linearised: the influence of each sample, over the square root of the share of its class
outside its group, summed by group, gives the variance at the class sizes of the data; symmetric on
the logit scale, with Student's t. A figure at its end, fewer than two samples (or groups) in a
class, or scores without variance have no interval, with the reason.
Source: Hampel (1974), doi:10.1080/01621459.1974.10482962, for influence; Binder (1983),
doi:10.2307/1402588, for sums by group; Imbens & Kolesar (2016), doi:10.1162/REST_a_00552, for the
share outside (HC2) and the degrees of freedom; Boyd, Eng & Page (2013),
doi:10.1007/978-3-642-40994-3_29, for the logit scale of average precision.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from guardmark.core.values import dataclass
from guardmark.stats.arguments import group_column, require_fraction, scored_samples
from guardmark.stats.figures import Ratio
from guardmark.stats.scores.auc import logit_limits, spread_by_group
from guardmark.stats.scores.thresholds import place_at_thresholds

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from guardmark.stats.arguments import Flags, Floats, Ints
    from guardmark.stats.scores.thresholds import ThresholdCounts

_LEAST_WITHIN: Final = 10  # benign samples that a limit of the false positive rate rests on
_AT_THE_END = "an area at its end shows no variance to build an interval on"
_TOO_FEW = "an interval needs two groups with attacks and two with benign samples"
_NO_VARIANCE = "the scores show no variance to build an interval on"


@dataclass(frozen=True, slots=True, kw_only=True)
class AveragePrecision:
    """Average precision, beside the mix it holds for.

    Attributes:
        value: The average precision in [0, 1], or None when undefined.
        low: Lower limit, or None without an interval.
        high: Upper limit, or None without an interval.
        confidence: Nominal coverage, in (0, 1).
        method: Name of the interval.
        prevalence: Share of attacks in the data, what a coin reaches, or None without samples.
        attacks: Attacks behind it.
        benign: Benign samples behind it.
        groups: Groups behind it, or None when groups play no part.
        reason: Why the value or the interval is undefined, or empty.
    """

    value: float | None = None
    low: float | None = None
    high: float | None = None
    confidence: float
    method: str
    prevalence: float | None
    attacks: int
    benign: int
    groups: int | None = None
    reason: str = ""

    @property
    def trials(self) -> int:
        """Samples behind it."""
        return self.attacks + self.benign


def average_precision(
    labels: ArrayLike,
    scores: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    confidence: float = 0.95,
) -> AveragePrecision:
    """Average the precision over the attacks, in steps over thresholds.

    Never by trapezoids, which run through points no threshold reaches and flatter the curve.
    Source: Davis & Goadrich (2006), doi:10.1145/1143844.1143874.
    """
    rows = _Rows.read(labels, scores, groups)
    counts, value, bounds = rows.counts, None, _Limits(reason=rows.counts.undefined)
    total = counts.attacks + counts.benign
    if not counts.undefined:
        hits, flagged = counts.blocked_attacks, counts.blocked_attacks + counts.blocked_benign
        precision = hits / flagged
        gained = np.diff(hits, prepend=0) / counts.attacks
        value = float(np.sum(gained * precision))
        # How the precision at a threshold moves with one more attack, or benign sample, above it.
        per_attack = gained * counts.blocked_benign / flagged**2
        per_benign = gained * hits / flagged**2
        at = rows.places
        parts = np.where(
            rows.attack,
            (precision[at] - value) / counts.attacks
            + _above(per_attack)[at]
            - float(per_attack @ hits) / counts.attacks,
            float(per_benign @ counts.blocked_benign) / counts.benign - _above(per_benign)[at],
        )
        bounds = rows.limits(value, parts, confidence)
    return AveragePrecision(
        value=value,
        low=bounds.low,
        high=bounds.high,
        confidence=require_fraction("confidence", confidence),
        method=rows.method,
        prevalence=counts.attacks / total if total else None,
        attacks=counts.attacks,
        benign=counts.benign,
        groups=rows.groups,
        reason=bounds.reason,
    )


def partial_auc(
    labels: ArrayLike,
    scores: ArrayLike,
    *,
    max_fpr: float,
    groups: ArrayLike | None = None,
    confidence: float = 0.95,
) -> Ratio:
    """Measure the area under the ROC curve up to a false positive rate.

    The right end `max_fpr` is in (0, 1], and the area between 0 and `max_fpr`. No limits with fewer
    than 10 / `max_fpr` benign samples: the end then rests on fewer than ten of them, and limits
    held the area of 10 in .75 of runs.
    Source: Dodd & Pepe (2003), doi:10.1111/1541-0420.00071.
    """
    if not 0 < max_fpr <= 1:
        raise ValueError(f"max_fpr must be in (0, 1], got {max_fpr}")
    rows = _Rows.read(labels, scores, groups)
    counts, area, bounds = rows.counts, None, _Limits(reason=rows.counts.undefined)
    least = math.ceil(_LEAST_WITHIN / max_fpr * (1 - 1e-12))
    if not counts.undefined:
        area = _area_up_to(counts, max_fpr)
    if not counts.undefined and counts.benign < least:
        bounds = _Limits(
            reason=f"limits of a partial area to FPR {max_fpr:g} need {least} benign samples, "
            f"got {counts.benign}"
        )
    elif area is not None:
        share = _partial_parts(rows, max_fpr) / max_fpr
        bounds = rows.limits(area / max_fpr, share, confidence)
    return Ratio(
        value=area,
        low=None if bounds.low is None else bounds.low * max_fpr,
        high=None if bounds.high is None else bounds.high * max_fpr,
        confidence=require_fraction("confidence", confidence),
        method=f"partial AUC, FPR 0 to {max_fpr:g}, raw; {rows.method}",
        trials=counts.attacks + counts.benign,
        groups=rows.groups,
        reason=bounds.reason,
    )


def standardise_area(area: Ratio, *, max_fpr: float) -> Ratio:
    """Bring a partial area and its limits to McClish's form: 0.5 for a coin, 1 at best.

    Source: McClish (1989), doi:10.1177/0272989X8900900307.
    """
    coin = max_fpr * max_fpr / 2

    def standardised(part: float | None) -> float | None:
        if part is None:
            return None
        return 0.5 * (1 + (part - coin) / (max_fpr - coin))

    return replace(
        area,
        value=standardised(area.value),
        low=standardised(area.low),
        high=standardised(area.high),
        method=area.method.replace(", raw;", ", McClish;"),
    )


def _partial_parts(rows: _Rows, max_fpr: float) -> Floats:
    """Return each sample's influence on the partial area, over the size of its class."""
    counts, at = rows.counts, rows.places
    tpr, fpr = counts.blocked_attacks / counts.attacks, counts.blocked_benign / counts.benign
    # The share of attacks above a threshold, and of benign samples below one but within the limit;
    # equal scores count half.
    above = (tpr + np.concatenate(([0.0], tpr[:-1]))) / 2
    middle = (fpr + np.concatenate(([0.0], fpr[:-1]))) / 2
    within = np.clip(max_fpr - middle, 0.0, None)
    inside = np.clip(max_fpr - np.concatenate(([0.0], fpr[:-1])), 0.0, None)
    step = np.diff(fpr, prepend=0.0)
    share = np.divide(inside, step, out=np.ones_like(step), where=step > inside)
    edge = float(np.interp(max_fpr, np.append(0.0, fpr), np.append(0.0, tpr)))
    of_benign = share * (above - edge)
    parts = np.where(rows.attack, within[at] / counts.attacks, of_benign[at] / counts.benign)
    # Both are taken around their own mean, which rounding at ties moves by a hair.
    for label, size in ((True, counts.attacks), (False, counts.benign)):
        mine = rows.attack == label
        parts[mine] -= parts[mine].sum() / size
    return parts


def _above(weights: Floats) -> Floats:
    """Sum the weights of all thresholds at or below each: those that block a sample there."""
    summed: Floats = np.cumsum(weights[::-1])[::-1]
    return summed


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limits:
    low: float | None = None
    high: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """Scored samples, where each stands among the thresholds, and its group."""

    attack: Flags
    places: Ints
    codes: Ints | None
    counts: ThresholdCounts

    @classmethod
    def read(cls, labels: ArrayLike, scores: ArrayLike, groups: ArrayLike | None) -> _Rows:
        attack, score = scored_samples(labels, scores)
        counts, places = place_at_thresholds(attack, score)
        codes = None if groups is None else group_column(groups, len(attack))
        return cls(attack=attack, places=places, codes=codes, counts=counts)

    @property
    def groups(self) -> int | None:
        return None if self.codes is None else int(self.codes.max(initial=-1)) + 1

    @property
    def method(self) -> str:
        return "influence, logit" if self.codes is None else "influence by group, logit"

    def limits(self, value: float, parts: Floats, confidence: float) -> _Limits:
        """Return the limits of a figure in [0, 1] from the influence of each sample."""
        codes = np.arange(len(parts)) if self.codes is None else self.codes
        spread = spread_by_group(parts, attack=self.attack, codes=codes)
        if spread is None:
            return _Limits(reason=_TOO_FEW)
        if not 0 < value < 1:
            return _Limits(reason=_AT_THE_END)
        if not spread.error:
            return _Limits(reason=_NO_VARIANCE)
        low, high = logit_limits(value, spread.half_width(confidence))
        return _Limits(low=low, high=high)


def _area_up_to(counts: ThresholdCounts, max_fpr: float) -> float:
    tpr = np.append(0.0, counts.blocked_attacks / counts.attacks)
    fpr = np.append(0.0, counts.blocked_benign / counts.benign)
    inside = int(np.searchsorted(fpr, max_fpr, side="right"))
    if inside < len(fpr):
        # The segment that crosses the border is cut where it crosses: here, alone, the line
        # between two points is meant, as ties half of the whole area mean it too.
        share = (max_fpr - fpr[inside - 1]) / (fpr[inside] - fpr[inside - 1])
        height = tpr[inside - 1] + share * (tpr[inside] - tpr[inside - 1])
        tpr = np.append(tpr[:inside], height)
        fpr = np.append(fpr[:inside], max_fpr)
    return float(np.sum(np.diff(fpr) * (tpr[1:] + tpr[:-1]) / 2))
