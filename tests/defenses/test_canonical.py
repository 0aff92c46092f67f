"""A defense behind a canonicaliser: what it is shown, and that nothing else changes."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from guardmark.app.registry import settings_model
from guardmark.canon.steps import CANON_STEPS, CANON_VERSION, Step, canonicalize
from guardmark.config.settings import BuildContext
from guardmark.core.errors import ConfigError, UnknownName
from guardmark.core.outcome import ALLOWED, BLOCKED, Decision, Outcome
from guardmark.core.protocols import Capabilities
from guardmark.core.sample import Label, Message, Prompt, Role, Sample, View
from guardmark.defenses.canonical import CanonicalDefense, Cleaning, steps_of
from guardmark.defenses.decisions import DecisionsDefense
from guardmark.defenses.guard import inline_call
from guardmark.defenses.pattern import PatternDefense

ENCODED = base64.b64encode(b"please open sesame now").decode()


class Heard:
    """Remembers what it is shown, and blocks the word `sesame`."""

    name, view = "heard", View.TEXT
    capabilities = Capabilities(view=View.TEXT, threshold=0.5)

    def __init__(self) -> None:
        self.shown: list[Prompt] = []

    def answer(self, prompt: Prompt) -> Decision:
        """Take note and decide."""
        self.shown.append(prompt)
        return BLOCKED if "sesame" in prompt.text else ALLOWED


class AtOnce(Heard):
    """Answers in line."""

    def decide(self, prompt: Prompt) -> Decision:
        """Decide."""
        return self.answer(prompt)


class Awaited(Heard):
    """Has to be awaited."""

    async def decide(self, prompt: Prompt) -> Decision:
        """Decide."""
        return self.answer(prompt)


class InBatches(Heard):
    """Takes several at a time."""

    class _Limits:
        max_count, max_tokens, max_wait_s = 3, None, 0.0

    batch_limits = _Limits()

    async def decide_batch(self, prompts: Sequence[Prompt]) -> list[Decision]:
        """Decide about each."""
        return [self.answer(prompt) for prompt in prompts]


def wrap(inner: Any, *steps: str) -> CanonicalDefense:
    """Put cleaning before a defense."""
    return CanonicalDefense("clean", inner, Cleaning(steps=steps_of(steps)))


def test_a_defense_is_shown_the_cleaned_text() -> None:
    """What was encoded is read, by the defense that could not read it before."""
    inner = AtOnce()
    cleaned = wrap(inner, "encodings")
    assert cleaned.capabilities.is_inline
    assert inner.decide(Prompt.of_text(ENCODED)).outcome is Outcome.ALLOW
    assert inline_call(cleaned)(Prompt.of_text(ENCODED)).outcome is Outcome.BLOCK
    assert inner.shown[-1].text == "please open sesame now"


async def test_a_defense_is_asked_the_way_it_is_asked_without() -> None:
    """One that is awaited stays so, and one that takes batches takes them whole."""
    awaited, batches = wrap(Awaited(), "encodings"), wrap(InBatches(), "encodings")
    assert not awaited.capabilities.is_inline
    assert batches.capabilities.batch is not None
    assert batches.capabilities.batch.max_count == 3
    prompts = [Prompt.of_text(text) for text in ("hello", ENCODED, "sesame")]
    said = [each.outcome for each in await awaited.decide_all(prompts)]
    assert said == [each.outcome for each in await batches.decide_all(prompts)]
    assert said == [Outcome.ALLOW, Outcome.BLOCK, Outcome.BLOCK]


def test_name_view_and_threshold_are_those_one_would_expect() -> None:
    """Its own name; the rest is that of the defense within."""
    cleaned = wrap(AtOnce(), "case")
    can = cleaned.capabilities
    assert (cleaned.name, can.view, can.threshold) == ("clean", View.TEXT, 0.5)


def test_only_the_text_under_test_is_cleaned() -> None:
    """Roles, neighbours and the place under test stay as they are."""
    prompt = Prompt(
        messages=(
            Message(role=Role.SYSTEM, content="KEEP ME"),
            Message(role=Role.DOCUMENT, content="OPEN \u200bSESAME"),
            Message(role=Role.USER, content="AND ME"),
        ),
        under_test=1,
    )
    inner = AtOnce()
    inline_call(wrap(inner, "case", "ignorables"))(prompt)
    (shown,) = inner.shown
    assert [m.content for m in shown.messages] == ["KEEP ME", "open sesame", "AND ME"]
    assert [m.role for m in shown.messages] == [m.role for m in prompt.messages]
    assert shown.under_test == 1


@given(st.text(max_size=60))
def test_a_text_that_is_clean_is_passed_on_as_the_same_prompt(text: str) -> None:
    """Cleaning twice shows the defense what cleaning once did, and makes nothing new."""
    cleaning = Cleaning(steps=(Step.CASE,))
    once = cleaning.of(Prompt.of_text(text))
    if once.text.casefold() == once.text:
        assert cleaning.of(once) is once
    assert Cleaning(steps=CANON_STEPS).of(Prompt.of_text(text)).text == canonicalize(text)


def test_steps_are_named_alone_or_by_the_whole_form() -> None:
    """Their order in a list does not matter; `canon` stands for several."""
    assert steps_of(["case", "encodings"]) == (Step.ENCODINGS, Step.CASE)
    assert set(steps_of(["canon", "tags"])) == {*CANON_STEPS, Step.TAGS}
    with pytest.raises(ValueError, match="at least one step"):
        Cleaning(steps=())


def _build(defenses: dict[str, object], **said: object) -> object:
    settings = settings_model("defense", "canonical").model_validate(said)
    context = BuildContext(folder=Path(), seed=7, services=None, defenses=defenses)
    return settings.build("clean", context)  # type: ignore[attr-defined]


def test_a_configuration_names_the_defense_and_the_steps() -> None:
    """The whole canonical form is what one gets without naming steps."""
    words = PatternDefense("words", (), keywords=("sesame",))
    for said in ({}, {"steps": ["canon"]}, {"steps": ["confusables"], "canon": CANON_VERSION}):
        built = _build({"words": words}, of="words", **said)
        assert isinstance(built, CanonicalDefense)
        assert inline_call(built)(Prompt.of_text("s\u0435same")).outcome is Outcome.BLOCK


@pytest.mark.parametrize(
    ("said", "word"),
    [
        ({"steps": ["encoding"]}, "Did you mean 'encodings'"),
        ({"steps": []}, "at least 1"),
        ({"canon": "0"}, f"has version {CANON_VERSION}"),
        ({"step": ["case"]}, "step"),
    ],
)
def test_a_mistake_in_the_settings_is_named(said: dict[str, object], word: str) -> None:
    """Steps that do not exist, and figures of another canonical form, are refused."""
    with pytest.raises(ValidationError, match=word):
        _build({}, of="words", **said)


def test_a_defense_that_cannot_be_cleaned_for_is_refused() -> None:
    """Unknown ones, itself, and decisions that were made on texts as they were."""
    with pytest.raises(UnknownName, match="wordz"):
        _build({"words": object()}, of="wordz")
    with pytest.raises(ConfigError, match="made already"):
        _build({"old": DecisionsDefense("old", {})}, of="old")


class _Learning(AtOnce):
    """Wants to know the samples of a run before it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []

    def bind(self, samples: Iterable[Sample]) -> None:
        """Remember their ids."""
        self.ids += [sample.id for sample in samples]


def test_a_defense_that_learns_the_samples_learns_them_through_the_cleaning() -> None:
    """Otherwise it would know none of what it is asked about; one that does not is left alone."""
    sample = Sample(id="a", prompt=Prompt.of_text("hello"), label=Label.BENIGN)
    learning = _Learning()
    for inner in (learning, AtOnce()):
        wrap(inner, "case").bind(iter([sample]))
    assert learning.ids == ["a"]
