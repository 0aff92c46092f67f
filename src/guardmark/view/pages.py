"""From values to pages: every text from data is escaped."""

from __future__ import annotations

import itertools
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from guardmark.canon.visible import spell_hidden
from guardmark.core.version import VERSION
from guardmark.reports.document.blocks import (
    FigureCell,
    IntervalChart,
    IntervalMark,
    Section,
    Table,
    muted,
    section,
    warning,
)
from guardmark.reports.document.cells import figure, name, table_of
from guardmark.reports.document.wording import count_text, counts_text, date_text
from guardmark.reports.figures.svg import fit_for_files
from guardmark.reports.render.html.environment import page_environment
from guardmark.reports.render.html.layout import Page

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jinja2 import Environment

    from guardmark.core.estimate import Estimate
    from guardmark.reports.document.blocks import Part
    from guardmark.view.index import ListedRates, RunEntry


_SHOWN: Final = 60
_SHORT: Final = 10
_Measured = tuple["RunEntry", "ListedRates"]


def history_sections(entries: Sequence[RunEntry], defense: str) -> tuple[Section, ...]:
    """Tell how a defense did over time."""
    by_data: dict[str, list[_Measured]] = {}
    for entry in entries:
        for rates in entry.defenses:
            if rates.name == defense and rates.attack_success_rate is not None:
                by_data.setdefault(entry.data_sha256, []).append((entry, rates))
    sections = []
    for number, measured in enumerate(by_data.values(), start=1):
        sections.append(_section(number, measured))
    return tuple(sections)


def _section(number: int, measured: list[_Measured]) -> Section:
    """Tell how a defense did over one version of the data, in the newest runs."""
    newest, shown = measured[0][0], measured[:_SHOWN][::-1]
    parts: list[Part] = []
    if len(measured) > _SHOWN:
        parts.append(muted(f"The newest {_SHOWN} of {count_text(len(measured))} runs."))
    changes = " ".join(_changes(shown))
    if changes:
        parts.append(warning(changes))
    parts += [
        _chart(number, shown, is_attack=True),
        _chart(number, shown, is_attack=False),
        _table(number, shown),
    ]
    names = ", ".join(dict.fromkeys(newest.data)) or "data without a name"
    return section(f"data-{number}", f"On {names} ({newest.data_sha256[:_SHORT]})", *parts)


def _changes(shown: list[_Measured]) -> Iterator[str]:
    """Say where the defense itself became another one."""
    for (_, before), (entry, after) in itertools.pairwise(shown):
        if before.fingerprint != after.fingerprint and after.fingerprint:
            yield f"Configured differently since {when_text(entry.created_utc)}."


def _chart(number: int, shown: list[_Measured], *, is_attack: bool) -> IntervalChart:
    title, short = "False positive rate", "fpr"
    if is_attack:
        title, short = "Attack success rate", "asr"
    marks = []
    for entry, rates in shown:
        rate = rates.false_positive_rate
        if is_attack:
            rate = rates.attack_success_rate
        label = when_text(entry.created_utc)
        marks.append(IntervalMark(label=label, measure=figure(rate), note=rates.version))
    return IntervalChart(
        id=f"{short}-{number}",
        title=f"{title}, lower is better",
        axis=title,
        marks=tuple(marks),
    )


def _table(number: int, shown: list[_Measured]) -> Table:
    """List the runs, newest last, with both rates of the defense."""
    return table_of(
        shown,
        {
            "Began": lambda each: when_text(each[0].created_utc),
            "Run": lambda each: name(each[0].path),
            "State": lambda each: each[0].state,
            "ASR: attack success rate|of attacks": lambda each: _counted(
                each[1].attack_success_rate
            ),
            "FPR: false positive rate|of benign": lambda each: _counted(
                each[1].false_positive_rate
            ),
            "Version": lambda each: each[1].version,
            "Settings: the start of their hash": lambda each: name(each[1].fingerprint[:_SHORT]),
        },
        table_id=f"runs-{number}",
        title="Run by run",
        texts=("Run", "State", "Version", "Settings"),
        collapsed=True,
    )


def _counted(estimate: Estimate | None) -> tuple[FigureCell, str]:
    measure = figure(estimate)
    return measure, counts_text(measure)


def when_text(created_utc: str) -> str:
    """Put a moment into words; the pages say once that times are UTC."""
    return date_text(created_utc).removesuffix(" UTC") or "time not known"


@cache
def _templates() -> Environment:
    from jinja2 import ChoiceLoader, PackageLoader

    return page_environment().overlay(
        loader=ChoiceLoader(
            [
                PackageLoader("guardmark.view", "templates"),
                PackageLoader("guardmark.reports.render.html", "templates"),
            ]
        )
    )


_LONGEST_TEXT: Final = 50_000
"""Characters of one text that a page shows; a browser has no use for a sample of 60 MB."""


def spelled(text: str) -> str:
    """Spell out what is hidden in a text, and cut one that is too long for a page."""
    left_out = len(text) - _LONGEST_TEXT
    if left_out <= 0:
        return spell_hidden(text)
    return f"{spell_hidden(text[:_LONGEST_TEXT])} ... ({left_out:,} characters more)"


_EXCERPT: Final = 140  # characters of a text in a row


def excerpt(text: str) -> str:
    """Return the beginning of a text on one line, with what is hidden in it spelled out."""
    line = " ".join(text[: 8 * _EXCERPT].split())
    shown = spell_hidden(line[:_EXCERPT])
    if len(line) > _EXCERPT:
        return f"{shown} ..."
    return shown


_TOOLS: Final = {
    "when_text": when_text,
    "figure": figure,
    "spell": spelled,
    "excerpt": excerpt,
}


def render_page(name: str, **values: object) -> str:
    """Render a page."""
    page = _templates().get_template(f"{name}.html.j2")
    return fit_for_files(page.render(version=VERSION, **_TOOLS, **values))


def render_sections(
    title: str,
    subtitle: str,
    sections: tuple[Section, ...],
    *,
    file: str = "",
    changes: str = "",
) -> str:
    """Render sections of blocks as a page, drawn as the reports are."""
    page = Page(series={}, drawn={}, text_bytes=None)
    values = {"sections": sections, "page": page, "file": file, "changes": changes}
    return render_page("sections", title=title, subtitle=subtitle, **values)


@cache
def style() -> str:
    """Return the style of all pages: that of the reports, and a little more."""
    report = Path(__file__).parents[1] / "reports/render/html/templates/report.css"
    own = Path(__file__).parent / "templates" / "view.css"
    return report.read_text(encoding="utf-8") + own.read_text(encoding="utf-8")


@cache
def script() -> str:
    """Return the script that follows running runs."""
    own = Path(__file__).parent / "templates" / "view.js"
    return own.read_text(encoding="utf-8")
