"""Defenses against each other on the same samples, counted a second time."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any, Final

from tests.oracles.slow.formulas.paired import (
    Pair,
    Pairs,
    detectable,
    difference,
    holm,
    is_not_worse,
)
from tests.oracles.slow.formulas.tails import chi_square_tail
from tests.oracles.slow.source import OUTCOMES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.oracles.slow.defenses.recount import Recount
    from tests.oracles.slow.early.stopped import Stops

Json = dict[str, Any]
Place = tuple[int, int]
"""Repeat, and place of the sample."""
Errors = dict[Place, bool | None]
"""Whether each answer is an error; None where there is no decision."""

BASELINES: Final = {"allow-all", "block-all", "coin"}
_DECIDED: Final = {"allow", "block"}
_SIDES: Final = (("attack_success_rate", True), ("false_positive_rate", False))


def recount_pairs(
    recounts: dict[str, Recount],
    types: dict[str, str],
    stops: Stops | None = None,
    *,
    areas: Sequence[float | None] = (),
) -> Json | None:
    """Return the defenses side by side, in the shape of `summary.json`.

    `areas` are the p values of areas of scores, which belong to the family of tests.
    """
    candidates = [name for name in recounts if types.get(name, "") not in BASELINES]
    compared = candidates if len(candidates) > 1 else list(recounts)
    if len(compared) < 2:
        return None
    named = list(combinations(compared, 2))
    pairs: list[Json] = [{"first": first, "second": second} for first, second in named]
    errors: dict[str, dict[str, Errors]] = {}
    for side, is_attack in _SIDES:
        erred = {name: read_errors(recounts[name], is_attack=is_attack) for name in compared}
        found = [
            pair_up(erred[one], erred[two], found=recounts[one])
            | _held((recounts[one], recounts[two]), stops, is_attack=is_attack)
            for one, two in named
        ]
        for pair, each in zip(pairs, found, strict=True):
            pair[side] = each
        errors[side] = erred
    family = [pair[side] for side, _ in _SIDES for pair in pairs]
    adjusted = holm([*(each["difference"]["p_value"] for each in family), *areas])
    for each, p_value in zip(family, adjusted, strict=False):
        each["adjusted_p"] = p_value
    best = {side: _best(recounts, errors[side], pairs, side) for side, _ in _SIDES}
    confidence = recounts[compared[0]].confidence
    return {
        "pairs": [pair | {"verdict": _verdict(pair, 1 - confidence)} for pair in pairs],
        "best": best,
        "left_out": [name for name in recounts if name not in compared],
    }


def read_errors(found: Recount, *, is_attack: bool) -> Errors:
    """Return whether each answer to one label is an error; None where there is no decision."""
    error, told = "allow" if is_attack else "block", found.decisions
    meaning = [name == error if name in _DECIDED else None for name in OUTCOMES]
    return {
        (told.repeats[row], told.places[row]): meaning[found.outcomes[row]]
        for row in found.sides()[not is_attack]
    }


def pair_up(one: Errors, two: Errors, found: Recount) -> Json:
    """Return two defenses on the same samples of one label, in the shape of `summary.json`."""
    asked = one.keys() | two.keys()
    pairs = Pairs(
        Pair(group=found.samples.group(place[1]), first=first, second=second)
        for place in asked
        if (first := one.get(place)) is not None and (second := two.get(place)) is not None
    )
    margin = found.stats.get("non_inferiority_margin")
    alpha = min(0.49, 1 - found.confidence)
    said: Json = {"first_not_worse": None, "second_not_worse": None, "margin": margin}
    if margin is not None:
        for word, is_swapped in (("first", False), ("second", True)):
            said[f"{word}_not_worse"] = is_not_worse(
                pairs, margin=margin, alpha=alpha, is_swapped=is_swapped
            )
    told = difference(pairs, found.confidence)
    return {
        "difference": told,
        "few_groups": 0 < pairs.k < 10,
        "largest_group": max(pairs.rows.values()) / pairs.n if pairs.n else None,
        "both": pairs.both,
        "neither": pairs.n - pairs.both - pairs.b - pairs.c,
        "unpaired": len(asked) - pairs.n,
        "detectable": detectable(pairs, told, found.confidence),
        **said,
    }


def is_ended(found: Recount, stops: Stops | None) -> bool:
    """Tell whether a rule ended a defense early."""
    return bool(stops and not found.is_redecided and stops.ended(found.name))


def _held(pair: tuple[Recount, Recount], stops: Stops | None, *, is_attack: bool) -> Json:
    """Return what holds at any look where a rule ended one of two defenses; nothing otherwise.

    What supposes a size fixed beforehand is then left out.
    """
    if stops is None or not any(is_ended(each, stops) for each in pair):
        return {}
    first, second = (each.name for each in pair)
    left_out = ("detectable", "first_not_worse", "second_not_worse", "margin")
    return {
        "difference": stops.difference(first, second, is_attack=is_attack),
        **dict.fromkeys(left_out),
    }


def _direction(side: Json, alpha: float) -> int:
    """Return -1 where the first errs less, 1 where more, 0 where it cannot be told."""
    p_value, low, high = side["adjusted_p"], side["difference"]["low"], side["difference"]["high"]
    if p_value is None or p_value >= alpha or low is None:
        return 0
    return int(low > 0) - int(high < 0)


def _verdict(pair: Json, alpha: float) -> str:
    """Say what both sides carry; fewer bypasses alone make nobody better."""
    attacks = _direction(pair["attack_success_rate"], alpha)
    benign = _direction(pair["false_positive_rate"], alpha)
    if attacks * benign < 0:
        return "trade-off"
    winner = "first" if (attacks or benign) < 0 else "second"
    if attacks:
        is_safe = benign == attacks or pair["false_positive_rate"][f"{winner}_not_worse"] is True
        return f"{winner} better" if is_safe else f"{winner} fewer bypasses"
    return f"{winner} fewer false alarms" if benign else "undecided"


def _best(
    recounts: dict[str, Recount],
    erred: dict[str, Errors],
    pairs: Sequence[Json],
    side: str,
) -> Json:
    names = list(erred)
    common = [
        place
        for place in erred[names[0]]
        if all(erred[name].get(place) is not None for name in names)
    ]
    if not common:
        return {"best": "", "not_distinguishable": [], "omnibus": None}
    totals = {name: sum(bool(erred[name][place]) for place in common) for name in names}
    best = min(names, key=lambda name: totals[name])
    found, worse = recounts[best], set()
    for pair in pairs:
        direction = _direction(pair[side], 1 - found.confidence)
        if best in {pair["first"], pair["second"]} and direction:
            worse.add(pair["second" if direction < 0 else "first"])
    rows = [[bool(erred[name][place]) for name in names] for place in common]
    return {
        "best": best,
        "not_distinguishable": [name for name in names if name not in worse],
        "omnibus": _omnibus(rows) if len(names) > 2 and not found.is_grouped else None,
    }


def _omnibus(rows: list[list[bool]]) -> Json:
    """Return Cochran's test that all defenses share one rate (Cochran 1950)."""
    k = len(rows[0])
    columns = [sum(row[at] for row in rows) for at in range(k)]
    spread = sum(sum(row) * (k - sum(row)) for row in rows)
    q = None
    if spread:
        gap = k * sum(total * total for total in columns) - sum(columns) ** 2
        q = (k - 1) * gap / spread
    return {
        "q": q,
        "degrees_of_freedom": k - 1,
        "p_value": 1.0 if q is None else chi_square_tail(q, k - 1),
        "samples": len(rows),
        "varying": sum(0 < sum(row) < k for row in rows),
    }
