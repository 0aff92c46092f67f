"""What guardmark relies on, as tests that the plug-in inherits, and one of its own."""

from __future__ import annotations

from guardmark_long_words import LongWords

from guardmark import Outcome
from guardmark.core.sample import Prompt
from guardmark.testing.contracts import DefenseContract


class TestLongWords(DefenseContract):
    """Every prompt gets a decision, batches equal singles, nothing raises."""

    def make_defense(self) -> LongWords:
        """Return the defense under test."""
        return LongWords(name="long-words", longest=40)


def test_a_long_word_is_blocked_with_the_reason() -> None:
    """The report shows why."""
    decision = LongWords(name="long-words", longest=5).decide(Prompt.of_text("abc defghi"))
    assert decision.outcome is Outcome.BLOCK
    assert decision.evidence is not None
    assert decision.evidence.reason == "a word of 6 characters"
