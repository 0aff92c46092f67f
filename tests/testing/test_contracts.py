"""The contract suite: our own defenses keep it, and broken ones are caught."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from guardmark.core.outcome import ALLOWED, Decision, ErrorKind, Outcome, ScoreKind
from guardmark.core.protocols import BatchLimits
from guardmark.core.sample import Prompt, View
from guardmark.defenses.baseline import Coin, Constant, allow_all
from guardmark.testing.contracts import BrokenContract, DefenseContract

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


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
        self.decide = decide


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


class Asked:
    """A defense that is awaited, and notes when it is closed."""

    name = "asked"
    view = View.TEXT

    def __init__(self, *, errors: bool = False) -> None:
        self.closed = 0
        self.errors = errors

    async def decide(self, prompt: Prompt) -> Decision:
        """Block one phrase; fail on an empty text where it is told to."""
        if self.errors and not prompt.text:
            return Decision(outcome=Outcome.ERROR, error_kind=ErrorKind.CONTRACT)
        return Decision(outcome=Outcome.BLOCK) if "Ignore all" in prompt.text else ALLOWED

    async def close(self) -> None:
        """Count it."""
        self.closed += 1


class Batched:
    """A defense asked in batches of four; it may lose the last answer of each."""

    name = "batched"
    view = View.TEXT
    batch_limits = BatchLimits(max_count=4)

    def __init__(self, *, loses: bool = False) -> None:
        self.sizes: list[int] = []
        self.loses = loses

    async def decide_batch(self, prompts: Sequence[Prompt]) -> list[Decision]:
        """Allow all."""
        self.sizes.append(len(prompts))
        return [ALLOWED] * (len(prompts) - self.loses)


def suite_of(defense: object, *, is_deterministic: bool = True) -> DefenseContract:
    """The contract of one defense, kept between the tests so that it can be looked at."""

    class Contract(DefenseContract):
        def make_defense(self) -> object:  # type: ignore[override]
            return defense

    Contract.is_deterministic = is_deterministic
    return Contract()


def keep_all(suite: DefenseContract) -> None:
    """Run every test of a contract."""
    suite.test_it_can_be_called_by_its_protocol()
    suite.test_every_prompt_gets_a_decision()
    suite.test_a_failure_is_not_a_decision()
    suite.test_the_same_prompt_gets_the_same_outcome()
    suite.test_answers_are_not_mixed_up()


def test_an_awaited_defense_is_asked_and_closed_once_a_test() -> None:
    """Four of the five tests ask, and each closes what it has made when it is done."""
    asked = Asked()
    keep_all(suite_of(asked))
    assert asked.closed == 4


def test_a_batch_defense_gets_no_more_prompts_than_it_takes() -> None:
    """Its own limit holds for every batch, and every prompt reaches it."""
    batched = Batched()
    suite = suite_of(batched)
    keep_all(suite)
    assert max(batched.sizes) == 4
    # Four passes over the prompts, one of them backwards; and a fifth that asks each thrice.
    assert sum(batched.sizes) == len(suite.prompts()) * (4 + 3)


def test_a_batch_that_loses_an_answer_is_caught() -> None:
    """Answers could not be told apart: the rest would stand beside the wrong prompts."""
    with pytest.raises(BrokenContract, match="a batch comes back longer or shorter"):
        suite_of(Batched(loses=True)).test_every_prompt_gets_a_decision()


def test_an_error_that_says_why_keeps_the_contract() -> None:
    """A defense may fail on a prompt, as long as it gives the kind of the failure."""
    keep_all(suite_of(Asked(errors=True)))


def test_an_error_that_does_not_say_why_is_caught() -> None:
    """A report could not tell a time-out from an answer nobody can read."""
    made = contract_of(lambda _: Decision(outcome=Outcome.ERROR))
    with pytest.raises(BrokenContract, match="an error without error_kind"):
        made.test_a_failure_is_not_a_decision()


def test_a_defense_that_samples_may_answer_differently() -> None:
    """Where it says that it samples, no test asks it for the same outcome twice."""
    answers = iter([ALLOWED, Decision(outcome=Outcome.BLOCK)] * 100)

    class Sampling(Asked):
        async def decide(self, prompt: Prompt) -> Decision:
            del prompt
            return next(answers)

    keep_all(suite_of(Sampling(), is_deterministic=False))
    with pytest.raises(BrokenContract, match="equal prompts asked at once"):
        suite_of(Sampling()).test_answers_are_not_mixed_up()


def test_an_answer_that_is_no_decision_is_caught() -> None:
    """A bare truth value does not say whether the prompt was blocked or could not be read."""
    made = contract_of(lambda _: True)  # type: ignore[arg-type, return-value]
    with pytest.raises(BrokenContract, match="it returns no Decision but <class 'bool'>"):
        made.test_every_prompt_gets_a_decision()
