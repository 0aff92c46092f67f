"""From values to pages: every text from data is escaped."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from guardmark.core.manifest import VERSION
from guardmark.reports.document.blocks import Document
from guardmark.reports.document.cells import of_estimate
from guardmark.reports.figures.svg import fit_for_files
from guardmark.reports.render.html.layout import lay_out
from guardmark.reports.render.html.page import page_environment
from guardmark.view.history import when_text

if TYPE_CHECKING:
    from jinja2 import Environment

    from guardmark.reports.document.blocks import Section


@cache
def _templates() -> Environment:
    from jinja2 import ChoiceLoader, PackageLoader

    return page_environment().overlay(
        loader=ChoiceLoader(
            [
                PackageLoader("guardmark.view", "templates"),
                PackageLoader("guardmark.reports.render.html", "templates"),
            ]
        ),
    )


def render_page(name: str, **values: object) -> str:
    """Render a page."""
    page = _templates().get_template(f"{name}.html.j2")
    return fit_for_files(
        page.render(version=VERSION, when_text=when_text, of_estimate=of_estimate, **values)
    )


def render_sections(title: str, subtitle: str, sections: tuple[Section, ...]) -> str:
    """Render sections of blocks as a page, drawn as the reports are."""
    document = Document(
        title=title,
        subtitle=subtitle,
        run="",
        created_utc="",
        version=VERSION,
        confidence=0.95,
        verdicts=(),
        sections=sections,
    )
    laid_out = lay_out(document, text_bytes=None)
    return render_page("sections", title=title, subtitle=subtitle, sections=laid_out.sections)


@cache
def style() -> str:
    """Return the style of all pages: that of the reports, and a little more."""
    report = files("guardmark.reports.render.html").joinpath("templates", "report.css")
    own = files("guardmark.view").joinpath("templates", "view.css")
    return report.read_text(encoding="utf-8") + own.read_text(encoding="utf-8")


@cache
def script() -> str:
    """Return the script that follows running runs."""
    own = files("guardmark.view").joinpath("templates", "view.js")
    return own.read_text(encoding="utf-8")
