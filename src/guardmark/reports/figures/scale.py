"""Axes: where a value stands between two ends, and which values get a tick."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from guardmark.core.values import dataclass
from guardmark.reports.document.blocks import Unit

if TYPE_CHECKING:
    from collections.abc import Iterable

_STEPS: Final = (1.0, 2.0, 2.5, 5.0, 10.0)

_NOTHING: Final = 1e-12  # values below it are drawn as zero


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """One labelled place on an axis."""

    at: float
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """An axis.

    Attributes:
        low: Value at its beginning.
        high: Value at its end.
        ticks: Labelled places.
        unit_words: Name of the unit; empty for plain numbers.
        logarithmic: Whether equal steps are equal factors.
    """

    low: float
    high: float
    ticks: tuple[Tick, ...]
    unit_words: str
    logarithmic: bool = False

    def at(self, value: float) -> float:
        """Return the place of a value in [0, 1]; values beyond an end stand at it."""
        return _place(value, self.low, self.high, logarithmic=self.logarithmic)

    def titled(self, words: str) -> str:
        """Return what an axis shows, with its unit."""
        if self.unit_words:
            return f"{words}, {self.unit_words}"
        return words


def scale_of(unit: Unit, values: Iterable[float]) -> Scale:
    """Choose an axis for values; shares begin at zero and end soon after the largest."""
    finite = [value for value in values if math.isfinite(value)]
    if unit is Unit.SHARE:
        step = _nice(max((*finite, 0.02)) / 4)
        end = step * math.ceil(max((*finite, 0.02)) / step - 1e-9)
        if end >= 0.8:
            return _linear(0.0, 1.0, 0.25, unit)
        return _linear(0.0, end, step, unit)
    most = max((abs(value) for value in finite), default=0.0)
    if most < _NOTHING:
        most = 1.0
    if unit is Unit.POINTS:
        most = min(most, 1.0)
        step = _nice(most / 2)
        end = step * math.ceil(most / step - 1e-9)
        return _linear(-end, end, step, unit)
    step = _nice(most / 4)
    low = 0.0
    if finite and min(finite) < 0:
        low = -step * math.ceil(-min(0.0, *finite) / step)
    return _linear(low, step * math.ceil(most / step - 1e-9), step, unit)


def scale_between(unit: Unit, low: float, high: float, *, logarithmic: bool = False) -> Scale:
    """Make an axis with given ends."""
    if high - low <= 1e-6 * abs(high):
        pad = abs(high) / 2 or 0.5
        low, high = low - pad, high + pad
    if not logarithmic or low <= 0:
        return _linear(low, high, _nice((high - low) / 4), unit)
    factors: tuple[int, ...] = (1,)
    if high / low < 20:
        factors = (1, 2, 3, 5)
    elif high / low < 200:
        factors = (1, 2, 5)
    marks = []
    for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1):
        for factor in factors:
            mark = factor * 10.0**power
            if low <= mark <= high:
                marks.append(mark)
    if not marks:
        marks = [low, high]
    ticks = []
    for mark in marks[:: math.ceil(len(marks) / 7)]:
        ticks.append(Tick(at=_place(mark, low, high, logarithmic=True), label=f"{mark:g}"))
    return Scale(low=low, high=high, ticks=tuple(ticks), unit_words=_words(unit), logarithmic=True)


def _linear(low: float, high: float, step: float, unit: Unit) -> Scale:
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    ticks = []
    for number in range(first, last + 1):
        value = number * step
        ticks.append(Tick(at=_place(value, low, high), label=_label(value, unit)))
    return Scale(low=low, high=high, ticks=tuple(ticks), unit_words=_words(unit))


def _place(value: float, low: float, high: float, *, logarithmic: bool = False) -> float:
    if logarithmic:
        if value <= low:
            return 0.0
        value, low, high = math.log(value), math.log(low), math.log(high)
    return min(1.0, max(0.0, (value - low) / (high - low)))


def _nice(width: float) -> float:
    """Return the least round number that is at least `width`."""
    power = 10.0 ** math.floor(math.log10(width))
    return next(step * power for step in _STEPS if step * power >= width * (1 - 1e-9))


def _label(value: float, unit: Unit) -> str:
    if unit is Unit.SHARE:
        return f"{100 * value:g}"
    if unit is Unit.POINTS:
        if abs(value) < 1e-9:
            return "0"
        return f"{100 * value:+g}"
    return f"{value:,.10g}"


def _words(unit: Unit) -> str:
    named = {Unit.SHARE: "%", Unit.POINTS: "percentage points", Unit.MILLISECONDS: "ms"}
    return named.get(unit, "")
