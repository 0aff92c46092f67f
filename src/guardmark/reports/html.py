"""A document as one HTML page that needs nothing outside itself."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from guardmark.reports.wording import cell_text

if TYPE_CHECKING:
    from jinja2 import Environment

    from guardmark.reports.blocks import Block, Document

_UNFIT: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069\u200e\u200f\ufffe\uffff]"
)


def render_html(document: Document, *, texts: bool = True) -> str:
    """Render a document as one HTML page.

    The page loads nothing, so it can be opened from a mail attachment.

    Args:
        document: The report.
        texts: Whether to show the start of listed samples; otherwise their hashes alone.

    Returns:
        The page; equal documents give equal bytes, and nothing from data can become markup.
    """
    css = _asset("report.css")
    page = _environment().get_template("report.html.j2")
    html = page.render(document=document, texts=texts, css=css, css_hash=_csp_hash(css))
    return _UNFIT.sub("\N{REPLACEMENT CHARACTER}", html)


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("guardmark.reports", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(cell_text=cell_text, kind_of=_kind)
    return environment


def _kind(block: Block) -> str:
    return type(block).__name__


def _asset(name: str) -> str:
    from markupsafe import Markup

    text = files("guardmark.reports").joinpath("templates", name).read_text(encoding="utf-8")
    return Markup(text)  # noqa: S704 - a file of this package


def _csp_hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
