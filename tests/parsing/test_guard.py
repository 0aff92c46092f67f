"""The contracts of guards: what is understood, and that nothing is guessed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guardmark.parsing.guard import read_allow_block, read_safe_unsafe, read_yes_no


@pytest.mark.parametrize(
    "text",
    [
        "ALLOW",
        "allow",
        "Allow.",
        "ALLOW: ok",
        "**ALLOW**",
        "ALLOW\nThe question is about history.",
        "  \n ALLOW\n",
        "**ALLOW**: fine",
        "`allow`",
        "ALLOW - harmless",
        "<think>should I BLOCK? no</think>\nALLOW",
    ],
)
def test_allow_is_understood(text: str) -> None:
    """Each a row of the table, or near it."""
    assert read_allow_block(text).outcome == "allow"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("BLOCK", ""),
        ("**BLOCK**", ""),
        ("BLOCK: reason", "reason"),
        ("BLOCK\nfoo: bar", "foo: bar"),
        ("BLOCK - reason", "reason"),
        ("block.", ""),
        ("BLOCK: a: b: c", "a: b: c"),
        ("BLOCK: the policy does not allow this", "the policy does not allow this"),
        ("**BLOCK:** rude", "rude"),
        ("BLOCK (violence)", "(violence)"),
        ("BLOCK:", ""),
        ("BLOCK:reason", "reason"),
    ],
)
def test_block_is_understood_with_the_whole_reason(text: str, reason: str) -> None:
    """A reason is not split at a later colon."""
    reading = read_allow_block(text)
    assert (reading.outcome, reading.reason) == ("block", reason)


@pytest.mark.parametrize(
    "text",
    [
        "Blockchain is fine",
        "BLOCKED by",
        "SAFE",
        "ALLOW BLOCK",
        "ALLOW or BLOCK",
        "ALLOW\nBLOCK",
        "BLOCK\nALLOW",
        "ALLOW: do not block this",
        "",
        "   \n\t",
        "I think that the question is harmless.",
        "Allow me to explain",
        "The answer is BLOCK",
        "block-level elements are fine",
        "Allow.com is a site",
        "ALLOWED",
        "<think>ALLOW",
        "Yes",
        "\u0411LOCK",
    ],
)
def test_everything_else_is_malformed(text: str) -> None:
    """Never a silent block, never a silent allow."""
    assert read_allow_block(text).outcome == "malformed"


@pytest.mark.parametrize(
    ("text", "outcome", "confidence"),
    [
        ("Yes", "block", ""),
        ("No", "allow", ""),
        ("Yes\n<confidence> High </confidence>", "block", "High"),
        ("No <confidence>Low</confidence>", "allow", "Low"),
        ("\n\nyes", "block", ""),
        ("NO.", "allow", ""),
        ("**Yes**", "block", ""),
        ("Yes, it asks for harm.", "block", ""),
        ("No problem", "malformed", ""),
        ("Yes and no", "malformed", ""),
        ("Yes. No.", "malformed", ""),
        ("Yes/No", "malformed", ""),
        ("Maybe", "malformed", ""),
        ("Nope", "malformed", ""),
        ("<confidence> High </confidence>", "malformed", ""),
        ("<think>yes", "malformed", ""),
        ("Ja", "malformed", ""),
        ("ALLOW", "malformed", ""),
        ("", "malformed", ""),
    ],
)
def test_yes_and_no_with_or_without_the_confidence_tag(
    text: str, outcome: str, confidence: str
) -> None:
    """A missing tag is no reason to stop; a foreign answer is malformed."""
    reading = read_yes_no(text)
    assert (reading.outcome, reading.confidence) == (outcome, confidence)


def test_the_risky_word_may_be_no() -> None:
    """For questions such as: may the assistant answer this?"""
    assert read_yes_no("No", risky="no").outcome == "block"
    assert read_yes_no("Yes", risky="no").outcome == "allow"


@pytest.mark.parametrize(
    ("text", "outcome", "categories"),
    [
        ("safe", "allow", ()),
        ("\n\nsafe", "allow", ()),
        ("unsafe\nS1,S10", "block", ("S1", "S10")),
        ("Unsafe\nO3", "block", ("O3",)),
        ("unsafe", "block", ()),
        ("**unsafe**", "block", ()),
        ("Safe.", "allow", ()),
        ("safe\nS1", "malformed", ()),
        ("safe\nor unsafe", "malformed", ()),
        ("safe to say it is fine", "malformed", ()),
        ("unsafely put", "malformed", ()),
        ("safety first", "malformed", ()),
        ("not safe", "malformed", ()),
        ("", "malformed", ()),
    ],
)
def test_safe_and_unsafe_with_codes(text: str, outcome: str, categories: tuple[str, ...]) -> None:
    """The first line decides, and nothing may contradict it."""
    reading = read_safe_unsafe(text)
    assert (reading.outcome, reading.categories) == (outcome, categories)


@pytest.mark.slow
@given(st.text())
def test_no_text_makes_a_reader_raise_or_answer_with_an_error(text: str) -> None:
    """A text is an answer; an error is a missing one."""
    for read in (read_allow_block, read_yes_no, read_safe_unsafe):
        assert read(text).outcome in {"allow", "block", "malformed"}


@given(st.text(st.characters(categories=["L"]), min_size=1), st.sampled_from(["ALLOW", "BLOCK"]))
def test_a_longer_word_is_never_the_label(tail: str, label: str) -> None:
    """Whatever letters follow."""
    assert read_allow_block(label + tail).outcome == "malformed"
