"""Many words in little memory are a sequence like any other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guardmark.store.columns import PackedStrings

WORDS = st.lists(st.text(st.characters(exclude_categories=[])), max_size=8)


@given(WORDS, WORDS)
def test_words_come_back_as_they_were_put_in(first: list[str], more: list[str]) -> None:
    """Also empty ones, and halves of surrogate pairs."""
    words = PackedStrings(first)
    words.extend(more)
    assert list(words) == first + more
    assert [words[at] for at in range(len(words))] == first + more


@given(WORDS, st.integers(-9, 9), st.integers(-9, 9))
def test_places_count_as_in_a_list(said: list[str], start: int, stop: int) -> None:
    """From the end as well, and in slices."""
    words = PackedStrings(said)
    assert words[start:stop] == said[start:stop]
    assert [words[-1 - at] for at in range(len(said))] == said[::-1]


@pytest.mark.parametrize("at", [2, -3])
def test_no_word_is_made_up(at: int) -> None:
    """A place beyond the last is refused."""
    with pytest.raises(IndexError):
        PackedStrings(["a", "b"])[at]
