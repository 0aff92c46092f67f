"""How far raters, human or judge, agree beyond chance.

`confidence` is the nominal coverage, in (0, 1), `groups` name each sample's group. Limits are on
the scale of Fisher's z, which stays in (-1, 1). Over groups the standard error is a jackknife's,
which leaves out each group in turn, with Student's t; there are no limits with fewer than two
groups, without variance, or where agreement is undefined without one of the groups. Unequal lengths
or a bad option raise `ValueError`.
Source: Efron & Stein (1981), doi:10.1214/aos/1176345462, for the jackknife.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from guardmark.core.values import dataclass
from guardmark.stats.arguments import group_column, require_equal_lengths, require_fraction
from guardmark.stats.distributions import two_sided_t, two_sided_z
from guardmark.stats.rates.clustered import group_freedom, satterthwaite_freedom

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from numpy.typing import ArrayLike

    from guardmark.stats.arguments import Floats

_NO_TRIALS = "no samples rated by both"
_ONE_VALUE = "chance agreement is 1: the raters used one and the same category"
_NO_VARIANCE = "the ratings show no variance to build an interval on"
_NO_PAIRS = "no sample was rated by two raters"
_CONSTANT = "all ratings are the same: agreement beyond chance is undefined"
_FEW_GROUPS = "an interval needs two groups"
_UNSTABLE = "agreement is undefined without one of the groups"
_JACKKNIFE = "group jackknife, fisher z"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kappa:
    """Agreement of two raters.

    Attributes:
        trials: Samples both rated.
        confidence: Nominal coverage, in (0, 1).
        method: Name of the interval.
        value: Cohen's kappa in [-1, 1], or None when undefined.
        standard_error: Its large-sample standard error, or None when undefined.
        low: Lower limit, or None when undefined.
        high: Upper limit, or None when undefined.
        observed: Share of samples they agree on, or None without samples.
        pabak: Kappa adjusted for prevalence and bias; None without samples. Read it and `observed`
            beside kappa, which falls where one category is rare.
        groups: Groups behind the interval, or None when groups play no part.
        reason: Why something is undefined, or empty.
    """

    trials: int
    confidence: float
    method: str
    value: float | None = None
    standard_error: float | None = None
    low: float | None = None
    high: float | None = None
    observed: float | None = None
    pabak: float | None = None
    groups: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alpha:
    """Agreement of any number of raters, gaps allowed.

    Attributes:
        value: Krippendorff's nominal alpha, at most 1, or None when undefined.
        low: Lower limit, or None when undefined.
        high: Upper limit, or None when undefined.
        units: Samples with at least two ratings.
        ratings: Ratings on those samples.
        groups: Groups behind the interval.
        confidence: Nominal coverage, in (0, 1).
        method: Name of the interval.
        reason: Why something is undefined, or empty.
    """

    value: float | None = None
    low: float | None = None
    high: float | None = None
    units: int
    ratings: int
    groups: int
    confidence: float
    method: str
    reason: str = ""


def cohen_kappa(table: ArrayLike, *, confidence: float = 0.95) -> Kappa:
    """Measure how far two raters agree beyond chance.

    Args:
        table: Square counts, shape (c, c) with c at least 2: rows are the first rater's categories,
            columns the second's.
        confidence: Nominal coverage.

    Returns:
        Kappa with the standard error of Fleiss, Cohen and Everitt. Without samples all is
        undefined; where chance agreement is 1 only kappa is; where the standard error is 0 (for
        one, in full agreement) there is no interval.

    Source: Cohen (1960), doi:10.1177/001316446002000104; Fleiss, Cohen & Everitt (1969),
    doi:10.1037/h0028106; Byrt, Bishop & Carlin (1993), doi:10.1016/0895-4356(93)90018-V.
    """
    z = two_sided_z(confidence)
    counts = _square(table)
    trials, categories = int(counts.sum()), len(counts)
    bare = Kappa(trials=trials, confidence=confidence, method="fleiss-cohen-everitt, fisher z")
    if not trials:
        return replace(bare, reason=_NO_TRIALS)
    share = counts / trials
    observed = float(np.trace(share))
    pabak = (categories * observed - 1) / (categories - 1)
    bare = replace(bare, observed=observed, pabak=pabak)
    value = float(_kappa_of(counts[None])[0])
    if math.isnan(value):
        return replace(bare, reason=_ONE_VALUE)
    error = _kappa_error(share, kappa=value, trials=trials)
    low, high = _fisher_limits(value, z * error) if error else (None, None)
    return replace(
        bare,
        value=value,
        standard_error=error,
        low=low,
        high=high,
        reason="" if error else _NO_VARIANCE,
    )


def clustered_kappa(
    first: Sequence[Hashable],
    second: Sequence[Hashable],
    *,
    groups: ArrayLike,
    confidence: float = 0.95,
) -> Kappa:
    """Measure the agreement of two raters where samples share groups.

    `first` and `second` hold each rater's category of each sample, shape (n,); a sample with a gap
    (None) is left out. Undefined as `cohen_kappa`.
    """
    require_fraction("confidence", confidence)
    tables = _tabulate_pairs(first, second, groups)
    point = cohen_kappa(tables.sum(axis=0), confidence=confidence)
    limits = _Limits(reason=point.reason)
    if point.value is not None:
        sizes = tables.sum(axis=(1, 2))
        limits = _jackknife(tables, sizes, _kappa_of, confidence=confidence)
    return replace(
        point,
        standard_error=limits.error,
        low=limits.low,
        high=limits.high,
        method=_JACKKNIFE,
        groups=len(tables),
        reason=limits.reason,
    )


def krippendorff_alpha(
    ratings: Sequence[Sequence[Hashable]],
    *,
    groups: ArrayLike | None = None,
    confidence: float = 0.95,
) -> Alpha:
    """Measure how far raters agree on categories, with gaps allowed.

    Args:
        ratings: One sequence per rater, each with one category per sample, shape (raters, samples);
            None (or NaN) where a rater gave none.
        groups: Name of each sample's group, shape (samples,); None: every sample alone.
        confidence: Nominal coverage.

    Returns:
        Nominal alpha. Undefined where no sample has two ratings or where all ratings are the same.

    Source: Krippendorff (2011), Computing Krippendorff's alpha-reliability.
    """
    require_fraction("confidence", confidence)
    counts = _tabulate(ratings)
    codes = group_column(groups, len(counts))
    used = counts.sum(axis=1) >= 2
    counts = counts[used]
    names, codes = np.unique(codes[used], return_inverse=True)
    total, members = int(counts.sum()), len(names)
    bare = Alpha(
        units=len(counts),
        ratings=total,
        groups=members,
        confidence=confidence,
        method=_JACKKNIFE,
    )
    if not total or np.count_nonzero(counts.sum(axis=0)) == 1:
        return replace(bare, reason=_CONSTANT if total else _NO_PAIRS)
    parts = np.zeros((members, counts.shape[1] + 1))
    np.add.at(parts, codes, _disagreement(counts))
    limits = _jackknife(parts, parts[:, 1:].sum(axis=1), _alpha_of, confidence=confidence)
    value = float(_alpha_of(parts.sum(axis=0)[None])[0])
    return replace(bare, value=value, low=limits.low, high=limits.high, reason=limits.reason)


def _square(table: ArrayLike) -> Floats:
    counts = np.asarray(table, dtype=np.float64)
    if counts.ndim != 2 or counts.shape[0] != counts.shape[1] or len(counts) < 2:
        raise ValueError(f"table must be square with 2 or more categories, got {counts.shape}")
    if not np.all(np.isfinite(counts)) or np.any((counts < 0) | (counts != np.floor(counts))):
        raise ValueError("table must hold whole numbers from 0 on")
    return counts


def _kappa_of(tables: Floats) -> Floats:
    """Return kappa of each table, shape (b, c, c); NaN where chance agreement is 1."""
    totals = tables.sum(axis=(1, 2))
    rows, columns = tables.sum(axis=2), tables.sum(axis=1)
    # In counts, so that chance agreement of exactly 1 is seen as such.
    chance = np.einsum("bi,bi->b", rows, columns)
    observed = np.einsum("bii->b", tables) * totals
    room = totals**2 - chance
    kappa = np.full(len(room), np.nan)
    np.divide(observed - chance, room, out=kappa, where=room > 0)
    return kappa


def _kappa_error(share: Floats, *, kappa: float, trials: int) -> float:
    rows, columns = share.sum(axis=1), share.sum(axis=0)
    chance = float(rows @ columns)
    agreeing = float(np.diag(share) @ (1 - (rows + columns) * (1 - kappa)) ** 2)
    # Crosswise: a cell in row i and column j meets the *column* share of i and the row share of j.
    off = share - np.diag(np.diag(share))
    differing = (1 - kappa) ** 2 * float(np.sum(off * (columns[:, None] + rows) ** 2))
    centre = (kappa - chance * (1 - kappa)) ** 2
    variance = (agreeing + differing - centre) / (1 - chance) ** 2 / trials
    if variance <= 1e-16:
        return 0.0
    return math.sqrt(variance)


def _tabulate_pairs(
    first: Sequence[Hashable], second: Sequence[Hashable], groups: ArrayLike
) -> Floats:
    """Return one square table per group with pairs, shape (groups, c, c)."""
    require_equal_lengths(first=len(first), second=len(second))
    codes = group_column(groups, len(first))
    used = []
    for at, pair in enumerate(zip(first, second, strict=True)):
        if not any(map(_is_gap, pair)):
            used.append(at)
    known: dict[Hashable, int] = {}  # each category with its number
    rows = [known.setdefault(first[at], len(known)) for at in used]
    columns = [known.setdefault(second[at], len(known)) for at in used]
    members, of_pair = np.unique(codes[used], return_inverse=True)
    tables = np.zeros((len(members), max(2, len(known)), max(2, len(known))))
    where = (of_pair, np.array(rows, dtype=np.int64), np.array(columns, dtype=np.int64))
    np.add.at(tables, where, 1)
    return tables


def _tabulate(ratings: Sequence[Sequence[Hashable]]) -> Floats:
    """Return how often each sample got each category, shape (samples, categories)."""
    lengths = {f"rater {number}": len(row) for number, row in enumerate(ratings, start=1)}
    require_equal_lengths(**lengths)
    known: dict[Hashable, int] = {}  # each category with its number
    given = []
    for row in ratings:
        for sample, rating in enumerate(row):
            if not _is_gap(rating):
                given.append((sample, known.setdefault(rating, len(known))))
    samples = max(lengths.values(), default=0)
    counts = np.zeros((samples, len(known)))
    for sample, category in given:
        counts[sample, category] += 1
    return counts


def _is_gap(rating: Hashable) -> bool:
    return rating is None or (isinstance(rating, float) and math.isnan(rating))


def _disagreement(counts: Floats) -> Floats:
    """Return per sample its disagreement, then its counts: what alpha is a function of."""
    ratings = counts.sum(axis=1)
    unlike = (ratings**2 - (counts**2).sum(axis=1)) / (ratings - 1)
    return np.column_stack([unlike, counts])


def _alpha_of(sums: Floats) -> Floats:
    """Return alpha of each row of summed `_disagreement`; NaN where all ratings are equal."""
    unlike, counts = sums[:, 0], sums[:, 1:]
    total = counts.sum(axis=1)
    room = total**2 - (counts**2).sum(axis=1)
    alpha: Floats = 1 - np.divide(
        (total - 1) * unlike, room, out=np.full(len(room), np.nan), where=room > 0
    )
    return alpha


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limits:
    low: float | None = None
    high: float | None = None
    error: float | None = None
    reason: str = ""


def _jackknife(
    parts: Floats, sizes: Floats, statistic: Callable[[Floats], Floats], *, confidence: float
) -> _Limits:
    """Return limits of a statistic of sums over groups; `parts` has one row per group."""
    members, freedom, total = len(parts), group_freedom(sizes), parts.sum(axis=0)
    if members < 2 or freedom < 1:
        return _Limits(reason=_FEW_GROUPS)
    without = statistic(total - parts)
    if np.isnan(without).any():
        return _Limits(reason=_UNSTABLE)
    squares = (without - without.mean()) ** 2
    error = math.sqrt((members - 1) / members * float(squares.sum()))
    if error < 1e-12:
        return _Limits(reason=_NO_VARIANCE)
    value, freedom = float(statistic(total[None])[0]), satterthwaite_freedom(squares, freedom)
    low, high = _fisher_limits(value, two_sided_t(confidence, freedom) * error)
    return _Limits(low=low, high=high, error=error)


def _fisher_limits(value: float, half_width: float) -> tuple[float, float]:
    """Return limits around a value below 1 that its own standard error varies with."""
    inside = max(value, -1 + 1e-9)
    half = half_width / (1 - inside**2)
    return math.tanh(math.atanh(inside) - half), math.tanh(math.atanh(inside) + half)
