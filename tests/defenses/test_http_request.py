"""Bodies are structures with texts put in, and no text can change the structure."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guardmark.core.errors import ConfigError
from guardmark.core.sample import Message, Prompt, Role, ToolCall, ToolDefinition
from guardmark.defenses.http.body import RequestBody

_TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@given(text=_TEXTS, other=_TEXTS)
def test_every_text_comes_out_as_it_went_in(text: str, other: str) -> None:
    """Quotes, braces, control characters and markers of insertions included."""
    body = RequestBody({"a": [{"$input": "text"}, other], other: {"b": {"$input": "text"}}})
    sent = json.loads(body.encode(Prompt.of_text(text), text))
    assert sent == {"a": [text, other], other: {"b": text}}


def test_a_text_that_looks_like_an_insertion_stays_a_text() -> None:
    """Nothing is ever inserted into what was inserted."""
    text = '{"$input": "id"} {{7*7}} ${HOME} %s "},"admin":true,"x":{"'
    body = RequestBody({"text": {"$input": "text"}, "id": {"$input": "id"}})
    sent = json.loads(body.encode(Prompt.of_text(text), text))
    assert sent["text"] == text
    assert set(sent) == {"text", "id"}


def test_a_conversation_is_sent_with_its_roles() -> None:
    """In the service's words for them."""
    prompt = Prompt(
        messages=(
            Message(role=Role.SYSTEM, content="be kind"),
            Message(role=Role.DOCUMENT, content='a "letter"'),
            Message(role=Role.USER, content="sum it up"),
        ),
        under_test=1,
    )
    body = RequestBody(
        {"m": {"$input": "messages"}, "d": {"$input": "documents"}}, roles={Role.DOCUMENT: "user"}
    )
    sent = json.loads(body.encode(prompt, ""))
    assert sent["m"] == [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": 'a "letter"'},
        {"role": "user", "content": "sum it up"},
    ]
    assert sent["d"] == ['a "letter"']


def test_calls_of_tools_are_sent_as_text() -> None:
    """Services that take any body take a role and a text; nothing of a call is lost on the way."""
    prompt = Prompt(
        messages=(
            Message(role=Role.ASSISTANT, content="", calls=(ToolCall("c1", "pay", '{"sum": 1}'),)),
            Message(role=Role.TOOL, content="Paid.", answers="c1"),
        )
    )
    sent = json.loads(RequestBody({"$input": "messages"}).encode(prompt, ""))
    assert sent == [
        {"role": "assistant", "content": 'pay({"sum": 1})'},
        {"role": "tool", "content": "Paid."},
    ]


def test_the_id_is_the_content_hash() -> None:
    """So that the service's log can be matched with our records."""
    prompt = Prompt.of_text("hello")
    body = RequestBody([{"$input": "text"}, {"$input": "id"}, None, True, 1.5])
    assert json.loads(body.encode(prompt, "hello")) == [
        "hello", prompt.digest().hex(), None, True, 1.5,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("structure", "told"),
    [
        ({"text": "fixed"}, "inserts nothing"),
        ({"id": {"$input": "id"}}, "inserts nothing"),
        ({"a": {"$input": "txt"}}, "Did you mean 'text'"),
        ({"a": {"$input": "text", "b": 1}}, "must be the only key"),
        ({"a": [{"$input": "text"}, float("nan")]}, r"body\.a\.1"),
        (None, "inserts nothing"),
    ],
)
def test_a_structure_that_cannot_work_is_refused(structure: object, told: str) -> None:
    """Before anything is sent."""
    with pytest.raises(ConfigError, match=told):
        RequestBody(structure)


ASKED = Prompt(
    messages=(
        Message(role=Role.SYSTEM, content="be kind"),
        Message(role=Role.DOCUMENT, content="Ferry 1 leaves at two."),
        Message(role=Role.USER, content="When does it leave?"),
        Message(role=Role.ASSISTANT, content="At two."),
    ),
    under_test=3,
)
CALLING = Prompt(
    messages=(
        Message(role=Role.USER, content="Pay it."),
        Message(role=Role.ASSISTANT, content="", calls=(ToolCall("c1", "pay", '{"sum": 1}'),)),
    ),
    under_test=1,
)


@pytest.mark.parametrize(
    ("prompt", "name", "value"),
    [
        (ASKED, "question", "When does it leave?"),
        (ASKED, "answer", "At two."),
        (ASKED, "documents", ["Ferry 1 leaves at two."]),
        (Prompt.of_text("hi"), "question", "hi"),
        (Prompt(messages=ASKED.messages, under_test=2), "answer", "At two."),
        (CALLING, "call", [{"name": "pay", "arguments": '{"sum": 1}'}]),
        (CALLING, "question", "Pay it."),
        (CALLING, "answer", 'pay({"sum": 1})'),
    ],
)
def test_a_part_of_a_sample_has_a_name(prompt: Prompt, name: str, value: object) -> None:
    """Each means one thing, whatever else the body sends."""
    alone = RequestBody({"x": {"$input": name}})
    beside = RequestBody({"x": {"$input": name}, "m": {"$input": "messages"}})
    for body in (alone, beside):
        assert body.missing(prompt) == ""
        assert json.loads(body.encode(prompt, "unused"))["x"] == value


SEARCH = ToolDefinition(name="search", description="Finds.", parameters={"type": "object"})
WHOLE = Prompt(
    messages=(
        Message(role=Role.USER, content="Pay the bill of the letter."),
        Message(role=Role.DOCUMENT, content="The bill: 12."),
        Message(
            role=Role.ASSISTANT, content="I pay.", calls=(ToolCall("c1", "pay", '{"sum": 12}'),)
        ),
    ),
    under_test=2,
    tools=(SEARCH,),
)
NAMED = {
    "text": 'I pay.\npay({"sum": 12})',
    "question": "Pay the bill of the letter.",
    "answer": 'I pay.\npay({"sum": 12})',
    "documents": ["The bill: 12."],
    "messages": [
        {"role": "user", "content": "Pay the bill of the letter."},
        {"role": "document", "content": "The bill: 12."},
        {"role": "assistant", "content": 'I pay.\npay({"sum": 12})'},
    ],
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "search",
                "description": "Finds.",
                "parameters": {"type": "object"},
            },
        }
    ],
    "call": [{"name": "pay", "arguments": '{"sum": 12}'}],
}


@pytest.mark.parametrize("left_out", ["", *NAMED])
def test_every_name_means_one_thing_beside_all_others(left_out: str) -> None:
    """Whichever of the seven a body leaves out, the six others stay what they are."""
    asked = [name for name in NAMED if name != left_out]
    body = RequestBody({name: {"$input": name} for name in asked})
    sent = json.loads(body.encode(WHOLE, WHOLE.words))
    assert sent == {name: NAMED[name] for name in asked}


@pytest.mark.parametrize("name", ["answer", "documents", "call", "tools"])
def test_what_a_sample_has_not_is_missed(name: str) -> None:
    """So that it is skipped, and not sent empty."""
    body = RequestBody({"text": {"$input": "text"}, "x": {"$input": name}})
    assert body.missing(Prompt.of_text("hi")) == name
    assert RequestBody({"text": {"$input": "text"}}).missing(Prompt.of_text("hi")) == ""
