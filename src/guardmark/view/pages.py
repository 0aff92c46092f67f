"""From values to pages: every text from data is escaped."""

from __future__ import annotations

import itertools
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from guardmark.core.manifest import VERSION
from guardmark.reports.document.blocks import (
    FigureCell,
    IntervalChart,
    IntervalMark,
    Paragraph,
    Section,
    Table,
    TextCell,
    Tone,
    Unit,
)
from guardmark.reports.document.cells import columns, counts, of_estimate, row
from guardmark.reports.document.wording import count_text
from guardmark.reports.figures.svg import fit_for_files
from guardmark.reports.render.html.layout import Page
from guardmark.reports.render.html.page import page_environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from jinja2 import Environment

    from guardmark.core.estimate import Estimate
    from guardmark.reports.document.blocks import Block
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
    return tuple(
        _section(number, measured) for number, measured in enumerate(by_data.values(), start=1)
    )


def _section(number: int, measured: list[_Measured]) -> Section:
    newest = measured[0][0]
    shown = measured[:_SHOWN][::-1]
    blocks: list[Block] = []
    if len(measured) > _SHOWN:
        text = f"The newest {_SHOWN} of {count_text(len(measured))} runs."
        blocks.append(Paragraph(text=text, tone=Tone.MUTED))
    changes = list(_changes(shown))
    if changes:
        blocks.append(Paragraph(text=" ".join(changes), tone=Tone.WARNING))
    blocks.append(_chart(number, shown, is_attack=True))
    blocks.append(_chart(number, shown, is_attack=False))
    blocks.append(_table(number, shown))
    names = ", ".join(dict.fromkeys(newest.data)) or "data without a name"
    title = f"On {names} ({newest.data_sha256[:_SHORT]})"
    return Section(id=f"data-{number}", title=title, blocks=tuple(blocks))


def _changes(shown: list[_Measured]) -> Iterator[str]:
    """Say where the defense itself became another one."""
    for (_, before), (entry, after) in itertools.pairwise(shown):
        if before.fingerprint != after.fingerprint and after.fingerprint:
            yield f"Configured differently since {_when(entry)}."


def _chart(number: int, shown: list[_Measured], *, is_attack: bool) -> IntervalChart:
    name = "Attack success rate" if is_attack else "False positive rate"
    marks = tuple(
        IntervalMark(
            label=_when(entry),
            measure=_measure(rates.attack_success_rate if is_attack else rates.false_positive_rate),
            note=rates.version,
        )
        for entry, rates in shown
    )
    return IntervalChart(
        id=f"{'asr' if is_attack else 'fpr'}-{number}",
        title=f"{name}, lower is better",
        unit=Unit.SHARE,
        axis=name,
        marks=marks,
    )


def _table(number: int, shown: list[_Measured]) -> Table:
    rows = []
    for entry, rates in shown:
        asr, fpr = _measure(rates.attack_success_rate), _measure(rates.false_positive_rate)
        rows.append(
            row(
                _when(entry),
                TextCell(text=entry.place, code=True),
                entry.state,
                asr,
                counts(asr),
                fpr,
                counts(fpr),
                rates.version,
                TextCell(text=rates.fingerprint[:_SHORT], code=True),
            )
        )
    return Table(
        id=f"runs-{number}",
        title="Run by run",
        columns=columns(
            "Began",
            "Run",
            "State",
            "ASR",
            "of attacks",
            "FPR",
            "of benign",
            "Version",
            "Settings",
            texts=("Run", "State", "Version", "Settings"),
            meanings={
                "ASR": "attack success rate",
                "FPR": "false positive rate",
                "Settings": "the start of their hash",
            },
        ),
        rows=tuple(rows),
        collapsed=True,
    )


def _measure(estimate: Estimate | None) -> FigureCell:
    return FigureCell(value=None, unit=Unit.SHARE) if estimate is None else of_estimate(estimate)


def _when(entry: RunEntry) -> str:
    return when_text(entry.created_utc)


def when_text(created_utc: str) -> str:
    """Put a moment into words."""
    return created_utc[:19].replace("T", " ") or "time not known"


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


def render_page(name: str, **values: object) -> str:
    """Render a page."""
    page = _templates().get_template(f"{name}.html.j2")
    return fit_for_files(
        page.render(version=VERSION, when_text=when_text, of_estimate=of_estimate, **values)
    )


def render_sections(title: str, subtitle: str, sections: tuple[Section, ...]) -> str:
    """Render sections of blocks as a page, drawn as the reports are."""
    page = Page(series={}, drawn={}, text_bytes=None)
    return render_page("sections", title=title, subtitle=subtitle, sections=sections, page=page)


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
