"""The blocks of a report as HTML; every text in them is escaped here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from guardmark.core.errors import counted
from guardmark.reports.document.blocks import (
    Bullets,
    Facts,
    FigureCell,
    FlowChart,
    Histogram,
    IntervalChart,
    LineChart,
    Listing,
    Paragraph,
    Table,
    Tone,
)
from guardmark.reports.document.wording import interval_text, value_text
from guardmark.reports.figures.bars import draw_histogram
from guardmark.reports.figures.flow import draw_flow
from guardmark.reports.figures.interval import plot_intervals
from guardmark.reports.figures.lines import draw_lines
from guardmark.reports.render.html.layout import groups_of, is_wide, mark_of
from guardmark.reports.render.html.samples import browser_html, flowing, verdict_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.reports.document.blocks import (
        Block,
        Cell,
        Column,
        Headline,
        IntervalMark,
        Row,
        Section,
        TextCell,
    )
    from guardmark.reports.figures.interval import IntervalPlot, Strip
    from guardmark.reports.figures.svg import Drawing
    from guardmark.reports.render.html.layout import Page


def section_html(section: Section, page: Page) -> Markup:
    """Write the blocks of a section, drawings and folded tables side by side."""
    parts = []
    for kind, blocks in groups_of(section.blocks):
        written = [f"{block_html(block, page)}\n" for block in blocks]
        if kind == "one":
            parts += written
        else:
            parts += [f'<div class="{kind}">\n', *written, "</div>\n"]
    return Markup("".join(parts))  # noqa: S704 - every block is escaped


def block_html(block: Block, page: Page) -> str:
    """Write one block."""
    match block:
        case Paragraph():
            html = _paragraph(block.text, block.tone)
        case Bullets():
            html = _bullets(block, page)
        case Facts():
            html = _facts(block)
        case Listing():
            html = _listing(block)
        case Table():
            html = _table(block)
        case IntervalChart():
            html = f"{intervals_html(block, plot_intervals(block, page.drawn))}\n"
        case LineChart():
            html = _figure(block, draw_lines(block, page.drawn))
        case Histogram():
            html = _figure(block, draw_histogram(block))
        case FlowChart():
            html = _figure(block, draw_flow(block))
        case _:
            html = browser_html(block, page)
    return html


def headline_html(headline: Headline, page: Page, *, has_figures: bool) -> str:
    """Write the card of one defense: its answer, its rates where no table holds them, remarks."""
    title = f"<code>{escape(headline.defense)}</code>"
    if headline.title:
        # Browsers may break a line within the arrow of an arm that is drawn.
        title = escape(headline.title.replace(" -> ", " → "))
    answer = ""
    if headline.answer:
        answer = f' <b class="answer {headline.tone.value}">{escape(headline.answer)}</b>'
    mark = mark_of(page.drawn, headline.defense)
    lines = ['<article class="card">', f"<h3><span>{mark} {title}</span>{answer}</h3>"]
    if headline.reason:
        lines.append(f'<p class="plain">{escape(flowing(headline.reason))}</p>')
    if has_figures:
        lines.append(f'<p class="line">{verdict_line(headline.sentence)}</p>')
    lines += [f'<p class="note">{escape(flowing(remark))}</p>' for remark in headline.remarks]
    if headline.quote and page.text_bytes is not None:
        lines.append(f'<p class="quote">{escape(headline.quote)}</p>')
    lines.append("</article>")
    return "\n".join(lines)


def intervals_html(chart: IntervalChart, plot: IntervalPlot) -> Markup:
    """Write a chart of dots with whiskers: a table whose rows are drawn."""
    is_many = len(plot.legend) > 1
    block_id = escape(chart.id)
    legend = ""
    if is_many:
        legend = _legend(plot.legend)
    axis = escape(plot.scale.titled(chart.axis))
    if chart.reference:
        axis += f"; dashed: {chart.reference[1]}"
    lines = [
        f'<figure class="chart" id="{block_id}">',
        f'<figcaption><span id="{block_id}-t">{escape(chart.title)}</span>{legend}</figcaption>',
        _strips(block_id, plot.strips, is_many=is_many),
        (
            f'<div class="foot" aria-hidden="true"><svg class="strip">{plot.axis}</svg>'
            f'<span class="what">{axis}</span></div>'
        ),
    ]
    if plot.thin:
        hidden = len([strip for strip in plot.thin if strip.opens])
        lines += [
            '<details class="rest">',
            f"<summary>{hidden} more with too few samples to rely on</summary>",
            _strips(block_id, plot.thin, is_many=is_many),
            "</details>",
        ]
    lines.append("</figure>")
    return Markup("\n".join(lines))  # noqa: S704 - every part is escaped above


def _paragraph(text: str, tone: Tone) -> str:
    return f'<p class="text {tone.value}">{escape(flowing(text))}</p>\n'


def _bullets(block: Bullets, page: Page) -> str:
    """Write a list; each line links to its evidence and shows its command."""
    if not block.lines:
        return ""
    if len(block.lines) == 1 and block.tone is Tone.WARNING:
        return _paragraph(block.lines[0], block.tone)
    lines = [f'<ul class="text {block.tone.value}">']
    for at, text in enumerate(block.lines):
        line = escape(flowing(text))
        command = block.command(at)
        if command:
            line += Markup(' <code class="command">{}</code>').format(command)
        if block.evidence and block.evidence[at] in page.ids:
            line += Markup(' <a class="why" href="#{}">Evidence</a>').format(block.evidence[at])
        lines.append(f"<li>{line}</li>")
    lines.append("</ul>\n")
    return "\n".join(lines)


def _facts(block: Facts) -> str:
    lines = [f"<h3>{escape(block.title)}</h3>", '<dl class="facts">']
    for label, value in block.pairs:
        lines.append(f"<div><dt>{escape(label)}</dt><dd>{_words(value)}</dd></div>")
    lines.append("</dl>\n")
    return "\n".join(lines)


def _listing(block: Listing) -> str:
    text = "\n".join(block.lines)
    return (
        f'<figure class="listing" id="{escape(block.id)}">\n'
        f"<figcaption>{escape(block.title)}</figcaption>\n"
        f'<pre tabindex="0">{escape(text)}</pre>\n'
        "</figure>\n"
    )


def _table(block: Table) -> str:
    """Write a table, behind its title where it is folded."""
    if not block.collapsed:
        return f'<div class="open" id="{escape(block.id)}">\n{_grid(block)}\n</div>\n\n'
    size = counted(len(block.rows), "row")
    return (
        f'<details class="fold" id="{escape(block.id)}">\n'
        f'<summary>{escape(block.title)} <span class="size">{size}</span></summary>\n'
        f"{_grid(block)}\n"
        "</details>\n\n"
    )


def _grid(block: Table) -> str:
    """Write the rows of a table under their heads, and below it what has to be explained."""
    style = ""
    if is_wide(block):
        style = ' class="stacked"'
    heads, cell_styles = "", []
    for column in block.columns:
        cell_style = ""
        if column.numeric:
            cell_style = ' class="num"'
        cell_styles.append(cell_style)
        heads += f'<th scope="col"{cell_style}>{escape(column.title)}</th>'
    rows = [_row(row, cell_styles) for row in block.rows]
    lines = [
        '<div class="scroll">',
        f"<table{style}>",
        f"<caption><span>{escape(block.title)}</span></caption>",
        f"<thead><tr>{heads}</tr></thead>",
        "<tbody>",
        *rows,
        "</tbody>",
        "</table>",
        "</div>",
        _under(block),
    ]
    return "\n".join(lines)


def _row(row: Row, numeric: Sequence[str]) -> str:
    """Write a line of a table; the first cell is its head."""
    style, tag = "", ""
    if row.greyed:
        style, tag = ' class="few"', ' <small class="tag">few</small>'
    elif row.tone is not Tone.PLAIN:
        style = f' class="{row.tone.value}"'
    head, *others = row.cells
    cells = [f'<th scope="row">{_cell(head)}{tag}</th>']
    for at, cell in enumerate(others, start=1):
        cells.append(f"<td{numeric[at]}>{_cell(cell)}</td>")
    return f"<tr{style}>{''.join(cells)}</tr>"


def _under(block: Table) -> str:
    """Write the note of a table, what grey rows are, and what its columns mean."""
    parts = []
    if block.note:
        parts.append(f"<p>{escape(block.note)}</p>")
    if any(row.greyed for row in block.rows):
        parts.append(
            '<p>Grey rows, tagged <small class="tag">few</small>: '
            "too few samples or groups to rely on.</p>"
        )
    meanings = [_meaning(column) for column in block.columns if column.meaning]
    if meanings:
        parts.append(f"<p>{'; '.join(meanings)}.</p>")
    if not parts:
        return ""
    return f'<div class="under">\n{"".join(parts)}</div>\n'


def _meaning(column: Column) -> str:
    return f"<b>{escape(column.title)}</b> {escape(column.meaning)}"


def _cell(cell: Cell) -> str:
    """Write a figure with its interval, or words."""
    if not isinstance(cell, FigureCell):
        return _words(cell)
    if cell.value is None:
        reason = ""
        if cell.reason:
            reason = f" <small>{escape(cell.reason)}</small>"
        return f'<span class="none">undefined</span>{reason}'
    words = f"{escape(value_text(cell.value, cell.unit))}"
    if cell.is_strong:
        words = f"<b>{words}</b>"
    if cell.at_least:
        words = f"&gt;= {words}"
    interval = interval_text(cell)
    if interval:
        words += f'<span class="iv">{escape(interval)}</span>'
    return words


def _words(cell: TextCell) -> str:
    text = escape(cell.text)
    if cell.code:
        return f"<code>{text}</code>"
    if cell.tone is not Tone.PLAIN:
        return f'<span class="{cell.tone.value}">{text}</span>'
    return text


def _legend(names: Sequence[tuple[str, Markup]]) -> str:
    lines = ['<ul class="legend">']
    for name, mark in names:
        drawn = f'<svg width="24" height="16" aria-hidden="true">{mark}</svg>'
        lines.append(f"<li>{drawn}{escape(name)}</li>")
    lines.append("</ul>")
    return "\n".join(lines)


def _strips(block_id: str, strips: Sequence[Strip], *, is_many: bool) -> str:
    style = "plot"
    if is_many:
        style = "plot many"
    lines = [
        f'<table class="{style}" role="table" aria-labelledby="{block_id}-t">',
        '<tbody role="rowgroup">',
        *map(_strip, strips),
        "</tbody>",
        "</table>",
    ]
    return "\n".join(lines)


def _strip(strip: Strip) -> str:
    mark = strip.mark
    style = "goes"
    if strip.opens:
        style = "opens"
    if mark.measure.greyed:
        style += " few"
    return (
        f'<tr role="row" class="{style}"><th role="rowheader" scope="row">{_mark_name(mark)}</th>'
        f'<td role="cell" class="draw"><svg class="strip" aria-hidden="true">{strip.drawing}</svg>'
        f'</td><td role="cell" class="num">{_cell(mark.measure)}{_mark_note(mark)}</td></tr>'
    )


def _mark_name(mark: IntervalMark) -> str:
    name = f'<span class="label">{escape(mark.label)}</span>'
    if mark.series:
        separator = '<span class="sep">, </span>'
        name += f'<span class="series">{separator}{escape(mark.series)}</span>'
    return name


def _mark_note(mark: IntervalMark) -> str:
    if not mark.note:
        return ""
    return f' <small class="n {mark.tone.value}">{escape(mark.note)}</small>'


def _figure(block: LineChart | Histogram | FlowChart, drawing: Drawing) -> str:
    """Write a drawing with its legend, and in words for a reader who cannot see it."""
    block_id = escape(block.id)
    legend, style = "", "aside"
    if drawing.legend:
        legend, style = _legend(drawing.legend), "aside vh"
    return (
        f'<figure class="drawing" id="{block_id}">\n'
        f'<figcaption><span id="{block_id}-t">{escape(block.title)}</span>{legend}</figcaption>\n'
        f'<svg viewBox="0 0 {drawing.width} {drawing.height}" role="img" '
        f'aria-labelledby="{block_id}-t" aria-describedby="{block_id}-d">{drawing.content}</svg>\n'
        f'<p class="{style}" id="{block_id}-d">{escape(drawing.summary)}</p>\n'
        "</figure>\n"
    )
