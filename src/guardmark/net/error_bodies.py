"""What a server says of an error in its body, also behind a status that promises an answer."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, Final

from guardmark.core.values import dataclass

_MOST_WORDS: Final = 2_000
_MOST_OF_OTHER_TEXT: Final = 200
_MARK: Final = b'"error"'
"""Stands in every body that holds an error object or a finish reason of that name."""

_STATUS_OF_WORD: Final = {
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "rate_limited": 429,
    "too_many_requests": 429,
    "resource_exhausted": 429,
    "overloaded_error": 503,
    "overloaded": 503,
    "unavailable": 503,
    "service_unavailable": 503,
    "server_error": 500,
    "internal_server_error": 500,
    "internal_error": 500,
    "internal": 500,
    "api_error": 500,
    "timeout": 504,
    "deadline_exceeded": 504,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "unauthenticated": 401,
    "permission_error": 403,
    "permission_denied": 403,
    "insufficient_quota": 402,
    "model_not_found": 404,
    "not_found_error": 404,
    "not_found": 404,
    "invalid_request_error": 400,
    "invalid_argument": 400,
    "unsupported_parameter": 400,
    "unsupported_value": 400,
    "content_filter": 400,
}
"""Words of providers to the status that other servers answer with."""

_LOWEST, _HIGHEST = 400, 599
_NOT_JSON: Final = (ValueError, RecursionError)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorObject:
    """An error that a server wrote into a body.

    Attributes:
        status: The status that it names or that its word stands for, or None.
        words: What it says, on one line.
        parameter: The field of the request that it is about, or empty.
        wait_s: How long it asks to wait, or None.
    """

    status: int | None
    words: str
    parameter: str = ""
    wait_s: float | None = None


def error_inside(body: bytes) -> ErrorObject | None:
    """Return the error that a body of status 2xx holds in place of an answer, or beside one.

    A body without the mark is not parsed: this stands on the way of every answer.
    """
    if _MARK not in body:
        return None
    document = _object(body)
    if document.get("error"):
        return _error(document["error"])
    choices = document.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict):
        return None
    if choice.get("error"):
        return _error(choice["error"])
    if choice.get("finish_reason") == "error":
        return ErrorObject(status=None, words="the answer broke off (finish reason error)")
    return None


def error_of(body: bytes) -> ErrorObject:
    """Return what a body of an error status says; text that is no JSON is quoted in part."""
    document = _object(body)
    for name in ("error", "detail", "message", "errors"):
        if document.get(name):
            error = _error(document[name])
            if not error.parameter and isinstance(document.get("param"), str):
                return ErrorObject(
                    status=error.status, words=error.words, parameter=document["param"]
                )
            return error
    return ErrorObject(status=None, words=_line(_text(body), most=_MOST_OF_OTHER_TEXT))


def _error(error: Any) -> ErrorObject:
    if not isinstance(error, dict):
        words = error if isinstance(error, str) else json.dumps(error, ensure_ascii=False)
        return ErrorObject(status=None, words=_line(words))
    said = error.get("message") or error.get("msg") or error.get("detail")
    words = said if isinstance(said, str) else json.dumps(error, ensure_ascii=False)
    parameter = error.get("param")
    return ErrorObject(
        status=_status(error),
        words=_line(words),
        parameter=parameter if isinstance(parameter, str) else "",
        wait_s=_wait_s(error),
    )


def _status(error: dict[str, Any]) -> int | None:
    """Read the status that an error object names, as a number or as a word."""
    for name in ("code", "status", "status_code", "type"):
        value = error.get(name)
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) == 3:
            value = int(value)
        if isinstance(value, int) and _LOWEST <= value <= _HIGHEST:
            return value
        if isinstance(value, str) and value.lower() in _STATUS_OF_WORD:
            return _STATUS_OF_WORD[value.lower()]
    return None


def _wait_s(error: dict[str, Any]) -> float | None:
    """Read how long to wait: `retry_after` in seconds, or a delay such as 17s among the details."""
    places = [error, error.get("metadata"), *(_list(error.get("details")))]
    for place in places:
        if not isinstance(place, dict):
            continue
        for name in ("retry_after", "retry_after_seconds", "retryDelay"):
            value = place.get(name)
            if isinstance(value, str):
                with suppress(ValueError):
                    value = float(value.removesuffix("s"))
            if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9:
                return float(value)
    return None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _object(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except _NOT_JSON:
        return {}
    if isinstance(document, list) and document:
        document = document[0]  # some gateways send a list of one error
    return document if isinstance(document, dict) else {}


def _text(body: bytes) -> str:
    return body[: 4 * _MOST_OF_OTHER_TEXT].decode("utf-8", "replace")


def _line(text: str, *, most: int = _MOST_WORDS) -> str:
    return " ".join(text.split())[:most]
