"""Filters of providers, in the shapes in which they are told."""

from __future__ import annotations

import json

import pytest

from guardmark.core.outcome import BlockedAt, ErrorKind
from guardmark.net.chat import read_chat, refuses_options
from guardmark.net.service import Exchange


def exchange(body: object, *, status: int = 200) -> Exchange:
    """One answer of a server."""
    return Exchange(
        status=status,
        body=json.dumps(body).encode(),
        service_ns=1,
        error_kind=None if status == 200 else ErrorKind.HTTP,
        message="" if status == 200 else f"answered {status}",
    )


def choice(reason: str, content: object = "", **more: object) -> dict[str, object]:
    """A body with one choice."""
    return {"choices": [{"finish_reason": reason, "message": {"content": content}}], **more}


AZURE = {"code": "content_filter", "param": "prompt", "message": "filtered"}
INNER = {"code": "ResponsibleAIPolicyViolation", "content_filter_result": {}}


@pytest.mark.parametrize(
    ("body", "status", "place"),
    [
        ({"error": AZURE}, 400, BlockedAt.INPUT),
        ({"error": {"code": 400, "innererror": INNER}}, 400, BlockedAt.INPUT),
        ({"error": {**AZURE, "param": "response"}}, 400, BlockedAt.OUTPUT),
        ({"error": {"code": "content_policy_violation"}}, 400, BlockedAt.INPUT),
        ({"error": {"code": "data_inspection_failed"}}, 400, BlockedAt.INPUT),
        ({"error": {"code": 403, "metadata": {"flagged_input": "x"}}}, 403, BlockedAt.INPUT),
        (choice("content_filter"), 200, BlockedAt.OUTPUT),
        (choice("content_filter", None), 200, BlockedAt.OUTPUT),
        (choice("SAFETY"), 200, BlockedAt.OUTPUT),
        ({"choices": [{"finish_reason": "content_filter", "message": {}}]}, 200, BlockedAt.OUTPUT),
        ({"choices": [], "promptFeedback": {"blockReason": "SAFETY"}}, 200, BlockedAt.INPUT),
        ({"candidates": [{"finishReason": "PROHIBITED_CONTENT"}]}, 200, BlockedAt.OUTPUT),
        ({"stopReason": "guardrail_intervened", "output": {}}, 200, BlockedAt.OUTPUT),
        (choice("guardrail_intervened", "I cannot do this."), 200, BlockedAt.OUTPUT),
        (
            choice(
                "stop",
                "I cannot do this.",
                **{
                    "amazon-bedrock-guardrailAction": "INTERVENED",
                    "amazon-bedrock-trace": {"guardrail": {"input": {"x": 1}}},
                },
            ),
            200,
            BlockedAt.INPUT,
        ),
    ],
)
def test_a_filter_is_a_block_and_no_failure(body: object, status: int, place: BlockedAt) -> None:
    """At the place where it stands; the request is not sent again without a field."""
    answer = read_chat(exchange(body, status=status))
    assert (answer.text, answer.blocked_at) == (None, place)
    assert not refuses_options(answer)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (choice("stop", "content_filter"), 200),
        (choice("content_filter", "Some words came out"), 200),
        (choice("stop", "a guardrail of wood"), 200),
        ({"error": {"code": "invalid_request_error", "message": "content_filter?"}}, 400),
        ({"error": {"code": "context_length_exceeded"}}, 400),
        ({"error": "content_filter"}, 500),
        (["content_filter"], 400),
        ("content_filter", 400),
    ],
)
def test_what_only_speaks_of_filters_is_none(body: object, status: int) -> None:
    """Answers with words are judged as they came, and other errors stay errors."""
    assert read_chat(exchange(body, status=status)).blocked_at is None
