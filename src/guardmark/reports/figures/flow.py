"""Flows: two streams from top to bottom, from which a part leaves at each stage."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING, Final

from guardmark.reports.document.wording import count_text
from guardmark.reports.figures.svg import Drawing, element, join, number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markupsafe import Markup

    from guardmark.reports.document.blocks import FlowChart, FlowStream

_WIDTH: Final = 440
_HEAD: Final = 44
_STAGE: Final = 72
_FOOT: Final = 20
_LINE: Final = 17
_NOTE_LINE: Final = 15.5
_WIDEST: Final = 76
_CENTRES: Final = (134, 312)
_NOTE: Final = 44  # from the centre of a stream to the words beside it
_LONGEST: Final = 12
_NOTE_LENGTH: Final = 13


def draw_flow(chart: FlowChart) -> Drawing:
    """Draw both streams over the same stages, each as wide as the share of its samples."""
    bottom = _HEAD + _STAGE * len(chart.stages)
    parts = []
    for at, stage in enumerate(chart.stages):
        top = _HEAD + at * _STAGE
        name = stage
        if len(name) > _LONGEST:
            name = f"{stage[: _LONGEST - 1]}…"
        parts.append(element("line", x1=0, x2=_WIDTH, y1=top, y2=top, class_="base"))
        parts.append(element("text", name, x=0, y=top + 22, class_="name"))
    parts.append(element("line", x1=0, x2=_WIDTH, y1=bottom, y2=bottom, class_="base"))
    parts.append(element("text", "comes out", x=0, y=bottom + 22, class_="name"))
    lines = 1
    for index, stream in enumerate(chart.streams):
        parts += _stream(stream, centre=_CENTRES[index], index=index, bottom=bottom)
        lines = max(lines, len(stream.ends))
    return Drawing(
        width=_WIDTH,
        height=bottom + _FOOT + lines * _LINE,
        content=join(parts),
        summary=" ".join(_stream_words(stream, chart.stages) for stream in chart.streams),
    )


def _stream(stream: FlowStream, *, centre: int, index: int, bottom: int) -> list[Markup]:
    """Draw one stream, with what leaves it in words beside it."""
    title = f"{count_text(stream.total)} {stream.name}"
    parts = [element("text", title, x=centre, y=16, text_anchor="middle", class_="name")]
    edges = [(_HEAD - 20, stream.total), (_HEAD, stream.total)]
    for at, leaving in enumerate(stream.leaving):
        top = _HEAD + at * _STAGE
        edges += [(top + 16, stream.reached[at]), (top + 48, stream.reached[at + 1])]
        notes: list[str] = []
        for words in leaving:
            notes += wrap(words, _NOTE_LENGTH)
        for line, words in enumerate(notes):
            y = top + 18 + line * _NOTE_LINE
            parts.append(element("text", words, x=centre + _NOTE, y=y, class_="peak"))
    edges.append((bottom, stream.reached[-1]))
    parts.insert(
        0, element("path", d=_outline(edges, stream.total, centre), class_=f"bars h{index}")
    )
    for line, words in enumerate(stream.ends):
        y = bottom + _FOOT + 2 + line * _LINE
        parts.append(element("text", words, x=centre, y=y, text_anchor="middle", class_="name"))
    return parts


def _outline(edges: Sequence[tuple[float, int]], total: int, centre: int) -> str:
    """Return the outline of a stream: down one side, and up the other."""
    half = [(y, _WIDEST / 2 * count / max(1, total)) for y, count in edges]
    down = [f"{number(centre + wide)} {number(y)}" for y, wide in half]
    up = [f"{number(centre - wide)} {number(y)}" for y, wide in reversed(half)]
    return f"M{'L'.join([*down, *up])}Z"


def _stream_words(stream: FlowStream, stages: tuple[str, ...]) -> str:
    """Put a stream into words, for a reader who cannot see it."""
    parts = []
    for stage, leaving in zip(stages, stream.leaving, strict=True):
        if leaving:
            parts.append(f"{stage}: {', '.join(leaving)}")
    parts.append(f"out come {', '.join(stream.ends)}")
    return f"Of {count_text(stream.total)} {stream.name}, {'; '.join(parts)}."
