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
    """Hash what stands before the first batch."""
    return sha256(json.dumps(["guardmark records 1", manifest, samples_seal]).encode()).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneRows:
    """The part of a batch that belongs to one lane."""

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
    """Hash one batch together with everything before it."""
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
