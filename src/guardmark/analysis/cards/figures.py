"""A figure as it stands on a card: with its counts, its interval, and how that was made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from guardmark.core.estimate import Estimate
    from guardmark.stats.figures import Quantile, Ratio

SHARE: Final = "share"
MILLISECONDS: Final = "ms"
MONEY: Final = "per 1,000 samples"

UNBIASED: Final = "median-unbiased value"
"""How a rate says that a rule ended its run early, so that its value is not the plain share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFigure:
    """A measured figure with its counts and its interval.

    Attributes:
        name: Which figure, such as `attack_success_rate`.
        unit: `share` for values in [0, 1], `ms`, or `per 1,000 samples` (currency of the prices).
        value: The point estimate, or None when undefined.
        low: Lower bound of the interval, or None when there is none.
        high: Upper bound of the interval, or None when there is none.
        successes: How many trials had the property, or None for what is no proportion.
        trials: How many samples stand behind the figure.
        groups: Groups they fall into, or None when groups play no part.
        method: Name of the interval method.
        reason: Why the value or the interval is undefined, or empty.
    """

    name: str
    unit: str
    value: float | None
    low: float | None
    high: float | None
    successes: int | None
    trials: int
    groups: int | None
    method: str
    reason: str = ""


def of_rate(name: str, rate: Estimate) -> CardFigure:
    """Turn an estimate into a figure of a card."""
    method = rate.method
    if rate.unbiased is not None:
        method = f"{method}, {UNBIASED}"
    return _figure(name, SHARE, rate, method, successes=rate.successes, groups=rate.groups)


def of_ratio(name: str, ratio: Ratio) -> CardFigure:
    """Turn a ratio into a figure of a card."""
    return _figure(name, SHARE, ratio, ratio.method, groups=ratio.groups)


def of_quantile(name: str, quantile: Quantile) -> CardFigure:
    """Turn a quantile of a latency into a figure of a card."""
    return _figure(name, MILLISECONDS, quantile, quantile.method)


def _figure(
    name: str,
    unit: str,
    of: Estimate | Ratio | Quantile,
    method: str,
    *,
    successes: int | None = None,
    groups: int | None = None,
) -> CardFigure:
    return CardFigure(
        name=name,
        unit=unit,
        value=of.value,
        low=of.low,
        high=of.high,
        successes=successes,
        trials=of.trials,
        groups=groups,
        method=method,
        reason=of.reason,
    )
