"""Batches by length: everything once, within the budget, little padding."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from guardmark.inference.batching import token_batches

LENGTHS = st.lists(st.integers(0, 600), max_size=80)


@given(LENGTHS, st.integers(1, 2048), st.integers(1, 40))
def test_every_text_is_in_one_batch_within_the_budget(
    lengths: list[int], budget: int, most: int
) -> None:
    """Only a text that is too long by itself may exceed it, alone."""
    batches = token_batches(lengths, budget=budget, most=most)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) <= most
        longest = max(lengths[index] for index in batch)
        assert len(batch) == 1 or len(batch) * longest <= budget


@given(LENGTHS)
def test_no_batch_holds_a_text_longer_than_the_batch_before(lengths: list[int]) -> None:
    """Sorted: neighbours are alike."""
    batches = token_batches(lengths, budget=2048)
    flat = [lengths[index] for batch in batches for index in batch]
    assert flat == sorted(lengths, reverse=True)


@given(LENGTHS, st.integers(1, 4096))
def test_at_most_a_fifth_of_a_batch_is_padding(lengths: list[int], budget: int) -> None:
    """Whatever the lengths."""
    for batch in token_batches(lengths, budget=budget):
        longest = max(lengths[index] for index in batch)
        assert all(lengths[index] >= 0.8 * longest for index in batch)


def test_mixed_lengths_waste_little() -> None:
    """In the order of their coming these would cost twice as much."""
    lengths = [8, 400] * 32
    padded = sum(len(b) * max(lengths[i] for i in b) for b in token_batches(lengths, budget=2048))
    assert padded == sum(lengths)
