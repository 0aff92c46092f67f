"""Whether the provider of a model kept a text from going in or an answer from coming out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.outcome import BlockedAt, ErrorKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guardmark.net.service import Exchange

_ERROR_WORDS: Final = frozenset(
    {
        *("content_filter", "content_filtered", "content_policy_violation", "content_blocked"),
        *("responsibleaipolicyviolation", "data_inspection_failed", "moderation_blocked"),
        *("guardrail_intervened", "prompt_blocked", "sensitive_content"),
    }
)
"""Codes and types of errors that stand for a filter of contents, in small letters."""
_FINISH_WORDS: Final = frozenset(
    {
        *("content_filter", "content_filtered", "guardrail_intervened", "safety", "blocklist"),
        *("prohibited_content", "spii", "recitation", "image_safety", "sensitive", "language"),
    }
)
"""Reasons to finish of that kind, of several providers, in small letters."""
_ACTION: Final = "amazon-bedrock-guardrailAction"
_TRACE: Final = "amazon-bedrock-trace"
_REPLACED: Final = "guardrail_intervened"
"""Where the answer is a sentence of the provider in place of the model's."""


def is_filter_reason(finish_reason: str) -> bool:
    """Tell whether a reason to finish is a filter of contents."""
    return finish_reason.lower() in _FINISH_WORDS


def block_in(exchange: Exchange) -> BlockedAt | None:
    """Return where the provider blocked, or None: for answers without a text of the model."""
    document = _object(exchange.body)
    if exchange.error_kind in {ErrorKind.HTTP, ErrorKind.REFUSED}:
        return _in_error(_error_of(document))
    if exchange.error_kind is not None:
        return None
    feedback = document.get("promptFeedback") or document.get("prompt_feedback")
    if isinstance(feedback, dict) and (feedback.get("blockReason") or feedback.get("block_reason")):
        return BlockedAt.INPUT
    if _is_intervened(document):
        return BlockedAt.INPUT if _at_input(document) else BlockedAt.OUTPUT
    first = _first(document.get("choices")) or _first(document.get("candidates")) or document
    for name in ("finish_reason", "finishReason", "stopReason", "stop_reason"):
        if isinstance(first.get(name), str) and is_filter_reason(first[name]):
            return BlockedAt.OUTPUT
    return None


def _error_of(document: Mapping[str, Any]) -> Mapping[str, Any]:
    choice = _first(document.get("choices"))
    for holder in (document, choice or {}):
        if isinstance(holder.get("error"), dict):
            error: Mapping[str, Any] = holder["error"]
            return error
    return document


def _in_error(error: Mapping[str, Any]) -> BlockedAt | None:
    inner = error.get("innererror") or error.get("inner_error") or {}
    metadata = error.get("metadata")
    inner = inner if isinstance(inner, dict) else {}
    words = (error.get("code"), error.get("type"), inner.get("code"))
    is_named = any(isinstance(word, str) and word.lower() in _ERROR_WORDS for word in words)
    is_moderated = isinstance(metadata, dict) and "flagged_input" in metadata
    if not (is_named or is_moderated or "content_filter_result" in inner):
        return None
    is_of_answer = error.get("param") in {"response", "completion", "output"}
    return BlockedAt.OUTPUT if is_of_answer else BlockedAt.INPUT


def _is_intervened(document: Mapping[str, Any]) -> bool:
    choice = _first(document.get("choices")) or document
    reasons = (choice.get("finish_reason"), document.get("stopReason"))
    return document.get(_ACTION) == "INTERVENED" or _REPLACED in reasons


def _at_input(document: Mapping[str, Any]) -> bool:
    trace: Any = document.get(_TRACE) or document.get("trace")
    guardrail = trace.get("guardrail") if isinstance(trace, dict) else None
    if not isinstance(guardrail, dict):
        return False
    has_output = bool(guardrail.get("outputAssessments") or guardrail.get("outputs"))
    return bool(guardrail.get("inputAssessment") or guardrail.get("input")) and not has_output


def _first(listed: Any) -> dict[str, Any] | None:
    first = listed[0] if isinstance(listed, list) and listed else None
    return first if isinstance(first, dict) else None


def _object(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    if isinstance(document, list):
        document = document[0] if document else None
    return document if isinstance(document, dict) else {}
