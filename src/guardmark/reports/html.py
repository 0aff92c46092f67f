"""A document as one HTML page that needs nothing outside itself."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from guardmark.reports.html_layout import lay_out

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

    from guardmark.reports.blocks import Document

_UNFIT: Final = re.compile(
    # What no page may hold, and marks that would turn the reading direction of what follows.
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069\u200e\u200f\ufffe\uffff]"
)


def render_html(document: Document, *, texts: bool = True) -> str:
    """Render a document as one HTML page.

    The page loads nothing and its policy forbids it to, so it works from a mail attachment.

    Args:
        document: The report.
        texts: Whether to show the start of listed samples; otherwise their hashes alone.

    Returns:
        The page; equal documents give equal bytes, and nothing from data can become markup.
    """
    style, script = _asset("report.css"), _asset("report.js")
    page = _environment().get_template("report.html.j2")
    html = page.render(
        page=lay_out(document, texts=texts),
        document=document,
        style=style,
        style_hash=_policy_hash(style),
        script=script,
        script_hash=_policy_hash(script),
    )
    return _UNFIT.sub("\N{REPLACEMENT CHARACTER}", html)


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    from guardmark.reports import html_layout, html_samples, html_texts, wording

    environment = Environment(
        loader=PackageLoader("guardmark.reports", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(
        count_text=wording.count_text,
        counts_text=wording.counts_text,
        interval_text=wording.interval_text,
        measure_text=wording.measure_text,
        value_text=wording.value_text,
        is_measure=html_layout.is_measure,
        kind_name=html_samples.kind_name,
        kind_meaning=html_samples.kind_meaning,
        flowing=html_texts.flowing,
        verdict_line=html_texts.verdict_line,
    )
    return environment


@cache
def _asset(name: str) -> Markup:
    from markupsafe import Markup

    text = files("guardmark.reports").joinpath("templates", name).read_text(encoding="utf-8")
    return Markup(text)  # noqa: S704 - a file of this package


def _policy_hash(text: Markup) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
