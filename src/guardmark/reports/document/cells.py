"""From figures to the typed cells of a report, and from cells to tables and charts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from guardmark.core.estimate import Difference, Estimate
from guardmark.reports.document.blocks import (
    Cell,
    Column,
    FigureCell,
    IntervalMark,
    Row,
    Table,
    TextCell,
    Tone,
    Unit,
)
from guardmark.reports.document.wording import count_text, counts_text, measure_text
from guardmark.stats.figures import Quantile, Ratio

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from guardmark.stats.agreement import Kappa
    from guardmark.stats.attempts.survival import RestrictedMean
    from guardmark.stats.rates.corrected import CorrectedRate
    from guardmark.stats.rates.means import SeedMean
    from guardmark.stats.scores.calibration import Brier, CalibrationError
    from guardmark.stats.scores.curve_areas import AveragePrecision

    Mean = SeedMean | RestrictedMean
    OfScores = Brier | CalibrationError | AveragePrecision
    Measured = Estimate | Ratio | Difference | Quantile | Mean | OfScores | CorrectedRate | Kappa
    Value = Cell | Measured | str | int | None
    """What a line of a table can be made of."""

T = TypeVar("T")


def figure(
    of: Measured | float | None, unit: Unit | None = None, *, greyed: bool = False
) -> FigureCell:
    """Turn a figure into a cell; without a unit a difference is in points, all else a share."""
    if of is None or isinstance(of, int | float):
        return FigureCell(value=of, unit=unit or Unit.SHARE)
    if isinstance(of, Difference):
        usual_unit, trials = Unit.POINTS, of.pairs
    else:
        usual_unit, trials = Unit.SHARE, of.trials
    measure = FigureCell(
        value=of.value,
        low=of.low,
        high=of.high,
        unit=unit or usual_unit,
        trials=trials,
        at_least=isinstance(of, Quantile) and of.at_least,
        reason=of.reason,
    )
    if not isinstance(of, Estimate):
        return measure
    return replace(measure, successes=of.successes, greyed=greyed or of.few_groups)


def figure_text(of: Measured | float | None, unit: Unit | None = None) -> str:
    """Put a figure with its interval into words."""
    return measure_text(figure(of, unit))


def rate_text(estimate: Estimate) -> str:
    """Put a rate into words: its value and interval, and the counts behind it."""
    return f"{figure_text(estimate)} ({counts_text(figure(estimate))})"


def known(value: Measured | float | None, unit: Unit, otherwise: str = "") -> FigureCell | str:
    """Wrap a figure; where it is missing, show words instead."""
    if value is None:
        return otherwise
    return figure(value, unit)


def name(text: str) -> TextCell:
    """Wrap the name of a part, a sample or a file."""
    return TextCell(text=text, code=True)


def words(text: str, tone: Tone = Tone.PLAIN) -> TextCell:
    """Wrap plain words."""
    return TextCell(text=text, tone=tone)


def with_counts(rate: Measured | None, unit: Unit | None = None) -> tuple[Cell, Cell]:
    """Return a figure and its counts as two cells; empty ones without a figure."""
    if rate is None:
        return words(""), words("")
    measure = figure(rate, unit)
    return measure, words(counts_text(measure))


def cell(value: Value) -> Cell:
    """Turn a value into its cell: a figure, a count or words; nothing becomes an empty one."""
    if value is None or isinstance(value, str):
        return words(value or "")
    if isinstance(value, int):
        return FigureCell(value=float(value), unit=Unit.COUNT)
    if isinstance(value, FigureCell | TextCell):
        return value
    return figure(value)


def table_of(
    things: Iterable[T],
    cells: Mapping[str, Callable[[T], Value | tuple[Value, ...]]],
    *,
    table_id: str,
    title: str = "",
    note: str = "",
    texts: Sequence[str] = (),
    greyed: Callable[[T], bool] | None = None,
    collapsed: bool = False,
) -> Table:
    """Write a line for each thing.

    A head is a title or `Title: what it means`; one such as `Rate|Counts` heads two cells. The
    first column and those of `texts` hold words, not figures.
    """
    columns: list[Column] = []
    for heads in cells:
        for head in heads.split("|"):
            column_title, _, meaning = head.partition(": ")
            is_numeric = bool(columns) and column_title not in texts
            columns.append(Column(title=column_title, numeric=is_numeric, meaning=meaning))
    rows = []
    for thing in things:
        line: list[Cell] = []
        for get in cells.values():
            values = get(thing)
            if isinstance(values, tuple):
                line.extend(map(cell, values))
            else:
                line.append(cell(values))
        is_greyed = greyed is not None and greyed(thing)
        rows.append(Row(cells=tuple(line), greyed=is_greyed))
    table = Table(
        id=table_id,
        title=title,
        columns=tuple(columns),
        rows=tuple(rows),
        note=note,
        collapsed=collapsed,
    )
    if rows:
        return _without_blanks(table)
    return table


def _without_blanks(table: Table) -> Table:
    """Leave out the columns in which no line says anything."""
    blank = TextCell(text="")
    filled: set[int] = set()
    width = 0
    for row in table.rows:
        width = max(width, len(row.cells))
        for at, cell in enumerate(row.cells):
            if cell != blank:
                filled.add(at)
    if len(filled) == width:
        return table
    return _keep_columns(table, sorted(filled))


def _keep_columns(table: Table, kept: Sequence[int]) -> Table:
    """Return a table with only the columns at some places."""
    rows = []
    for row in table.rows:
        cells = tuple(row.cells[at] for at in kept)
        rows.append(replace(row, cells=cells))
    columns = tuple(table.columns[at] for at in kept)
    return replace(table, columns=columns, rows=tuple(rows))


def with_derived(table: Table, *titles: str) -> Table:
    """Mark columns that follow from others, so that a narrow terminal leaves them out."""
    columns = (replace(each, is_derived=each.title in titles) for each in table.columns)
    return replace(table, columns=tuple(columns))


def without_columns(table: Table, titles: Collection[str]) -> Table:
    """Leave out the columns of some titles."""
    kept = [at for at, column in enumerate(table.columns) if column.title not in titles]
    return _keep_columns(table, kept)


def without_repeats(table: Table) -> Table:
    """Leave out the columns that repeat an earlier one, or say the same count in every row."""
    kept, seen = [], set[tuple[Cell, ...]]()
    for at in range(len(table.columns)):
        cells = tuple(row.cells[at] for row in table.rows)
        is_constant = len(cells) > 1 and len(set(cells)) == 1 and _is_count(cells[0])
        if cells not in seen and not is_constant:
            kept.append(at)
        seen.add(cells)
    return _keep_columns(table, kept)


def _is_count(cell: Cell) -> bool:
    return isinstance(cell, FigureCell) and cell.unit is Unit.COUNT


def with_column(table: Table, at: int, column: Column, cells: Sequence[Cell]) -> Table:
    """Put a column between others, one cell for each line."""
    rows = []
    for row, new_cell in zip(table.rows, cells, strict=True):
        rows.append(replace(row, cells=(*row.cells[:at], new_cell, *row.cells[at:])))
    columns = (*table.columns[:at], column, *table.columns[at:])
    return replace(table, columns=columns, rows=tuple(rows))


def number(value: Measured | float | None) -> FigureCell:
    """Turn a figure that is no share into a cell."""
    return figure(value, Unit.NUMBER)


def p_value(value: float | None) -> FigureCell:
    """Turn a p-value into a cell."""
    return figure(value, Unit.P_VALUE)


def mute(table: Table, muted: Iterable[bool]) -> Table:
    """Set the lines of a table that only mark the floor and the ceiling back, and last."""
    plain, set_back = [], []
    for row, is_muted in zip(table.rows, muted, strict=True):
        if is_muted:
            set_back.append(replace(row, tone=Tone.MUTED))
        else:
            plain.append(row)
    return replace(table, rows=(*plain, *set_back))


def mark(
    label: str, rate: Estimate | Difference, *, series: str = "", greyed: bool = False
) -> IntervalMark:
    """Return a rate as a dot with its whisker, and how much it stands on."""
    measure = figure(rate, greyed=greyed)
    counted = count_text(measure.trials or 0)
    note = f"n = {counted}"
    if isinstance(rate, Difference):
        note = f"{counted} pairs"
    return IntervalMark(label=label, measure=measure, series=series, note=note)


def slug(text: str) -> str:
    """Return letters, digits and hyphens that stand for a name in an id."""
    slugged = ""
    for sign in text:
        if sign.isascii() and sign.isalnum():
            slugged += sign
        else:
            slugged += f"-{ord(sign):x}-"
    return slugged
