"""The slices of a run, sorted a second time from its samples."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from guardmark.app.verify.source import Answer, Source, Subject

Json = dict[str, Any]

_FACETS: Final = (
    "category",
    "subcategory",
    "severity",
    "language",
    "length",
    "variant",
    "technique",
    "source",
)
_OPEN: Final = {
    "attack": {"technique", "source"},
    "benign": {"technique", "source", "category", "subcategory"},
}
_RARE_BELOW: Final = 5
_ABSENT: Final = "(not stated)"
_LENGTHS: Final = (
    (100, "up to 100 characters"),
    (300, "101 to 300"),
    (1_000, "301 to 1,000"),
    (3_000, "1,001 to 3,000"),
    (math.inf, "over 3,000"),
)

Slice = tuple[str, int]
"""Name of a slice, and how many rare values it holds together."""
Sorted = dict[Slice, list["Answer"]]


def sort_answers(
    source: Source, sides: Sequence[Sequence[Answer]]
) -> list[tuple[str, str, Sorted]]:
    """Sort the answers of one defense into the slices of every facet.

    Args:
        source: All that the run stored; its samples decide which values are rare.
        sides: Answers to attacks, then those to benign samples.

    Returns:
        Facet, label, and the answers of each slice; rare values together come last.
    """
    found = []
    for facet in _FACETS:
        for label, answers in zip(("attack", "benign"), sides, strict=True):
            name = _namer(source, facet, label)
            slices: Sorted = {}
            for answer in answers:
                slices.setdefault(name(answer.subject), []).append(answer)
            ordered = dict(sorted(slices.items(), key=lambda pair: pair[0][1]))
            found.append((facet, label, ordered))
    return found


def _namer(source: Source, facet: str, label: str) -> Callable[[Subject], Slice]:
    values = Counter(
        _value(subject, facet)
        for subject in source.subjects
        if subject.is_attack == (label == "attack")
    )
    rare = {value for value, count in values.items() if count < _RARE_BELOW} - {_ABSENT}
    if len(rare) < 2 or facet not in _OPEN[label]:
        return lambda subject: (_value(subject, facet), 0)
    together = (f"other ({len(rare):,} values with fewer than {_RARE_BELOW} samples)", len(rare))

    def named(subject: Subject) -> Slice:
        value = _value(subject, facet)
        return together if value in rare else (value, 0)

    return named


def _value(subject: Subject, facet: str) -> str:
    if facet == "length":
        return next(name for most, name in _LENGTHS if subject.length <= most)
    value = subject.facets[facet]
    if facet == "subcategory" and value:
        value = f"{subject.facets['category']}/{value}"
    return value or _ABSENT
