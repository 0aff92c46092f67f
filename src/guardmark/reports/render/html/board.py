"""The index page of a board: a table for each cohort, tiers where the data tell guards apart."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

from guardmark.analysis.cards.ranking import RANKED
from guardmark.analysis.pipeline.frame import SYSTEM
from guardmark.core.values import dataclass
from guardmark.reports.chapters.card import cell_of
from guardmark.reports.document.blocks import IntervalChart, IntervalMark
from guardmark.reports.document.safe_text import plain_line
from guardmark.reports.document.wording import counts_text, measure_text
from guardmark.reports.figures.interval import plot_intervals
from guardmark.reports.figures.svg import fit_for_files
from guardmark.reports.render.html.environment import page_environment
from guardmark.reports.render.html.page import page_style

if TYPE_CHECKING:
    from guardmark.analysis.cards.card import Card
    from guardmark.analysis.cards.claims import PublishedCohort, PublishedResult
    from guardmark.analysis.cards.ranking import Ranked
    from guardmark.reports.figures.interval import IntervalPlot

_MOST_DRAWN: Final = 40
_TITLES: Final = {
    "attack_success_rate": "Attacks let through",
    "false_positive_rate": "Benign inputs blocked",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardEntry:
    """A card on a board.

    Attributes:
        ranked: The card and its tiers.
        link: Address of its page, below that of the board.
        others: How many other cards of the same guard stand in the same cohort.
    """

    ranked: Ranked
    link: str
    others: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CohortTable:
    """The cards of one cohort.

    Attributes:
        key: Its key.
        ranked: Its cards, best tier first.
        differs: Terms in which it differs from the first cohort of the board.
    """

    key: str
    ranked: tuple[BoardEntry, ...]
    differs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardPage:
    """All that stands on the index page.

    Attributes:
        tables: A table for each cohort, the one with the most cards first.
        published: What others published.
        left_out: Cards that contradict themselves: name of the file and the first reason.
    """

    tables: tuple[CohortTable, ...]
    published: tuple[PublishedResult, ...]
    left_out: tuple[tuple[str, str], ...]


def render_board(page: BoardPage) -> str:
    """Render the index page of a board: nothing is loaded from elsewhere, no script is needed."""
    template = page_environment().get_template("board.html.j2")
    style, style_hash = page_style()
    html = template.render(
        board=page,
        style=style,
        style_hash=style_hash,
        charts=[_charts(table) for table in page.tables],
        claimed=_claimed(page.published),
        figure_text=_figure_text,
        counts=_counts,
        plain=plain_line,
        data_names=_data_names,
    )
    return fit_for_files(html)


def _data_names(table: CohortTable) -> str:
    """Name what the cards of a cohort were measured on."""
    first = table.ranked[0].ranked.card
    names = dict.fromkeys(f"{each.name} {each.version}".strip() for each in first.data)
    words = f"On {', '.join(names)}"
    if first.subject.kind == SYSTEM:
        words += ", whole systems"
    return plain_line(words)


def _figure_text(card: Card, name: str) -> str:
    return measure_text(cell_of(card.figure(name)))


def _counts(card: Card, name: str) -> str:
    return counts_text(cell_of(card.figure(name)))


def _charts(table: CohortTable) -> list[tuple[IntervalChart, IntervalPlot]]:
    """Draw each ranked rate of a cohort, the first entries of its table."""
    charts = []
    for name in RANKED:
        marks = []
        for entry in table.ranked[:_MOST_DRAWN]:
            card = entry.ranked.card
            mark = IntervalMark(label=card.subject.name, measure=cell_of(card.figure(name)))
            marks.append(mark)
        chart = IntervalChart(
            id=f"{name}-{table.key}",
            title=f"{_TITLES[name]}, lower is better",
            axis="Share",
            marks=tuple(marks),
        )
        charts.append((chart, plot_intervals(chart, {})))
    return charts


def _claimed(
    published: tuple[PublishedResult, ...],
) -> list[tuple[PublishedCohort, list[PublishedResult]]]:
    """Group published results by the terms they were obtained on: only these may be compared."""

    def terms(result: PublishedResult) -> tuple[str, ...]:
        cohort = result.cohort
        return (
            cohort.dataset,
            cohort.metric,
            cohort.dataset_revision,
            cohort.split,
            cohort.label_mapping,
            cohort.metric_impl,
            cohort.threshold_policy,
            cohort.harness,
            cohort.aggregation,
        )

    ordered = sorted(published, key=lambda each: (terms(each), each.guard))
    groups = []
    for _, same_terms in groupby(ordered, key=terms):
        results = list(same_terms)
        groups.append((results[0].cohort, results))
    return groups
