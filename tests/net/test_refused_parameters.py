"""A model that refuses a parameter or the system role is asked again without it, once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from guardmark.net.refused_fields import (
    SYSTEM_ROLE,
    refused_by_model,
    refuses_system_role,
    without_system_role,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from guardmark.net.client import Services

FIELDS = {"temperature", "top_p", "seed", "stop", "reasoning_effort", "max_tokens"}
SYSTEM = {"role": "system", "content": "You are a tutor."}
USER = {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("Unsupported parameter: 'temperature' is not supported with this model.", "temperature"),
        ("'temperature' does not support 0 with this model. Only the default (1).", "temperature"),
        ("Unknown parameter: 'seed'.", "seed"),
        ("body.seed: Extra inputs are not permitted (parameter seed)", "seed"),
        ("`stop` is not supported by this model", "stop"),
        ("Unrecognized request argument supplied: reasoning_effort", "reasoning_effort"),
        ("top_p is not allowed for this model", "top_p"),
    ],
)
def test_a_refused_parameter_is_recognised(words: str, name: str) -> None:
    """By its name and by words for a refusal."""
    assert refused_by_model(words, FIELDS) == {name: ""}


@pytest.mark.parametrize(
    "words",
    [
        "temperature must be between 0 and 1",
        "Please stop: this text is not allowed",
        "the seed of doubt is not permitted here",
        "no such model",
        "'top_k' is not supported",
    ],
)
def test_other_complaints_leave_the_request_as_it_is(words: str) -> None:
    """A value out of range is told to the user, and everyday words are no parameters."""
    assert refused_by_model(words, FIELDS) == {}


@pytest.mark.parametrize(
    "words",
    [
        "System role not supported",
        "Developer instruction is not enabled for this model",
        "'messages[0].role' does not support 'system' with this model.",
        "Only user and assistant roles are supported!",
        "Conversation roles must alternate user/assistant/user/assistant",
    ],
)
def test_a_refused_system_role_is_recognised(words: str) -> None:
    """Only where there is a message of the system."""
    assert refuses_system_role(words, [SYSTEM, USER])
    assert not refuses_system_role(words, [USER])


def test_the_system_prompt_then_stands_before_the_first_words_of_the_user() -> None:
    """Nothing of it is lost, with images or without a word of the user."""
    both = [{"role": "user", "content": "You are a tutor.\n\nhi"}]
    assert without_system_role([SYSTEM, USER]) == both
    part = {"type": "text", "text": "hi"}
    (merged,) = without_system_role([SYSTEM, {"role": "user", "content": [part]}])
    assert merged["content"] == [{"type": "text", "text": "You are a tutor."}, part]
    assert without_system_role([SYSTEM]) == [{"role": "user", "content": "You are a tutor."}]


async def test_it_is_refused_once_and_remembered(
    chat_server: Any, make_services: Callable[..., Services]
) -> None:
    """For that model; another one of the same service is asked with everything."""

    def reply(body: dict[str, Any]) -> object:
        if body["model"] == "wide":
            return "hi"
        if "temperature" in body:
            error = {"code": "unsupported_parameter", "param": "temperature", "message": "Not so."}
            error["message"] = "Unsupported value for this model."
            return 400, json.dumps({"error": error})
        if body["messages"][0]["role"] == "system":
            return 400, json.dumps({"error": {"message": "System role not supported"}})
        return "hi"

    chat_server.reply = reply
    services = make_services()
    given: dict[str, Any] = {"options": {"temperature": 0}, "price": None, "secret_headers": {}}
    narrow = services.model("chat", chat_server.base_url, model="narrow", **given)
    wide = services.model("chat", chat_server.base_url, model="wide", **given)
    for model in (narrow, narrow, wide):
        assert (await model.complete([SYSTEM, USER])).text == "hi"
    sent = [
        (each["model"], "temperature" in each, each["messages"][0]["role"])
        for each in chat_server.requests
    ]
    assert sent == [
        ("narrow", True, "system"),
        ("narrow", False, "system"),
        ("narrow", False, "user"),
        ("narrow", False, "user"),
        ("wide", True, "system"),
    ]
    assert services.refused[f"{chat_server.base_url} (model narrow)"] == {
        "temperature": "",
        SYSTEM_ROLE: "",
    }


async def test_a_value_out_of_range_is_told_once_and_whole(
    chat_server: Any, make_services: Callable[..., Services]
) -> None:
    """In the words of the server."""
    words = "temperature must be between 0 and 1, " + "and so on, " * 40 + "up to here"
    chat_server.reply = lambda _body: (400, json.dumps({"error": {"message": words}}))
    services = make_services()
    given: dict[str, Any] = {"options": {"temperature": 2}, "price": None, "secret_headers": {}}
    model = services.model("chat", chat_server.base_url, model="m", **given)
    answer = await model.complete([USER])
    assert answer.text is None
    assert answer.message.count("between 0 and 1") == 1
    assert answer.message.endswith("up to here")
    assert len(chat_server.requests) == 1
