"""Typed figures and words: what the cells of a report hold."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Unit(StrEnum):
    """What a figure counts in."""

    SHARE = "share"
    POINTS = "points"
    MILLISECONDS = "ms"
    COUNT = "count"
    NUMBER = "number"
    P_VALUE = "p"


class Tone(StrEnum):
    """How a reader should take a block."""

    PLAIN = "plain"
    GOOD = "good"
    BAD = "bad"
    WARNING = "warning"
    MUTED = "muted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A figure as a typed cell; `wording.measure_text` puts it into words.

    Attributes:
        value: In the unit (a share in [0, 1], points in [-1, 1], milliseconds), or None when
            undefined.
        low: Lower bound of the interval, or None when there is none.
        high: Upper bound of the interval, or None when there is none.
        unit: What the figure counts in.
        trials: How many observations stand behind it, or None when that says nothing.
        successes: How many of them had the property, or None.
        at_least: Whether the value is only a lower limit (shown with >=).
        greyed: Whether the data are too few to lean on it.
        reason: Why the value or the interval is undefined, or empty.
    """

    value: float | None
    unit: Unit
    low: float | None = None
    high: float | None = None
    trials: int | None = None
    successes: int | None = None
    at_least: bool = False
    greyed: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """A cell of plain words.

    Attributes:
        text: What is shown.
        code: Whether it is a name or a hash, shown in a fixed-width face.
        tone: How to take it.
    """

    text: str
    code: bool = False
    tone: Tone = Tone.PLAIN


Cell = Measure | Words
