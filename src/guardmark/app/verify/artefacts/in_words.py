"""Figures as reports print them, rounded a second time."""

from __future__ import annotations

from typing import Any

from guardmark.app.verify.early.stopped import BY_GROUP

Json = dict[str, Any]

UNDEFINED = "undefined"


def share(value: float | None) -> str:
    """Return a share as a percentage; one that is not quite 0 or 1 is not rounded into it."""
    if value is None:
        return UNDEFINED
    words = f"{100 * value:.1f}"
    if words == "0.0" and value > 0:
        return "< 0.1 %"
    return "> 99.9 %" if words == "100.0" and value < 1 else f"{words} %"


def rate(estimate: Json) -> str:
    """Return a rate with its limits, such as `91.2 % [88.4, 93.4]`."""
    # Where a rule ended a defense early, limits are those of the mean over groups.
    is_mean = estimate["method"] == BY_GROUP
    value = estimate["group_mean" if is_mean else "value"]
    if value is None:
        return UNDEFINED
    return share(value) + _limits(
        _share_limit(estimate["low"], certain=1.0, instead="> 99.9"),
        _share_limit(estimate["high"], certain=0.0, instead="< 0.1"),
    )


def _share_limit(bound: float | None, *, certain: float, instead: str) -> str:
    """Round a limit, but never into a certainty that it does not claim."""
    if bound is None:
        return "?"
    words = f"{100 * bound:.1f}"
    return instead if words == f"{100 * certain:.1f}" and bound != certain else words


def _limits(low: str, high: str) -> str:
    return "" if low == high == "?" else f" [{low}, {high}]"


def hits(estimate: Json) -> str:
    """Return the counts behind a rate, such as `456/500`."""
    return f"{estimate['successes']:,}/{estimate['trials']:,}"


def milliseconds(value: float | None) -> str:
    """Return a time with its unit; one below a millisecond in microseconds."""
    if value is None:
        return UNDEFINED
    return f"{_time(value, value)} {'ms' if abs(value) >= 1 else 'µs'}"


def time_quantile(quantile: Json) -> str:
    """Return a time with its limits, all in the unit of the time."""
    value = quantile["value_ms"]
    if value is None:
        return UNDEFINED
    low, high = (
        "?" if bound is None else _time(bound, value)
        for bound in (quantile["low_ms"], quantile["high_ms"])
    )
    return milliseconds(value) + _limits(low, high)


def _time(value: float, beside: float) -> str:
    scaled = value if abs(beside) >= 1 else 1000 * value
    return f"{scaled:,.0f}" if abs(scaled) >= 100 else f"{scaled:.1f}"


def number(value: float | None) -> str:
    """Return a figure that is no share, with three decimals."""
    return UNDEFINED if value is None else f"{value:.3f}"


def figure(ratio: Json) -> str:
    """Return a figure that is no share with its limits, such as `0.038 [0.015, 0.062]`."""
    if ratio["value"] is None:
        return UNDEFINED
    low, high = ("?" if ratio[end] is None else number(ratio[end]) for end in ("low", "high"))
    return number(ratio["value"]) + _limits(low, high)


def count(value: float | None) -> str:
    """Return a count with thousands set apart; nothing without one."""
    return "" if value is None else f"{round(value):,}"
