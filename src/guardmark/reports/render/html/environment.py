"""Templates of the pages that are not reports: the index of a board, the views of many runs."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from guardmark.reports.document import wording
from guardmark.reports.render.html.markup import intervals_html, section_html

if TYPE_CHECKING:
    from jinja2 import Environment


@cache
def page_environment() -> Environment:
    """Return the templates of pages: everything from data is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # on use: reports need none

    environment = Environment(
        loader=PackageLoader("guardmark.reports.render.html", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    functions = (
        intervals_html,
        section_html,
        wording.count_text,
        wording.interval_text,
        wording.value_text,
    )
    environment.globals.update({function.__name__: function for function in functions})
    return environment
