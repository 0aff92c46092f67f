"""Fuzzing what turns a hostile answer into a decision: no quotation, no prefix, no waiting."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from guardmark.core.outcome import Outcome
from guardmark.parsing.guard import read_allow_block, read_safe_unsafe, read_yes_no
from guardmark.parsing.guard_fields import LabelWords, read_fields, read_tag
from guardmark.parsing.verdicts import read_verdict, verdict_key

pytestmark = pytest.mark.soak

WORDS = LabelWords(risky={"yes"}, harmless={"no"})
PIECES = (
    *(
        '{"label":"safe"}',
        '{"label":"unsafe"}',
        '"label"',
        "safe",
        "unsafe",
        "{",
        "}",
        '"',
        "'",
        ":",
        ",",
        "\n",
    ),
    *(
        " ",
        "<think>",
        "</think>",
        "<|channel|>final<|message|>",
        "<score>no</score>",
        "<score>yes</score>",
    ),
    *(
        "Yes",
        "No",
        "ALLOW",
        "BLOCK",
        "Harmful: no",
        "Harmful: yes",
        "```json\n",
        "```",
        "\\u006c",
        "verdict_",
        "x",
    ),
    *("x " * 15_000, "\n" * 25_000, "Harmful: no\n" + "y" * 21_000, "> ", "CALL {}"),
)
QUOTES = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)
THOROUGH = settings(
    max_examples=20_000, deadline=None, suppress_health_check=list(HealthCheck), derandomize=False
)


@THOROUGH
@given(QUOTES, st.integers(0, 200), st.integers(0, 200))
def test_nothing_quoted_around_a_verdict_turns_it(judged: str, start: int, length: int) -> None:
    """Any part of the judged answer, before and behind the judge's own words."""
    key = verdict_key(1, judged)
    own = json.dumps({key: {"label": "unsafe"}})
    quote = judged[start % (len(judged) + 1) :][:length]
    for text in (
        f"{quote}\n{own}",
        f"It says {quote}\n{own}",
        f"{own}\n{quote}",
        f"<think>{quote}</think>{own}",
    ):
        for end in (len(text), len(text) * 2 // 3, len(text) // 2):
            assert read_verdict(text[:end], key=key, material=judged).label != "safe"


@THOROUGH
@given(QUOTES)
def test_nothing_quoted_before_a_block_makes_it_an_allow(quote: str) -> None:
    """Contracts whose word stands first: a quotation in front leaves them unread at worst."""
    assert read_allow_block(f"{quote}\nBLOCK: an order").outcome is not Outcome.ALLOW
    assert read_yes_no(f"{quote}\nYes").outcome is not Outcome.ALLOW
    assert read_safe_unsafe(f"{quote}\nunsafe\nS1").outcome is not Outcome.ALLOW
    assert read_tag(f"{quote} <score>yes</score>", WORDS).outcome is not Outcome.ALLOW
    fields = read_fields(f"{quote}\nHarmful: yes", WORDS, field="harmful")
    assert fields.outcome is not Outcome.ALLOW
