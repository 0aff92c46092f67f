"""Rates and differences of plain marks, by group."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from guardmark.stats.paired.intervals import clustered_bonett_price
from guardmark.stats.rates.clustered import wilson_default

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import ArrayLike, NDArray

    from guardmark.core.estimate import Difference, Estimate


def grouped_rate(hits: ArrayLike, groups: ArrayLike, *, confidence: float) -> Estimate:
    """Estimate a rate of marks with the project's default interval."""
    marks, codes = _columns(hits, groups)
    return wilson_default(
        np.bincount(codes, weights=marks).astype(np.int64),
        np.bincount(codes),
        confidence=confidence,
    )


def rate_of_marks(
    marks: Iterable[tuple[int, bool]], groups: NDArray[np.int32], *, confidence: float
) -> Estimate:
    """Estimate a rate of marks on samples, by the groups of the samples."""
    listed = list(marks)
    places = np.array([place for place, _ in listed], dtype=np.int64)
    return grouped_rate([hit for _, hit in listed], groups[places], confidence=confidence)


def grouped_difference(
    first: ArrayLike, second: ArrayLike, *, groups: ArrayLike, confidence: float
) -> Difference:
    """Estimate the difference of two marks on the same rows."""
    one, codes = _columns(first, groups)
    two, _ = _columns(second, groups)
    return clustered_bonett_price(
        np.bincount(codes, weights=one & ~two).astype(np.int64),
        np.bincount(codes, weights=two & ~one).astype(np.int64),
        sizes=np.bincount(codes),
        confidence=confidence,
    )


def _columns(hits: ArrayLike, groups: ArrayLike) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    marks = np.asarray(hits, dtype=bool)
    names = np.asarray(groups, dtype=np.int64)
    codes = np.unique(names, return_inverse=True)[1] if len(names) else names
    return marks, codes.astype(np.int64)
