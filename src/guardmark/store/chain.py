"""The hash chain over committed batches: a changed, missing or doubled row breaks it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Row = tuple[Any, ...]
Group = tuple["Sequence[int]", "Sequence[Row]"]


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
        said: As `groups`, of the records whose evidence is one of the sayings; its number
            stands last.
    """

    defense: str
    stage: int
    layer: str
    repeat: int
    groups: Sequence[Group]
    details: Sequence[Row]
    said: Sequence[Group] = ()


def link(
    before: bytes, lanes: Iterable[LaneRows], *, sayings: Sequence[tuple[int, str]] = ()
) -> bytes:
    """Hash one batch together with everything before it.

    Args:
        before: Hash of the batch before, or the genesis.
        lanes: The batch, in the order of the numbers of defense, stage, layer and repeat.
        sayings: Number and JSON of the sayings that came with the batch.

    Returns:
        SHA-256 of `before` followed by the compact ASCII JSON
        `[[defense, stage, layer, repeat, groups, details, said], ..., sayings]`, where `said`
        and `sayings` stand only if there are any: so files of version 1 keep their hashes.
    """
    said: list[Sequence[object]] = [
        (
            *(lane.defense, lane.stage, lane.layer, lane.repeat, lane.groups, lane.details),
            *([lane.said] if lane.said else []),
        )
        for lane in lanes
    ]
    if sayings:
        said.append(sayings)
    return sha256(before + json.dumps(said, separators=(",", ":")).encode()).digest()
