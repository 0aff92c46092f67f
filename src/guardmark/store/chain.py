"""The hash chain over committed batches: a changed, missing or doubled row breaks it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Row = tuple[Any, ...]


def genesis(manifest: str, samples_seal: str) -> bytes:
    """Hash what stands before the first batch.

    Args:
        manifest: JSON of the manifest, as stored.
        samples_seal: Seal of the samples (hex).

    Returns:
        32 bytes.
    """
    return sha256(json.dumps(["guardmark records 1", manifest, samples_seal]).encode()).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneRows:
    """The part of a batch that belongs to one lane.

    Attributes:
        defense: Name of the defense.
        stage: Code of the stage.
        layer: Name of the layer.
        repeat: Which repetition.
        groups: Score kind, error kind, answer mode and flags (-1 for none), with the records
            that have them: sample, outcome, score and latency, in order of sample. The groups
            lie in the order of their numbers.
        details: Sample, text and evidence of the details, in order of sample.
    """

    defense: str
    stage: int
    layer: str
    repeat: int
    groups: Sequence[tuple[Sequence[int], Sequence[Row]]]
    details: Sequence[Row]


def link(before: bytes, lanes: Iterable[LaneRows]) -> bytes:
    """Hash one batch together with everything before it.

    Args:
        before: Hash of the batch before, or the genesis.
        lanes: The batch, in the order of the numbers of defense, stage, layer and repeat.

    Returns:
        SHA-256 of `before` followed by the compact ASCII JSON
        `[[defense, stage, layer, repeat, groups, details], ...]`.
    """
    said = [
        (lane.defense, lane.stage, lane.layer, lane.repeat, lane.groups, lane.details)
        for lane in lanes
    ]
    return sha256(before + json.dumps(said, separators=(",", ":")).encode()).digest()
