"""What had gone out of a guard that streams, and when its block came."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from guardmark.analysis.defense.counts import (
    SampleRates,
    estimate_slices,
    sort_into_cells,
)
from guardmark.analysis.defense.frame import BLOCK
from guardmark.core.values import dataclass
from guardmark.stats.quantiles import estimate_quantiles
from guardmark.store.details import read_streams
from guardmark.store.schema import FLAG_SHARED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.analysis.defense.frame import Frame
    from guardmark.core.estimate import Estimate
    from guardmark.stats.arguments import Flags, Floats, Ints
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
        tokens: Tokens that had gone out before the block, of the blocked attacks of which the
            service had counted them up to there.
    """

    shown: Estimate
    characters: tuple[Quantile, ...]
    block_ms: tuple[Quantile, ...]
    first_ms: tuple[Quantile, ...]
    tokens: tuple[Quantile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """Calls to a guard, one row each, and how its answers streamed; nan where that is not known."""

    sample: Ints
    is_blocked: Flags
    is_decided: Flags
    characters: Floats
    first_ms: Floats
    block_ms: Floats
    tokens: Floats


def measure_streaming(
    reader: RecordReader, frame: Frame, columns: Sequence[RecordColumns]
) -> Streaming | None:
    """Measure the records of a guard; None without a stream.

    They stand under several names where it was shown what other guards had written anew. Limits
    count groups of samples, as those of every rate do.
    """
    parts = [_rows(reader, records) for records in columns]
    joined: dict[str, Any] = {}
    for column in fields(_Rows):
        joined[column.name] = np.concatenate([getattr(part, column.name) for part in parts])
    rows = _Rows(**joined)
    is_known = ~np.isnan(rows.characters)
    if not is_known.any():
        return None
    is_blocked = frame.samples.is_attack[rows.sample] & rows.is_blocked & is_known
    groups = frame.samples.group.codes[rows.sample]

    def quantiles(values: Floats, chosen: Flags) -> tuple[Quantile, ...]:
        held = chosen & ~np.isnan(values)
        return tuple(
            estimate_quantiles(
                values[held], QUANTILES, groups=groups[held], confidence=frame.settings.confidence
            )
        )

    hits = is_blocked & (rows.characters > 0)
    if len(columns) == 1:
        cells = sort_into_cells(frame)
        shown = estimate_slices(frame, cells, columns[0], hits=hits, trials=is_blocked)[1]
    else:
        crossing = None
        if frame.samples.crossing is not None:
            crossing = frame.samples.crossing.codes
        rates = SampleRates(frame.samples.group.codes, frame.settings.confidence, crossing=crossing)
        shown = rates.at(rows.sample[is_blocked].tolist(), hits[is_blocked])
    return Streaming(
        shown=shown,
        characters=quantiles(rows.characters, is_blocked),
        block_ms=quantiles(rows.block_ms, is_blocked),
        first_ms=quantiles(rows.first_ms, rows.is_decided),
        tokens=quantiles(rows.tokens, is_blocked),
    )


def _rows(reader: RecordReader, records: RecordColumns) -> _Rows:
    """Read how the answers of some calls streamed; what stands for another call is none."""
    streams = read_streams(reader, records.defense)
    size = len(records.sample)
    characters, first, block, tokens = (np.full(size, np.nan) for _ in range(4))
    is_own = (records.flags & FLAG_SHARED) == 0
    keys = zip(records.repeat.tolist(), records.sample.tolist(), is_own.tolist(), strict=True)
    for row, (repeat, sample, is_call) in enumerate(keys):
        trace = streams.get((repeat, sample))
        if trace is None or not is_call:
            continue
        characters[row] = trace.characters
        if trace.first_ns is not None:
            first[row] = trace.first_ns / _NS_PER_MS
        if trace.block_ns is not None:
            block[row] = trace.block_ns / _NS_PER_MS
        if trace.tokens is not None:
            tokens[row] = trace.tokens
    return _Rows(
        sample=records.sample,
        is_blocked=records.outcome == BLOCK,
        is_decided=records.outcome <= BLOCK,
        characters=characters,
        first_ms=first,
        block_ms=block,
        tokens=tokens,
    )
