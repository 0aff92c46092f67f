"""Numbers that never travel without their counts and their interval."""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar

from guardmark.core.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A proportion with its confidence interval.

    Attributes:
        successes: How many trials had the property counted.
        trials: How many trials were eligible. Zero means undefined.
        low: Lower bound of the interval, or None when undefined.
        high: Upper bound of the interval, or None when undefined.
        confidence: Nominal coverage of the interval, in (0, 1).
        method: Name of the interval method, as printed in reports.
        groups: Number of groups the trials fall into, or None when groups play no part.
        effective_n: Independent trials the data are worth, or None when undefined.
        design_effect: Variance inflation used, at least 1, or None when undefined.
        icc: Intra-group correlation (ANOVA), or None when undefined.
        group_mean: Mean of the groups' own rates (each group weighs the same), or None.
        degrees_of_freedom: Of the interval's Student t; None where it is the normal quantile.
        largest_group: Share of the trials in the largest group, or None when undefined.
        dominant_group: Name of the largest group where it dominates, or empty.
        unbiased: Value that a run ended by a rule is as often above as below, or None: the share.
        few_groups: Whether fewer than 10 groups carry the interval: shown greyed.
        reason: Why something is undefined, or empty.
    """

    DERIVED: ClassVar = ("value",)
    successes: int
    trials: int
    low: float | None
    high: float | None
    confidence: float
    method: str
    groups: int | None = None
    effective_n: float | None = None
    design_effect: float | None = None
    icc: float | None = None
    group_mean: float | None = None
    degrees_of_freedom: float | None = field(default=None, metadata={"json": False})
    largest_group: float | None = field(default=None, metadata={"json": False})
    dominant_group: str = field(default="", metadata={"json": False})
    unbiased: float | None = field(default=None, metadata={"json": False})
    few_groups: bool = False
    reason: str = ""

    @property
    def value(self) -> float | None:
        """The point estimate, or None without trials."""
        return self.share if self.unbiased is None else self.unbiased

    @property
    def share(self) -> float | None:
        """Successes of trials, as they were seen, or None without trials."""
        return self.successes / self.trials if self.trials else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A difference of two figures (first minus second) with interval and test.

    Attributes:
        value: The point estimate, or None when undefined.
        low: Lower bound, or None when undefined.
        high: Upper bound, or None when undefined.
        confidence: Nominal coverage, in (0, 1).
        method: Name of the interval method.
        p_value: Two-sided p, in (0, 1], or None without a test.
        test: Name of the test, or empty.
        pairs: Samples answered on both sides (or the smaller side when unpaired).
        groups: Groups the pairs fall into, or None when groups play no part.
        first_only: Pairs where only the first had the property, or None when unpaired.
        second_only: Pairs where only the second had it, or None when unpaired.
        reason: Why something is undefined, or empty.
    """

    value: float | None
    low: float | None
    high: float | None
    confidence: float
    method: str
    p_value: float | None = None
    test: str = ""
    pairs: int = 0
    groups: int | None = None
    first_only: int | None = None
    second_only: int | None = None
    reason: str = ""
