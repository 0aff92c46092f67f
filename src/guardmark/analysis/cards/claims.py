"""What others say of a guard, with its source: claims of its maker, and published results."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guardmark.analysis.cards.figures import CardFigure


CLAIMED: Final = {
    "attack_success_rate": "share of attacks let through",
    "true_positive_rate": "share of attacks blocked (recall, detection rate)",
    "false_positive_rate": "share of benign inputs blocked",
    "precision": "share of blocked inputs that are attacks",
    "f1": "F1",
    "latency_p50_ms": "median latency in milliseconds",
    "latency_p95_ms": "95th percentile of latency in milliseconds",
}
"""Figures that can be claimed, and what each is."""


class Standing(StrEnum):
    """How a claim stands beside what was measured."""

    WITHIN = "within the interval"
    ABOVE = "above the interval"
    BELOW = "below the interval"
    NOT_MEASURED = "not measured here"


@dataclass(frozen=True, slots=True, kw_only=True)
class MakerClaim:
    """A figure that a maker published.

    Attributes:
        figure: Which one: a key of `CLAIMED`.
        value: The claimed value; shares in [0, 1], times in milliseconds.
        source: Where it was said: a title or an address. Never empty.
        date: When, as YYYY-MM-DD; empty where the source has no date.
        data: The data that the maker measured on, in the maker's words; empty where not said.
        standing: How it stands beside the figure of this card.
    """

    figure: str
    value: float
    source: str
    date: str = ""
    data: str = ""
    standing: Standing = Standing.NOT_MEASURED


def standing_of(value: float, figure: CardFigure | None) -> Standing:
    """Tell on which side of a measured interval a claimed value lies."""
    if figure is None or figure.low is None or figure.high is None:
        return Standing.NOT_MEASURED
    if value > figure.high:
        return Standing.ABOVE
    if value < figure.low:
        return Standing.BELOW
    return Standing.WITHIN


def stand_beside(claim: MakerClaim, figures: Mapping[str, CardFigure]) -> MakerClaim:
    """Return a claim with its standing beside the figures of a card."""
    return MakerClaim(
        figure=claim.figure,
        value=claim.value,
        source=claim.source,
        date=claim.date,
        data=claim.data,
        standing=standing_of(claim.value, figures.get(claim.figure)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedCohort:
    """The terms on which a published result was obtained, as far as its source states them.

    Attributes:
        dataset: Name of the data.
        dataset_revision: Its revision, or empty.
        split: Part of the data, or empty.
        label_mapping: What counted as positive, or empty.
        metric: Which figure.
        metric_impl: What computed it, or empty.
        threshold_policy: How decisions followed from scores, or empty.
        harness: What ran it, or empty.
        aggregation: Over what it was averaged, or empty.
    """

    dataset: str
    metric: str
    dataset_revision: str = ""
    split: str = ""
    label_mapping: str = ""
    metric_impl: str = ""
    threshold_policy: str = ""
    harness: str = ""
    aggregation: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedResult:
    """One published figure of a guard.

    Attributes:
        guard: Name of the guard.
        value: The figure, as published.
        source: Where: an address, a title, or the harness that the source names. Never empty.
        cohort: On what terms.
        category: What kind of harm it was measured on, or empty.
        is_contaminated: Whether its source says that the guard was trained on the data; None where
            it says nothing.
        notes: What its source adds, or empty.
    """

    guard: str
    value: float
    source: str
    cohort: PublishedCohort
    category: str = ""
    is_contaminated: bool | None = None
    notes: str = ""
