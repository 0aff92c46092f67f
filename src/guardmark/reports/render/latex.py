"""A table of a document as LaTeX with booktabs, for a paper."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from guardmark.reports.document.blocks import FigureCell, Table
from guardmark.reports.document.safe_text import latex_line
from guardmark.reports.document.wording import cell_text, count_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jinja2 import Template

    from guardmark.reports.document.blocks import Cell, Document


_HYPHEN: Final = "-2d-"  # what an id has for a hyphen of a name


def latex_files(document: Document, name: str = "") -> dict[str, str]:
    """Render each table as a file; into one of that name, the tables that are not folded."""
    tables = [each for each in document.blocks if isinstance(each, Table) and each.rows]
    if name:
        open_tables = [_render(each, document) for each in tables if not each.collapsed]
        return {name: "\n".join(open_tables)}
    stems = [each.id.replace(_HYPHEN, "-") for each in tables]
    files = {}
    for table, stem in zip(tables, stems, strict=True):
        if stems.count(stem) > 1:  # the id tells "a-b" from "a b"
            files[f"{table.id}.tex"] = _render(table, document)
        else:
            files[f"{stem}.tex"] = _render(table, document)
    return files


def _render(table: Table, document: Document) -> str:
    """Render one table by the template."""
    columns = list(_columns(table))
    texts = [column[-1] for column in columns]
    rows = zip(*texts, strict=True)
    has_undefined = False
    for row in table.rows:
        if any(map(_is_undefined, row.cells)):
            has_undefined = True
    return _template().render(
        table=table,
        document=document,
        columns=columns,
        rows=zip(table.rows, rows, strict=True),
        has_undefined=has_undefined,
    )


def _columns(table: Table) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield alignment, head and texts; counts that no column shows follow their figures."""
    columns = list(zip(*(row.cells for row in table.rows), strict=True))
    shown = set(map(_counts_of_texts, columns))
    for column, cells in zip(table.columns, columns, strict=True):
        alignment = "l"
        if column.numeric:
            alignment = "r"
        yield alignment, latex_line(column.title), tuple(map(_text, cells))
        counts = tuple(map(_trials, cells))
        if any(counts) and counts not in shown:
            shown.add(counts)
            yield "r", "$n$", counts


def _counts_of_texts(cells: Sequence[Cell]) -> tuple[str, ...]:
    """Return what a column shows as counts: of `3/40` the 40."""
    return tuple(cell_text(cell).rpartition("/")[2] for cell in cells)


def _trials(cell: Cell) -> str:
    """Return how many trials a figure rests on; nothing where it says none."""
    trials = getattr(cell, "trials", None)
    if trials is None:
        return ""
    return count_text(trials)


def _text(cell: Cell) -> str:
    """Write a cell: dashes where a figure is undefined, bold where it is set apart in its row."""
    text = latex_line(cell_text(cell))
    if _is_undefined(cell):
        text = "---"
    if isinstance(cell, FigureCell) and cell.is_strong:
        return rf"\textbf{{{text}}}"
    if text and getattr(cell, "code", False):
        return rf"\texttt{{{text}}}"
    return text


def _is_undefined(cell: Cell) -> bool:
    return isinstance(cell, FigureCell) and cell.value is None


@cache
def _template() -> Template:
    from jinja2 import Environment, PackageLoader

    environment = Environment(
        loader=PackageLoader("guardmark.reports.render", ""),
        autoescape=False,  # noqa: S701 - every text is escaped, for LaTeX
        trim_blocks=True,
        # Braces and percent signs are LaTeX's own.
        variable_start_string="((",
        variable_end_string="))",
        block_start_string="(%",
        block_end_string="%)",
        comment_start_string="(##",
    )
    environment.filters["line"] = latex_line
    return environment.get_template("table.tex.j2")
