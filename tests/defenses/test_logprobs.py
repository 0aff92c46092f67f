"""Scores from token probabilities, with labels split, missing and unlikely."""

from __future__ import annotations

from dataclasses import dataclass
from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guardmark.defenses.guard_profile import ibm_sum, two_token_softmax


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A position as any transport may describe it."""

    token: str
    alternatives: tuple[tuple[str, float], ...]


def _choice(token: str, **top: float) -> Choice:
    return Choice(
        token=token,
        alternatives=tuple(sorted(((t, log(p)) for t, p in top.items()), key=lambda x: -x[1])),
    )


def _top(token: str, *pairs: tuple[str, float]) -> Choice:
    return Choice(token=token, alternatives=tuple((t, log(p)) for t, p in pairs))


def _weighed(top: list[tuple[str, float]]) -> Choice:
    word = "Yes"
    return Choice(token=word, alternatives=tuple(top))


def test_the_score_is_the_share_of_the_risky_label() -> None:
    """Other tokens do not count, but are seen in the label mass."""
    found = two_token_softmax(
        [_choice("Yes", Yes=0.6, No=0.2, Maybe=0.2)], risky="yes", harmless="no"
    )
    assert found is not None
    assert found.score == pytest.approx(0.75)
    assert found.label_mass == pytest.approx(0.8)
    assert not found.is_bound


def test_spellings_of_a_label_are_summed() -> None:
    """`Yes`, ` Yes` and a tokenizer's mark for the blank."""
    choice = _top("Yes", ("Yes", 0.4), (" Yes", 0.2), ("\u0120yes", 0.1), ("No", 0.3))
    found = two_token_softmax([choice], risky="yes", harmless="no")
    assert found is not None
    assert found.score == pytest.approx(0.7)


def test_tokens_without_a_letter_come_before_the_decision() -> None:
    """A leading line break, or emphasis."""
    first = _top("\n\n", ("\n\n", 0.9), ("Yes", 0.1))
    second = _top("No", ("No", 0.9), ("Yes", 0.1))
    found = two_token_softmax([first, second], risky="yes", harmless="no")
    assert found is not None
    assert found.score == pytest.approx(0.1)


def test_a_split_label_counts_by_its_first_piece() -> None:
    """`uns` + `afe`, against `safe` in one."""
    choice = _top("uns", ("uns", 0.8), ("safe", 0.1), ("s", 0.05), ("u", 0.05))
    found = two_token_softmax([choice], risky="unsafe", harmless="safe")
    assert found is not None
    assert found.score == pytest.approx(0.8 / 0.9)


def test_a_label_out_of_sight_is_a_bound_not_zero() -> None:
    """It may have as much as the least likely token shown, or what is left."""
    found = two_token_softmax([_top("No", ("No", 0.9), ("x", 0.08))], risky="yes", harmless="no")
    assert found is not None
    assert found.is_bound
    assert found.score == pytest.approx(0.02 / 0.92)
    assert found.label_mass == pytest.approx(0.9)


def test_without_any_label_there_is_no_score() -> None:
    """A score is never invented."""
    assert two_token_softmax([_choice("Well", Well=1.0)], risky="yes", harmless="no") is None
    assert two_token_softmax([_choice("\n")], risky="yes", harmless="no") is None
    assert two_token_softmax([], risky="yes", harmless="no") is None
    assert ibm_sum([_choice("Well", Well=1.0)], risky="yes", harmless="no") is None


def test_ibm_adds_over_positions_and_differs_when_a_tag_follows() -> None:
    """As the published notebooks do; named, never the default."""
    choices = [_choice("Yes", Yes=0.9, No=0.1), _choice("High", High=0.5, No=0.5)]
    ibm = ibm_sum(choices, risky="yes", harmless="no")
    ours = two_token_softmax(choices, risky="yes", harmless="no")
    assert ibm is not None
    assert ours is not None
    assert ibm.score == pytest.approx(0.9 / 1.5)
    assert ours.score == pytest.approx(0.9)


@given(
    st.lists(
        st.tuples(st.sampled_from(["Yes", "No", " yes", "x", "\n"]), st.floats(allow_nan=True)),
        max_size=6,
    )
)
def test_whatever_a_server_sends_the_score_stays_in_the_unit_interval(
    top: list[tuple[str, float]],
) -> None:
    """Infinite, positive and missing logarithms included."""
    choices = [_weighed(top)]
    for found in (
        two_token_softmax(choices, risky="yes", harmless="no"),
        ibm_sum(choices, risky="yes", harmless="no"),
    ):
        assert found is None or 0 <= found.score <= 1
        assert found is None or found.label_mass is None or 0 <= found.label_mass <= 1


def test_the_two_labels_of_a_split_are_told_apart() -> None:
    """A piece that begins both labels says nothing."""
    assert two_token_softmax([_top("al", ("al", 1.0))], risky="allowed", harmless="allow") is None


def test_a_token_that_ends_the_field_is_not_the_label() -> None:
    """Its own letters stand before the colon; those behind it decide."""
    ahead, label = _top('{"User Safety": "', ("x", 1.0)), _top("unsafe", ("unsafe", 0.9))
    after = r'"User Safety"\s*:'
    found = two_token_softmax([ahead, label], risky="unsafe", harmless="safe", after=after)
    assert found is not None
    assert found.label_mass == pytest.approx(0.9)
    whole = _top('"User Safety": "unsafe', ("unsafe", 0.7), ("safe", 0.3))
    found = two_token_softmax([whole], risky="unsafe", harmless="safe", after=after)
    assert found is not None
    assert found.score == pytest.approx(0.7)
