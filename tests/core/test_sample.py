"""Prompts and samples: what is shown, what is hashed."""

from __future__ import annotations

import dataclasses
import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guardmark.core.sample import Label, Message, Prompt, Role, Sample, View

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
conversations = st.lists(
    st.builds(lambda role, text: Message(role=role, content=text), st.sampled_from(Role), texts),
    min_size=1,
    max_size=5,
).flatmap(
    lambda messages: st.builds(
        lambda index: Prompt(messages=tuple(messages), under_test=index),
        st.integers(-len(messages), len(messages) - 1),
    )
)


def prompt_of(*turns: tuple[Role, str], under_test: int = -1) -> Prompt:
    """A conversation in short."""
    messages = tuple(Message(role=role, content=content) for role, content in turns)
    return Prompt(messages=messages, under_test=under_test)


@given(texts)
def test_a_text_is_one_user_message_under_test(text: str) -> None:
    """Unaltered, whatever it holds."""
    prompt = Prompt.of_text(text)
    assert prompt.text == text
    assert prompt.messages == (Message(role=Role.USER, content=text),)
    assert prompt.shown(View.TEXT) == text


@given(texts)
def test_the_hash_of_a_text_can_be_checked_with_a_standard_tool(text: str) -> None:
    """SHA-256 of its UTF-8 bytes."""
    assert Prompt.of_text(text).digest() == hashlib.sha256(text.encode()).digest()


def test_the_hash_of_a_conversation_covers_everything() -> None:
    """Words, roles, order, and which message is under test."""
    base = prompt_of((Role.USER, "a"), (Role.TOOL, "b"))
    others = [
        prompt_of((Role.USER, "a"), (Role.TOOL, "c")),
        prompt_of((Role.USER, "a"), (Role.DOCUMENT, "b")),
        prompt_of((Role.TOOL, "b"), (Role.USER, "a")),
        prompt_of((Role.USER, "a"), (Role.TOOL, "b"), under_test=0),
        prompt_of((Role.USER, "ab")),
        prompt_of((Role.TOOL, "b")),
        Prompt.of_text("b"),
    ]
    assert len({prompt.digest() for prompt in [base, *others]}) == len(others) + 1


def test_the_hash_of_a_conversation_is_that_of_its_canonical_form() -> None:
    """Written down, so that others can recompute it."""
    prompt = prompt_of((Role.SYSTEM, "é"), (Role.USER, "b"))
    form = json.dumps([[["system", "é"], ["user", "b"]], 1], ensure_ascii=False).replace(", ", ",")
    assert prompt.digest() == hashlib.sha256(form.encode()).digest()


@given(conversations)
def test_counting_from_the_end_is_counting_from_the_start(prompt: Prompt) -> None:
    """The message under test may be named either way; the hash is the same."""
    index = prompt.under_test % len(prompt.messages)
    assert dataclasses.replace(prompt, under_test=index).digest() == prompt.digest()


def test_a_text_that_no_encoding_can_carry_has_no_hash() -> None:
    """Readers refuse it before."""
    with pytest.raises(UnicodeEncodeError):
        Prompt.of_text("\ud800").digest()


TALK = prompt_of(
    (Role.SYSTEM, "s"), (Role.USER, "u"), (Role.DOCUMENT, "d"), (Role.TOOL, "t"), under_test=2
)


@pytest.mark.parametrize(
    ("view", "shown"),
    [
        (View.TEXT, "d"),
        (View.CONVERSATION, "system: s\n\nuser: u\n\ndocument: d\n\ntool: t"),
        (View.DOCUMENT, "d\n\nt"),
        (View.RESPONSE, None),
    ],
)
def test_a_defense_is_shown_what_it_declares_to_look_at(view: View, shown: str | None) -> None:
    """The same prompt looks different through each view."""
    assert TALK.shown(view) == shown


def test_a_view_without_anything_to_see_is_none_not_empty() -> None:
    """The caller counts it as skipped; an empty text would read as an allow."""
    assert Prompt.of_text("u").shown(View.DOCUMENT) is None
    assert Prompt.of_text("u").shown(View.RESPONSE) is None


def test_the_view_of_a_response_is_the_last_answer() -> None:
    """Only when the conversation ends with one."""
    assert prompt_of((Role.USER, "u"), (Role.ASSISTANT, "a")).shown(View.RESPONSE) == "a"
    assert prompt_of((Role.ASSISTANT, "a"), (Role.USER, "u")).shown(View.RESPONSE) is None


def test_a_sample_without_a_group_is_a_group_of_its_own() -> None:
    """Intervals need to know what is independent."""
    alone = Sample(id="x", prompt=Prompt.of_text("t"), label=Label.ATTACK)
    assert (alone.lineage, alone.is_attack) == ("x", True)
    joined = dataclasses.replace(alone, group="g", label=Label.BENIGN)
    assert (joined.lineage, joined.is_attack) == ("g", False)


def test_values_cannot_be_changed() -> None:
    """What was measured stays what was measured."""
    prompt = Prompt.of_text("t")
    with pytest.raises(dataclasses.FrozenInstanceError):
        prompt.under_test = 3  # type: ignore[misc]  # that is the point
