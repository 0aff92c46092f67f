"""The contract suite: our own defenses keep it, and broken ones are caught."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from guardmark.core.outcome import ALLOWED, Decision, ErrorKind, Outcome, ScoreKind
from guardmark.core.sample import Prompt, View
from guardmark.defenses.baseline import Coin, Constant, allow_all
from guardmark.testing.contracts import BrokenContract, DefenseContract

if TYPE_CHECKING:
    from collections.abc import Callable


class TestAllowAll(DefenseContract):
    """The floor keeps the contract."""

    def make_defense(self) -> Constant:
        """Return it."""
        return allow_all()


class TestCoin(DefenseContract):
    """So does the coin: it is seeded by the text."""

    def make_defense(self) -> Coin:
        """Return it."""
        return Coin(name="coin", seed=7)


class Made:
    """A defense around a function; it decides at once."""

    name = "made"
    view = View.TEXT

    def __init__(self, decide: Callable[[Prompt], Decision]) -> None:
        self.decide_now = decide


def contract_of(decide: Callable[[Prompt], Decision]) -> DefenseContract:
    """The contract of a defense around a function."""

    class Contract(DefenseContract):
        def make_defense(self) -> Made:
            return Made(decide)

    return Contract()


def test_a_score_out_of_range_is_caught() -> None:
    """Percent where a share is wanted."""
    made = contract_of(
        lambda _: Decision(outcome=Outcome.BLOCK, score=87.0, score_kind=ScoreKind.CLASS_PROB)
    )
    with pytest.raises(BrokenContract, match="not in"):
        made.test_every_prompt_gets_a_decision()


def test_a_score_without_a_meaning_is_caught() -> None:
    """Nobody could tell a probability from a rank."""
    made = contract_of(lambda _: Decision(outcome=Outcome.BLOCK, score=0.5))
    with pytest.raises(BrokenContract, match="score_kind"):
        made.test_every_prompt_gets_a_decision()


def test_a_failure_dressed_as_an_allow_is_caught() -> None:
    """Failure is not a decision."""
    made = contract_of(lambda _: Decision(outcome=Outcome.ALLOW, error_kind=ErrorKind.TIMEOUT))
    with pytest.raises(BrokenContract, match="error_kind"):
        made.test_a_failure_is_not_a_decision()


def test_a_memory_between_prompts_is_caught() -> None:
    """Every other prompt blocked, whatever it says."""
    seen: list[Prompt] = []

    def alternate(prompt: Prompt) -> Decision:
        seen.append(prompt)
        return ALLOWED if len(seen) % 2 else Decision(outcome=Outcome.BLOCK)

    with pytest.raises(BrokenContract, match="at once get different"):
        contract_of(alternate).test_answers_are_not_mixed_up()


def test_something_that_cannot_be_called_is_caught() -> None:
    """An object without any of the three ways to decide."""

    class Nothing(DefenseContract):
        def make_defense(self) -> object:  # type: ignore[override]
            return object()

    with pytest.raises(BrokenContract, match="neither decide"):
        Nothing().test_it_can_be_called_by_its_protocol()


def test_a_suite_without_a_defense_says_what_to_do() -> None:
    """The one method an author writes."""
    with pytest.raises(NotImplementedError, match="make_defense"):
        DefenseContract().make_defense()
