"""What a model that helps the attacker said: candidates, a vote, a guess, or nothing usable."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from guardmark.attacks.prompts import STRATEGIES
from guardmark.core.outcome import Evidence, Response
from guardmark.judges.rules import REFUSALS
from guardmark.parsing.candidates import read_candidates
from guardmark.parsing.closeness import read_closeness
from guardmark.parsing.sameness import read_sameness

if TYPE_CHECKING:
    from collections.abc import Iterable

    from guardmark.adaptive.caller import Place
    from guardmark.core.record import Record
    from guardmark.parsing.candidates import Candidate

_BEGINNING: Final = 300
_REFUSAL: Final = re.compile("|".join(f"(?:{each})" for each in REFUSALS), re.IGNORECASE)
_FILTERED: Final = "content_filter"


class ReplyKind(StrEnum):
    """What a reply is; only `candidates`, `same`, `different` and `closeness` can be used."""

    CANDIDATES = "candidates"
    REFUSED = "refused"
    INVALID = "invalid"
    SAME = "same"
    DIFFERENT = "different"
    CLOSENESS = "closeness"
    MALFORMED = "malformed"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReply:
    """What came of one question to a model."""

    kind: ReplyKind
    text: str | None = None
    candidates: tuple[Candidate, ...] = ()
    closeness: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredReply:
    """A reply that is stored already."""

    response: Response
    digest: str


def read_attacker(response: Response) -> ModelReply:
    """Read what an attacker model answered.

    Candidates count whatever stands around them. Without any, the reply is a refusal when the
    server or the model says so, in a field or in the words refusals begin with; else invalid.
    """
    text = response.text
    if text is None or response.error_kind is not None:
        return ModelReply(kind=ReplyKind.ERROR)
    reading = read_candidates(text, strategies=STRATEGIES)
    if reading.candidates:
        return ModelReply(kind=ReplyKind.CANDIDATES, text=text, candidates=reading.candidates)
    refused = bool(reading.declined) or _is_refusal(response, text)
    return ModelReply(kind=ReplyKind.REFUSED if refused else ReplyKind.INVALID, text=text)


def read_critic(response: Response) -> ModelReply:
    """Read what a critic answered.

    A figure counts whatever stands around it. Without any, the reply is a refusal or invalid, and
    in neither case a low figure.
    """
    text = response.text
    if text is None or response.error_kind is not None:
        return ModelReply(kind=ReplyKind.ERROR)
    closeness = read_closeness(text)
    if closeness is not None:
        return ModelReply(kind=ReplyKind.CLOSENESS, text=text, closeness=closeness)
    refused = _is_refusal(response, text)
    return ModelReply(kind=ReplyKind.REFUSED if refused else ReplyKind.INVALID, text=text)


def read_vote(response: Response) -> ModelReply:
    """Read what a judge of sameness answered."""
    if response.text is None or response.error_kind is not None:
        return ModelReply(kind=ReplyKind.ERROR)
    same = read_sameness(response.text)
    kinds = {True: ReplyKind.SAME, False: ReplyKind.DIFFERENT, None: ReplyKind.MALFORMED}
    return ModelReply(kind=kinds[same], text=response.text)


def _is_refusal(response: Response, text: str) -> bool:
    evidence = response.evidence
    told = evidence is not None and (
        evidence.native_action == "refusal" or evidence.finish_reason == _FILTERED
    )
    return told or _REFUSAL.search(text[:_BEGINNING]) is not None


def stored_replies(records: Iterable[Record]) -> dict[Place, StoredReply]:
    """Return stored replies, and places of stored candidates, by their place."""
    found: dict[Place, StoredReply] = {}
    for record in records:
        note = json.loads(record.text or "{}")
        evidence = record.evidence or Evidence()
        found[record.key.layer, record.key.sample, record.key.repeat] = StoredReply(
            response=Response(
                text=evidence.raw if record.error_kind is None else None,
                error_kind=record.error_kind,
                evidence=evidence,
            ),
            digest=note["text"],
        )
    return found
