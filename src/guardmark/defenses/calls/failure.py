"""Calls that failed: as answers of their own, and as requests behind answers that came later."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.errors import ServiceError, ServiceRefused, ServiceTimeout
from guardmark.core.outcome import Decision, ErrorKind, Evidence, Outcome
from guardmark.core.record import Stage
from guardmark.defenses.deadline import Overrun
from guardmark.net.redaction import KNOWN
from guardmark.store.codec import stored_object
from guardmark.store.connect import values_of
from guardmark.store.schema import STAGE_CODE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guardmark.core.outcome import Attempt
    from guardmark.core.usage import Usage
    from guardmark.store.reader import RecordReader


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


_TRY: Final = STAGE_CODE[Stage.TRY]


def read_attempts(reader: RecordReader) -> Iterator[tuple[tuple[str, int, str], list[Any], int]]:
    """Yield the attempts of answers of which some failed, by part, and how many answers it gave.

    An attempt is its time, its status, its error, and the wait before it.
    """
    script = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
    resent, answers_of = script.split(";")[:2]
    rows = reader.connection.rows(resent, (_TRY,))
    for (name, stage, layer), group in groupby(rows, key=itemgetter(0, 1, 2)):
        with values_of(reader.path):
            told = [stored_object(row[3], "evidence").get("attempts", ()) for row in group]
        answers = [tries for tries in told if len(tries) > 1 and any(each[2] for each in tries)]
        if answers:
            count = reader.connection.value(answers_of, (_TRY, stage, name, layer))
            yield (name, stage, layer), answers, count


def request_text(latency_ns: int | None, attempts: Sequence[Attempt]) -> str:
    """Say how long an answer took, and how often it was asked for."""
    took = "" if latency_ns is None else f"{latency_ns / 1e6:,.1f} ms"
    tries = [str(each.status or each.error or "answered") for each in attempts]
    sent = f"sent {len(tries)} times: {', '.join(tries)}" if len(tries) > 1 else ""
    return ", ".join(filter(None, (took, sent)))
