"""A judge of sameness by embeddings: two texts ask for the same when their cosine reaches tau."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Protocol

from guardmark.core.outcome import Evidence, Response
from guardmark.core.protocols import Closable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from guardmark.core.outcome import EmbeddingAnswer, Vector


class Embedder(Protocol):
    """Turns texts into vectors of one length."""

    async def embed(self, texts: Sequence[str]) -> EmbeddingAnswer:
        """Return one vector for each text, or why there are none."""
        ...


class SimilarityJudge:
    """Calls two texts the same request when the cosine of their vectors is at least tau."""

    def __init__(
        self, name: str, embedder: Embedder, *, tau: float, files: tuple[Path, ...] = ()
    ) -> None:
        self.name = name
        self.tau = tau
        self.files = files
        self._embedder = embedder

    async def similarity(self, first: str, second: str) -> tuple[float | None, EmbeddingAnswer]:
        """Measure how near two texts are.

        Both go into one call, so that no vector outlives it and order changes nothing.
        """
        answer = await self._embedder.embed((first, second))
        return (None if answer.vectors is None else cosine(*answer.vectors)), answer

    async def compare(self, first: str, second: str) -> Response:
        """Say whether two texts ask for the same."""
        value, answer = await self.similarity(first, second)
        said = None if value is None else {"same": value >= self.tau, "cosine": value}
        return Response(
            text=None if said is None else json.dumps(said),
            error_kind=answer.error_kind,
            latency_ns=answer.service_ns,
            evidence=Evidence(message=answer.message, usage=answer.usage, attempts=answer.attempts),
        )

    async def close(self) -> None:
        """Give back what the embedder holds."""
        if isinstance(self._embedder, Closable):
            await self._embedder.close()


def cosine(first: Vector, second: Vector) -> float:
    """Return the cosine of the angle between two vectors."""
    one, other = _unit(first), _unit(second)
    return max(-1.0, min(1.0, math.fsum(a * b for a, b in zip(one, other, strict=True))))


def _unit(vector: Vector) -> list[float]:
    largest = max(map(abs, vector))
    scaled = [value / largest for value in vector]
    length = math.hypot(*scaled)
    return [value / length for value in scaled]
