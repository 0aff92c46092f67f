"""What had gone out of a guard that streams, and when its block came."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from guardmark.analysis.defense.counts import estimate_slices, sort_into_cells
from guardmark.analysis.defense.frame import BLOCK
from guardmark.core.values import dataclass
from guardmark.stats.quantiles import estimate_quantiles
from guardmark.store.details import read_streams

if TYPE_CHECKING:
    from guardmark.analysis.defense.frame import Frame
    from guardmark.core.estimate import Estimate
    from guardmark.stats.figures import Quantile
    from guardmark.store.columns import RecordColumns
    from guardmark.store.reader import RecordReader

QUANTILES: Final = (0.5, 0.95)
_NS_PER_MS: Final = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Streaming:
    """How much a guard that streams let out before it blocked an attack, and how fast it was.

    Each list of quantiles holds the median and p95.

    Attributes:
        shown: Blocked attacks of which anything had gone out, of the blocked attacks.
        characters: Characters that had gone out before the block, of blocked attacks.
        block_ms: Time to the block, of blocked attacks.
        first_ms: Time to the first chunk, of all decided answers that had one.
    """

    shown: Estimate
    characters: tuple[Quantile, ...]
    block_ms: tuple[Quantile, ...]
    first_ms: tuple[Quantile, ...]


def measure_streaming(
    reader: RecordReader, frame: Frame, stored: str, records: RecordColumns
) -> Streaming | None:
    """Measure the records of a guard, by the name they are stored under; None without a stream.

    Limits count groups of samples, as those of every rate do.
    """
    streams = read_streams(reader, stored)
    if not streams:
        return None
    size = len(records.sample)
    characters, first, block = (np.full(size, np.nan) for _ in range(3))
    keys = zip(records.repeat.tolist(), records.sample.tolist(), strict=True)
    for row, key in enumerate(keys):
        trace = streams.get(key)
        if trace is None:
            continue
        characters[row] = trace.characters
        if trace.first_ns is not None:
            first[row] = trace.first_ns / _NS_PER_MS
        if trace.block_ns is not None:
            block[row] = trace.block_ns / _NS_PER_MS
    is_attack = frame.samples.is_attack[records.sample]
    is_blocked = is_attack & (records.outcome == BLOCK) & ~np.isnan(characters)
    groups = frame.samples.group.codes[records.sample]

    def quantiles(values: np.ndarray, rows: np.ndarray) -> tuple[Quantile, ...]:
        held = rows & ~np.isnan(values)
        return tuple(
            estimate_quantiles(
                values[held], QUANTILES, groups=groups[held], confidence=frame.settings.confidence
            )
        )

    shares = estimate_slices(
        frame,
        sort_into_cells(frame),
        records,
        hits=is_blocked & (characters > 0),
        trials=is_blocked,
    )
    return Streaming(
        shown=shares[1],
        characters=quantiles(characters, is_blocked),
        block_ms=quantiles(block, is_blocked),
        first_ms=quantiles(first, records.outcome <= BLOCK),
    )
