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
class FigureCell:
    """A figure as a typed cell; `wording.measure_text` puts it into words."""

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
class TextCell:
    """A cell of plain words."""

    text: str
    code: bool = False
    tone: Tone = Tone.PLAIN


Cell = FigureCell | TextCell
