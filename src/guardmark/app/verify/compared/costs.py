"""What two defenses consume on the same samples, added up a second time."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from guardmark.app.verify.columns import NOTHING
from guardmark.app.verify.formulas.drawing import draw_groups, on_request
from guardmark.app.verify.formulas.rates import quantile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.app.verify.recount import Recount

Json = dict[str, Any]
Place = tuple[int, int]
Pair = tuple[Any, Any]

_FEWEST_GROUPS: Final = 6
_USAGE: Final = (
    "SELECT sample, repeat, evidence FROM details"
    " WHERE defense = (SELECT id FROM defenses WHERE name = ?) AND stage = 0"
    " AND layer = (SELECT id FROM layers WHERE name = 'run') AND evidence LIKE '%\"usage\"%'"
)


class Used(NamedTuple):
    """What one answer consumed."""

    tokens: float | None
    money: float | None


def read_usage(found: Recount) -> dict[Place, Used]:
    """Return what the answers of a defense consumed, by repeat and place of the sample."""
    price = _price(found)
    said = {}
    rows = found.source.connection.execute(_USAGE, (found.name,))
    for position, repeat, evidence in rows:
        place, usage = found.samples.place(position), json.loads(evidence).get("usage")
        if place != NOTHING and isinstance(usage, list):
            said[repeat, place] = _used(usage, price)
    return said


def _price(found: Recount) -> Json | None:
    """Return the price a defense goes by: under its own name, or that of its model."""
    prices = found.manifest.get("settings", {}).get("prices")
    if not isinstance(prices, dict):
        return None
    own: Json = next(
        (part for part in found.manifest["parts"] if part.get("name") == found.name), {}
    )
    named = prices.get(found.name) or prices.get(own.get("settings", {}).get("model"))
    return named if isinstance(named, dict) else None


def _used(usage: Sequence[Any], price: Json | None) -> Used:
    read, written, cost = usage
    if cost is None and price is not None and read is not None:
        cost = (
            price.get("per_call", 0.0)
            + price.get("input_per_1k", 0.0) * read / 1000
            + price.get("output_per_1k", 0.0) * (written or 0) / 1000
        )
    return Used(tokens=None if read is None else read + (written or 0), money=cost)


def recount_costs(found: Recount, one: dict[Place, Used], two: dict[Place, Used]) -> list[Json]:
    """Say how much more the first consumes than the second, in the shape of `comparison.json`."""
    both = one.keys() & two.keys()
    said = []
    for label, is_attack in (("attack", True), ("benign", False)):
        mine = [place for place in both if found.samples.is_attack(place[1]) == is_attack]
        for at, unit in enumerate(Used._fields):
            pairs = {place: (one[place][at], two[place][at]) for place in mine}
            known = {place: pair for place, pair in pairs.items() if None not in pair}
            if known:
                said.append({"label": label, "unit": unit, **_difference(found, known)})
    return said


def _difference(found: Recount, pairs: dict[Place, Pair]) -> Json:
    first, second = (math.fsum(pair[at] for pair in pairs.values()) for at in (0, 1))
    groups: dict[int, list[float]] = {}
    for place, pair in pairs.items():
        sums = groups.setdefault(found.samples.group(place[1]), [0.0, 0.0])
        sums[0] += pair[0] - pair[1]
        sums[1] += 1
    # Groups are drawn in the order in which the data first name them.
    limits = _limits(found, [sums for _, sums in sorted(groups.items())])
    return {
        "first_mean": first / len(pairs),
        "second_mean": second / len(pairs),
        "mean_difference": {
            "value": (first - second) / len(pairs),
            **limits,
            "confidence": found.confidence,
            "method": "mean of paired differences, group bootstrap",
            "p_value": None,
            "test": "",
            "pairs": len(pairs),
            "groups": len(groups),
            "first_only": None,
            "second_only": None,
        },
    }


def _limits(found: Recount, groups: list[list[float]]) -> Json:
    """Return percentile limits of draws of whole groups (Efron 1979); none with few groups."""
    if len(groups) < _FEWEST_GROUPS:
        return {"low": None, "high": None}
    replicates = found.stats.get("replicates", 2000)

    def count() -> Json:
        drawn = draw_groups(
            [range(len(groups))],
            seed=found.manifest["seed"],
            replicates=replicates,
            rows=len(groups),
        )
        means = sorted(
            math.fsum(times * gap for times, (gap, _) in zip(weights, groups, strict=True))
            / sum(times * rows for times, (_, rows) in zip(weights, groups, strict=True))
            for weights in drawn
        )
        low, high = (quantile(means, (1 + side * found.confidence) / 2) for side in (-1, 1))
        return {"low": low, "high": high}

    return on_request(replicates * len(groups), ("low", "high"), count)
