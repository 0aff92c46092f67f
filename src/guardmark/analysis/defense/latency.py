"""How long a defense takes, attacks and benign samples apart, never pooled."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from guardmark.analysis.defense.frame import ERROR
from guardmark.core.outcome import ErrorKind
from guardmark.stats.quantiles import estimate_quantiles
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
    is_from_plan: bool  # Whether times count from the planned send time (open loop).
    cached: int  # Answers from the cache, left out.
    shared: int  # Answers of the first repeat that stand for later ones, left out.
    histogram: LatencyHistogram | None = field(metadata={"json": False})


def measure_latency(frame: Frame, records: RecordColumns) -> Latency:
    """Estimate the latency of one part."""
    manifest, timed = frame.manifest, is_timed(records)
    attack = frame.samples.is_attack.take(records.sample)
    sides, waited = [], []
    for is_attack in (True, False):
        # Many times faster than an index of booleans.
        where = timed & (attack == is_attack)
        waited.append(records.latency_ns.compress(where) / 1e6)
        late = records.error_kind.compress(where) == TIMEOUT
        groups = None
        if frame.is_grouped:
            groups = frame.samples.group.codes.take(records.sample.compress(where))
        sides.append(
            SideLatency(
                is_attack=is_attack,
                quantiles=_quantiles(waited[-1], late, groups, frame.settings.confidence),
                timed=len(late),
                timeouts=int(late.sum()),
            )
        )
    cold = (records.flags & FLAG_COLD != 0) & (records.latency_ns >= 0)
    return Latency(
        mode=manifest.latency_mode,
        concurrency=manifest.concurrency,
        warmup=manifest.warmup,
        attacks=sides[0],
        benign=sides[1],
        cold_ms=tuple((records.latency_ns[cold] / 1e6).tolist()),
        is_amortised=bool((timed & (records.flags & FLAG_AMORTISED != 0)).any()),
        is_from_plan=bool((timed & (records.flags & FLAG_PLANNED != 0)).any()),
        cached=int((records.flags & (FLAG_CACHED | FLAG_SHARED) == FLAG_CACHED).sum()),
        shared=int((records.flags & FLAG_SHARED != 0).sum()),
        histogram=_histogram(*waited),
    )


def spread_times(frame: Frame, records: RecordColumns) -> NDArray[np.float64]:
    """Return the milliseconds of a part by position; nan where none count."""
    return frame.spread(records, records.latency_ns / 1e6, is_timed(records))


def is_timed(records: RecordColumns) -> NDArray[np.bool_]:
    """Tell which records carry a service time that counts."""
    apart = records.flags & (FLAG_COLD | FLAG_CACHED) != 0
    ended = (records.outcome != ERROR) | (records.error_kind == TIMEOUT)
    timed: NDArray[np.bool_] = (records.latency_ns >= 0) & ended & ~apart
    return timed


def order_by_latency(records: RecordColumns) -> NDArray[np.int64]:
    """Return the timed records of a part, fastest first."""
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
    if not waited_ms.size:
        return tuple(estimates)
    first_late = waited_ms[late].min(initial=np.inf)
    points = np.quantile(waited_ms, QUANTILES).tolist()
    return tuple(
        each
        if each.value is not None
        # Of too few times the point alone is told; the reason says how many give an interval.
        else replace(each, value=point, low=None, high=None, at_least=point >= first_late)
        for each, point in zip(estimates, points, strict=True)
    )


def _histogram(*waited_ms: NDArray[np.float64]) -> LatencyHistogram | None:
    sides = [np.maximum(side, 1e-6) for side in waited_ms]  # a logarithmic axis has no zero
    both = np.concatenate(sides)
    if not both.size:
        return None
    low, high = float(both.min()), float(both.max())
    edges = np.geomspace(low, max(high, low * 1.001), _BINS + 1)
    # geomspace may miss its ends by a rounding; nothing measured may fall outside.
    edges[0], edges[-1] = low, max(high, edges[-1])
    attacks, benign = (_counts(side, edges) for side in sides)
    return LatencyHistogram(edges_ms=tuple(edges.tolist()), attacks=attacks, benign=benign)


def _counts(times: NDArray[np.float64], edges: NDArray[np.float64]) -> tuple[int, ...]:
    """Count times between edges; the last bin holds its right edge too."""
    # A pass for each of few edges takes a tenth of sorting.
    below = [int(np.count_nonzero(times < edge)) for edge in edges[:-1]]
    below.append(int(np.count_nonzero(times <= edges[-1])))
    return tuple(more - fewer for fewer, more in pairwise(below))
