"""A document as one HTML page that needs nothing outside itself."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from guardmark.reports.figures.svg import fit_for_files
from guardmark.reports.render.html.layout import page_of

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

    from guardmark.reports.document.blocks import Document

_MOST_BYTES: Final = 1_950_000
"""What still passes most mail gateways; texts are cut shorter in a page beyond it."""
_TEXT_BYTES: Final = 2_200
_LEAST_TEXT_BYTES: Final = 200


def render_html(document: Document, *, texts: bool = True) -> str:
    """Render a document as one HTML page that loads nothing, so that it can be mailed."""
    if not texts:
        return _render(document, None)
    text_bytes = _TEXT_BYTES
    html = _render(document, text_bytes)
    while len(html.encode()) > _MOST_BYTES and text_bytes > _LEAST_TEXT_BYTES:
        text_bytes //= 2
        html = _render(document, text_bytes)
    return html


def _render(document: Document, text_bytes: int | None) -> str:
    style, script = _asset("report.css"), _asset("report.js")
    page = page_environment().get_template("report.html.j2")
    html = page.render(
        page=page_of(document, text_bytes=text_bytes),
        document=document,
        style=style,
        style_hash=_policy_hash(style),
        script=script,
        script_hash=_policy_hash(script),
    )
    return fit_for_files(html)


@cache
def page_environment() -> Environment:
    """Return the templates of pages: everything from data is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    from guardmark.reports.document import wording
    from guardmark.reports.figures import bars, interval, lines
    from guardmark.reports.render.html import layout, samples

    environment = Environment(
        loader=PackageLoader("guardmark.reports.render.html", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    functions = (
        *(bars.draw_histogram, interval.plot_intervals, lines.draw_lines),
        *(layout.groups_of, layout.has_folds, layout.is_measure, layout.is_wide, layout.kind_of),
        layout.mark_of,
        *(samples.filters_of, samples.flowing, samples.show_samples),
        *(samples.verdict_line, wording.count_text, wording.interval_text, wording.value_text),
    )
    environment.globals.update({each.__name__: each for each in functions}, kinds=samples.KINDS)
    return environment


@cache
def _asset(name: str) -> Markup:
    from markupsafe import Markup

    path = files("guardmark.reports.render.html").joinpath("templates", name)
    return Markup(path.read_text(encoding="utf-8"))  # noqa: S704 - a file of this package


def _policy_hash(text: Markup) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
