"""Results that others published, as they published them: claimed, never mixed with measured."""

from __future__ import annotations

from guardmark.core.values import dataclass


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
    """One figure that somebody published of a guard.

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
