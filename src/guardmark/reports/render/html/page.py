"""A document as one HTML page that needs nothing outside itself."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from guardmark.reports.figures.svg import fit_for_files
from guardmark.reports.render.html.layout import page_of

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

    from guardmark.reports.document.blocks import Document

_MOST_BYTES: Final = 1_950_000
"""What still passes most mail gateways; texts are cut shorter in a page beyond it."""
_TEXT_BYTES: Final = (2_200, 1_100, 550, 275, 137)
_TEXT: Final = re.compile(r'<pre dir="auto">(.*?)</pre>', re.DOTALL)
_REMARK_BYTES: Final = 40  # of the words that a text was cut


def render_html(document: Document, *, texts: bool = True) -> str:
    """Render a document as one HTML page that loads nothing, so that it can be mailed."""
    if not texts:
        return _render(document, None)
    html = _render(document, _TEXT_BYTES[0])
    if (excess := len(html.encode()) - _MOST_BYTES) <= 0:
        return html
    # How far to cut is reckoned: a page of many defenses takes seconds to draw.
    sizes = [len(each.encode()) - _REMARK_BYTES for each in _TEXT.findall(html)]
    saved = {limit: sum(max(0, size - limit) for size in sizes) for limit in _TEXT_BYTES[1:]}
    limit = next((limit for limit in saved if saved[limit] >= excess), _TEXT_BYTES[-1])
    return _render(document, limit) if saved[limit] else html


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
        *(layout.groups_of, layout.is_wide, layout.kind_of),
        layout.mark_of,
        *(samples.filters_of, samples.flowing, samples.show_samples),
        *(
            samples.verdict_line,
            wording.count_text,
            wording.date_text,
            wording.interval_text,
            wording.value_text,
        ),
    )
    environment.globals.update({each.__name__: each for each in functions}, kinds=samples.KINDS)
    return environment


def page_style() -> tuple[Markup, str]:
    """Return the style of all pages, and its hash for the policy that admits it."""
    style = _asset("report.css")
    return style, _policy_hash(style)


@cache
def _asset(name: str) -> Markup:
    from markupsafe import Markup

    path = Path(__file__).parent / "templates" / name
    return Markup(path.read_text(encoding="utf-8"))  # noqa: S704 - a file of this package


def _policy_hash(text: Markup) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
