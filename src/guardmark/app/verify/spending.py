"""What a run consumed, added up a second time answer by answer."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from guardmark.app.verify.source import Answer, Source

Json = dict[str, Any]

_CACHED: Final = 4


def recount_spending(source: Source) -> list[Json]:
    """Return what each part consumed, in the shape of `summary.json`.

    Args:
        source: All that the run stored.
    """
    lanes: dict[tuple[str, str, str], list[Answer]] = {}
    for answer in source.paid():
        if isinstance((answer.evidence or {}).get("usage"), list):
            lanes.setdefault((answer.defense, answer.stage, answer.layer), []).append(answer)
    return [
        {"part": _part(source, *lane), "stage": lane[1], "layer": lane[2], **_sums(answers)}
        for lane, answers in lanes.items()
    ]


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


def _sums(answers: list[Answer]) -> Json:
    fresh = [answer for answer in answers if not answer.flags & _CACHED]
    read, written, cost = (
        [
            Fraction(answer.evidence["usage"][at])
            for answer in fresh
            if answer.evidence["usage"][at] is not None
        ]
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
