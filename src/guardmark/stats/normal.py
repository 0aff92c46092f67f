"""The normal distribution's quantile and tail, without scipy."""

from __future__ import annotations

from math import erfc, sqrt
from statistics import NormalDist
from sys import float_info


def two_sided_z(confidence: float) -> float:
    """Return the exact normal quantile of a two-sided interval.

    Args:
        confidence: Nominal coverage, strictly between 0 and 1.

    Returns:
        The z with `confidence` of the mass between -z and z (1.95996... at 0.95, never 1.96).

    Raises:
        ValueError: If `confidence` is not in (0, 1).
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be in (0, 1), got {confidence}")
    return NormalDist().inv_cdf(0.5 + confidence / 2)


def two_sided_p(z: float) -> float:
    """Return the two-sided p-value of a standard normal statistic.

    Args:
        z: The statistic; its sign plays no part.

    Returns:
        P(|Z| >= |z|), in (0, 1]; the smallest normal float where the tail underflows, never 0.
    """
    return max(erfc(abs(z) / sqrt(2)), float_info.min)
