"""What people said of bypasses, counted a second time as a slow reference, draw by draw."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any, Final

from tests.oracles.slow.formulas.rates import Trial, quantile, rate

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.oracles.slow.adaptive.rows import Fight, Row
    from tests.oracles.slow.source import Source

Json = dict[str, Any]

_SHEETS: Final = "adaptive/audit-"
_BY_RULE: Final = ("V0", "V1", "V2")
_BY_WORD: Final = ("V3", "V3-table")
_DRAWS: Final = 4000


def recount_audit(source: Source, fight: Fight) -> Json:
    """Return how many bypasses rest on a judgement, and what people said of them."""
    by_word = _firsts(fight)
    ends = {number: _at_word(fight, number) if by_word else set() for number in range(6)}
    resting = ends[5]
    sheet = _sheet(source, fight.name)
    if sheet is None:
        return {"resting": len(resting), "audit": None}
    name, said = sheet
    first = {place: by_word[place] for place in sorted(resting)}
    words = {
        place: said[place, row.note["text"]]
        for place, row in first.items()
        if (place, row.note["text"]) in said
    }
    answers = {place: word == "yes" for place, word in words.items() if word in {"yes", "no"}}
    counts = {"unsure": 0, "blank": 0}
    for word in words.values():
        if word in {"", "unsure"}:
            counts[word or "blank"] += 1
    valid, drawn = _rate(fight, answers.items()), len(words)
    tiers = sorted({row.note["tier"] for row in first.values()})
    audit = {
        "source": name,
        "resting": len(resting),
        "drawn": drawn,
        "valid": valid,
        **counts,
        "least": valid["successes"] / drawn if drawn else None,
        "most": (valid["successes"] + sum(counts.values())) / drawn if drawn else None,
        "tiers": [
            {
                "tier": tier,
                "valid": _rate(
                    fight,
                    ((p, hit) for p, hit in answers.items() if first[p].note["tier"] == tier),
                ),
            }
            for tier in tiers
        ],
        "rounds": [
            _round(fight, number, places, answers, seed=int(source.manifest["seed"]))
            for number, places in ends.items()
            if places
        ],
    }
    return {"resting": len(resting), "audit": audit}


def _round(
    fight: Fight, number: int, resting: set[int], answers: dict[int, bool], *, seed: int
) -> Json:
    name = f"R{number}"
    fell = fight.fallen(name, (*_BY_RULE, *_BY_WORD))
    whole = _rate(fight, ((place, place in fell) for place in fight.static))
    share = _rate(fight, ((place, place in resting) for place in fight.static if place in fell))
    valid = _rate(fight, ((place, hit) for place, hit in answers.items() if place in resting))
    found: Json = {
        "value": None,
        "low": None,
        "high": None,
        "trials": whole["trials"],
        "confidence": fight.confidence,
        "groups": whole["groups"],
        "replicates": 0,
    }
    if valid["trials"]:
        # What a rule proves counts whole, what somebody's word proves as far as it held.
        by_rule = len(fell) - len(resting)
        found["value"] = (by_rule + len(resting) * valid["value"]) / len(fight.static)
        worth = [each["effective_n"] for each in (whole, share, valid)]
        if None not in worth:
            found |= _drawn_limits([whole, share, valid], found["value"], seed, fight.confidence)
    return {"round": name, "resting": len(resting), "valid": valid, "full": found}


def _drawn_limits(rates: list[Json], value: float, seed: int, confidence: float) -> Json:
    """Draw the three rates from beta distributions and take quantiles of what they make."""
    generator, ends = random.Random(seed), []
    shapes = []
    for each in rates:
        hits = each["value"] * each["effective_n"]
        shapes.append((hits + 0.5, each["effective_n"] - hits + 0.5))
    for _ in range(_DRAWS):
        through, by_word, held = [generator.betavariate(*shape) for shape in shapes]
        ends.append(through * (1 - by_word) + through * by_word * held)
    ends.sort()
    low, high = (quantile(ends, at) for at in ((1 - confidence) / 2, (1 + confidence) / 2))
    return {"low": min(low, value), "high": max(high, value), "replicates": _DRAWS}


def _at_word(fight: Fight, number: int) -> set[int]:
    """Return the attacks that had fallen by a round, to nothing that a rule proves."""
    until = f"R{number}"
    everything = fight.fallen(until, (*_BY_RULE, *_BY_WORD))
    return everything - fight.fallen(until, _BY_RULE)


def _firsts(fight: Fight) -> dict[int, Row]:
    """Return the first bypass by somebody's word of each attack that has one."""
    found: dict[int, Row] = {}
    for row in (*fight.rows["adaptive", "battery"], *fight.rows["adaptive", "search"]):
        if row.place not in found and fight.holds(row, _BY_WORD):
            found[row.place] = row
    return found


def _sheet(source: Source, defense: str) -> tuple[str, dict[tuple[int, str], str]] | None:
    """Return the newest sheet that speaks of a defense, with its file's name."""
    for layer in reversed([name for name in source.layers if name.startswith(_SHEETS)]):
        told = {}
        for answer in source.answers("try"):
            if answer.layer == layer and answer.defense == defense:
                note = json.loads(answer.text or "{}")
                told[answer.subject.position, note["text"]] = note["same"]
        if told:
            return source.layers[layer]["file"], told
    return None


def _rate(fight: Fight, marks: Iterable[tuple[int, bool]]) -> Json:
    trials = (Trial(group=fight.group[place], hit=hit) for place, hit in marks)
    return rate(trials, fight.confidence)
