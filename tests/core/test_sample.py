"""Prompts and samples: what is shown, what is hashed."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from base64 import b64encode
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guardmark.core.errors import DatasetError
from guardmark.core.limits import MOST_IMAGE_BYTES
from guardmark.core.sample import (
    Image,
    Label,
    Message,
    Prompt,
    Role,
    Sample,
    ToolCall,
    View,
)

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


PIXELS = b"not really pixels"


def image_of(content: bytes, place: object) -> Image:
    """An image with the hash of its bytes."""
    digest = hashlib.sha256(content).hexdigest()
    return Image(sha256=digest, media_type="image/png", place=str(place))


@pytest.mark.parametrize(
    ("sha256", "media_type"),
    [("../../etc", "image/png"), ("a" * 64, "image/svg"), ("A" * 64, "image/png"), ("", "")],
)
def test_an_image_is_named_by_a_hash_and_a_kind_of_picture(sha256: str, media_type: str) -> None:
    """Both become parts of paths and of URLs, so nothing else may stand there."""
    with pytest.raises(ValueError, match="SHA-256 and a media type"):
        Image(sha256=sha256, media_type=media_type, place="x.png")


def test_an_image_is_read_from_its_file_or_its_url(tmp_path: Path) -> None:
    """Where it lies is no part of what it is."""
    file = tmp_path / "x.png"
    file.write_bytes(PIXELS)
    here = image_of(PIXELS, file)
    inside = image_of(PIXELS, f"data:image/png;base64,{b64encode(PIXELS).decode()}")
    assert here.read() == inside.read() == PIXELS
    assert here == inside


def test_an_image_that_is_not_the_one_that_was_read_is_refused(tmp_path: Path) -> None:
    """Changed, gone, or grown beyond what is opened."""
    changed, gone, grown = (tmp_path / name for name in ("changed.png", "gone.png", "grown.png"))
    changed.write_bytes(PIXELS + b"!")
    with grown.open("wb") as file:
        file.truncate(MOST_IMAGE_BYTES + 1)  # a hole: it takes no room on disk
    for path in (changed, gone, grown):
        with pytest.raises(DatasetError, match="is gone, or was changed since"):
            image_of(PIXELS, path).read()


def test_a_message_with_an_image_is_sent_as_parts() -> None:
    """Words first, then each image with its bytes; an image alone has no empty words beside it."""
    url = f"data:image/png;base64,{b64encode(PIXELS).decode()}"
    shown = {"type": "image_url", "image_url": {"url": url}}
    image = image_of(PIXELS, url)
    talk = Message(role=Role.USER, content="look", images=(image,))
    assert talk.parts() == [{"type": "text", "text": "look"}, shown]
    assert dataclasses.replace(talk, content="").parts() == [shown]
    assert Message(role=Role.USER, content="look").parts() == "look"


def test_calls_of_tools_and_their_results_are_sent_as_services_take_them() -> None:
    """A result names the call that it answers, under the role that services have for it."""
    call = ToolCall(id="c1", name="search", arguments='{"q": 1}')
    asks = Message(role=Role.ASSISTANT, content="", calls=(call,))
    assert asks.chat("assistant") == {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "search", "arguments": '{"q": 1}'},
            }
        ],
    }
    answers = Message(role=Role.TOOL, content="found", answers="c1")
    assert answers.chat("user") == {"role": "tool", "content": "found", "tool_call_id": "c1"}
    assert (asks.words, answers.words) == ('search({"q": 1})', "found")


def test_another_text_takes_the_place_of_the_one_under_test() -> None:
    """The rest of the conversation stays, and images stand behind those that were there."""
    first, second = (image_of(name, "x") for name in (b"1", b"2"))
    assert Prompt.of_text("a").with_text("b") == Prompt.of_text("b")
    messages = (
        Message(role=Role.USER, content="a", images=(first,)),
        Message(role=Role.ASSISTANT, content="kept"),
    )
    talk = Prompt(messages=messages, under_test=-2)
    changed = talk.with_text("b", second)
    assert changed.text == "b"
    assert changed.messages[0].images == (first, second)
    assert (changed.messages[1], changed.under_test) == (messages[1], -2)
    assert Prompt.of_text("a").with_text("a", first).messages[0].images == (first,)


def test_a_defense_of_texts_is_not_shown_half_of_a_message() -> None:
    """Words beside an image are not the whole input, unless the defense takes images as well."""
    message = Message(role=Role.USER, content="look", images=(image_of(PIXELS, "x"),))
    prompt = Prompt(messages=(message,))
    assert (prompt.is_plain, Prompt.of_text("look").is_plain) == (False, True)
    assert prompt.shown(View.TEXT) is None
    assert prompt.shown(View.TEXT, beside_images=True) == "look"
