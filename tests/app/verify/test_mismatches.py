"""What differs, in a list that ends."""

from __future__ import annotations

import pytest

from guardmark.app.verify.mismatches import MOST_LISTED, Mismatches, MismatchKind

WHAT = MismatchKind.REPORT


def test_a_list_of_mismatches_ends() -> None:
    """All are counted, the first are kept, and one is counted once."""
    found = Mismatches()
    for number in range(MOST_LISTED + 50):
        found.value(WHAT, "a.json", f"place {number}", stated=1, counted=2)
    found.value(WHAT, "a.json", "place 0", stated=1, counted=2)
    assert (found.total, len(found.listed)) == (MOST_LISTED + 50, MOST_LISTED)
    assert found.compared == MOST_LISTED + 51


def test_what_two_checks_find_at_one_place_is_one_difference() -> None:
    """The first of them names it; another value there, or another place, is another difference."""
    found = Mismatches()
    for kind, place, stated in (
        (MismatchKind.HEADLINE, "rate", 1),
        (MismatchKind.REPORT, "rate", 1),
        (MismatchKind.REPORT, "rate", 3),
        (MismatchKind.REPORT, "count", 1),
    ):
        found.value(kind, "summary.json", place, stated=stated, counted=2)
    assert (found.total, found.met) == (3, 4)
    assert [each.what for each in found.listed] == [
        MismatchKind.HEADLINE,
        *[MismatchKind.REPORT] * 2,
    ]


def test_numbers_agree_within_rounding_and_nothing_else_does() -> None:
    """A truth value is no number, and what is missing is not 0."""
    found = Mismatches()
    for stated, counted in ((1, 1.0), (0.1 + 0.2, 0.3), (1e-12, 0.0), (None, None)):
        found.value(WHAT, "f", "", stated=stated, counted=counted)
    assert found.total == 0
    for stated, counted in ((1, 1.00001), (True, 1), (None, 0.0), ("1", 1)):
        found.value(WHAT, "f", f"{stated} {counted}", stated=stated, counted=counted)
    assert found.total == 4


@pytest.mark.parametrize(
    ("stated", "counted", "is_same"),
    [
        (1_000_000.05, 1_000_000.0, True),
        (1_000_000.5, 1_000_000.0, False),
        (5e-10, 0.0, True),
        (5e-9, 0.0, False),
        (-0.25, 0.25, False),
    ],
)
def test_rounding_is_one_part_in_ten_million(
    stated: float, counted: float, *, is_same: bool
) -> None:
    """Of the larger number; of a billionth where one of them is 0."""
    found = Mismatches()
    found.value(WHAT, "f", "place", stated=stated, counted=counted)
    assert (found.total == 0) is is_same


def test_a_value_is_shown_in_eighty_characters() -> None:
    """A longer one ends in dots; what is missing is called nothing."""
    found = Mismatches()
    found.value(WHAT, "f", "long", stated="a" * 200, counted="b" * 78)
    found.value(WHAT, "f", "deep", stated={"a": {"b": {"c": {"d": 1}}}}, counted=None)
    long, deep = found.listed
    assert len(long.stated) == 80
    assert "..." in long.stated
    assert long.counted == repr("b" * 78)
    assert (deep.stated, deep.counted) == ("{'a': {'b': {'c': {...}}}}", "nothing")


@pytest.mark.parametrize(
    ("what", "line"),
    [
        (MismatchKind.FILE, "f: p: 1; 2"),
        (MismatchKind.RECORDS, "f: p: 1; 2"),
        (MismatchKind.SEAL, "f: p: 1; 2"),
        (MismatchKind.SIGNATURE, "f: p: 1; 2"),
        (MismatchKind.EXPECTED_HEAD, "f: p: says 1; expected was 2"),
        (MismatchKind.HEADLINE, "f: p: says 1; the records give 2"),
        (MismatchKind.REPORT, "f: p: says 1; the records give 2"),
        (MismatchKind.DESCRIPTION, "f: p: says 1; the records give 2"),
        (MismatchKind.DATA, "f: p: says 1; the data file has 2"),
    ],
)
def test_each_kind_names_what_it_was_compared_with(what: MismatchKind, line: str) -> None:
    """A file in words of its own, figures with who gives the other one."""
    found = Mismatches()
    found.differ(what, "f", "p", stated="1", counted="2")
    assert [*map(str, found.listed)] == [line]


def test_a_place_in_a_tree_is_named() -> None:
    """By keys, by the names of entries, and by what only one side has."""
    found = Mismatches()
    stated = {"defenses": [{"name": "words", "rate": 0.5, "more": 1}], "left": [1, 2]}
    counted = {"defenses": [{"name": "words", "rate": 0.25}], "left": [1]}
    found.tree(WHAT, "summary.json", "", stated=stated, counted=counted)
    assert [*map(str, found.listed)] == [
        "summary.json: defenses[words].rate: says 0.5; the records give 0.25",
        "summary.json: defenses[words].more: says 1; the records give nothing",
        "summary.json: left (entries): says 2; the records give 1",
    ]
