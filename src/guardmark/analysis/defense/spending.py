"""What a run used: calls, tokens and money of every part."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from guardmark.core.record import FIRST_LAYER, Stage
from guardmark.store.columns import read_usage

if TYPE_CHECKING:
    from guardmark.core.manifest import RunManifest
    from guardmark.store.columns import PartUsage
    from guardmark.store.reader import RecordReader


def read_part_usage(reader: RecordReader, manifest: RunManifest) -> tuple[PartUsage, ...]:
    """Add up what a run used; model and judges go by their own names."""
    return tuple(replace(each, part=_part(reader, manifest, each)) for each in read_usage(reader))


def _part(reader: RecordReader, manifest: RunManifest, usage: PartUsage) -> str:
    """Model and judges are stored under the arm without a guard."""
    stage, layer = Stage(usage.stage), usage.layer
    if stage not in {Stage.MODEL, Stage.JUDGE}:
        return usage.part
    known = [part.name for part in manifest.parts if part.kind == stage.value]
    alone = known[0] if len(known) == 1 else usage.part
    if stage is Stage.MODEL:
        return alone
    judge = layer.partition("/")[2] or str(reader.layer_settings(layer).get("judge") or "")
    return judge or (alone if layer == FIRST_LAYER else layer)
