"""The first number from which on something is so, found from a guess."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from guardmark.stats.quantiles import first_where


@given(
    start=st.integers(-50, 50),
    size=st.integers(0, 300),
    first=st.integers(-60, 400),
    near=st.integers(-1000, 1000),
)
def test_it_is_what_a_look_at_every_number_finds(
    start: int, size: int, first: int, near: int
) -> None:
    """Wherever the search begins, and also where it is so of all numbers or of none."""
    numbers = range(start, start + size)
    asked = []

    def is_so(number: int) -> bool:
        asked.append(number)
        return number >= first

    found = first_where(is_so, numbers, near=near)
    assert found == next((number for number in numbers if is_so(number)), numbers.stop)
    assert set(asked) <= set(numbers)


@given(first=st.integers(1, 1_000_000), off=st.integers(-200, 200))
def test_a_near_guess_asks_few(first: int, off: int) -> None:
    """Twice the logarithm of how far off the guess was, and two more."""
    asked = []

    def is_so(number: int) -> bool:
        asked.append(number)
        return number >= first

    assert first_where(is_so, range(1, 1_000_001), near=first + off) == first
    assert len(asked) <= 2 * max(1, abs(off)).bit_length() + 3
