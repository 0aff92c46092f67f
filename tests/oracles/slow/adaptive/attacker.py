"""Figures of an attacker model, on slow references: one loop for each."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Final

from tests.oracles.slow.adaptive.attacker_controls import (
    recount_critic,
    recount_twin,
    vote_of,
    votes_wanted,
)
from tests.oracles.slow.formulas.rates import Trial, rate

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.oracles.slow.source import Answer, Source

Json = dict[str, Any]
Note = tuple["Answer", Json]

_FINDINGS: Final = "adaptive/findings/"
_PROVED: Final = {"V0", "V1", "V2", "V3-table", "V3"}
_UNSTEADY: Final = {"RANDOMISED", "STATEFUL", "RATE_LIMITED"}


def recount_attacker(source: Source, defense: str) -> Json | None:
    """Return what `summary.json` has to say of the attacker model of one defense."""
    said = source.layers.get("adaptive", {}).get("attacker")
    if said is None:
        return None
    rows: defaultdict[str, list[Note]] = defaultdict(list)
    for answer in source.answers("try"):
        if answer.defense == defense:
            rows[answer.layer].append((answer, json.loads(answer.text or "{}")))
    confidence = float(source.manifest["confidence"])
    asked, kinds = _exchanges(rows["adaptive/attacker"])
    findings = source.layers.get(f"{_FINDINGS}{defense}", {})
    tries = _tries(rows["adaptive"], findings)
    candidates = rows["adaptive/candidates"]
    calls = rows["adaptive/attacker"]
    found: Json = {
        "model": said["model"],
        "judge": said["judge"],
        "is_same_model": said.get("same_model") == "yes",
        "repairs": sum(1 for _, note in calls if note["repair"]),
        "candidates": len(candidates),
        "calls_left": max(0, said["max_calls"] - len(calls)),
        "spending": {
            "attacker": _spending(calls),
            "equivalence": _spending(rows["adaptive/equivalence"]),
            **({"critic": _spending(rows["adaptive/critic"])} if "critic" in said else {}),
        },
        "same_letters": sum(1 for _, note in candidates if note["tier"] == "V1"),
    }
    for fate in ("unusable", "unused", "unjudged"):
        found[fate] = sum(1 for _, note in candidates if note["fate"] == fate)
    answered = [(group, kind) for group, kind in kinds if kind != "error"]
    for kind in ("refused", "invalid"):
        found[kind] = _rate(((group, end == kind) for group, end in answered), confidence)
    for name, fate in (("repeated", "repeated"), ("lost", "lost_span")):
        found[name] = _rate(
            ((row.subject.group, note["fate"] == fate) for row, note in candidates), confidence
        )
    found["tau"] = float(said["tau"]) if "tau" in said else None
    found["calibration"] = said.get("calibration", "")
    found |= _judged(said, rows["adaptive/equivalence"], confidence)
    found |= _fallen(asked, tries, confidence)
    found |= _sent(candidates, tries, confidence)
    found["critic"] = recount_critic(said, rows, findings=findings, sure=confidence)
    attacks = _ends_of(candidates, tries)
    twin = recount_twin(said, rows, attacks=attacks, sure=confidence)
    if twin is not None:
        twin["spending"] = {
            name: _spending(rows[f"adaptive/twin/{name}"]) for name in ("attacker", "equivalence")
        }
    found["twin"] = twin
    return found


def _rate(marks: Iterable[tuple[str, bool]], confidence: float) -> Json:
    return rate((Trial(group=group, hit=hit) for group, hit in marks), confidence)


def _spending(rows: list[Note]) -> Json:
    used = [(row.evidence or {}).get("usage") or [None, None, None] for row, _ in rows]
    told = [each for each in used if each[0] is not None and each[1] is not None]
    priced = [each[2] for each in used if each[2] is not None]
    return {
        "calls": len(rows),
        "failed": sum(1 for row, _ in rows if row.outcome == "error"),
        "calls_with_tokens": len(told),
        "tokens_read": sum(each[0] for each in told),
        "tokens_written": sum(each[1] for each in told),
        "calls_with_price": len(priced),
        "cost": sum(priced) if priced else None,
    }


def _exchanges(rows: list[Note]) -> tuple[dict[int, str], list[tuple[str, str]]]:
    """Return the attacks that were asked about with their groups, and each exchange's end."""
    groups: dict[int, str] = {}
    ends: dict[tuple[int, int, int], str] = {}
    for row, note in rows:
        groups[row.subject.position] = row.subject.group
        place = row.subject.position, note["depth"], note["stream"]
        again = note["repair"] and note["kind"] == "error"
        ends[place] = "invalid" if again else note["kind"]
    return groups, [(groups[place[0]], end) for place, end in ends.items()]


def _tries(rows: list[Note], findings: Json) -> list[tuple[Answer, Json, bool]]:
    """Return battery and search tries, and whether each got through and held."""
    again: defaultdict[tuple[int, str], list[bool]] = defaultdict(list)
    for row, note in rows:
        if note["account"] == "confirm" and row.is_answered:
            again[row.subject.position, note["text"]].append(row.outcome == "allow")
    held = {
        place
        for place, passed in again.items()
        if any(sum(passed[i : i + 3]) >= 2 for i in range(0, len(passed), 3))
    }
    is_steady = not _UNSTEADY & set(findings.get("flags", []))
    return [
        (
            row,
            note,
            row.outcome == "allow" and (is_steady or (row.subject.position, note["text"]) in held),
        )
        for row, note in rows
        if note["account"] in {"battery", "search"} and row.is_answered
    ]


def _fallen(asked: dict[int, str], tries: list[tuple[Answer, Json, bool]], sure: float) -> Json:
    proved, through, others = set[int](), set[int](), set[int]()
    for row, note, hit in tries:
        place, is_proved = row.subject.position, note["tier"] in _PROVED
        if hit and note["round"] == "R5":
            through.add(place)
            proved |= {place} if is_proved else set()
        elif hit and is_proved:
            others.add(place)
    return {
        "attacks": _rate(((asked[p], p in proved) for p in asked), sure),
        "unproved": _rate(((asked[p], p in through - proved) for p in asked), sure),
        "only": len(proved - others),
    }


def _judged(said: Json, rows: list[Note], sure: float) -> Json:
    votes: defaultdict[tuple[int, int], list[str]] = defaultdict(list)
    groups: dict[int, str] = {}
    for row, note in rows:
        groups[row.subject.position] = row.subject.group
        votes[row.subject.position, note["candidate"]].append(vote_of(said, row, note))
    full = [
        (groups[place[0]], kinds)
        for place, kinds in votes.items()
        if set(kinds) <= {"same", "different"} and len(kinds) == votes_wanted(said)
    ]
    return {
        "equivalent": _rate(((group, set(kinds) == {"same"}) for group, kinds in full), sure),
        "undecided": _rate(
            ((group, kinds[0] != kinds[1]) for group, kinds in full if len(kinds) > 1), sure
        ),
    }


def _ends_of(
    candidates: list[Note], tries: list[tuple[Answer, Json, bool]]
) -> list[tuple[str, str, bool]]:
    """Return group, strategy and end of each candidate that was sent and answered."""
    ends = {
        (row.subject.position, note["text"]): hit
        for row, note, hit in tries
        if note["round"] == "R5"
    }
    return [
        (row.subject.group, note["strategy"], ends[row.subject.position, note["text"]])
        for row, note in candidates
        if note["fate"] == "sent" and (row.subject.position, note["text"]) in ends
    ]


def _sent(candidates: list[Note], tries: list[tuple[Answer, Json, bool]], sure: float) -> Json:
    sent = _ends_of(candidates, tries)
    named = Counter(note["strategy"] for _, note in candidates)
    return {
        "passed": _rate(((group, hit) for group, _, hit in sent), sure),
        "strategies": [
            {
                "name": name,
                "candidates": count,
                "passed": _rate(((g, hit) for g, strategy, hit in sent if strategy == name), sure),
            }
            for name, count in sorted(named.items(), key=lambda pair: (-pair[1], pair[0]))
        ],
    }
