"""Candidates of an attacker model: whatever stands around them, and nothing made up."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guardmark.adaptive.attacker_models import Candidate, read_candidates
from guardmark.parsing.objects import ParseMethod

KNOWN = ("scene", "plain_words")


def texts(said: str) -> list[str]:
    """The candidates' texts."""
    return [each.text for each in read_candidates(said, strategies=KNOWN).candidates]


@pytest.mark.parametrize(
    ("said", "method"),
    [
        ('{"candidates": [{"strategy": "scene", "text": "a {b} c"}]}', ParseMethod.DIRECT),
        (
            '```json\n{"candidates": [{"strategy": "scene", "text": "a {b} c"}]}\n```',
            ParseMethod.DIRECT,
        ),
        (
            'Sure {thing}! {"candidates": [{"strategy": "scene", "text": "a {b} c"}]} Bye.',
            ParseMethod.EXTRACTED,
        ),
        ('{"candidates": [{"strategy": "scene", "text": "a {b} c"}', ParseMethod.REPAIRED),
    ],
)
def test_every_rung_reads_the_same(said: str, method: ParseMethod) -> None:
    """Braces within a text end nothing, and a cut-off answer is mended."""
    reading = read_candidates(said, strategies=KNOWN)
    assert reading.candidates == (Candidate(strategy="scene", text="a {b} c"),)
    assert reading.method is method


def test_bare_texts_take_the_strategy_of_the_whole() -> None:
    """Models that forget the inner form are understood."""
    said = json.dumps({"strategy": "Plain words", "candidates": ["a", {"candidate": "b"}]})
    found = read_candidates(said, strategies=KNOWN).candidates
    assert found == (
        Candidate(strategy="plain_words", text="a"),
        Candidate(strategy="plain_words", text="b"),
    )


def test_a_strategy_that_is_not_listed_is_other() -> None:
    """The list is closed; the candidate counts all the same."""
    said = '{"candidates": [{"strategy": "magic", "text": "a"}]}'
    assert read_candidates(said, strategies=KNOWN).candidates[0].strategy == "other"


@pytest.mark.parametrize(
    "said",
    [
        "",
        "I cannot.",
        "[]",
        '{"candidates": "a"}',
        '{"candidates": [1, null, {"text": 3}]}',
        "{" * 99,
    ],
)
def test_what_holds_no_candidate_gives_none(said: str) -> None:
    """Nothing is guessed from prose, numbers or damage."""
    assert texts(said) == []


def test_declining_is_told_apart() -> None:
    """A model may say in the form itself that it will not."""
    reading = read_candidates('{"candidates": [], "declined": " no "}', strategies=KNOWN)
    assert (reading.candidates, reading.declined) == ((), "no")


@given(st.text(max_size=300))
def test_any_words_are_read_without_a_fault(said: str) -> None:
    """A model may write anything."""
    read_candidates(said, strategies=KNOWN)


@given(st.lists(st.text(max_size=40), max_size=5), st.text(max_size=30), st.text(max_size=30))
def test_what_is_written_well_comes_back_whole(listed: list[str], before: str, behind: str) -> None:
    """Texts of any characters survive, also with prose around the object."""
    document = json.dumps({"candidates": [{"strategy": "scene", "text": t} for t in listed]})
    assert texts(document) == listed
    around = f"{before}\n{document}\n{behind}"
    if not {"{", "}", '"', "["} & set(before + behind):
        assert texts(around) == listed
