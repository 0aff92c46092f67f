"""Adjusted p values for a family of tests declared beforehand.

Holm is the default: it controls the chance of any false claim without assumptions. Benjamini-
Hochberg controls the expected share of false claims, for exploratory tables only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def bonferroni(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjust by the number of tests, whatever their order.

    Args:
        p_values: One p value a test, each in [0, 1]. None (a test that was undefined) stays None
            and does not count in the family; an empty family gives an empty list.

    Raises:
        ValueError: If a value is NaN or outside [0, 1].
    """
    family = _family(p_values)
    return _spread(family, family.values * len(family.values))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjust step by step downwards: never weaker than Bonferroni, the default.

    Args:
        p_values: One p value a test, each in [0, 1]. None (a test that was undefined) stays None
            and does not count in the family; an empty family gives an empty list.

    Raises:
        ValueError: If a value is NaN or outside [0, 1].

    References:
        Holm (1979), Scandinavian Journal of Statistics 6:65.
    """
    family = _family(p_values)
    order = np.argsort(family.values, kind="stable")
    adjusted = np.empty(len(order))
    factors = np.arange(len(order), 0, -1)
    adjusted[order] = np.maximum.accumulate(family.values[order] * factors)
    return _spread(family, adjusted)


def hochberg(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjust step by step upwards; needs tests that are independent or positively dependent.

    Args:
        p_values: One p value a test, each in [0, 1]. None (a test that was undefined) stays None
            and does not count in the family; an empty family gives an empty list.

    Raises:
        ValueError: If a value is NaN or outside [0, 1].

    References:
        Hochberg (1988), doi:10.1093/biomet/75.4.800.
    """
    family = _family(p_values)
    return _step_up(family, np.arange(1.0, len(family.values) + 1.0))


def benjamini_hochberg(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjust for the expected share of false claims, for exploratory tables.

    Args:
        p_values: One p value a test, each in [0, 1]. None (a test that was undefined) stays None
            and does not count in the family; an empty family gives an empty list.

    Raises:
        ValueError: If a value is NaN or outside [0, 1].

    References:
        Benjamini & Hochberg (1995), doi:10.1111/j.2517-6161.1995.tb02031.x.
    """
    family = _family(p_values)
    tests = len(family.values)
    return _step_up(family, tests / np.arange(tests, 0, -1))


def benjamini_yekutieli(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjust for the expected share of false claims under any dependence.

    Args:
        p_values: One p value a test, each in [0, 1]. None (a test that was undefined) stays None
            and does not count in the family; an empty family gives an empty list.

    Raises:
        ValueError: If a value is NaN or outside [0, 1].

    References:
        Benjamini & Yekutieli (2001), doi:10.1214/aos/1013699998.
    """
    family = _family(p_values)
    ranks = np.arange(len(family.values), 0, -1)
    return _step_up(family, float((1.0 / ranks).sum()) * len(ranks) / ranks)


class _Family(NamedTuple):
    """The defined p values of a family and the places they came from."""

    places: list[int]
    values: NDArray[np.float64]
    size: int


def _family(p_values: Sequence[float | None]) -> _Family:
    places = [place for place, value in enumerate(p_values) if value is not None]
    values = np.array([value for value in p_values if value is not None], dtype=float)
    bad = ~((values >= 0.0) & (values <= 1.0))
    if bad.any():
        first = int(bad.argmax())
        raise ValueError(
            f"p_values must be in [0, 1], got {values[first]} at place {places[first]}"
        )
    return _Family(places, values, len(p_values))


def _step_up(family: _Family, factors: NDArray[np.float64]) -> list[float | None]:
    """Walk from the largest p down; `factors` belong to the p values in that order."""
    order = np.argsort(-family.values, kind="stable")
    adjusted = np.empty(len(order))
    adjusted[order] = np.minimum.accumulate(family.values[order] * factors)
    return _spread(family, adjusted)


def _spread(family: _Family, adjusted: NDArray[np.float64]) -> list[float | None]:
    """Put adjusted values, cut at 1, back to their places."""
    spread: list[float | None] = [None] * family.size
    for place, value in zip(family.places, np.minimum(adjusted, 1.0).tolist(), strict=True):
        spread[place] = value
    return spread
