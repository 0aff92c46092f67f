"""Vectors that an embedding service gives, and what keeps them from being compared."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.core.outcome import Attempt, ErrorKind
    from guardmark.core.usage import Usage

Vector = tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingAnswer:
    """What came back from a call: one vector for each text, in order, or why there is none.

    Attributes:
        vectors: One for each text, in order; None where there are none.
        usage: What the call used, where that is known.
        error_kind: What failed, or None.
        message: What is wrong, or empty.
        attempts: The requests that were sent, where any failed.
        service_ns: The time that the service took.
    """

    vectors: tuple[Vector, ...] | None
    usage: Usage | None = None
    error_kind: ErrorKind | None = None
    message: str = ""
    attempts: tuple[Attempt, ...] = ()
    service_ns: int = 0


def fault_of(vectors: Sequence[Vector]) -> str:
    """Say what keeps vectors from being compared; empty when nothing does."""
    sizes = sorted({str(len(vector)) for vector in vectors})
    if len(sizes) > 1:
        return f"the vectors differ in their dimensions ({' and '.join(sizes)})"
    for vector in vectors:
        if not all(map(math.isfinite, vector)):
            return "a vector holds a value that is not a finite number"
    for vector in vectors:
        if not any(vector):
            return "a vector is empty or all zeros"
    return ""
