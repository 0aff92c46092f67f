"""The common protocols of chat and embeddings: what is sent, and what may come back."""

from __future__ import annotations

import json
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.embedding import EmbeddingAnswer, fault_of
from guardmark.core.outcome import (
    CUT_REASONS,
    BlockedAt,
    ChatAnswer,
    ErrorKind,
    TokenChoice,
)
from guardmark.core.usage import Price, Usage, call_price, price_of
from guardmark.core.values import dataclass
from guardmark.net.chat_message import ChatMessage, read_message
from guardmark.net.error_bodies import error_of
from guardmark.net.provider_blocks import block_in
from guardmark.net.refused_fields import (
    SYSTEM_ROLE,
    refused_by_model,
    refused_names,
    refuses_system_role,
    without_system_role,
)
from guardmark.net.service import CallCost

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guardmark.core.embedding import Vector
    from guardmark.core.outcome import Attempt
    from guardmark.net.service import Exchange, Sender

_BEYOND = 1 << 53
_ENCODE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_NOT_OF_THE_PROTOCOL = (
    *(ValueError, KeyError, IndexError, TypeError, AttributeError),
    RecursionError,  # brackets in brackets, a hundred thousand deep
)
_NOT_SUPPORTED = frozenset({400, 422, 501})
_DECLINED = "refusal"
_REPLACED_MARK = b"guardrail"
"""Stands in answers whose text may be a sentence of the provider in place of the model's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatEndpoint:
    """A model behind a server that speaks the common chat protocol."""

    endpoint: Sender
    model: str
    options: Mapping[str, Any] = field(default_factory=dict)
    price: Price | None = None
    # Field that the service refused to what is sent instead, if any; other models share it.
    refused: dict[str, str] = field(default_factory=dict)
    refused_by_model: dict[str, str] = field(default_factory=dict)  # other models may take these
    taken: set[str] = field(default_factory=set)  # fields of requests that were answered

    async def complete(
        self, messages: Sequence[Mapping[str, Any]], **options: object
    ) -> ChatAnswer:
        """Ask for one completion, without what the server refused by name at first."""
        attempts: tuple[Attempt, ...] = ()
        given = {**self.options, **options}
        while True:
            sent = self._fields(given)
            is_merged = SYSTEM_ROLE in self.refused_by_model
            shown = without_system_role(messages) if is_merged else list(messages)
            request = {"model": self.model, "messages": shown, **sent}
            body = _ENCODE(request).encode()
            if self.price is None:
                answer = read_chat(await self.endpoint.send(body))
            else:
                answer = await self._ask_at_a_price(body, self.price, sent)
            attempts += answer.attempts
            if not self._learn(answer, sent, shown):
                message = answer.message
                if message and "stream" in sent:
                    message = _with_advice(answer)
                return replace(answer, attempts=attempts, message=message)

    async def _ask_at_a_price(
        self, body: bytes, price: Price, sent: Mapping[str, object]
    ) -> ChatAnswer:
        """Set aside the most that the request can cost, and count what it did cost."""
        limit = sent.get("max_tokens", sent.get("max_completion_tokens"))
        written = limit if isinstance(limit, int) else 0
        cost = cost_of_request(price, body, written=written)
        answer = read_chat(await self.endpoint.send(body, cost=cost), price)
        usage = _settled(self.endpoint, answer.usage, cost, price)
        return replace(answer, usage=usage)

    def _fields(self, given: Mapping[str, object]) -> dict[str, object]:
        """Return the fields to send, under the names that the server takes."""
        if not (self.refused or self.refused_by_model):
            return dict(given)
        fields = {}
        for key, value in given.items():
            name = key
            if key not in self.taken:
                name = self.refused_by_model.get(key, self.refused.get(key, key))
            if name:
                fields[name] = value
        return fields

    def _learn(
        self,
        answer: ChatAnswer,
        sent: Mapping[str, object],
        shown: Sequence[Mapping[str, Any]],
    ) -> bool:
        """Note what a server took or refused; tell whether to ask again without something."""
        if answer.text is not None:
            self.taken.update(sent)
            return False
        if not refuses_options(answer):
            return False
        # Requests that were under way together may be refused for the same field.
        fields = sent.keys() - self.taken
        names = refused_names(answer.message, fields)
        if names:
            renamed = {key: names.get(name, name) for key, name in self.refused.items()}
            self.refused.update(renamed | names)
            return True
        names = refused_by_model(answer.message, fields)
        if names:
            self.refused_by_model.update(names)
            return True
        if refuses_system_role(answer.message, shown):
            self.refused_by_model[SYSTEM_ROLE] = ""
            return True
        return False


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
        body = _ENCODE(request).encode()
        if self.price is None:
            return read_embeddings(await self.endpoint.send(body), len(texts))
        cost = cost_of_request(self.price, body, written=0)
        exchange = await self.endpoint.send(body, cost=cost)
        answer = read_embeddings(exchange, len(texts), price=self.price)
        usage = _settled(self.endpoint, answer.usage, cost, self.price)
        return replace(answer, usage=usage)


def cost_of_request(price: Price, body: bytes, *, written: int) -> CallCost:
    """Return the most a request can cost: a token has a byte at least, and so many are written."""
    fixed = call_price(price, len(body))
    tokens = len(body) * price.input_per_1k + written * price.output_per_1k
    return CallCost(at_most=fixed + tokens / 1000, unanswered=fixed, is_exact=False)


def _settled(endpoint: Sender, usage: Usage | None, cost: CallCost, price: Price) -> Usage | None:
    """Tell an endpoint what a request did cost, units of text included, where it is known."""
    if usage is None or usage.cost is None:
        return usage
    paid = usage.cost + cost.unanswered - price.per_call
    endpoint.correct(cost.at_most, paid)
    return replace(usage, cost=paid)


def read_chat(exchange: Exchange, price: Price | None = None) -> ChatAnswer:
    """Read the answer of a chat server."""
    if exchange.error_kind is not None:
        return _without_answer(exchange, exchange.message)
    try:
        document = _read_json(exchange.body)
        choice = document["choices"][0]
        message = read_message(choice["message"])
    except _NOT_OF_THE_PROTOCOL as error:
        words = error_of(exchange.body).words
        what = f"the answer is not of the chat protocol ({type(error).__name__})"
        what += f"; the server says: {words}" if words else ""
        return _without_answer(exchange, what)
    reason = str(choice.get("finish_reason") or "")
    text, usage = message.text or message.refusal, read_usage(document.get("usage"), price)
    # A filter that lets some words out has not kept them in: these are judged as they came.
    is_replaced = _REPLACED_MARK in exchange.body
    if not text or is_replaced:
        blocked_at = block_in(exchange)
        if blocked_at is not None:
            return _blocked(exchange, blocked_at, reason=reason, usage=usage)
    is_refusal = reason == _DECLINED or (not message.text and bool(message.refusal))
    if not text and not is_refusal:
        kind, why = _why_empty(message, reason)
        fault = {**_fault(exchange, why), "error_kind": kind}
        return ChatAnswer(
            text=None, finish_reason=reason, thoughts=message.thoughts, usage=usage, **fault
        )
    return ChatAnswer(
        text=text,
        is_refusal=is_refusal,
        finish_reason=reason,
        thoughts=message.thoughts,
        usage=usage,
        choices=_token_choices(choice.get("logprobs")),
        calls=message.calls,
        words=message.words,
        chunks=exchange.chunks,
        attempts=exchange.attempts,
        service_ns=exchange.service_ns,
    )


def _without_answer(exchange: Exchange, message: str) -> ChatAnswer:
    """Return what a body without an answer is: a block of the provider, or a failure."""
    blocked_at = block_in(exchange)
    if blocked_at is not None:
        return _blocked(exchange, blocked_at)
    return ChatAnswer(text=None, **_fault(exchange, message))


def _blocked(
    exchange: Exchange, blocked_at: BlockedAt, *, reason: str = "", usage: Usage | None = None
) -> ChatAnswer:
    """Return the answer that the filter of a provider is: no failure, and no text."""
    what = "took the text" if blocked_at is BlockedAt.INPUT else "gave the answer out"
    said = f"; {exchange.message}" if exchange.message else ""
    return ChatAnswer(
        text=None,
        blocked_at=blocked_at,
        finish_reason=reason,
        usage=usage,
        **(_fault(exchange, f"the provider's filter never {what}{said}")),
    )


def _why_empty(message: ChatMessage, reason: str) -> tuple[ErrorKind, str]:
    """Say why an answer has no text: what helps differs."""
    ended = f"finish reason {reason or 'not stated'}"
    if message.thoughts:
        advice = "raise max_tokens, or lower its reasoning effort (reasoning_effort)"
        return ErrorKind.LENGTH, f"the model only thought and never answered ({ended}): {advice}"
    if reason in CUT_REASONS:
        return ErrorKind.LENGTH, f"the answer was cut before its first word ({ended})"
    if message.other_parts:
        kinds = ", ".join(dict.fromkeys(message.other_parts))
        return ErrorKind.CONTRACT, f"the answer holds no text ({kinds})"
    return ErrorKind.CONTRACT, f"the answer has no content ({ended})"


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse an object in which a key has two values: the last would silently win."""
    values = dict(pairs)
    if len(values) < len(pairs) and any(values[key] != value for key, value in pairs):
        raise ValueError("a key appears twice")
    return values


_DECODE: Final = json.JSONDecoder(object_pairs_hook=_once).decode  # made once, for every answer


def _read_json(body: bytes) -> Any:
    return _DECODE(body.decode(json.detect_encoding(body), "surrogatepass"))


def refuses_options(answer: ChatAnswer) -> bool:
    """Tell whether a server seems to refuse how it was asked, not what it was asked."""
    statuses = {attempt.status for attempt in answer.attempts}
    if answer.blocked_at is not None:
        return False
    return answer.error_kind is ErrorKind.HTTP and bool(statuses & _NOT_SUPPORTED)


def _with_advice(answer: ChatAnswer) -> str:
    """Say what to do where a server refuses to stream, or to state what a stream used."""
    message = answer.message
    if not refuses_options(answer):
        return message
    if "stream_options" in message or "include_usage" in message:
        return (
            f"{message}; without its usage nobody knows the tokens and the money of a streamed "
            "answer: leave out stream: true of this model, or write options: {stream_options: "
            "null} to go without them"
        )
    if "stream" in message:
        return f"{message}; leave out stream: true of this model"
    return message


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
        return EmbeddingAnswer(vectors=None, **_fault(exchange, exchange.message))
    try:
        document = _read_json(exchange.body)
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
