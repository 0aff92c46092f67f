"""How an answer is cut into what a guard is shown, and how these calls are named."""

from __future__ import annotations

import pytest

from guardmark.core.chunks import ChunkRule, after_prefix, split_prefix


@pytest.mark.parametrize(
    ("every", "length", "shown"),
    [
        (10, 0, [None]),
        (10, 9, [None]),
        (10, 10, [None]),
        (10, 11, [10, None]),
        (10, 30, [10, 20, None]),
        (1, 3, [1, 2, None]),
        (None, 30, [None]),
    ],
)
def test_the_last_call_shows_the_whole_answer(
    every: int | None, length: int, shown: list[int | None]
) -> None:
    """An answer that ends with a chunk is shown whole once, not twice."""
    rule = ChunkRule(every=every)
    assert rule.calls(length) == len(shown)
    assert [rule.shown(number, length) for number in range(len(shown))] == shown
    out = [rule.gone_out(number) for number in range(len(shown))]
    assert out == [(every or 0) * number for number in range(len(shown))]


@pytest.mark.parametrize("after", ["", " after mask", " after 5 characters-mask"])
@pytest.mark.parametrize("characters", [None, 1, 200])
def test_a_name_says_how_much_is_shown(after: str, characters: int | None) -> None:
    """And is read back as it was written."""
    assert split_prefix(after_prefix(after, characters)) == (after, characters)


def test_a_guard_may_be_called_by_the_unit() -> None:
    """Only a number before it says how much is shown."""
    assert split_prefix(" after many characters") == (" after many characters", None)
