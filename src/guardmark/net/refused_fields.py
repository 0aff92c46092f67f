"""Which fields of a request a server refuses by their names, and what is sent instead."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

SYSTEM_ROLE: Final = "the system role"
"""Stands among refused fields for the role of a message."""

_LIMIT, _OTHER_LIMIT = "max_tokens", "max_completion_tokens"
_OF_ITS_VALUE: Final = re.compile(
    r"(?i)too (large|big|high|long|small)|at (most|least)|m(ax|in)imum|exceed|between| than|[<>]"
)
_OF_THE_PROTOCOL: Final = (
    *(("logprobs", "top_logprobs"), (_LIMIT,), (_OTHER_LIMIT,), ("response_format",)),
)
"""Fields that go together; a name of theirs in a message can mean nothing else."""
_OF_THE_MODEL: Final = ("temperature", "top_p", "seed", "stop", "reasoning_effort")
_NOT_TAKEN: Final = re.compile(
    r"(?i)\bun(supported|known|recogni[sz]ed|expected)\b"
    r"|(not|n't|cannot|no longer) (\w+ ){0,2}"
    r"(support(ed)?|permitted|allowed|accept(ed)?|enabled|available|recogni[sz]ed|specified)"
    r"|extra (inputs|fields)|only the default|deprecated"
)
_OF_THE_SYSTEM_ROLE: Final = re.compile(
    r"(?i)(system|developer)['\"`]? (role|message|instruction|prompt)s?\b.{0,60}"
    r"(not|n't|unsupported|only)"
    r"|(no|unsupported|does not support) ['\"`]?(system|developer)\b"
    r"|only user and assistant roles|roles must alternate"
)
_FRONT: Final = ("system", "developer")


def refused_names(message: str, fields: Collection[str]) -> dict[str, str]:
    """Return which of the fields a service refuses whatever the model, and what to send instead."""
    is_about_limit = any(name in message for name in (_LIMIT, _OTHER_LIMIT))
    if is_about_limit and _OF_ITS_VALUE.search(message):
        return {}
    if _LIMIT in fields and _OTHER_LIMIT in message:
        return {_LIMIT: _OTHER_LIMIT}
    for names in _OF_THE_PROTOCOL:
        if not set(names).isdisjoint(fields) and any(name in message for name in names):
            return dict.fromkeys(names, "")
    return {}


def refused_by_model(message: str, fields: Collection[str]) -> dict[str, str]:
    """Return which of the fields one model refuses: another one of the service may take them."""
    if not _NOT_TAKEN.search(message):
        return {}
    for name in _OF_THE_MODEL:
        # `stop` and `seed` are words of every day: a name is quoted, or called a parameter.
        pattern = rf"['\"`]{name}['\"`]|\b{name}\b.{{0,20}}\b(param|argument|field|option)"
        pattern += rf"|\b(param\w*|arguments?|fields?|options?|inputs?)\b\W{{0,3}} ?{name}\b"
        is_unmistakable = "_" in name or name == "temperature"
        if name in fields and re.search(rf"\b{name}\b" if is_unmistakable else pattern, message):
            return {name: ""}
    return {}


def refuses_system_role(message: str, messages: Sequence[Mapping[str, Any]]) -> bool:
    """Tell whether a server refuses messages of the system."""
    has_one = any(each.get("role") in _FRONT for each in messages)
    return has_one and _OF_THE_SYSTEM_ROLE.search(message) is not None


def without_system_role(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Put what stands in messages of the system before the next words of the user."""
    merged: list[dict[str, Any]] = []
    waiting: list[str] = []
    for message in messages:
        if message.get("role") in _FRONT:
            waiting.append(_words(message.get("content")))
        elif waiting and message.get("role") == "user":
            merged.append({**message, "content": _with_words(waiting, message.get("content"))})
            waiting = []
        else:
            merged.append(dict(message))
    if waiting:
        merged.append({"role": "user", "content": "\n\n".join(waiting)})
    return merged


def _words(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content)
    return str(content or "")


def _with_words(before: Sequence[str], content: Any) -> Any:
    if isinstance(content, list):
        return [{"type": "text", "text": "\n\n".join(before)}, *content]
    return "\n\n".join([*before, str(content or "")])
