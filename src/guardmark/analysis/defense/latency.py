"""How long a defense takes, attacks and benign samples apart, never pooled."""

from __future__ import annotations

from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from guardmark.analysis.defense.counts import estimate_slices, sort_into_cells
from guardmark.analysis.defense.frame import ERROR
from guardmark.core.asking_order import order_samples
from guardmark.core.outcome import ErrorKind
from guardmark.core.values import dataclass
from guardmark.stats.quantiles import RisingTimes, estimate_quantiles, ranks_of, sorted_quantile
from guardmark.stats.rates.clustered import EffectiveCounts
from guardmark.stats.time_series import CallSeries
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

    from guardmark.analysis.defense.counts import Cells
    from guardmark.analysis.defense.frame import Frame
    from guardmark.core.manifest import LatencyMode
    from guardmark.stats.arguments import Floats
    from guardmark.stats.figures import Quantile
    from guardmark.store.columns import RecordColumns

QUANTILES: Final = (0.5, 0.95, 0.99)
TIMEOUT: Final = ERROR_KIND_CODE[ErrorKind.TIMEOUT]
_BINS: Final = 24
_LEAST_SHOWN_MS: Final = 1e-6  # a logarithmic axis has no zero
_IMPORTED: Final = "imported"  # type of the parts of a run that another tool made
_LEAST_IN_THIRD: Final = 40  # calls in a third of a run, to compare it with another
_SPELLS: Final = 3.0  # calls that one is worth, from which on slow ones came in spells
_SURE: Final = 0.99  # of both limits, so that a drift is seldom told where there is none


@dataclass(frozen=True, slots=True, kw_only=True)
class SideLatency:
    """Times of the answers to attacks, or to benign samples.

    Attributes:
        quantiles: Of `QUANTILES`.
        timed: Measured answers, timeouts included.
        timeouts: Calls that ran into the time limit; they count as at least that long.
    """

    is_attack: bool = field(metadata={"json": False})
    quantiles: tuple[Quantile, ...] = field(metadata={"json": "quantiles_ms"})
    timed: int
    timeouts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyHistogram:
    """How many answers fell into each bin; the edges rise by a factor."""

    edges_ms: tuple[float, ...]
    attacks: tuple[int, ...]
    benign: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyDrift:
    """How times changed while the run went on, attacks and benign samples in the order asked.

    Attributes:
        quantile: Which quantile changed; None where slow calls only came in spells.
        first_ms: It in the first third of the calls, or None.
        last_ms: It in the last third, or None.
        calls: Calls that were timed.
        worth: Independent calls that they are worth for the median.
        spell: About how many calls that follow each other are alike, at the level that shows it
            most.
    """

    quantile: float | None
    first_ms: float | None
    last_ms: float | None
    calls: int
    worth: float
    spell: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """How long one defense takes.

    Attributes:
        concurrency: Calls in flight at most.
        warmup: Calls made before measuring and left out.
        cold_ms: First calls of the part in a process, left out above.
        is_amortised: Whether times are shares of a batch's time.
        is_counted: Whether they are told to three digits, and limits take groups to be alike
            within.
        is_from_plan: Whether times count from the planned send time (open loop).
        cached: Answers from the cache, left out.
        shared: Answers of the first repeat that stand for later ones, left out.
        drift: Whether calls slowed down, or slow ones came in spells; None where nothing shows it.
    """

    mode: LatencyMode
    concurrency: int
    warmup: int
    attacks: SideLatency
    benign: SideLatency
    cold_ms: tuple[float, ...]
    is_amortised: bool
    is_counted: bool = field(metadata={"json": False})
    is_from_plan: bool
    cached: int
    shared: int
    drift: LatencyDrift | None
    histogram: LatencyHistogram | None = field(metadata={"json": False})


def measure_latency(
    frame: Frame, records: RecordColumns, *, ranks: NDArray[np.int64] | None = None
) -> Latency:
    """Estimate the latency of one part.

    `ranks` says when each place was asked about, where it isn't what `asking_ranks` says of the
    frame: of some samples of a run, or of those that several runs share.
    """
    manifest = frame.manifest
    timing, often = timing_of(frame, records)
    timed = is_timed(timing)
    order: NDArray[np.int64] | None = None
    drift: LatencyDrift | None = None
    if often is None:
        order = call_order(frame, records, ranks=ranks)
        every = np.flatnonzero(timed)
        drift = _drift(timing, every[np.argsort(order[every])])
    sides = []
    risings = []
    cells = sort_into_cells(frame)
    for is_attack in (True, False):
        side, rising = _side(frame, records, order, cells=cells, is_attack=is_attack)
        sides.append(side)
        risings.append(rising)
    is_cold = (timing.flags & FLAG_COLD != 0) & (timing.latency_ns >= 0)
    often_made = frame.record_weights(records)
    return Latency(
        mode=manifest.latency_mode,
        concurrency=manifest.concurrency,
        warmup=manifest.warmup,
        attacks=sides[0],
        benign=sides[1],
        cold_ms=tuple((timing.latency_ns[is_cold] / 1e6).tolist()),
        is_counted=often is not None,
        is_amortised=bool((timed & (timing.flags & FLAG_AMORTISED != 0)).any()),
        is_from_plan=bool((timed & (timing.flags & FLAG_PLANNED != 0)).any()),
        cached=_total(records.flags & (FLAG_CACHED | FLAG_SHARED) == FLAG_CACHED, often_made),
        shared=_total(records.flags & FLAG_SHARED != 0, often_made),
        drift=drift,
        histogram=_histogram(*risings),
    )


def _side(
    frame: Frame,
    records: RecordColumns,
    order: NDArray[np.int64] | None,
    *,
    cells: Cells,
    is_attack: bool,
) -> tuple[SideLatency, RisingTimes]:
    """Estimate the quantiles of one label; `order` says when each record was asked for."""
    timing, often = timing_of(frame, records)
    labels = (frame.times or frame).samples.is_attack.take(timing.sample)
    mine = np.flatnonzero(is_timed(timing) & (labels == is_attack))
    series: tuple[CallSeries, ...] = ()
    if order is not None and mine.size:
        calls = mine[np.argsort(order[mine], kind="stable")]
        in_order = timing.latency_ns[calls] / 1e6
        series = (CallSeries(in_order, confidence=frame.settings.confidence),)
    fastest_first = mine[np.argsort(timing.latency_ns[mine], kind="stable")]
    times = rising_times(timing, often, fastest_first, unit_ns=1e6)
    counted = is_timed(records)
    quantiles = []
    for quantile in QUANTILES:
        point = 0.0
        if len(times):
            point, _ = times.point(quantile)
        # Of a counted run all times are below: groups are taken to be alike, to be safe.
        hits = counted & (records.latency_ns / 1e6 <= point)
        below = estimate_slices(frame, cells, records, hits=hits, trials=counted)[is_attack]
        ranks = ranks_of(
            EffectiveCounts.of(below), quantile, series=series, confidence=below.confidence
        )
        found = sorted_quantile(times, quantile, ranks=ranks, confidence=below.confidence)
        if found.value is None and len(times):
            # Of too few times the point alone is told; the reason says how many give limits.
            late = point >= times.first_late
            found = replace(found, value=point, low=None, high=None, at_least=late)
        quantiles.append(found)
    side = SideLatency(
        is_attack=is_attack,
        quantiles=tuple(quantiles),
        timed=len(times),
        timeouts=times.censored,
    )
    return side, times


def _drift(timing: RecordColumns, calls: NDArray[np.int64]) -> LatencyDrift | None:
    """Compare the first and the last third of the calls; None where nothing shows a change."""
    third = len(calls) // 3
    if third < _LEAST_IN_THIRD:
        return None
    times = timing.latency_ns[calls] / 1e6
    parts = (times[:third], times[-third:])
    in_order = partial(estimate_quantiles, is_in_time_order=True, confidence=_SURE)
    first, last = in_order(parts[0], QUANTILES[:2]), in_order(parts[1], QUANTILES[:2])
    series = CallSeries(times)
    worth = max(1.0, len(calls) / series.time_at(len(calls) // 2))
    # p95 first: it is what a slow service shows, and the median what all calls feel.
    for at in (1, 0):
        if _lie_apart(first[at], last[at]):
            return LatencyDrift(
                quantile=QUANTILES[at],
                first_ms=float(np.quantile(parts[0], QUANTILES[at])),
                last_ms=float(np.quantile(parts[1], QUANTILES[at])),
                calls=len(calls),
                worth=worth,
                spell=series.longest,
            )
    if series.longest < _SPELLS:
        return None
    return LatencyDrift(
        quantile=None,
        first_ms=None,
        last_ms=None,
        calls=len(calls),
        worth=worth,
        spell=series.longest,
    )


def _lie_apart(first: Quantile, last: Quantile) -> bool:
    """Tell whether two quantiles have limits that do not meet."""
    if None in (first.low, first.high, last.low, last.high):
        return False
    return (first.high or 0.0) < (last.low or 0.0) or (last.high or 0.0) < (first.low or 0.0)


def call_order(
    frame: Frame, records: RecordColumns, *, ranks: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """Return when each record was asked for, as a rank, out of `asking_ranks`."""
    if ranks is None:
        ranks = asking_ranks(frame)
    order: NDArray[np.int64] = ranks[
        records.repeat.astype(np.int64) * frame.sample_count + records.sample
    ]
    return order


def asking_ranks(frame: Frame) -> NDArray[np.int64]:
    """Return when each place of a run was asked about, as a rank, repeat after repeat.

    Samples are asked about in a seeded random order, one repeat after the other; those of an
    imported run stand in the order of its log. What an interruption left out was asked later: so
    few calls do not show in a series.
    """
    manifest, count = frame.manifest, frame.sample_count
    if any(part.type == _IMPORTED for part in manifest.parts):
        positions = np.arange(count)
    elif frame.settings.stop_when:
        from guardmark.analysis.early_stop import make_schedule

        schedule = make_schedule(frame.samples, seed=manifest.seed)
        positions = np.asarray(schedule.order, dtype=np.int64)
    else:
        group = frame.samples.origin or frame.samples.group
        # Not as a list: of many samples no name is asked for.
        names = (group.names[code] for code in map(int, group.codes))
        positions = np.asarray(order_samples(names, count, seed=manifest.seed), dtype=np.int64)
    ranks = np.empty(count, dtype=np.int64)
    ranks[positions] = np.arange(count)
    return (np.arange(manifest.repeats)[:, None] * count + ranks).ravel()


def timing_of(
    frame: Frame, records: RecordColumns
) -> tuple[RecordColumns, NDArray[np.int64] | None]:
    """Return records with their times, and how often a counted run has each, or None for once."""
    if frame.times is None:
        return records, None
    timing = frame.times.arms[0].records
    return timing, frame.times.record_weights(timing)


def _total(marks: NDArray[np.bool_], counts: NDArray[np.int64] | None) -> int:
    if counts is None:
        return int(np.count_nonzero(marks))
    return int(counts[marks].sum())


def spread_times(frame: Frame, records: RecordColumns) -> NDArray[np.float64]:
    """Return the milliseconds of a part by position; nan where none count."""
    return frame.spread(records, records.latency_ns / 1e6, is_timed(records))


def is_timed(records: RecordColumns) -> NDArray[np.bool_]:
    """Tell which records carry a service time that counts."""
    apart = records.flags & (FLAG_COLD | FLAG_CACHED) != 0
    ended = (records.outcome != ERROR) | (records.error_kind == TIMEOUT)
    timed: NDArray[np.bool_] = (records.latency_ns >= 0) & ended & ~apart
    return timed


def rising_times(
    timing: RecordColumns,
    often: NDArray[np.int64] | None,
    at: NDArray[np.int64],
    *,
    unit_ns: float = 1.0,
) -> RisingTimes:
    """Return the times of records that stand in order of them."""
    late = timing.error_kind[at] == TIMEOUT
    if often is not None:
        often = often[at]
    return RisingTimes(timing.latency_ns[at] / unit_ns, late, often)


@dataclass(slots=True, kw_only=True)
class TimedOrder:
    """The timed records of a part, put in order once for all facets.

    Attributes:
        fastest_first: Places of the records, the lowest latency first.
        as_asked: The same places in the order of the calls, or None of a counted run, which does
            not know it.
        medians_of_whole: Median latency of benign samples and of attacks, once a facet of one value
            has asked for them: they are those of every such facet.
    """

    fastest_first: NDArray[np.int64]
    as_asked: NDArray[np.int64] | None
    medians_of_whole: list[Quantile | None] | None = None


def order_timed(
    frame: Frame, records: RecordColumns, *, ranks: NDArray[np.int64] | None = None
) -> TimedOrder:
    """Put the timed records of a part in order; `ranks` as for `measure_latency`."""
    timing, often = timing_of(frame, records)
    timed = np.flatnonzero(is_timed(timing))
    as_asked: NDArray[np.int64] | None = None
    if often is None:
        asked = call_order(frame, records, ranks=ranks)
        as_asked = timed[np.argsort(asked[timed], kind="stable")]
    return TimedOrder(
        fastest_first=timed[np.argsort(timing.latency_ns[timed], kind="stable")],
        as_asked=as_asked,
    )


def _histogram(attacks: RisingTimes, benign: RisingTimes) -> LatencyHistogram | None:
    """Count both kinds of times in the same bins, whose widths grow; None without any time."""
    ends: list[float] = []
    for side in (attacks, benign):
        if side.values.size:
            ends += np.maximum(side.values[[0, -1]], _LEAST_SHOWN_MS).tolist()
    if not ends:
        return None
    low, high = min(ends), max(ends)
    edges = np.geomspace(low, max(high, low * 1.001), _BINS + 1)
    # geomspace may miss its ends by a rounding; nothing measured may fall outside.
    edges[0], edges[-1] = low, max(high, edges[-1])
    return LatencyHistogram(
        edges_ms=tuple(edges.tolist()),
        attacks=_count_between(attacks, edges),
        benign=_count_between(benign, edges),
    )


def _count_between(times: RisingTimes, edges: Floats) -> tuple[int, ...]:
    """Count the times between edges; the last bin holds its right edge too."""
    shown = np.maximum(times.values, _LEAST_SHOWN_MS)
    below = [times.count_below(place) for place in np.searchsorted(shown, edges[:-1])]
    return tuple(np.diff([*below, len(times)]).tolist())
