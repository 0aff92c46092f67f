"""Figures that are no plain proportion, each with its counts and its interval."""

from __future__ import annotations

from guardmark.core.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """A figure in [0, 1] that is no plain proportion: F1, balanced error, an AUC.

    Attributes:
        value: The point estimate, or None when undefined.
        low: Lower bound, or None when undefined or refused.
        high: Upper bound, or None when undefined or refused.
        confidence: Nominal coverage, in (0, 1).
        method: Name of the interval method.
        trials: Rows behind the figure.
        groups: Groups behind the figure, or None when groups play no part.
        replicates: Bootstrap replicates used; zero for closed forms.
        reason: Why the value or the interval is undefined, or empty.
    """

    value: float | None
    low: float | None
    high: float | None
    confidence: float
    method: str
    trials: int
    groups: int | None = None
    replicates: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantile:
    """A quantile of a measured quantity with an order-statistic interval.

    Attributes:
        quantile: Which one, in (0, 1).
        value: The point estimate in the unit of the data, or None when not estimable.
        low: Lower bound, or None when it does not exist at this n.
        high: Upper bound, or None when it does not exist at this n.
        trials: Observations, censored ones included.
        censored: Observations known only to exceed their value (timeouts).
        confidence: Nominal coverage, in (0, 1).
        method: Name of the point estimator and interval.
        at_least: Whether the value is a lower limit because the quantile is censored.
        reason: Why something is undefined, or empty.
    """

    quantile: float
    value: float | None
    low: float | None
    high: float | None
    trials: int
    censored: int
    confidence: float
    method: str
    at_least: bool = False
    reason: str = ""
