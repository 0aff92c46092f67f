"""Calls that failed: as answers of their own, and as requests behind answers that came later."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from guardmark.config.deadline import Overrun
from guardmark.core.errors import ServiceError, ServiceRefused, ServiceTimeout
from guardmark.core.outcome import Decision, ErrorKind, Evidence, Outcome
from guardmark.net.redaction import KNOWN

if TYPE_CHECKING:
    from guardmark.core.usage import Usage


_MESSAGE: Final = 2000  # characters of an exception's text that are kept
_KINDS: Final = (
    ((ServiceTimeout, TimeoutError, Overrun), ErrorKind.TIMEOUT),
    (ServiceRefused, ErrorKind.REFUSED),
    (ServiceError, ErrorKind.CONNECTION),
)


@dataclass(frozen=True, slots=True)
class Failure:
    """What a call raised, or that it broke its contract."""

    kind: ErrorKind
    message: str
    usage: Usage | None = None

    @property
    def evidence(self) -> Evidence:
        """The message, as an answer carries it: without a key, also where it is cut off."""
        message = KNOWN.text(self.message[: 16 * _MESSAGE])[:_MESSAGE]
        return Evidence(message=message, usage=self.usage)

    def as_decision(self) -> Decision:
        """Return the failure as a defense's decision."""
        return Decision(outcome=Outcome.ERROR, error_kind=self.kind, evidence=self.evidence)


def failure_of(error: BaseException) -> Failure:
    """Name what a part raised."""
    kinds = (meaning for known, meaning in _KINDS if isinstance(error, known))
    return Failure(next(kinds, ErrorKind.CRASH), f"{type(error).__name__}: {error}")


def not_a(wanted: str, answer: object) -> Failure:
    """Name an answer of the wrong type."""
    return Failure(ErrorKind.CONTRACT, f"expected a {wanted}, got {type(answer).__name__}")
