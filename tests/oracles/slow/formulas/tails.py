"""Tails of distributions, summed term by term as a slow reference."""

from __future__ import annotations

import math


def chi_square_tail(statistic: float, freedom: int) -> float:
    """Return P(X > statistic) of a chi-square distribution.

    References:
        Abramowitz & Stegun (1964), 26.4.4 and 26.4.5: from one or two degrees of freedom upwards
        in steps of two.
    """
    half = statistic / 2
    if freedom % 2:
        tail, term = math.erfc(math.sqrt(half)), math.sqrt(half / math.pi) * 2 * math.exp(-half)
        start = 1
    else:
        tail, term, start = math.exp(-half), half * math.exp(-half), 2
    for step in range(start, freedom, 2):
        tail += term
        term *= statistic / (step + 2)
    return tail
