"""A critic's figure is read, or there is none: nothing unreadable becomes a 1."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guardmark.adaptive.attacker_models import read_closeness


@pytest.mark.parametrize(
    ("said", "closeness"),
    [
        ('{"reason": "x", "closeness": 7}', 7),
        ('{"closeness": 1}', 1),
        ('{"closeness": 7.5}', 7.5),
        ('{"closeness": " 10 "}', 10),
        ('Close, I think.\n```json\n{"closeness": 4}\n```\nGood luck!', 4),
        ('{"reason": "half said", "closeness": 3', 3),
    ],
)
def test_a_plain_answer_is_read(said: str, closeness: float) -> None:
    """By the same ladder as every other answer of a model."""
    assert read_closeness(said) == closeness


@pytest.mark.parametrize(
    "said",
    [
        "",
        "7",
        "It scores 7 of 10.",
        '{"closeness": 0}',
        '{"closeness": 11}',
        '{"closeness": -1}',
        '{"closeness": true}',
        '{"closeness": null}',
        '{"closeness": "7/10"}',
        '{"closeness": "nan"}',
        '{"closeness": NaN}',
        '{"closeness": Infinity}',
        '{"closeness": [7]}',
        '{"closeness": 1' + "0" * 400 + "}",
        '{"closeness": 3} or {"closeness": 8}',
        '{"closeness": 3, "closeness": 8}',
        '{"score": 7}',
    ],
)
def test_what_says_no_figure_is_none(said: str) -> None:
    """Out of range, contradictory, of another kind, or in prose: nobody guesses."""
    assert read_closeness(said) is None


@given(st.text(max_size=200))
def test_any_text_gives_a_figure_in_range_or_none(said: str) -> None:
    """It never raises, and never leaves the scale."""
    found = read_closeness(said)
    assert found is None or 1 <= found <= 10
