"""What came back from a service, failure included, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from guardmark.core.outcome import Attempt, ErrorKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request and what became of it, retries included."""

    status: int | None
    body: bytes
    content_type: str = ""
    service_ns: int
    error_kind: ErrorKind | None = None
    message: str = ""
    attempts: tuple[Attempt, ...] = ()
    replayed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAnswer:
    """What one attempt brought."""

    status: int | None
    body: bytes
    content_type: str = ""
    started_ns: int
    service_ns: int
    error: str = ""
    error_kind: ErrorKind | None = None
    message: str = ""
    worth_retrying: bool = False
    retry_after_s: float | None = None


class Sender(Protocol):
    """An address that takes one request after the other."""

    async def send(self, body: bytes) -> Exchange:
        """Send one request, retries included."""
        ...
