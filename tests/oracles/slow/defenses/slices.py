"""The slices of a run, sorted a second time from its samples."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.oracles.slow.defenses.columns import Samples
    from tests.oracles.slow.defenses.recount import Recount

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
_EDGES: Final = [most for most, _ in _LENGTHS]

Slice = tuple[str, int]
"""Name of a slice, and how many rare values it holds together."""
Sorted = dict[Slice, "array[int]"]


def sort_rows(found: Recount) -> Iterator[tuple[str, str, Sorted]]:
    """Sort the decisions of one defense into the slices of every facet."""
    samples, places = found.samples, found.decisions.places
    for facet in _FACETS:
        values = _values(samples, facet)
        for label, rows in zip(("attack", "benign"), found.sides(), strict=True):
            named = _names(samples, facet, label)
            slices: Sorted = {}
            for row in rows:
                name = named[values[places[row]]]
                if name not in slices:
                    slices[name] = array("i")
                slices[name].append(row)
            yield facet, label, dict(sorted(slices.items(), key=lambda pair: pair[0][1]))


def _values(samples: Samples, facet: str) -> Sequence[int]:
    """What stands for the value of every sample: its length's step, or its kind."""
    if facet != "length":
        return samples.kinds
    return bytes(bisect_left(_EDGES, length) for length in samples.lengths)


def _names(samples: Samples, facet: str, label: str) -> dict[int, Slice]:
    """Return the slice of every value that samples of a label have."""
    if facet == "length":
        return {step: (name, 0) for step, (_, name) in enumerate(_LENGTHS)}
    counts, is_attack = Counter[str](), label == "attack"
    words = {
        number: _word(kind.facets, facet)
        for number, kind in samples.of_kind.items()
        if kind.is_attack == is_attack
    }
    for number, count in Counter(samples.kinds).items():
        if number in words:
            counts[words[number]] += count
    rare = {value for value, count in counts.items() if count < _RARE_BELOW} - {_ABSENT}
    if len(rare) < 2 or facet not in _OPEN[label]:
        rare = set()
    together = (f"other ({len(rare):,} values with fewer than {_RARE_BELOW} samples)", len(rare))
    return {n: together if value in rare else (value, 0) for n, value in words.items()}


def _word(facets: Mapping[str, str], facet: str) -> str:
    value = facets[facet]
    if facet == "subcategory" and value:
        value = f"{facets['category']}/{value}"
    return value or _ABSENT
