"""How well scores tell attacks from benign samples, when samples share groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from guardmark.core.estimate import Difference, Ratio
from guardmark.stats.arguments import require_fraction
from guardmark.stats.columns import group_column
from guardmark.stats.distributions import as_p_value, t_upper_tail, two_sided_t
from guardmark.stats.drawing import DrawPlan, draw_weights
from guardmark.stats.scores import Auc, AucComparison, checked_scores, logit_limits, place

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    _Area = Callable[[NDArray[np.float64]], NDArray[np.float64]]

_ONE_CLASS = "scores need both attacks and benign samples"
_AT_THE_END = "an area of 0 or 1 shows no variance to build an interval on"
_TOO_FEW = "an interval needs two groups with attacks and two with benign samples"
_NO_VARIANCE = "the scores show no variance between groups"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Groups:
    """The groups of rows, and which carry which class."""

    codes: NDArray[np.int64]
    strata: list[NDArray[np.int64]]
    count: int
    degrees_of_freedom: int


def clustered_auc(
    labels: ArrayLike,
    scores: ArrayLike,
    *,
    groups: ArrayLike,
    confidence: float = 0.95,
    drawing: DrawPlan | None = None,
) -> Auc:
    """Estimate the area under the ROC curve where samples share groups.

    Args:
        labels: True for an attack, shape (n,).
        scores: Higher means more like an attack, shape (n,). Any unit, finite.
        groups: Name of each sample's group, shape (n,).
        confidence: Nominal coverage, strictly between 0 and 1.
        drawing: Seed and number of bootstrap draws; None: seed 0, 2,000 draws.

    Returns:
        The area with the standard error of a bootstrap of whole groups, drawn apart for groups
        of attacks, of benign samples and of both, and an interval on the logit scale with
        Student's t (degrees of freedom: groups of the scarcer class less one). One class only is
        undefined; an area of 0 or 1, or fewer than two groups with a class, has no interval.

    Raises:
        ValueError: On unequal lengths, a bad label, a NaN score or a bad option.

    References:
        Obuchowski (1997), Biometrics 53:567, for the problem; Rutter (2000), Academic Radiology
        7:413, for the bootstrap of whole groups.
    """
    require_fraction("confidence", confidence)
    attack, score = checked_scores(labels, scores)
    members = _read_groups(groups, attack)
    plan = drawing or DrawPlan()
    error, low, high, reason = None, None, None, _ONE_CLASS
    area = place(attack, score).area if 0 < attack.sum() < len(attack) else None
    if area is not None:
        reason = _TOO_FEW if members.degrees_of_freedom < 1 else ""
    if area is not None and not reason:
        error = _spread(_draw(members, [_area_of(attack, score)], plan)[0])
        reason = _AT_THE_END if area in {0.0, 1.0} else "" if error else _NO_VARIANCE
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

    Args:
        labels: True for an attack, shape (n,).
        scores: Those of the first and of the second defense, each of shape (n,).
        groups: Name of each sample's group, shape (n,).
        confidence: Nominal coverage, strictly between 0 and 1.
        drawing: Seed and number of bootstrap draws; None: seed 0, 2,000 draws.

    Returns:
        Both areas and their difference; every draw serves both, so that what they share
        cancels. Undefined cases are those of `compare_auc`, over groups.

    Raises:
        ValueError: As `clustered_auc`.
    """
    require_fraction("confidence", confidence)
    attack, first = checked_scores(labels, scores[0])
    second = checked_scores(labels, scores[1])[1]
    members = _read_groups(groups, attack)
    areas: tuple[float, float] | None = None
    error, reason = None, _ONE_CLASS
    if 0 < attack.sum() < len(attack):
        areas = (place(attack, first).area, place(attack, second).area)
        reason = _TOO_FEW if members.degrees_of_freedom < 1 else ""
    if areas and not reason:
        both = [_area_of(attack, first), _area_of(attack, second)]
        drawn = _draw(members, both, drawing or DrawPlan())
        error = _spread(drawn[0] - drawn[1])
        reason = "" if error else _NO_VARIANCE
    gap = areas[0] - areas[1] if areas else None
    return AucComparison(
        first=areas[0] if areas else None,
        second=areas[1] if areas else None,
        z=_statistic(gap, error),
        difference=_difference(gap, error, members=members, confidence=confidence, reason=reason),
    )


def _difference(
    gap: float | None, error: float | None, *, members: _Groups, confidence: float, reason: str
) -> Difference:
    z, freedom = _statistic(gap, error), members.degrees_of_freedom
    half = two_sided_t(confidence, freedom) * error if error else None
    return Difference(
        value=gap,
        low=None if gap is None or half is None else max(gap - half, -1.0),
        high=None if gap is None or half is None else min(gap + half, 1.0),
        confidence=confidence,
        method="group bootstrap",
        p_value=None if z is None else as_p_value(2 * t_upper_tail(abs(z), freedom)),
        test="" if z is None else "group bootstrap t",
        pairs=len(members.codes),
        groups=members.count,
        reason=reason,
    )


def _statistic(gap: float | None, error: float | None) -> float | None:
    if gap is None or error is None:
        return None
    if error:
        return gap / error
    return 0.0 if gap == 0 else None


def _read_groups(groups: ArrayLike, attack: NDArray[np.bool_]) -> _Groups:
    codes = group_column(groups, len(attack))
    with_attacks, with_benign = np.unique(codes[attack]), np.unique(codes[~attack])
    both = np.intersect1d(with_attacks, with_benign)
    return _Groups(
        codes=codes,
        strata=[np.setdiff1d(with_attacks, both), np.setdiff1d(with_benign, both), both],
        count=len(with_attacks) + len(with_benign) - len(both),
        degrees_of_freedom=min(len(with_attacks), len(with_benign)) - 1,
    )


def _area_of(attack: NDArray[np.bool_], score: NDArray[np.float64]) -> _Area:
    """Return a function from row weights, shape (b, n), to areas, shape (b,)."""
    order = np.argsort(score, kind="stable")
    ordered = score[order]
    starts = np.flatnonzero(np.append([True], ordered[1:] != ordered[:-1]))
    is_attack = attack[order]

    def areas(weights: NDArray[np.float64]) -> NDArray[np.float64]:
        lined_up = weights[:, order]
        of_attack = np.add.reduceat(lined_up * is_attack, starts, axis=1)
        of_benign = np.add.reduceat(lined_up * ~is_attack, starts, axis=1)
        below = np.cumsum(of_benign, axis=1) - of_benign / 2
        won = np.einsum("ij,ij->i", of_attack, below)
        area: NDArray[np.float64] = won / (of_attack.sum(axis=1) * of_benign.sum(axis=1))
        return area

    return areas


def _draw(members: _Groups, areas: list[_Area], drawing: DrawPlan) -> list[NDArray[np.float64]]:
    parts: list[list[NDArray[np.float64]]] = [[] for _ in areas]
    for weights in draw_weights(members.strata, drawing=drawing, rows=len(members.codes)):
        by_row = weights[:, members.codes]
        for part, area in zip(parts, areas, strict=True):
            part.append(area(by_row))
    return [np.concatenate(part) for part in parts]


def _spread(drawn: NDArray[np.float64]) -> float:
    """Return the standard deviation; rounding noise over equal draws counts as none."""
    spread = float(np.std(drawn, ddof=1))
    return spread if spread > 1e-12 else 0.0
