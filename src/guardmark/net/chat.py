"""The common protocols of chat and embeddings: what is sent, and what may come back."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.outcome import ChatAnswer, EmbeddingAnswer, ErrorKind, TokenChoice, fault_of
from guardmark.core.usage import Price, Usage, price_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guardmark.core.outcome import Attempt, Vector
    from guardmark.net.service import Exchange, Sender

_MOST_OF_A_BODY = 300
_BEYOND = 1 << 53
_ENCODE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_NOT_OF_THE_PROTOCOL = (
    *(ValueError, KeyError, IndexError, TypeError, AttributeError),
    RecursionError,  # brackets in brackets, a hundred thousand deep
)
_NOT_SUPPORTED = frozenset({400, 422, 501})


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatEndpoint:
    """A model behind a server that speaks the common chat protocol."""

    endpoint: Sender
    model: str
    options: Mapping[str, Any] = field(default_factory=dict)
    price: Price | None = None
    # Field that the service refused to what is sent instead, if any; other models share it.
    refused: dict[str, str] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)  # fields of requests that were answered

    async def complete(
        self, messages: Sequence[Mapping[str, str]], **options: object
    ) -> ChatAnswer:
        """Ask for one completion, without what the server refused by name at first."""
        attempts: tuple[Attempt, ...] = ()
        refused = self.refused
        while True:
            fields = {**self.options, **options}.items()
            names = {key: key if key in self.taken else refused.get(key, key) for key, _ in fields}
            sent = {name: each for key, each in fields if (name := names[key])}
            request = {"model": self.model, "messages": list(messages), **sent}
            answer = read_chat(await self.endpoint.send(_ENCODE(request).encode()), self.price)
            attempts += answer.attempts
            if not (new := _refused(answer, sent.keys() - self.taken)):
                self.taken.update(sent if answer.text is not None else ())
                return replace(answer, attempts=attempts)
            refused.update({key: new.get(name, name) for key, name in refused.items()} | new)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingEndpoint:
    """A model behind a server that speaks the common protocol of embeddings."""

    endpoint: Sender
    model: str
    options: Mapping[str, Any] = field(default_factory=dict)
    price: Price | None = None

    async def embed(self, texts: Sequence[str]) -> EmbeddingAnswer:
        """Ask for the vectors of some texts in one call."""
        request = {"model": self.model, "input": list(texts), "encoding_format": "float"}
        request.update(self.options)
        exchange = await self.endpoint.send(_ENCODE(request).encode())
        return read_embeddings(exchange, len(texts), price=self.price)


def read_chat(exchange: Exchange, price: Price | None = None) -> ChatAnswer:
    """Read the answer of a chat server."""
    if exchange.error_kind is not None:
        return ChatAnswer(text=None, **_fault(exchange, failure_message(exchange)))
    try:
        document = json.loads(exchange.body, object_pairs_hook=_once)
        choice = document["choices"][0]
        message = choice["message"]
        text, refusal, calls = map(message.get, ("content", "refusal", "tool_calls"))
        if acts := [_ENCODE(each.get("function", each)) for each in calls or ()]:
            text = "\n".join([text, *acts] if text else acts)  # what a model does is an answer
    except _NOT_OF_THE_PROTOCOL as error:
        what = f"the answer is not of the chat protocol ({type(error).__name__})"
        what += _server_message(exchange.body)
        return ChatAnswer(text=None, **_fault(exchange, what))
    words = text if isinstance(text, str) and text else refusal
    if not isinstance(words, str):
        return ChatAnswer(text=None, **_fault(exchange, _why_empty(choice, message)))
    return ChatAnswer(
        text=words,
        is_refusal=words is refusal and words is not text,
        finish_reason=str(choice.get("finish_reason") or ""),
        usage=read_usage(document.get("usage"), price),
        choices=_token_choices(choice.get("logprobs")),
        attempts=exchange.attempts,
        service_ns=exchange.service_ns,
    )


def _why_empty(choice: Mapping[str, Any], message: Mapping[str, Any]) -> str:
    """Say why an answer has no text: what helps differs."""
    reason = choice.get("finish_reason") or "no reason given"
    thoughts = (message.get(name) for name in ("reasoning_content", "reasoning", "thinking"))
    if any(isinstance(thought, str) and thought for thought in thoughts):
        return (
            f"the model only thought and never answered (finish reason {reason}): raise "
            "max_tokens, or lower its reasoning effort"
        )
    return f"the answer has no content ({reason})"


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse an object in which a key has two values: the last would silently win."""
    values = dict(pairs)
    if len(values) < len(pairs) and any(values[key] != value for key, value in pairs):
        raise ValueError("a key appears twice")
    return values


def refuses_options(answer: ChatAnswer) -> bool:
    """Tell whether a server seems to refuse how it was asked, not what it was asked."""
    statuses = {attempt.status for attempt in answer.attempts}
    return answer.error_kind is ErrorKind.HTTP and bool(statuses & _NOT_SUPPORTED)


_INSTEAD: Final = "max_completion_tokens"
_OF_ITS_VALUE: Final = re.compile(
    r"(?i)too (large|big|high|long|small)|at (most|least)|m(ax|in)imum|exceed|between| than|[<>]"
)
_MAY_GO: Final = (("logprobs", "top_logprobs"), ("max_tokens",), (_INSTEAD,), ("response_format",))


def _refused(answer: ChatAnswer, fields: set[str]) -> dict[str, str]:
    """Return which fields a server refuses by their names, and what to send instead."""
    if not refuses_options(answer):
        return {}
    is_about_limit = any(name in answer.message for name in ("max_tokens", _INSTEAD))
    if is_about_limit and _OF_ITS_VALUE.search(answer.message):
        return {}
    if "max_tokens" in fields and _INSTEAD in answer.message:
        return {"max_tokens": _INSTEAD}
    named = (each for each in _MAY_GO if fields.intersection(each))
    return dict.fromkeys(next((x for x in named if any(f in answer.message for f in x)), ()), "")


def json_form(schema: Mapping[str, object], *, name: str) -> dict[str, object]:
    """Return the request field that holds a model to a JSON Schema."""
    form = {"name": name, "strict": True, "schema": dict(schema)}
    return {"type": "json_schema", "json_schema": form}


def _fault(exchange: Exchange, message: str) -> dict[str, Any]:
    """Return what an answer says of a call that failed, or that brought what cannot be read."""
    return {
        "error_kind": exchange.error_kind or ErrorKind.CONTRACT,
        "message": message,
        "attempts": exchange.attempts,
        "service_ns": exchange.service_ns,
    }


def _server_message(body: bytes) -> str:
    """What the server itself said of an error, plain text or JSON, on one line."""
    text = body[: 4 * _MOST_OF_A_BODY].decode("utf-8", "replace")
    try:
        error = json.loads(body).get("error")
        text = str(error.get("message", error)) if isinstance(error, dict) else str(error or text)
    except (ValueError, AttributeError, RecursionError):
        pass  # no JSON: the text itself is the message
    line = " ".join(text.split())[:_MOST_OF_A_BODY]
    return f"; the server says: {line}" if line else ""


def failure_message(exchange: Exchange) -> str:
    """Say what failed, in our words and those of the server."""
    return f"{exchange.message}{_server_message(exchange.body)}"


def read_usage(usage: object, price: Price | None, *, written: int | None = None) -> Usage | None:
    """Read what a call consumed."""
    counts = usage if isinstance(usage, dict) else {}
    read = _count(counts.get("prompt_tokens"))
    written = _count(counts.get("completion_tokens")) if written is None else written
    cost = None if price is None else price_of(price, read=read, written=written)
    if not isinstance(usage, dict) and cost is None:
        return None
    return Usage(prompt_tokens=read, completion_tokens=written, cost=cost)


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _token_choices(logprobs: object) -> tuple[TokenChoice, ...]:
    """Read log probabilities where the server gives them in the usual form."""
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    if not isinstance(content, list):
        return ()
    positions = []
    for position in content:
        if not isinstance(position, dict):
            return ()
        weighed = position.get("top_logprobs")
        alternatives = [
            (str(each["token"]), float(each["logprob"]))
            for each in (weighed if isinstance(weighed, list) else [])
            if isinstance(each, dict) and _is_number(each.get("logprob"))
        ]
        alternatives.sort(key=lambda pair: -pair[1])
        positions.append(
            TokenChoice(token=str(position.get("token", "")), alternatives=tuple(alternatives))
        )
    return tuple(positions)


def _is_number(value: object) -> bool:
    """Whether it can be a log probability: JSON also holds integers beyond any float."""
    return isinstance(value, float) or (isinstance(value, int) and abs(value) < _BEYOND)


def read_embeddings(
    exchange: Exchange, count: int, *, price: Price | None = None
) -> EmbeddingAnswer:
    """Read the answer of a server of embeddings."""
    if exchange.error_kind is not None:
        return EmbeddingAnswer(vectors=None, **_fault(exchange, failure_message(exchange)))
    try:
        document = json.loads(exchange.body, object_pairs_hook=_once)
        vectors = _vectors(document["data"], count)
        fault = fault_of(vectors)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        vectors, document = (), None
        fault = f"the answer is not of the protocol of embeddings ({type(error).__name__})"
    if fault:
        return EmbeddingAnswer(vectors=None, **_fault(exchange, fault))
    return EmbeddingAnswer(
        vectors=vectors,
        usage=read_usage(document.get("usage"), price, written=0),
        attempts=exchange.attempts,
        service_ns=exchange.service_ns,
    )


def _vectors(data: Any, count: int) -> tuple[Vector, ...]:
    """Return the vectors in the order of their texts, which the answer's own numbers tell."""
    vectors = {each.get("index", at): each["embedding"] for at, each in enumerate(data)}
    if sorted(vectors) != list(range(count)) or len(data) != count:
        raise ValueError(count)
    for vector in vectors.values():
        if not isinstance(vector, list) or not all(type(v) in {int, float} for v in vector):
            raise TypeError(vector)
    return tuple(tuple(map(float, vectors[index])) for index in range(count))
