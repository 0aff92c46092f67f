"""Score statistics of a difference of two rates at a hypothesised value of it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from guardmark.stats.arguments import Counts

_STEPS = 80


def tango_score(first_only: int, second_only: int, *, pairs: int, margin: float) -> float:
    """Return the score statistic of two paired rates differing by `margin`.

    Args:
        first_only: Pairs where only the first had the property.
        second_only: Pairs where only the second had it.
        pairs: All pairs, at least 1.
        margin: Hypothesised first rate minus second, in [-1, 1].

    Returns:
        A standard normal statistic, falling in `margin`; infinite where the table is impossible
        under the hypothesis, 0 where it is the only possible one.

    References:
        Tango (1998), Statistics in Medicine 17:891; the constrained estimate solves a quadratic.
    """
    gap = first_only - second_only
    a = 2.0 * pairs
    b = -(first_only + second_only) + (2.0 * pairs - gap) * margin
    c = -second_only * margin * (1.0 - margin)
    share = (math.sqrt(max(0.0, b * b - 4.0 * a * c)) - b) / (2.0 * a)
    variance = pairs * (2.0 * share + margin * (1.0 - margin))
    return _standardise(gap - pairs * margin, variance)


def miettinen_nurminen_score(first: Counts, second: Counts, *, margin: float) -> float:
    """Return the score statistic of two independent rates differing by `margin`.

    Args:
        first: Events and trials of the first; at least one trial.
        second: Events and trials of the second; at least one trial.
        margin: Hypothesised first rate minus second, in [-1, 1].

    Returns:
        A standard normal statistic, falling in `margin`; infinite where the table is impossible
        under the hypothesis.

    References:
        Miettinen & Nurminen (1985), doi:10.1002/sim.4780040211, with their n / (n - 1).
    """
    (x1, n1), (x2, n2) = first, second
    p2 = _constrained_rate(first, second, margin)
    p1 = min(1.0, max(0.0, p2 + margin))
    variance = p1 * (1.0 - p1) / n1 + p2 * (1.0 - p2) / n2
    variance *= (n1 + n2) / (n1 + n2 - 1.0)
    return _standardise(x1 / n1 - x2 / n2 - margin, variance)


def bisect_falling(
    function: Callable[[float], float], *, target: float, low: float, high: float
) -> float:
    """Return where a falling function passes the target, between two points.

    Args:
        function: Falls between `low` and `high`.
        target: The value sought; where the function stays above it, `high` comes back, where it
            stays below, `low`.
        low: Left end.
        high: Right end.
    """
    for _ in range(_STEPS):
        middle = (low + high) / 2.0
        if function(middle) > target:
            low = middle
        else:
            high = middle
    return (low + high) / 2.0


def _standardise(gap: float, variance: float) -> float:
    # Below this the variance is rounding dust of an exact 0.
    if variance > 1e-15:
        return gap / math.sqrt(variance)
    return 0.0 if abs(gap) < 1e-12 else math.copysign(math.inf, gap)


def _constrained_rate(first: Counts, second: Counts, margin: float) -> float:
    """Return the second rate of greatest likelihood given that the first is `margin` above it.

    The likelihood equation is a cubic; its middle root comes in trigonometric form.
    """
    (x1, n1), (x2, n2) = first, second
    l3 = n1 + n2
    l2 = (n1 + 2.0 * n2) * margin - l3 - x1 - x2
    l1 = (n2 * margin - l3 - 2.0 * x2) * margin + x1 + x2
    l0 = x2 * margin * (1.0 - margin)
    q = l2**3 / (3.0 * l3) ** 3 - l1 * l2 / (6.0 * l3**2) + l0 / (2.0 * l3)
    p = math.copysign(math.sqrt(max(0.0, (l2 / (3.0 * l3)) ** 2 - l1 / (3.0 * l3))), q)
    cosine = q / p**3 if abs(p) > 1e-12 else 1.0
    angle = (math.pi + math.acos(min(1.0, max(-1.0, cosine)))) / 3.0
    root = 2.0 * p * math.cos(angle) - l2 / (3.0 * l3)
    return min(1.0 - max(0.0, margin), max(0.0, -min(0.0, margin), root))
