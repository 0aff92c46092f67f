"""SVG elements, every value in them escaped."""

from __future__ import annotations

import re
from typing import Final

from markupsafe import Markup, escape

from guardmark.core.values import dataclass

SHAPES: Final = (
    "M4.5 0A4.5 4.5 0 1 1-4.5 0A4.5 4.5 0 1 1 4.5 0Z",  # circle
    "M0-5.6L5.6 0L0 5.6L-5.6 0Z",  # diamond
    "M-4-4H4V4H-4Z",  # square
    "M0-5.4L5.2 4H-5.2Z",  # triangle
    "M0 5.4L5.2-4H-5.2Z",  # triangle on its tip
    "M-1.7-5H1.7V-1.7H5V1.7H1.7V5H-1.7V1.7H-5V-1.7H-1.7Z",  # cross
    "M-5-5L0-1.6L5-5L1.6 0L5 5L0 1.6L-5 5L-1.6 0Z",  # star
)
"""Outlines of marks around their centre, so series differ without colour."""

COLOURS: Final = 6  # how many colours the style sheet has for series

NEUTRAL: Final = -1  # index of a series without a colour of its own

BASELINE: Final = -2  # index of a series that only marks the floor or the ceiling

_UNFIT: Final = re.compile(
    # What no page may hold, and marks that would turn the reading direction of what follows.
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069\u200e\u200f\ufffe\uffff]"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A chart of fixed proportions, drawn without its title; the summary says what it shows.

    Attributes:
        width: Width in units of the drawing.
        height: Height in units of the drawing.
        content: Its elements.
        summary: What it shows, for those who cannot see it.
        legend: Name and mark of each series.
    """

    width: int
    height: int
    content: Markup
    summary: str
    legend: tuple[tuple[str, Markup], ...] = ()


def element(name: str, *children: str | Markup, **attributes: float | str) -> Markup:
    """Write an SVG element."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
    )
    inner = "".join(str(escape(child)) for child in children)
    closed = "/>"
    if children:
        closed = f">{inner}</{name}>"
    return Markup(f"<{name}{written}{closed}")  # noqa: S704 - every part is escaped above


def join(parts: tuple[Markup, ...] | list[Markup]) -> Markup:
    """Put elements one after the other."""
    return Markup("").join(parts)


def axes(grid: list[Markup], labels: list[Markup], *titles: Markup) -> Markup:
    """Put the lines, the ticks and the titles of axes into one element each."""
    return join(
        [
            element("g", *grid, class_="grid"),
            element("g", *labels, class_="ticks"),
            element("g", *titles, class_="axis"),
        ]
    )


def dot(index: int) -> Markup:
    """Draw the mark of a series around the origin."""
    return element("path", d=SHAPES[max(index, 0) % len(SHAPES)], class_="dot")


def in_legend(mark: Markup, classes: str) -> Markup:
    """Put the mark of a series where a legend shows it."""
    return element("g", mark, class_=classes, transform="translate(12 8)")


def number(value: float) -> str:
    """Write a coordinate with at most two places."""
    written = f"{value:.2f}".rstrip("0").rstrip(".")
    if written == "-0":
        return "0"
    return written


def fit_for_files(text: str) -> str:
    """Replace what neither XML, HTML nor UTF-8 can hold, and marks that reorder a line."""
    return _UNFIT.sub("\N{REPLACEMENT CHARACTER}", text)


def percent(share: float) -> str:
    """Write a place in [0, 1] as a percentage of the width."""
    return f"{number(100 * share)}%"


def series_class(index: int) -> str:
    """Return the style class of a series."""
    if index < 0:
        if index == BASELINE:
            return "sb"
        return "sn"
    return f"s{index % COLOURS}"


def _value(value: float | str) -> str:
    if isinstance(value, str):
        return str(escape(value))
    return number(value)
