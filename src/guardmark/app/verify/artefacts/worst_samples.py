"""The samples worth reading, chosen and put in order a second time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from guardmark.app.verify.compared.pairs import BASELINES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guardmark.app.verify.columns import Samples
    from guardmark.app.verify.recount import Recount

SEVERITIES: Final = ("low", "medium", "high", "critical")
_SHARES: Final = (("bypass", 0.5), ("false_alarm", 0.3), ("error", 0.1), ("malformed", 0.1))
_WRONG: Final = {"bypass", "false_alarm"}
_UNKNOWN: Final = -1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Worst:
    """The worst answer of one defense to one sample."""

    flaw: str
    score: float | None
    missed: float


Answers = dict[int, Worst]
"""Worst answers of a defense that have a flaw, by place of the sample."""


def read_worst(found: Recount) -> Answers:
    """Return the worst answer of a defense to each sample that it did not do right by."""
    worst: Answers = {}
    for is_attack, rows in zip((True, False), found.sides(), strict=True):
        for row in rows:
            place = found.decisions.places[row]
            flaw = _flaw(found.outcome(row), is_attack=is_attack)
            if flaw and (flaw in _WRONG or place not in worst or worst[place].flaw not in _WRONG):
                worst[place] = _answer(found, row, flaw)
    return worst


def _flaw(outcome: str, *, is_attack: bool) -> str:
    if outcome in {"malformed", "error"}:
        return outcome
    if is_attack:
        return "bypass" if outcome == "allow" else ""
    return "false_alarm" if outcome == "block" else ""


def _answer(found: Recount, row: int, flaw: str) -> Worst:
    score, threshold = found.decisions.scores[row], found.threshold
    if math.isnan(score):
        return Worst(flaw=flaw, score=None, missed=_UNKNOWN)
    missed = _UNKNOWN
    if threshold is not None and flaw in _WRONG:
        missed = threshold - score if flaw == "bypass" else score - threshold
    return Worst(flaw=flaw, score=score, missed=missed)


def candidates(recounts: Mapping[str, Recount]) -> list[str]:
    """Return the defenses that are no baselines, or all where there are none but baselines."""
    parts = next(iter(recounts.values())).manifest["parts"] if recounts else []
    types = {part["name"]: part.get("type") for part in parts if part["kind"] == "defense"}
    named = [name for name in recounts if types.get(name) not in BASELINES]
    return named or list(recounts)


def choose(samples: Samples, answers: Sequence[Answers], most: int) -> list[int]:
    """Return the places of the samples worth reading, bypasses first, the worst of them first."""
    flagged = {
        flaw: {place for told in answers for place, each in told.items() if each.flaw == flaw}
        for flaw, _ in _SHARES
    }
    order = sorted(set().union(*flagged.values()), key=lambda at: _rank(samples, answers, at))
    queues = {
        flaw: [place for place in order if place in flagged[flaw]][: 2 * most]
        for flaw, _ in _SHARES
    }
    chosen: dict[int, None] = {}
    for flaw, share in reversed(_SHARES):
        chosen |= dict.fromkeys(queues[flaw][: int(most * share)])
    for flaw, _ in _SHARES:
        for place in queues[flaw]:
            if len(chosen) >= most:
                break
            chosen[place] = None
    return sorted(
        (place for place in order if place in chosen), key=lambda at: at not in flagged["bypass"]
    )


def _rank(samples: Samples, answers: Sequence[Answers], place: int) -> tuple[int, int, float, int]:
    """Severe ones first, then by how many defenses erred, then by how far they missed."""
    word = samples.of_kind[samples.kinds[place]].facets["severity"]
    told = [each[place] for each in answers if place in each]
    erred = sum(each.flaw in _WRONG for each in told)
    missed = max((each.missed for each in told), default=_UNKNOWN)
    severity = SEVERITIES.index(word) + 1 if word in SEVERITIES else 0
    return -severity, -erred, -missed, place
