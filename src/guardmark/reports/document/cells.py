"""From estimates to the typed cells of a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.core.estimate import Difference, Estimate, Ratio
from guardmark.reports.document.blocks import Cell, Column, FigureCell, Row, TextCell, Tone, Unit
from guardmark.reports.document.wording import count_text, counts_text, measure_text
from guardmark.stats.sequential import GROUP_WEIGHTED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guardmark.core.estimate import Quantile

Value = Cell | Estimate | Ratio | Difference | str | int | None
"""What a line of a table can be made of."""


def of_estimate(estimate: Estimate, *, greyed: bool = False) -> FigureCell:
    """Turn a rate into a cell."""
    value = estimate.value if estimate.method != GROUP_WEIGHTED else estimate.group_mean
    return FigureCell(
        value=value,
        low=estimate.low,
        high=estimate.high,
        unit=Unit.SHARE,
        trials=estimate.trials,
        successes=estimate.successes,
        greyed=greyed or estimate.few_groups,
        reason=estimate.reason,
    )


def of_ratio(ratio: Ratio, unit: Unit = Unit.SHARE) -> FigureCell:
    """Turn a figure that is no plain rate into a cell."""
    return FigureCell(
        value=ratio.value,
        low=ratio.low,
        high=ratio.high,
        unit=unit,
        trials=ratio.trials,
        reason=ratio.reason,
    )


def of_difference(difference: Difference, unit: Unit = Unit.POINTS) -> FigureCell:
    """Turn a difference of two figures into a cell."""
    return FigureCell(
        value=difference.value,
        low=difference.low,
        high=difference.high,
        unit=unit,
        trials=difference.pairs,
        reason=difference.reason,
    )


def of_quantile(quantile: Quantile) -> FigureCell:
    """Turn a latency quantile in milliseconds into a cell."""
    return FigureCell(
        value=quantile.value,
        low=quantile.low,
        high=quantile.high,
        unit=Unit.MILLISECONDS,
        trials=quantile.trials,
        at_least=quantile.at_least,
        reason=quantile.reason,
    )


def figure(value: float | None, unit: Unit) -> FigureCell:
    """Wrap a plain figure that carries no interval."""
    return FigureCell(value=value, unit=unit)


def count(value: int) -> FigureCell:
    """Wrap a count."""
    return FigureCell(value=float(value), unit=Unit.COUNT)


def name(text: str) -> TextCell:
    """Wrap the name of a part, a sample or a file."""
    return TextCell(text=text, code=True)


def words(text: str, tone: Tone = Tone.PLAIN) -> TextCell:
    """Wrap plain words."""
    return TextCell(text=text, tone=tone)


def counts(measure: FigureCell) -> TextCell:
    """Return the counts behind a figure as a cell."""
    return TextCell(text=counts_text(measure))


def rate_text(estimate: Estimate) -> str:
    """Put a rate into words: its value and interval, and the counts behind it."""
    measure = of_estimate(estimate)
    return f"{measure_text(measure)} ({counts_text(measure)})"


def effective(value: float | None) -> TextCell:
    """Return an effective number of samples as a cell; empty without one."""
    return TextCell(text="" if value is None else count_text(round(value)))


def row(*values: Value, greyed: bool = False, tone: Tone = Tone.PLAIN) -> Row:
    """Make a line of a table: a rate, a difference, a count or words become their cell."""
    return Row(cells=tuple(map(cell, values)), greyed=greyed, tone=tone)


def cell(value: Value) -> Cell:
    """Turn a value into its cell; nothing becomes an empty one."""
    if isinstance(value, Estimate):
        return of_estimate(value)
    if isinstance(value, Ratio):
        return of_ratio(value)
    if isinstance(value, Difference):
        return of_difference(value)
    if isinstance(value, int):
        return count(value)
    return TextCell(text=value or "") if value is None or isinstance(value, str) else value


def columns(
    *titles: str, texts: Sequence[str] = (), meanings: Mapping[str, str] | None = None
) -> tuple[Column, ...]:
    """Make the heads of a table: the first column and those of `texts` hold words, not figures."""
    meanings = meanings or {}
    return tuple(
        Column(title=title, numeric=at > 0 and title not in texts, meaning=meanings.get(title, ""))
        for at, title in enumerate(titles)
    )


def slug(text: str) -> str:
    """Return letters, digits and hyphens that stand for a name in an id."""
    return "".join(
        sign if sign.isascii() and sign.isalnum() else f"-{ord(sign):x}-" for sign in text
    )
