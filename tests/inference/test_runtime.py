"""Batches by length: everything once, within the budget, at the least cost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guardmark.inference.runtime import CALL, as_memory_allows, token_batches

LENGTHS = st.lists(st.integers(0, 600), max_size=80)
FEW = st.lists(st.integers(0, 200), min_size=1, max_size=9)


def _cost(batches: list[list[int]], lengths: list[int], *, call: int = CALL) -> int:
    return sum(call + len(batch) * max(lengths[index] for index in batch) for batch in batches)


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


@given(FEW, st.integers(1, 600), st.integers(1, 4), st.integers(0, 300))
def test_no_other_cut_of_the_sorted_texts_is_cheaper(
    lengths: list[int], budget: int, most: int, call: int
) -> None:
    """Against all two to the power of eight of them."""
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    costs = []
    for cuts in range(2 ** (len(order) - 1)):
        ways: list[list[int]] = [[order[0]]]
        for place, index in enumerate(order[1:]):
            if cuts >> place & 1:
                ways.append([index])
            else:
                ways[-1].append(index)
        if all(len(w) == 1 or len(w) * lengths[w[0]] <= budget for w in ways) and all(
            len(w) <= most for w in ways
        ):
            costs.append(_cost(ways, lengths, call=call))
    found = token_batches(lengths, budget=budget, most=most, call=call)
    assert _cost(found, lengths, call=call) == min(costs)


@given(LENGTHS, st.integers(1, 4096))
def test_batches_never_cost_more_than_one_by_one(lengths: list[int], budget: int) -> None:
    """Whatever the lengths."""
    alone = [[index] for index in range(len(lengths))]
    assert _cost(token_batches(lengths, budget=budget), lengths) <= _cost(alone, lengths)


def test_mixed_lengths_waste_little() -> None:
    """In the order of their coming these would cost twice as much."""
    lengths = [8, 400] * 32
    padded = sum(len(b) * max(lengths[i] for i in b) for b in token_batches(lengths, budget=2048))
    assert padded == sum(lengths)


def test_dear_calls_make_large_batches_and_cheap_ones_small() -> None:
    """A model that writes makes many passes a batch, so padding matters less to it."""
    lengths = list(range(10, 42))
    cheap, dear = (token_batches(lengths, budget=9_999, call=call) for call in (1, 5_000))
    assert len(cheap) > 10
    assert len(dear) == 1


def test_a_batch_that_memory_does_not_hold_is_halved_until_it_does() -> None:
    """Everything once and in order; and from then on it is said."""

    def work(batch: list[int]) -> int:
        if len(batch) > 3:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate")
        return len(batch)

    done = list(as_memory_allows([[0, 1], [2, 3, 4, 5, 6], [7]], work))
    assert [index for batch, _, _ in done for index in batch] == list(range(8))
    assert [made for _, made, _ in done] == [2, 2, 3, 1]
    assert [is_halved for _, _, is_halved in done] == [False, True, True, True]


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("CUDA out of memory"), ValueError()])
def test_what_cannot_be_halved_is_raised(error: Exception) -> None:
    """A single text that does not fit, and every other fault."""

    def work(batch: list[int]) -> int:
        raise error

    batches = [[0, 1]] if isinstance(error, ValueError) else [[0]]
    with pytest.raises(type(error)):
        list(as_memory_allows(batches, work))
