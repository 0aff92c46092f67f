"""Plain functions as defenses: every answer is read, none is guessed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import numpy as np
import pytest

from guardmark.core.outcome import BLOCKED, Decision, ErrorKind, Outcome, ScoreKind
from guardmark.core.protocols import Defense
from guardmark.core.sample import Message, Prompt, Role, View
from guardmark.defenses.answers import AnswerReader, ConfidenceMeaning
from guardmark.defenses.function import (
    AsyncFunctionDefense,
    FunctionDefense,
    defense_from,
)
from guardmark.defenses.guard import as_guard
from guardmark.engine.calls import failure_of
from guardmark.net.redaction import KNOWN

HELLO = Prompt.of_text("hello")


def test_true_blocks_and_false_allows() -> None:
    """As in `is_attack(text)`."""
    defense = defense_from(lambda text: "evil" in text, name="f")
    assert isinstance(defense, FunctionDefense)
    assert as_guard(defense).capabilities.is_inline
    assert defense.decide(Prompt.of_text("evil")).outcome is Outcome.BLOCK
    assert defense.decide(HELLO).outcome is Outcome.ALLOW


@pytest.mark.parametrize(("score", "outcome"), [(0.5, "block"), (0.49, "allow"), (1, "block")])
def test_a_risk_blocks_from_the_threshold_on(score: float, outcome: str) -> None:
    """The threshold itself blocks."""
    decision = AnswerReader(threshold=0.5).read(score)
    assert (decision.outcome, decision.score) == (outcome, score)
    assert decision.score_kind is ScoreKind.SELF_REPORTED


@pytest.mark.parametrize("value", [np.True_, np.float32(0.75), np.float64(0.75), np.array(0.75)])
def test_numpy_scalars_are_understood(value: object) -> None:
    """Models return them."""
    assert AnswerReader(threshold=0.5).read(value).outcome is Outcome.BLOCK


@pytest.mark.parametrize(
    "answer", [None, "block", [True], {"a": 1}, float("nan"), 1.5, -0.1, np.array([1.0, 0.0])]
)
def test_anything_else_is_malformed_with_a_message(answer: object) -> None:
    """Never a silent allow."""
    decision = AnswerReader(threshold=0.5).read(answer)
    assert decision.outcome is Outcome.MALFORMED
    assert decision.evidence is not None
    assert "returned" in decision.evidence.message


def test_a_risk_without_a_threshold_is_malformed() -> None:
    """We do not choose a threshold for anyone."""
    assert AnswerReader(threshold=None).read(0.9).outcome is Outcome.MALFORMED


def test_a_decision_goes_through_untouched() -> None:
    """A function may say everything a defense can say."""
    assert AnswerReader(threshold=None).read(BLOCKED) is BLOCKED


async def test_an_async_function_is_awaited() -> None:
    """So is an object with an async call."""

    async def check(text: str) -> float:
        return float(len(text) == 5)

    class Checker:
        async def __call__(self, text: str) -> float:
            return await check(text)

    for function in (check, Checker()):
        defense = defense_from(function, threshold=0.5)
        assert isinstance(defense, AsyncFunctionDefense)
        assert isinstance(defense, Defense)
        assert (await defense.decide(HELLO)).outcome is Outcome.BLOCK


def test_a_hidden_coroutine_is_malformed_and_closed() -> None:
    """A lambda around an async function cannot be told from a sync one beforehand."""

    async def check(text: str) -> bool:
        return True

    defense = defense_from(lambda text: check(text.upper()))
    assert isinstance(defense, FunctionDefense)
    assert defense.decide(HELLO).outcome is Outcome.MALFORMED


def _by_prompt(prompt: Prompt) -> bool:
    return len(prompt.messages) == 2


def test_a_function_annotated_with_prompt_gets_the_whole_prompt() -> None:
    """For those who want the conversation."""
    two = Prompt(messages=(Message(role=Role.SYSTEM, content="s"), *HELLO.messages))
    defense = defense_from(_by_prompt)
    assert isinstance(defense, FunctionDefense)
    assert defense.name == "_by_prompt"
    assert defense.decide(two).outcome is Outcome.BLOCK


def test_the_view_decides_which_text_is_shown() -> None:
    """A response view shows nothing of a prompt that has no answer yet."""
    defense = defense_from(bool, view=View.RESPONSE)
    assert isinstance(defense, FunctionDefense)
    decision = defense.decide(HELLO)
    assert (decision.outcome, decision.error_kind) == (Outcome.ERROR, ErrorKind.SKIPPED)


def _of_two(one: int, two: str) -> bool:
    return str(one) == two


def test_a_function_of_two_arguments_is_refused_at_once() -> None:
    """Before a thousand samples say so one by one."""
    with pytest.raises(TypeError, match="one argument"):
        defense_from(_of_two)
    assert isinstance(defense_from(partial(_of_two, 1)), FunctionDefense)


def test_a_threshold_beyond_one_is_refused() -> None:
    """Risks lie in [0, 1]."""
    with pytest.raises(ValueError, match="threshold"):
        defense_from(bool, threshold=2)


def test_a_known_key_in_an_answer_is_kept_out_of_the_records() -> None:
    """In a reason, and in what it raises, also where the text is cut off."""
    KNOWN.hide(key := "sk-of-a-function-0123456789", "GM_OF_A_FUNCTION")
    decision = AnswerReader().read({"blocked": True, "reason": f"as {key} said"})
    assert decision.evidence is not None
    assert decision.evidence.reason == "as [redacted] said"
    for before in range(1_960, 2_000):
        message = failure_of(ValueError("x" * before + key)).evidence.message
        assert "sk-of" not in message


def test_what_a_function_raises_goes_through() -> None:
    """The engine records it; the adapter hides nothing."""

    def broken(text: str) -> Decision:
        raise KeyError(text)

    defense = defense_from(broken)
    assert isinstance(defense, FunctionDefense)
    with pytest.raises(KeyError):
        defense.decide(HELLO)


@pytest.mark.parametrize(
    ("answer", "outcome", "reason"),
    [
        ((True, "rule 7"), "block", "rule 7"),
        ([False, "fine"], "allow", "fine"),
        (MappingProxyType({"blocked": True, "reason": "rule 7"}), "block", "rule 7"),
        ({"blocked": True, "flagged": "perhaps", "reason": "rule 7"}, "block", "rule 7"),
        ({"is_safe": True, "score": "low", "reason": "fine"}, "allow", "fine"),
    ],
)
def test_a_decision_with_its_reason_is_read(answer: object, outcome: str, reason: str) -> None:
    """From a pair, from any mapping, and beside fields of a kind that decides nothing."""
    decision = AnswerReader().read(answer)
    assert (decision.outcome, decision.score) == (outcome, None)
    assert decision.evidence is not None
    assert decision.evidence.reason == reason


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((True, None), "tuple of 2; of these only (blocked, score), (blocked, reason)"),
        ((True, 0.5, "x"), "tuple of 3; of these only"),
        ({"score": 0.2, "risk": 0.9}, "several scores: score and risk"),
        ({"blocked": "yes"}, "nothing that can be read"),
    ],
)
def test_an_answer_that_could_mean_two_things_is_malformed(answer: object, said: str) -> None:
    """Its message says what came, so that the function can be mended."""
    decision = AnswerReader(threshold=0.5).read(answer)
    assert decision.outcome is Outcome.MALFORMED
    assert decision.evidence is not None
    assert said in decision.evidence.message


def test_scores_that_agree_are_one_score() -> None:
    """Two names for one number contradict nothing."""
    assert AnswerReader(threshold=0.5).read({"score": 0.9, "risk": 0.9}).score == 0.9


async def test_an_async_function_is_not_called_where_its_view_shows_nothing() -> None:
    """The sample is skipped, as for a function that answers at once."""
    calls: list[str] = []

    async def check(text: str) -> bool:
        calls.append(text)
        return True

    defense = defense_from(check, view=View.RESPONSE)
    assert isinstance(defense, AsyncFunctionDefense)
    decision = await defense.decide(HELLO)
    assert (decision.outcome, decision.error_kind) == (Outcome.ERROR, ErrorKind.SKIPPED)
    assert calls == []


async def test_an_overrun_is_told_from_a_timeout_of_the_function_itself() -> None:
    """Only the first names timeout_s, which would not help against the second."""

    async def slow(_text: str) -> bool:
        await asyncio.sleep(60)
        return True

    async def impatient(_text: str) -> bool:
        raise TimeoutError("the model server is silent")

    for function, said in (
        (slow, r"within 0\.01 s \(timeout_s\)"),
        (impatient, "server is silent"),
    ):
        defense = defense_from(function, timeout_s=0.01)
        assert isinstance(defense, AsyncFunctionDefense)
        with pytest.raises(TimeoutError, match=said):
            await defense.decide(HELLO)


@pytest.mark.parametrize(
    ("meaning", "blocked", "score"),
    [
        ("risk", True, 0.8),
        ("risk", False, 0.8),
        ("certainty", True, 0.8),
        ("certainty", False, 0.2),
    ],
)
def test_confidence_is_the_score_and_certainty_of_an_allow_is_turned(
    meaning: ConfidenceMeaning,
    *,
    blocked: bool,
    score: float,
) -> None:
    """A score says how risky an input is; the certainty of an allow says the opposite."""
    decision = AnswerReader(confidence=meaning).read({"blocked": blocked, "confidence": 0.8})
    assert decision.outcome is (Outcome.BLOCK if blocked else Outcome.ALLOW)
    assert decision.score == pytest.approx(score)
    assert decision.score_kind is ScoreKind.SELF_REPORTED


def test_certainty_is_turned_in_its_own_range() -> None:
    """A certainty of 90 of 100 that an input is harmless is a risk of 0.1."""
    reader = AnswerReader(confidence="certainty", score_range=(0.0, 100.0))
    assert reader.read({"blocked": False, "confidence": 90}).score == pytest.approx(0.1)
    assert reader.read({"blocked": True, "confidence": 90}).score == pytest.approx(0.9)


def test_a_confidence_that_nobody_explained_is_a_score_of_its_own_kind() -> None:
    """It is never dropped, and the records say that its meaning was not stated."""
    decision = AnswerReader().read({"blocked": False, "confidence": np.float32(0.25)})
    assert (decision.score, decision.score_kind) == (0.25, ScoreKind.CONFIDENCE)


@pytest.mark.parametrize(
    ("answer", "part"),
    [
        ({"confidence": 0.9}, "no decision"),
        ({"blocked": True, "confidence": 87}, "score_range"),
        ({"blocked": True, "confidence": float("nan")}, "score_range"),
    ],
)
def test_a_confidence_that_is_no_risk_is_malformed(answer: object, part: str) -> None:
    """Neither a decision nor a score is made up of it."""
    decision = AnswerReader(threshold=0.5).read(answer)
    assert decision.outcome is Outcome.MALFORMED
    assert decision.evidence is not None
    assert part in decision.evidence.message


@pytest.mark.parametrize("meaning", ["risk", "certainty"])
def test_a_confidence_in_words_is_malformed_where_it_is_said_to_be_a_score(
    meaning: ConfidenceMeaning,
) -> None:
    """Kept as evidence only where nobody said that it is one."""
    answer = {"blocked": True, "confidence": "high"}
    decision = AnswerReader(confidence=meaning).read(answer)
    assert decision.outcome is Outcome.MALFORMED
    assert decision.evidence is not None
    assert "'high', which is no number" in decision.evidence.message
    assert AnswerReader().read(answer).outcome is Outcome.BLOCK


def test_confidence_as_a_risk_may_decide() -> None:
    """Where it is said to be a risk, a threshold decides on it as on any score."""
    reader = AnswerReader(threshold=0.5, confidence="risk")
    assert reader.read({"confidence": 0.5}).outcome is Outcome.BLOCK
    sure = AnswerReader(threshold=0.5, confidence="certainty").read({"confidence": 0.5})
    assert sure.outcome is Outcome.MALFORMED


def test_a_score_comes_before_an_unexplained_confidence() -> None:
    """The confidence is then kept beside it."""
    decision = AnswerReader().read({"blocked": True, "score": 0.7, "confidence": 0.9})
    assert (decision.score, decision.score_kind) == (0.7, ScoreKind.SELF_REPORTED)
    assert decision.evidence is not None
    assert decision.evidence.raw == '{"confidence": 0.9}'
    both = AnswerReader(confidence="risk").read({"blocked": True, "score": 0.7, "confidence": 0.9})
    assert both.outcome is Outcome.MALFORMED


@dataclass
class _Answer:
    blocked: bool
    confidence: float
    matched: list[str]
    model: object


def test_other_fields_go_into_the_evidence() -> None:
    """What a defense says beside its decision is kept, in its order, whatever its kind."""
    answer = {"blocked": True, "layer": "words", "hits": ["a", 1], "none": None, "odd": {1, 2}}
    evidence = AnswerReader().read(answer).evidence
    assert evidence is not None
    assert evidence.raw == '{"layer": "words", "hits": ["a", 1], "odd": "set"}'
    decision = AnswerReader(confidence="risk").read(
        _Answer(blocked=True, confidence=0.9, matched=["x"], model=object())
    )
    assert decision.score == 0.9
    assert decision.evidence is not None
    assert decision.evidence.raw == '{"matched": ["x"]}'


def test_endless_and_recursive_fields_are_cut() -> None:
    """A defense cannot fill the records with what nobody reads."""
    loop: list[object] = []
    loop.append(loop)
    evidence = AnswerReader().read({"blocked": True, "loop": loop, "long": "x" * 10**6}).evidence
    assert evidence is not None
    assert evidence.raw.startswith('{"loop": "list", "long": "xxx')
    assert len(evidence.raw) == 2_000


@pytest.mark.parametrize("value", [np.True_, np.array([True])])
def test_numpy_values_in_fields_are_understood(value: object) -> None:
    """A field of NumPy means what it holds."""
    decision = AnswerReader().read({"blocked": value, "score": np.float32(0.5)})
    assert (decision.outcome, decision.score) == (Outcome.BLOCK, 0.5)
