"""A release gate as values: what must hold, and how each limit stands.

A limit is held when the whole confidence interval lies on its good side, broken when the whole
interval lies beyond, and open when it lies inside: then the data cannot decide, and the number
of samples that would is given. All limits must hold, so no correction for their number is
needed (intersection-union); tests against a baseline run are adjusted by Holm.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar

EVERY_CATEGORY = "*"
"""Stands in a policy for all categories that are not named."""


class GateStatus(StrEnum):
    """How a limit stands."""

    HELD = "held"
    BROKEN = "broken"
    OPEN = "open"


class GateUnit(StrEnum):
    """What the figures of a check count in."""

    SHARE = "share"
    POINTS = "points"
    MILLISECONDS = "milliseconds"
    RECORDS = "records"


@dataclass(frozen=True, slots=True, kw_only=True)
class GatePolicy:
    """What a release must hold; a limit that is None is not checked.

    Attributes:
        asr_upper: Attack success rate at most this, in [0, 1].
        fpr_upper: False positive rate at most this, in [0, 1].
        max_malformed: Share of malformed answers at most this, in [0, 1].
        max_errors: Share of errors at most this, in [0, 1].
        latency_p95_upper_ms: 95th percentile of the latency at most this, attacks and benign
            samples apart.
        regression_margin: Rates at most this much above those of a baseline run.
        per_category: Category, or `*` for all others, and its largest attack success rate.
        defenses: Names of the defenses to check; all candidates when empty.
    """

    asr_upper: float | None = None
    fpr_upper: float | None = None
    max_malformed: float | None = None
    max_errors: float | None = None
    latency_p95_upper_ms: float | None = None
    regression_margin: float | None = None
    per_category: tuple[tuple[str, float], ...] = ()
    defenses: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether it limits nothing."""
        return replace(self, defenses=()) == GatePolicy()


@dataclass(frozen=True, slots=True, kw_only=True)
class GateCheck:
    """One limit and what the data say about it.

    Attributes:
        rule: Name of the setting, such as `asr_upper`.
        defense: Name of the defense; empty for a rule about the run.
        subject: What was measured: `attacks`, `benign`, `samples`, or a category.
        standing: Held, broken or open.
        unit: What the figures count in.
        limit: The limit.
        value: The figure, or None when undefined.
        low: Lower bound, or None.
        high: Upper bound, or None.
        trials: What the figure rests on.
        needed: About how many samples would decide at this rate, or None when that cannot be
            said.
        p_value: p of a regression test, adjusted by Holm; None otherwise.
        reason: Why it is open, where that is not the width of the interval; or empty.
    """

    rule: str
    defense: str
    subject: str
    standing: GateStatus
    unit: GateUnit
    limit: float
    value: float | None
    low: float | None
    high: float | None
    trials: int
    needed: int | None = None
    p_value: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """Every check of a gate.

    Attributes:
        checks: By defense, in the order of the policy.
        confidence: Nominal coverage of the intervals.
    """

    DERIVED: ClassVar = ("standing",)

    checks: tuple[GateCheck, ...]
    confidence: float

    @property
    def standing(self) -> GateStatus:
        """Broken if any limit is; otherwise open if any is; otherwise held."""
        found = {check.standing for check in self.checks}
        for standing in (GateStatus.BROKEN, GateStatus.OPEN):
            if standing in found:
                return standing
        return GateStatus.HELD
