"""What a run consumed, added up a second time answer by answer."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from guardmark.app.verify.source import STAGES, has_superseded, word

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guardmark.app.verify.source import Source

Json = dict[str, Any]

_CACHED: Final = 4
_PAID: Final = (
    "SELECT r.defense, r.stage, r.layer, r.flags, x.evidence FROM records r JOIN details x"
    " ON x.defense = r.defense AND x.stage = r.stage AND x.layer = r.layer"
    " AND x.repeat = r.repeat AND x.sample = r.sample WHERE x.evidence LIKE '%\"usage\"%'"
    " UNION ALL SELECT defense, 3, layer, flags, evidence FROM tries"
    " WHERE evidence LIKE '%\"usage\"%'"
)
_PAID_AGAIN: Final = (
    " UNION ALL SELECT defense, stage, layer, flags, evidence FROM superseded"
    " WHERE evidence LIKE '%\"usage\"%'"
)


class Paid(NamedTuple):
    """What one answer consumed."""

    defense: str
    stage: str
    layer: str
    flags: int
    usage: list[Any]


def recount_spending(source: Source) -> list[Json]:
    """Return what each part consumed, in the shape of `summary.json`."""
    lanes: dict[tuple[str, str, str], list[Paid]] = {}
    for paid in _paid(source):
        lanes.setdefault((paid.defense, paid.stage, paid.layer), []).append(paid)
    return [
        {"part": _part(source, *lane), "stage": lane[1], "layer": lane[2], **_sums(answers)}
        for lane, answers in lanes.items()
    ]


def _paid(source: Source) -> Iterator[Paid]:
    """Read what every answer consumed that says so, in the order of the tables.

    Errors that were asked about again are among them: each asking was paid for.
    """
    connection = source.connection
    again = _PAID_AGAIN if has_superseded(connection) else ""
    names = dict(connection.execute("SELECT id, name FROM defenses"))
    layers = dict(connection.execute("SELECT id, name FROM layers"))
    rows = connection.execute(_PAID + again + " ORDER BY 1, 2, 3")
    for defense, stage, layer, flags, evidence in rows:
        # Whether the word that was looked for is a key of its own shows only here.
        usage = json.loads(evidence).get("usage")
        if isinstance(usage, list):
            yield Paid(names[defense], word(STAGES, stage), layers[layer], flags, usage)


def _part(source: Source, defense: str, stage: str, layer: str) -> str:
    if stage not in {"model", "judge"}:
        return defense
    own = [part["name"] for part in source.manifest["parts"] if part["kind"] == stage]
    if stage == "judge":
        named = layer.partition("/")[2] or source.layers.get(layer, {}).get("judge")
        if named:
            return str(named)
        if layer != "run":
            return layer
    return str(own[0]) if len(own) == 1 else defense


def _sums(answers: list[Paid]) -> Json:
    fresh = [answer for answer in answers if not answer.flags & _CACHED]
    read, written, cost = (
        [Fraction(answer.usage[at]) for answer in fresh if answer.usage[at] is not None]
        for at in range(3)
    )
    return {
        "calls": len(fresh),
        "recalled": len(answers) - len(fresh),
        "tokens_read": int(sum(read)) if read else None,
        "tokens_written": int(sum(written)) if written else None,
        "cost": float(sum(cost)) if cost else None,
        "priced": len(cost),
    }
