"""What differs, in a list that ends."""

from __future__ import annotations

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


def test_numbers_agree_within_rounding_and_nothing_else_does() -> None:
    """A truth value is no number, and what is missing is not 0."""
    found = Mismatches()
    for stated, counted in ((1, 1.0), (0.1 + 0.2, 0.3), (1e-12, 0.0), (None, None)):
        found.value(WHAT, "f", "", stated=stated, counted=counted)
    assert found.total == 0
    for stated, counted in ((1, 1.00001), (True, 1), (None, 0.0), ("1", 1)):
        found.value(WHAT, "f", f"{stated} {counted}", stated=stated, counted=counted)
    assert found.total == 4


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
