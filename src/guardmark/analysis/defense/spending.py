"""What a run consumed: calls, tokens and money of every part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from guardmark.core.record import FIRST_LAYER, Stage
from guardmark.store.usage import usage_by_lane

if TYPE_CHECKING:
    from guardmark.core.manifest import RunManifest
    from guardmark.store.reader import RecordReader


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """What one part consumed at one stage, as far as its service reported.

    Attributes:
        part: Name of the defense, model or judge.
        stage: `defense`, `warmup`, `model`, `judge` or `try`.
        layer: Which judging; `run` for the run itself.
        calls: Answers that report usage and were asked for in this run; those that were asked
            about again count each time.
        recalled: Answers that were kept from an earlier run; in no sum.
        tokens_read: Tokens read, or None where no answer reports any.
        tokens_written: Tokens written, or None where no answer reports any.
        cost: In the currency of the price table, or None where no answer was priced.
        priced: Answers behind `cost`.
    """

    part: str
    stage: str
    layer: str
    calls: int
    recalled: int
    tokens_read: int | None
    tokens_written: int | None
    cost: float | None
    priced: int


def read_spending(reader: RecordReader, manifest: RunManifest) -> tuple[Spending, ...]:
    """Add up what a run consumed."""
    return tuple(
        Spending(
            part=_part(reader, manifest, lane.name, stage=lane.stage, layer=lane.layer),
            stage=lane.stage.value,
            layer=lane.layer,
            calls=lane.calls,
            recalled=lane.recalled,
            tokens_read=lane.tokens_read,
            tokens_written=lane.tokens_written,
            cost=lane.cost,
            priced=lane.priced,
        )
        for lane in usage_by_lane(reader)
    )


def _part(
    reader: RecordReader, manifest: RunManifest, name: str, *, stage: Stage, layer: str
) -> str:
    """Model and judges are stored under the arm without a guard; name them by themselves."""
    if stage not in {Stage.MODEL, Stage.JUDGE}:
        return name
    known = [part.name for part in manifest.parts if part.kind == stage.value]
    alone = known[0] if len(known) == 1 else name
    if stage is Stage.MODEL:
        return alone
    judge = layer.partition("/")[2] or str(reader.layer_settings(layer).get("judge") or "")
    return judge or (alone if layer == FIRST_LAYER else layer)
