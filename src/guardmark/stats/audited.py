"""A rate of which a part rests on a judgement that people audited."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from guardmark.core.estimate import Ratio
from guardmark.stats.arguments import require_fraction

if TYPE_CHECKING:
    from guardmark.core.estimate import Estimate
    from guardmark.stats.drawing import DrawPlan

_METHOD = "audited, parametric bootstrap"
_NO_TRIALS = "no trials"
_NO_AUDIT = "nobody said yes or no to any of them"
_NO_SPREAD = "one group only: nothing shows how groups differ"


def audited_rate(full: Estimate, judged: Estimate, valid: Estimate, *, drawing: DrawPlan) -> Ratio:
    """Estimate a rate whose judged part counts only as far as people confirm it.

    With f the rate, s the share of its successes that rest on a judgement and v the share of
    audited ones that people call valid, the rate is f (1 - s (1 - v)). Each of the three is drawn
    from Beta(x + 1/2, m - x + 1/2), where m is what its trials are worth as independent ones
    (`effective_n`, so groups count) and x its rate times m; the limits are quantiles of the
    product. Unlike resampling rows, this leaves doubt also where all of few trials agree.

    Args:
        full: The rate, judged successes among them.
        judged: Of its successes: those that rest on a judgement.
        valid: Of judged successes that people looked at: those they call valid.
        drawing: Seed and number of draws.

    Returns:
        The rate, never above `full`. Undefined without trials, or where something rests on a
        judgement and nobody audited; without an interval where one group is all there is.

    References:
        Efron & Tibshirani (1993), An Introduction to the Bootstrap, 6.5 (parametric bootstrap);
        Brown, Cai & DasGupta (2001), doi:10.1214/ss/1009213286 (Jeffreys' prior).
    """
    require_fraction("confidence", full.confidence)
    if full.value is None:
        return _ratio(full, None, reason=_NO_TRIALS)
    if not judged.successes:
        return _ratio(full, full.value, limits=(full.low, full.high))
    if valid.value is None or judged.value is None:
        return _ratio(full, None, reason=_NO_AUDIT)
    value = full.value * (1 - judged.value * (1 - valid.value))
    shapes = [_shape(each) for each in (full, judged, valid)]
    if None in shapes:
        return _ratio(full, value, reason=_NO_SPREAD)
    limits = _limits([each for each in shapes if each is not None], drawing, full.confidence)
    low, high = min(limits[0], value), max(limits[1], value)
    return _ratio(full, value, limits=(low, high), replicates=drawing.replicates)


def _shape(estimate: Estimate) -> tuple[float, float] | None:
    """Return both parameters of the distribution a rate is drawn from."""
    if estimate.value is None or estimate.effective_n is None:
        return None
    hits = estimate.value * estimate.effective_n
    return hits + 0.5, estimate.effective_n - hits + 0.5


def _limits(
    shapes: list[tuple[float, float]], drawing: DrawPlan, confidence: float
) -> tuple[float, float]:
    draw = Random(drawing.seed)
    values = []
    for _ in range(drawing.replicates):
        rate, judged, valid = (draw.betavariate(a, b) for a, b in shapes)
        values.append(rate * (1 - judged * (1 - valid)))
    values.sort()
    return _quantile(values, (1 - confidence) / 2), _quantile(values, (1 + confidence) / 2)


def _quantile(values: list[float], share: float) -> float:
    """Return a quantile, linear between neighbours (Hyndman & Fan type 7)."""
    place = (len(values) - 1) * share
    below = int(place)
    above = min(below + 1, len(values) - 1)
    return values[below] + (place - below) * (values[above] - values[below])


def _ratio(
    full: Estimate,
    value: float | None,
    *,
    limits: tuple[float | None, float | None] = (None, None),
    replicates: int = 0,
    reason: str = "",
) -> Ratio:
    return Ratio(
        value=value,
        low=limits[0],
        high=limits[1],
        confidence=full.confidence,
        method=_METHOD,
        trials=full.trials,
        groups=full.groups,
        replicates=replicates,
        reason=reason,
    )
