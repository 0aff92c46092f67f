"""What a message of the chat protocol holds: words for the user, a refusal, thoughts, calls."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.sample import ToolCall
from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_ENCODE: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_THOUGHTS: Final = ("reasoning_content", "reasoning", "thinking")
"""Fields beside the content in which servers put what a model thought."""
_THINKING: Final = frozenset({"thinking", "reasoning", "reasoning_content"})
"""Types of parts that are thoughts."""
_CALLS: Final = frozenset({"tool_use", "tool_call", "function_call"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMessage:
    """One answer of a model, in its parts.

    Attributes:
        text: What the user sees: words, and below them what the model does; empty without any.
        refusal: What the model said in the field or the part for refusals; empty without.
        thoughts: What it thought in a field or part of its own.
        other_parts: Types of parts that hold no words, such as images.
        calls: Tools that it calls; they stand in the text, too.
        words: The text without them.
    """

    text: str
    refusal: str
    thoughts: str
    other_parts: tuple[str, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    words: str = ""


def read_message(message: Mapping[str, Any]) -> ChatMessage:
    """Read a message; what is none of the protocol raises a TypeError or a KeyError."""
    words, refusals, thoughts, acts, others = [], [], [], [], []
    for kind, text in _parts(message.get("content")):
        if kind == "text":
            words.append(text)
        elif kind == "refusal":
            refusals.append(text)
        elif kind == "thoughts":
            thoughts.append(text)
        elif kind == "call":
            acts.append(text)
        else:
            others.append(text)
    refusal = message.get("refusal")
    if isinstance(refusal, str):
        refusals.append(refusal)
    beside = (message.get(name) for name in _THOUGHTS)
    thoughts += [thought for thought in beside if isinstance(thought, str)]
    acts += [_ENCODE(each.get("function", each)) for each in message.get("tool_calls") or ()]
    text = "".join(words)
    return ChatMessage(
        text="\n".join([text, *acts] if text else acts),  # what a model does is an answer
        refusal="".join(refusals),
        thoughts="\n".join(filter(None, thoughts)),
        other_parts=tuple(others),
        calls=tuple(_calls(message)),
        words=text,
    )


def _calls(message: Mapping[str, Any]) -> Iterator[ToolCall]:
    """Yield the tools that a message calls; a call without a name is none."""
    for number, stated in enumerate(message.get("tool_calls") or (), start=1):
        function = stated.get("function", stated)
        if not isinstance(function.get("name"), str):
            continue
        arguments = function.get("arguments")
        text = arguments if isinstance(arguments, str) else _ENCODE(arguments or {})
        yield ToolCall(
            id=str(stated.get("id") or f"call-{number}"), name=function["name"], arguments=text
        )


def _parts(content: Any) -> Iterator[tuple[str, str]]:
    """Yield the parts of a content, which may be one text, as what they are and their words."""
    if content is None:
        return
    if isinstance(content, str):
        yield "text", content
        return
    if not isinstance(content, list):
        raise TypeError(content)
    for part in content:
        yield ("text", part) if isinstance(part, str) else _part(part)


def _part(part: Any) -> tuple[str, str]:
    kind = str(part.get("type") or ("text" if "text" in part else ""))
    if kind in _THINKING:
        thought = next((part[name] for name in (*_THOUGHTS, "text") if part.get(name)), "")
        pieces = [thought] if isinstance(thought, str) else [text for _, text in _parts(thought)]
        return "thoughts", "".join(pieces)
    if kind == "refusal":
        return "refusal", str(part.get("refusal") or part.get("text") or "")
    if kind in _CALLS:
        return "call", _ENCODE(part)
    if isinstance(part.get("text"), str):
        return "text", part["text"]
    return "other", kind or "a part without a type"
