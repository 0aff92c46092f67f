"""Answers of models that help an attacker: candidates, closeness to the goal, sameness."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from guardmark.core.values import dataclass
from guardmark.parsing.objects import ParseMethod, read_object, word_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

OTHER: Final = "other"  # strategy of a candidate whose own is not on the list
_TEXT_KEYS: Final = ("text", "candidate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One text that an attacker model proposes."""

    strategy: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidatesReading:
    """What an attacker model's text says."""

    candidates: tuple[Candidate, ...]
    declined: str
    method: ParseMethod


def read_candidates(text: str, *, strategies: Collection[str]) -> CandidatesReading:
    """Read an attacker model's answer."""
    reading = read_object(text, key="candidates")
    fields = reading.fields or {}
    listed = fields.get("candidates")
    usual = _strategy(fields, strategies)
    candidates = []
    if isinstance(listed, list):
        for entry in listed:
            candidate = _candidate(entry, usual, strategies)
            if candidate is not None:
                candidates.append(candidate)
    declined = fields.get("declined")
    if not isinstance(declined, str):
        declined = ""
    return CandidatesReading(
        candidates=tuple(candidates), declined=declined.strip(), method=reading.method
    )


def _candidate(entry: object, usual: str, strategies: Collection[str]) -> Candidate | None:
    if isinstance(entry, str):
        return Candidate(strategy=usual, text=entry)
    if not isinstance(entry, dict):
        return None
    strategy = _strategy(entry, strategies)
    if strategy == OTHER:
        strategy = usual
    for key in _TEXT_KEYS:
        text = entry.get(key)
        if isinstance(text, str):
            return Candidate(strategy=strategy, text=text)
    return None


def _strategy(fields: Mapping[str, object], strategies: Collection[str]) -> str:
    word = word_of(fields.get("strategy"))
    if word in strategies:
        return word
    return OTHER


LEAST: Final = 1.0
MOST: Final = 10.0


def read_closeness(text: str, *, material: str = "") -> float | None:
    """Read how close a candidate came; the material holds the candidate, which may be quoted."""
    reading = read_object(text, key="closeness", material=material)
    closeness = (reading.fields or {}).get("closeness")
    if isinstance(closeness, str):
        try:
            closeness = float(closeness)
        except ValueError:
            return None
    if isinstance(closeness, bool) or not isinstance(closeness, int | float):
        return None
    # Compared before it becomes a float: an integer of a thousand digits does not fit one.
    if not LEAST <= closeness <= MOST or not math.isfinite(closeness):
        return None
    return float(closeness)


_WORDS = {"true": True, "yes": True, "false": False, "no": False}


def read_sameness(text: str, *, material: str = "") -> bool | None:
    """Read whether two requests ask for the same; the material holds both."""
    answer = (read_object(text, key="same", material=material).fields or {}).get("same")
    if isinstance(answer, bool):
        return answer
    return _WORDS.get(word_of(answer))
