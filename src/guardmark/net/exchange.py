"""What came back from a service, failure included, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from guardmark.core.outcome import Attempt, ErrorKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One request and what became of it, retries included.

    Attributes:
        status: HTTP status of the last attempt, or None when no status line came.
        body: Complete body of the last attempt, whatever its status; empty when there was
            none, or when it was cut off or too large.
        content_type: In lower case, without parameters; may be empty.
        service_ns: Time on the wire of the attempt that answered, or of the last one that
            failed, without our queue and without sleeps between attempts.
        error_kind: None exactly for a complete answer of 2xx or of a status that the caller
            declared final.
        message: What failed, on one line, secrets redacted; empty when nothing did.
        attempts: Every try, when there was more than one or one failed; empty for a single
            clean try, so that it can be kept as evidence as it is.
        replayed: Whether it was read from a cassette.
    """

    status: int | None
    body: bytes
    content_type: str = ""
    service_ns: int
    error_kind: ErrorKind | None = None
    message: str = ""
    attempts: tuple[Attempt, ...] = ()
    replayed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one attempt brought.

    Attributes:
        status: HTTP status, or None when no status line came.
        body: Complete body, or empty.
        content_type: In lower case, without parameters; may be empty.
        started_ns: Monotonic clock when the attempt went on the wire.
        service_ns: From then until the last byte, or until it failed.
        error: What went wrong in a word; empty for an answer that can be used.
        error_kind: The kind of failure, or None.
        message: What failed, on one line, not yet redacted.
        worth_retrying: Whether another attempt may go better.
        retry_after_s: How long the service asks to be left alone, or None.
    """

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
