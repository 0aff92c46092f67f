"""What servers of chat write where an answer is expected, and what is read from it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from guardmark.core.outcome import ErrorKind
from guardmark.net.chat import read_chat
from guardmark.net.error_bodies import error_inside, error_of
from guardmark.net.service import Exchange

if TYPE_CHECKING:
    from collections.abc import Callable

    from guardmark.net.client import Services

THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": "Let me see."}]}


def answered(message: object, reason: str = "stop", **more: object) -> Exchange:
    """One answer of a server."""
    choice = {"index": 0, "message": message, "finish_reason": reason, **more}
    return Exchange(
        status=200, body=json.dumps({"choices": [choice]}).encode(), service_ns=1, error_kind=None
    )


@pytest.mark.parametrize(
    ("content", "text", "thoughts"),
    [
        ("plain", "plain", ""),
        ([{"type": "text", "text": "one "}, {"type": "text", "text": "two"}], "one two", ""),
        ([THOUGHT, {"type": "text", "text": "The token."}], "The token.", "Let me see."),
        ([{"type": "reasoning", "text": "hm"}, "bare words"], "bare words", "hm"),
        ([{"type": "output_text", "text": "of another protocol"}], "of another protocol", ""),
        ([{"text": "without a type"}], "without a type", ""),
    ],
)
def test_a_content_in_parts_is_the_text_of_its_parts(
    content: object, text: str, thoughts: str
) -> None:
    """Thoughts among them are no part of the answer."""
    answer = read_chat(answered({"content": content}))
    assert (answer.text, answer.thoughts, answer.is_refusal) == (text, thoughts, False)


@pytest.mark.parametrize(
    ("message", "reason", "text"),
    [
        ({"content": None, "refusal": "I can't."}, "stop", "I can't."),
        ({"content": [{"type": "refusal", "refusal": "I can't."}]}, "stop", "I can't."),
        ({"content": ""}, "refusal", ""),
        ({"content": None}, "refusal", ""),
        ({"content": "The first half"}, "refusal", "The first half"),
    ],
)
def test_a_refusal_is_an_answer(message: object, reason: str, text: str) -> None:
    """Also one without words: the server is not at fault."""
    answer = read_chat(answered(message, reason))
    assert (answer.text, answer.is_refusal, answer.error_kind) == (text, True, None)


@pytest.mark.parametrize(
    ("message", "reason", "kind", "words"),
    [
        ({"content": None, "reasoning_content": "hm"}, "length", ErrorKind.LENGTH, "max_tokens"),
        ({"content": "", "reasoning": "hm"}, "stop", ErrorKind.LENGTH, "only thought"),
        ({"content": [THOUGHT]}, "length", ErrorKind.LENGTH, "reasoning_effort"),
        ({"content": ""}, "length", ErrorKind.LENGTH, "before its first word"),
        ({"content": [{"type": "image_url"}]}, "stop", ErrorKind.CONTRACT, "no text (image_url)"),
        ({"content": ""}, "stop", ErrorKind.CONTRACT, "no content (finish reason stop)"),
        ({"content": [7]}, "stop", ErrorKind.CONTRACT, "not of the chat protocol"),
    ],
)
def test_an_answer_without_text_says_why(
    message: object, reason: str, kind: ErrorKind, words: str
) -> None:
    """The cause decides what helps."""
    answer = read_chat(answered(message, reason))
    assert (answer.text, answer.error_kind) == (None, kind)
    assert words in answer.message


@pytest.mark.parametrize(
    ("body", "status", "wait_s"),
    [
        ({"error": {"code": 429, "message": "slow"}}, 429, None),
        ({"error": {"code": "429", "message": "slow", "retry_after": 3}}, 429, 3.0),
        ({"error": {"type": "rate_limit_error", "message": "slow"}}, 429, None),
        (
            {
                "error": {
                    "status": "RESOURCE_EXHAUSTED",
                    "details": [{"retryDelay": "17s"}],
                    "message": "slow",
                }
            },
            429,
            17.0,
        ),
        ({"error": "upstream died"}, None, None),
        ({"choices": [{"error": {"code": 502, "message": "died"}}]}, 502, None),
        ({"choices": [{"finish_reason": "error", "message": {"content": "The tok"}}]}, None, None),
    ],
)
def test_an_error_inside_an_answer_is_found(
    body: object, status: int | None, wait_s: float | None
) -> None:
    """With the status it names and the wait it asks for."""
    error = error_inside(json.dumps(body).encode())
    assert error is not None
    assert (error.status, error.wait_s) == (status, wait_s)
    assert error.words


@pytest.mark.parametrize(
    "body",
    [
        {"error": None, "choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]},
        {"choices": [{"message": {"content": 'he wrote {"error": 1}'}, "finish_reason": "stop"}]},
        {"choices": [{"message": {"content": "error", "note": "error"}}]},
    ],
)
def test_a_text_about_errors_is_none(body: object) -> None:
    """Whatever the model writes."""
    assert error_inside(json.dumps(body).encode()) is None


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"error": {"message": "no such field"}}', "no such field"),
        (b'{"detail": "not here"}', "not here"),
        (b'[{"error": {"message": "in a list"}}]', "in a list"),
        (b"<html>bad gateway</html>", "<html>bad gateway</html>"),
        (b"", ""),
    ],
)
def test_what_a_server_says_is_quoted_once(body: bytes, words: str) -> None:
    """Whole where it is a message, its beginning where it is a page."""
    assert error_of(body).words == words


async def test_a_rate_limit_inside_an_answer_is_tried_again(
    chat_server: Any, make_services: Callable[..., Services]
) -> None:
    """Twice refused behind a status of 200, then answered: one call, three attempts."""
    asked = []

    def reply(_body: object) -> object:
        asked.append(1)
        return {"error": {"code": 429, "message": "slow down"}} if len(asked) < 3 else "hello"

    chat_server.reply = reply
    services = make_services()
    model = services.model(
        "chat", chat_server.base_url, model="m", options={}, price=None, secret_headers={}
    )
    answer = await model.complete([{"role": "user", "content": "hi"}])
    assert answer.text == "hello"
    assert [each.status for each in answer.attempts] == [429, 429, 200]


async def test_an_answer_that_breaks_off_is_an_error(
    chat_server: Any, make_services: Callable[..., Services]
) -> None:
    """Half an answer is not judged."""
    half = {
        "choices": [
            {
                "finish_reason": "error",
                "error": {"code": 502, "message": "provider died"},
                "message": {"content": "The tok"},
            }
        ]
    }
    chat_server.reply = lambda _body: half
    services = make_services(retries=1)
    model = services.model(
        "chat", chat_server.base_url, model="m", options={}, price=None, secret_headers={}
    )
    answer = await model.complete([{"role": "user", "content": "hi"}])
    assert (answer.text, answer.error_kind) == (None, ErrorKind.HTTP)
    assert "provider died" in answer.message
    assert len(answer.attempts) == 2
