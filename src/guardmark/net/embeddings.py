"""The common protocol of embeddings: texts sent, one vector each expected back."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from guardmark.core.outcome import EmbeddingAnswer, ErrorKind, fault_of
from guardmark.net.chat import failure_message, read_usage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guardmark.core.outcome import Vector
    from guardmark.core.usage import Price
    from guardmark.net.exchange import Exchange, Sender

_ENCODE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingEndpoint:
    """A model behind a server that speaks the common protocol of embeddings."""

    endpoint: Sender
    model: str
    options: Mapping[str, Any] = field(default_factory=dict)
    price: Price | None = None

    async def embed(self, texts: Sequence[str]) -> EmbeddingAnswer:
        """Ask for the vectors of some texts in one call."""
        request = {
            "model": self.model,
            "input": list(texts),
            "encoding_format": "float",
            **self.options,
        }
        exchange = await self.endpoint.send(_ENCODE(request).encode())
        return read_embeddings(exchange, len(texts), price=self.price)


def read_embeddings(
    exchange: Exchange, count: int, *, price: Price | None = None
) -> EmbeddingAnswer:
    """Read the answer of a server of embeddings."""
    if exchange.error_kind is not None:
        return _failure(exchange, exchange.error_kind, failure_message(exchange))
    try:
        document = json.loads(exchange.body)
        vectors = _vectors(document["data"], count)
        fault = fault_of(vectors)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        vectors, document = (), None
        fault = f"the answer is not of the protocol of embeddings ({type(error).__name__})"
    if fault:
        return _failure(exchange, ErrorKind.CONTRACT, fault)
    return EmbeddingAnswer(
        vectors=vectors,
        usage=read_usage(document.get("usage"), price, written=0),
        attempts=exchange.attempts,
        service_ns=exchange.service_ns,
    )


def _vectors(data: Any, count: int) -> tuple[Vector, ...]:
    """Return the vectors in the order of their texts, which the answer's own numbers tell."""
    found = {each.get("index", at): each["embedding"] for at, each in enumerate(data)}
    if sorted(found) != list(range(count)) or len(data) != count:
        raise ValueError(count)
    for vector in found.values():
        if not isinstance(vector, list) or not all(type(v) in {int, float} for v in vector):
            raise TypeError(vector)
    return tuple(tuple(map(float, found[index])) for index in range(count))


def _failure(exchange: Exchange, kind: ErrorKind, message: str) -> EmbeddingAnswer:
    return EmbeddingAnswer(
        vectors=None,
        error_kind=kind,
        message=message,
        attempts=exchange.attempts,
        service_ns=exchange.service_ns,
    )
