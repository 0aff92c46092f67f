"""How long a defense takes, attacks and benign samples apart, never pooled."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

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
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from guardmark.analysis.defense.frame import DefenseColumn, Frame
    from guardmark.analysis.settings import AnalysisSettings
    from guardmark.core.estimate import Quantile
    from guardmark.core.manifest import LatencyMode

QUANTILES: Final = (0.5, 0.95, 0.99)
_TIMEOUT: Final = ERROR_KIND_CODE[ErrorKind.TIMEOUT]
_BINS: Final = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class SideLatency:
    """Times of the answers to attacks, or to benign samples.

    Attributes:
        is_attack: Which of the two.
        quantiles: p50, p95 and p99 in milliseconds.
        timed: Measured answers, timeouts included.
        timeouts: Calls that ran into the time limit; they count as at least that long.
    """

    is_attack: bool = field(metadata={"json": False})
    quantiles: tuple[Quantile, ...] = field(metadata={"json": "quantiles_ms"})
    timed: int
    timeouts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyHistogram:
    """How times spread, on a logarithmic scale.

    Attributes:
        edges_ms: One more than there are bins, rising by a factor.
        attacks: Answers to attacks in each bin.
        benign: Answers to benign samples in each bin.
    """

    edges_ms: tuple[float, ...]
    attacks: tuple[int, ...]
    benign: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """How long one defense takes.

    Attributes:
        mode: How calls were spaced.
        concurrency: Calls in flight at most.
        warmup: Calls made before measuring and left out.
        attacks: Times on attacks.
        benign: Times on benign samples.
        cold_ms: First calls of the part in a process, left out above.
        is_amortised: Whether times are shares of a batch's time.
        is_from_plan: Whether times count from the planned send time (open loop).
        cached: Answers from the cache, left out.
        histogram: How times spread, or None without measured answers.
    """

    mode: LatencyMode
    concurrency: int
    warmup: int
    attacks: SideLatency
    benign: SideLatency
    cold_ms: tuple[float, ...]
    is_amortised: bool
    is_from_plan: bool
    cached: int
    histogram: LatencyHistogram | None = field(metadata={"json": False})


def measure_latency(frame: Frame, arm: DefenseColumn, settings: AnalysisSettings) -> Latency:
    """Estimate the latency of one defense."""
    records, manifest = arm.records, frame.manifest
    timed = is_timed(arm)
    attack = frame.samples.is_attack.take(records.sample)
    attacks, benign = _times(arm, timed & attack), _times(arm, timed & ~attack)
    cold = (records.flags & FLAG_COLD != 0) & (records.latency_ns >= 0)
    return Latency(
        mode=manifest.latency_mode,
        concurrency=manifest.concurrency,
        warmup=manifest.warmup,
        attacks=_side(attacks, is_attack=True, settings=settings),
        benign=_side(benign, is_attack=False, settings=settings),
        cold_ms=tuple((records.latency_ns[cold] / 1e6).tolist()),
        is_amortised=_is_flagged(arm, timed, FLAG_AMORTISED),
        is_from_plan=_is_flagged(arm, timed, FLAG_PLANNED),
        cached=int((records.flags & FLAG_CACHED != 0).sum()),
        histogram=_histogram(attacks.waited_ms, benign.waited_ms),
    )


def is_timed(arm: DefenseColumn) -> NDArray[np.bool_]:
    """Tell which records carry a service time that counts."""
    records = arm.records
    apart = records.flags & (FLAG_COLD | FLAG_CACHED) != 0
    ended = (records.outcome != ERROR) | (records.error_kind == _TIMEOUT)
    timed: NDArray[np.bool_] = (records.latency_ns >= 0) & ended & ~apart
    return timed


def order_by_latency(arm: DefenseColumn) -> NDArray[np.int64]:
    """Return the timed records of a defense, fastest first."""
    timed = np.flatnonzero(is_timed(arm))
    order: NDArray[np.int64] = timed[np.argsort(arm.records.latency_ns[timed], kind="stable")]
    return order


class _Times(NamedTuple):
    """Times of one label, and which of them are timeouts."""

    waited_ms: NDArray[np.float64]
    late: NDArray[np.bool_]


def _times(arm: DefenseColumn, where: NDArray[np.bool_]) -> _Times:
    # Many times faster than an index of booleans.
    times, kinds = arm.records.latency_ns.compress(where), arm.records.error_kind.compress(where)
    return _Times(times / 1e6, kinds == _TIMEOUT)


def _is_flagged(arm: DefenseColumn, where: NDArray[np.bool_], flag: int) -> bool:
    return bool((where & (arm.records.flags & flag != 0)).any())


def _side(times: _Times, *, is_attack: bool, settings: AnalysisSettings) -> SideLatency:
    quantiles = estimate_quantiles(
        times.waited_ms, QUANTILES, censored=times.late, confidence=settings.confidence
    )
    return SideLatency(
        is_attack=is_attack,
        quantiles=tuple(_plain(quantile) for quantile in quantiles),
        timed=len(times.late),
        timeouts=int(times.late.sum()),
    )


def _plain(quantile: Quantile) -> Quantile:
    """Leave out a single bound of a quantile that is not estimable itself."""
    return quantile if quantile.value is not None else replace(quantile, low=None, high=None)


def _histogram(*waited_ms: NDArray[np.float64]) -> LatencyHistogram | None:
    sides = [np.maximum(side, 1e-6) for side in waited_ms]  # a logarithmic axis has no zero
    if not any(side.size for side in sides):
        return None
    low = min(float(side.min()) for side in sides if side.size)
    high = max(float(side.max()) for side in sides if side.size)
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
