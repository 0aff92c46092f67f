"""How long a defense takes, attacks and benign samples apart, never pooled."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from guardmark.analysis.defense.counts import estimate_slices, sort_into_cells
from guardmark.analysis.defense.frame import ERROR
from guardmark.core.outcome import ErrorKind
from guardmark.stats.quantiles import (
    RisingTimes,
    estimate_quantiles,
    ranks_of,
    sorted_quantile,
)
from guardmark.stats.rates.clustered import EffectiveCounts
from guardmark.store.schema import (
    ERROR_KIND_CODE,
    FLAG_AMORTISED,
    FLAG_CACHED,
    FLAG_COLD,
    FLAG_PLANNED,
    FLAG_SHARED,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from guardmark.analysis.defense.frame import Frame
    from guardmark.core.manifest import LatencyMode
    from guardmark.stats.figures import Quantile
    from guardmark.store.columns import RecordColumns

QUANTILES: Final = (0.5, 0.95, 0.99)
TIMEOUT: Final = ERROR_KIND_CODE[ErrorKind.TIMEOUT]
_BINS: Final = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class SideLatency:
    """Times of the answers to attacks, or to benign samples."""

    is_attack: bool = field(metadata={"json": False})
    quantiles: tuple[Quantile, ...] = field(metadata={"json": "quantiles_ms"})  # Of `QUANTILES`.
    timed: int  # Measured answers, timeouts included.
    timeouts: int  # Calls that ran into the time limit; they count as at least that long.


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyHistogram:
    """How many answers fell into each bin; the edges rise by a factor."""

    edges_ms: tuple[float, ...]
    attacks: tuple[int, ...]
    benign: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """How long one defense takes."""

    mode: LatencyMode
    concurrency: int  # Calls in flight at most.
    warmup: int  # Calls made before measuring and left out.
    attacks: SideLatency
    benign: SideLatency
    cold_ms: tuple[float, ...]  # First calls of the part in a process, left out above.
    is_amortised: bool  # Whether times are shares of a batch's time.
    # Whether they are told to three digits, and limits take groups to be alike within.
    is_counted: bool = field(metadata={"json": False})
    is_from_plan: bool  # Whether times count from the planned send time (open loop).
    cached: int  # Answers from the cache, left out.
    shared: int  # Answers of the first repeat that stand for later ones, left out.
    histogram: LatencyHistogram | None = field(metadata={"json": False})


def measure_latency(frame: Frame, records: RecordColumns) -> Latency:
    """Estimate the latency of one part."""
    manifest, (timing, often) = frame.manifest, timing_of(frame, records)
    timed, samples = is_timed(timing), (frame.times or frame).samples
    attack = samples.is_attack.take(timing.sample)
    sides, measured = [], []
    for is_attack in (True, False):
        # Many times faster than an index of booleans.
        where = timed & (attack == is_attack)
        waited = timing.latency_ns.compress(where) / 1e6
        late = timing.error_kind.compress(where) == TIMEOUT
        counts = None if often is None else often.compress(where)
        measured.append((waited, counts))
        if counts is not None:
            quantiles = _counted_quantiles(frame, waited, late, counts, is_attack=is_attack)
        else:
            groups = None
            if frame.is_grouped:
                groups = samples.group.codes.take(timing.sample.compress(where))
            quantiles = _quantiles(waited, late, groups, frame.settings.confidence)
        sides.append(
            SideLatency(
                is_attack=is_attack,
                quantiles=quantiles,
                timed=_total(np.ones_like(late), counts),
                timeouts=_total(late, counts),
            )
        )
    cold = (timing.flags & FLAG_COLD != 0) & (timing.latency_ns >= 0)
    calls = frame.record_weights(records)
    return Latency(
        mode=manifest.latency_mode,
        concurrency=manifest.concurrency,
        warmup=manifest.warmup,
        attacks=sides[0],
        benign=sides[1],
        cold_ms=tuple((timing.latency_ns[cold] / 1e6).tolist()),
        is_counted=often is not None,
        is_amortised=bool((timed & (timing.flags & FLAG_AMORTISED != 0)).any()),
        is_from_plan=bool((timed & (timing.flags & FLAG_PLANNED != 0)).any()),
        cached=_total(records.flags & (FLAG_CACHED | FLAG_SHARED) == FLAG_CACHED, calls),
        shared=_total(records.flags & FLAG_SHARED != 0, calls),
        histogram=_histogram(*measured),
    )


def timing_of(
    frame: Frame, records: RecordColumns
) -> tuple[RecordColumns, NDArray[np.int64] | None]:
    """Return records with their times, and how often a counted run has each, or None for once."""
    if frame.times is None:
        return records, None
    timing = frame.times.arms[0].records
    return timing, frame.times.record_weights(timing)


def _total(marks: NDArray[np.bool_], counts: NDArray[np.int64] | None) -> int:
    return int(np.count_nonzero(marks) if counts is None else counts[marks].sum())


def spread_times(frame: Frame, records: RecordColumns) -> NDArray[np.float64]:
    """Return the milliseconds of a part by position; nan where none count."""
    return frame.spread(records, records.latency_ns / 1e6, is_timed(records))


def is_timed(records: RecordColumns) -> NDArray[np.bool_]:
    """Tell which records carry a service time that counts."""
    apart = records.flags & (FLAG_COLD | FLAG_CACHED) != 0
    ended = (records.outcome != ERROR) | (records.error_kind == TIMEOUT)
    timed: NDArray[np.bool_] = (records.latency_ns >= 0) & ended & ~apart
    return timed


def order_by_latency(frame: Frame, records: RecordColumns) -> NDArray[np.int64]:
    """Return the timed records of a part, fastest first."""
    records, _ = timing_of(frame, records)
    timed = np.flatnonzero(is_timed(records))
    order: NDArray[np.int64] = timed[np.argsort(records.latency_ns[timed], kind="stable")]
    return order


def _quantiles(
    waited_ms: NDArray[np.float64],
    late: NDArray[np.bool_],
    groups: NDArray[np.int32] | None,
    confidence: float,
) -> tuple[Quantile, ...]:
    estimates = estimate_quantiles(
        waited_ms, QUANTILES, censored=late, groups=groups, confidence=confidence
    )
    points = np.quantile(waited_ms, QUANTILES).tolist() if waited_ms.size else []
    return _with_points(estimates, points, waited_ms[late].min(initial=np.inf))


def _counted_quantiles(
    frame: Frame,
    waited_ms: NDArray[np.float64],
    late: NDArray[np.bool_],
    counts: NDArray[np.int64],
    *,
    is_attack: bool,
) -> tuple[Quantile, ...]:
    """Estimate quantiles of counted times, groups taken to be alike within, to be safe."""
    (arm,), confidence = frame.arms, frame.settings.confidence
    timed = is_timed(arm.records)
    worth = estimate_slices(frame, sort_into_cells(frame), arm, hits=timed, trials=timed)[is_attack]
    order = np.argsort(waited_ms, kind="stable")
    times = RisingTimes(waited_ms[order], late[order], counts[order])
    estimates, counted = [], EffectiveCounts.of(worth)
    for each in QUANTILES:
        ranks = ranks_of(counted, each, confidence=confidence)
        estimates.append(sorted_quantile(times, each, ranks=ranks, confidence=confidence))
    points = [times.point(each)[0] for each in QUANTILES] if len(times) else []
    return _with_points(estimates, points, waited_ms[late].min(initial=np.inf))


def _with_points(
    estimates: list[Quantile], points: list[float], first_late: float
) -> tuple[Quantile, ...]:
    if not points:
        return tuple(estimates)
    return tuple(
        each
        if each.value is not None
        # Of too few times the point alone is told; the reason says how many give an interval.
        else replace(each, value=point, low=None, high=None, at_least=point >= first_late)
        for each, point in zip(estimates, points, strict=True)
    )


def _histogram(
    *measured: tuple[NDArray[np.float64], NDArray[np.int64] | None],
) -> LatencyHistogram | None:
    sides = [np.maximum(side, 1e-6) for side, _ in measured]  # a logarithmic axis has no zero
    both = np.concatenate(sides)
    if not both.size:
        return None
    low, high = float(both.min()), float(both.max())
    edges = np.geomspace(low, max(high, low * 1.001), _BINS + 1)
    # geomspace may miss its ends by a rounding; nothing measured may fall outside.
    edges[0], edges[-1] = low, max(high, edges[-1])
    attacks, benign = (
        _counts(side, edges, often) for side, (_, often) in zip(sides, measured, strict=True)
    )
    return LatencyHistogram(edges_ms=tuple(edges.tolist()), attacks=attacks, benign=benign)


def _counts(
    times: NDArray[np.float64], edges: NDArray[np.float64], often: NDArray[np.int64] | None
) -> tuple[int, ...]:
    """Count times between edges; the last bin holds its right edge too."""
    # A pass for each of few edges takes a tenth of sorting.
    below = [_total(times < edge, often) for edge in edges[:-1]]
    below.append(_total(times <= edges[-1], often))
    return tuple(more - fewer for fewer, more in pairwise(below))
