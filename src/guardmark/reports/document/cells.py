"""From estimates to the typed cells of a report."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from guardmark.core.estimate import Difference, Estimate, Ratio
from guardmark.reports.document.blocks import (
    Bullets,
    Cell,
    Column,
    FigureCell,
    Row,
    Table,
    TextCell,
    Tone,
    Unit,
)
from guardmark.reports.document.wording import count_text, counts_text, measure_text
from guardmark.stats.sequential import GROUP_WEIGHTED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from guardmark.core.estimate import Quantile
    from guardmark.reports.document.blocks import Block
    from guardmark.stats.agreement import Kappa
    from guardmark.stats.rates.corrected import CorrectedRate
    from guardmark.stats.rates.means import SeedMean

    Measured = Estimate | Ratio | Quantile | SeedMean | CorrectedRate | Kappa

Value = Cell | Estimate | Ratio | Difference | str | int | None
"""What a line of a table can be made of."""

T = TypeVar("T")


def of_estimate(estimate: Estimate, *, greyed: bool = False) -> FigureCell:
    """Turn a rate into a cell."""
    value = estimate.value if estimate.method != GROUP_WEIGHTED else estimate.group_mean
    return replace(
        of_ratio(estimate),
        value=value,
        successes=estimate.successes,
        greyed=greyed or estimate.few_groups,
    )


def of_ratio(ratio: Measured, unit: Unit = Unit.SHARE) -> FigureCell:
    """Turn a figure into a cell: a ratio, a mean, a coefficient."""
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
    return replace(of_ratio(quantile, Unit.MILLISECONDS), at_least=quantile.at_least)


def figure(value: float | None, unit: Unit) -> FigureCell:
    """Wrap a plain figure that carries no interval."""
    return FigureCell(value=value, unit=unit)


def known(value: float | None, unit: Unit, otherwise: str = "") -> FigureCell | str:
    """Wrap a plain figure; words stand where there is none."""
    return otherwise if value is None else figure(value, unit)


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


def with_counts(rate: Estimate | Ratio | Difference | None) -> tuple[Cell, Cell]:
    """Return a figure and its counts as two cells; empty ones without a figure."""
    measure = cell(rate)
    return measure, counts(measure) if isinstance(measure, FigureCell) else measure


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


def present(*blocks: Block | None) -> list[Block]:
    """Leave out what is not there and lists without a line."""
    return [each for each in blocks if each and not (isinstance(each, Bullets) and not each.lines)]


def table_of(
    things: Iterable[T],
    cells: Mapping[str, Callable[[T], Value | tuple[Value, ...]]],
    *,
    table_id: str,
    title: str,
    note: str = "",
    texts: Sequence[str] = (),
    meanings: Mapping[str, str] | None = None,
    collapsed: bool = False,
) -> Table:
    """Write a line for each thing; a title such as `Rate|Counts` heads two cells."""
    lines = ([get(thing) for get in cells.values()] for thing in things)
    titles = [title for titles in cells for title in titles.split("|")]
    return Table(
        id=table_id,
        title=title,
        columns=columns(*titles, texts=texts, meanings=meanings),
        rows=tuple(
            row(*(each for got in line for each in (got if isinstance(got, tuple) else (got,))))
            for line in lines
        ),
        note=note,
        collapsed=collapsed,
    )


def grey(table: Table, greyed: Iterable[bool]) -> Table:
    """Grey the lines of a table that stand on too little."""
    rows = zip(table.rows, greyed, strict=True)
    return replace(table, rows=tuple(replace(line, greyed=is_greyed) for line, is_greyed in rows))


def mute(table: Table, muted: Iterable[bool]) -> Table:
    """Take back the lines of a table that only mark the floor and the ceiling."""
    rows = zip(table.rows, muted, strict=True)
    tones = (Tone.PLAIN, Tone.MUTED)
    return replace(
        table, rows=tuple(replace(line, tone=tones[is_muted]) for line, is_muted in rows)
    )


def slug(text: str) -> str:
    """Return letters, digits and hyphens that stand for a name in an id."""
    return "".join(
        sign if sign.isascii() and sign.isalnum() else f"-{ord(sign):x}-" for sign in text
    )
