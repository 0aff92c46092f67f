"""What lies behind a comparison of two defenses: categories, latency, cost, samples."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from guardmark.analysis.compare.comparison import PairedSide, adjust_sides, compare_where
from guardmark.analysis.defense.costs import compare_costs
from guardmark.analysis.defense.frame import BLOCK, MISSING
from guardmark.analysis.defense.latency import is_timed
from guardmark.analysis.defense.slices import NOT_STATED
from guardmark.core.estimate import Difference
from guardmark.core.sample import Severity
from guardmark.stats.drawing import DrawPlan
from guardmark.stats.quantiles import estimate_quantile, median_difference

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from guardmark.analysis.compare.comparison import PairedComparison
    from guardmark.analysis.defense.costs import CostDifference, UsageBySample
    from guardmark.analysis.defense.frame import DefenseColumn, Frame
    from guardmark.analysis.settings import AnalysisSettings
    from guardmark.core.sample import Sample
    from guardmark.store.reader import RecordReader

_LEAST_DRAWS: Final = 200
_MOST_CELLS: Final = 4_000_000
_SEVERITIES: Final = tuple(severity.value for severity in Severity)


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoryDifference:
    """Two defenses on one category.

    Attributes:
        category: Its name; `(not stated)` for samples without one.
        is_attack: Whether these are attacks (ASR) or benign samples (FPR).
        side: First rate minus second; adjusted by Holm over the categories of this label.
        is_greyed: Whether the pairs are fewer than the minimum of a category.
    """

    category: str
    is_attack: bool
    side: PairedSide = field(metadata={"json": "*"})
    is_greyed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyDifference:
    """How much longer the first takes than the second, on the same samples.

    Attributes:
        is_attack: Whether these are attacks or benign samples; never pooled.
        median: Median of the paired differences in milliseconds, first minus second.
        first_ms: Median of the first on these samples, or None without pairs.
        second_ms: Median of the second on these samples, or None without pairs.
        untimed: Samples left out: a side was not timed, ran into its time limit, answered from
            the cache or was called for the first time.
    """

    is_attack: bool
    median: Difference = field(metadata={"json": "median_difference_ms"})
    first_ms: float | None = field(metadata={"json": "first_median_ms"})
    second_ms: float | None = field(metadata={"json": "second_median_ms"})
    untimed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscordantSample:
    """A sample on which only one of two defenses erred.

    Attributes:
        sample: In full.
        erred: Name of the defense that was wrong.
    """

    DERIVED: ClassVar = ("sha256", "text")

    sample: Sample = field(metadata={"json": ("id", "label", "category", "severity")})
    erred: str

    @property
    def sha256(self) -> str:
        """Content hash (hex) of the prompt."""
        return self.sample.prompt.digest().hex()

    @property
    def text(self) -> str | None:
        """The text under test; null where texts are withheld."""
        return self.sample.prompt.text


@dataclass(frozen=True, slots=True, kw_only=True)
class PairDetail:
    """What lies behind the comparison of two defenses.

    Attributes:
        first: Name of the first.
        second: Name of the second.
        categories: Attacks by category, then benign samples by topic; greatest difference first.
        latency: Attacks and benign samples, where both sides were timed.
        costs: Tokens and money, where both sides report them.
        discordant: Samples worth reading: those only the first got wrong before those only the
            second did, attacks by severity; at most as many as asked for on each side.
        first_only: Samples only the first got wrong, at least once.
        second_only: Samples only the second got wrong, at least once.
    """

    first: str = field(metadata={"json": False})
    second: str = field(metadata={"json": False})
    categories: tuple[CategoryDifference, ...]
    latency: tuple[LatencyDifference, ...] = field(metadata={"json": "timing"})
    costs: tuple[CostDifference, ...]
    discordant: tuple[DiscordantSample, ...]
    first_only: int
    second_only: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Depth:
    """How much is worked out behind a pair, and where the texts of samples are.

    Attributes:
        reader: An open reader of the run the texts stand in.
        places: Position there of each sample of the frame, shape (samples,).
        listed: Discordant samples to read for each side, at most.
        latency: Whether to compare latencies.
        consumption: What each defense consumed, by its name.
    """

    reader: RecordReader
    places: NDArray[np.int64]
    listed: int
    latency: bool = True
    consumption: Mapping[str, UsageBySample] = field(default_factory=dict)


def detail_pair(
    frame: Frame, pair: PairedComparison, *, depth: Depth, settings: AnalysisSettings
) -> PairDetail:
    """Work out what lies behind the comparison of two defenses."""
    arms = {arm.name: arm for arm in frame.arms}
    first, second = arms[pair.first], arms[pair.second]
    outcomes = (frame.matrix(first), frame.matrix(second))
    found = [_differing(frame, outcomes, of_first=of_first) for of_first in (True, False)]
    return PairDetail(
        first=pair.first,
        second=pair.second,
        categories=tuple(
            each
            for is_attack in (True, False)
            for each in _categories(frame, outcomes, is_attack=is_attack, settings=settings)
        ),
        latency=tuple(
            _latency(frame, (first, second), is_attack=is_attack, settings=settings)
            for is_attack in ((True, False) if depth.latency else ())
        ),
        costs=tuple(_costs(frame, pair, depth=depth, settings=settings)),
        discordant=tuple(
            DiscordantSample(sample=depth.reader.sample_at(int(depth.places[at])), erred=name)
            for name, positions in zip((pair.first, pair.second), found, strict=True)
            for at in positions[: depth.listed].tolist()
        ),
        first_only=len(found[0]),
        second_only=len(found[1]),
    )


def _costs(
    frame: Frame, pair: PairedComparison, *, depth: Depth, settings: AnalysisSettings
) -> Iterator[CostDifference]:
    first, second = (depth.consumption.get(name) for name in (pair.first, pair.second))
    if first is not None and second is not None:
        yield from compare_costs(frame, first, second, settings=settings)


def _categories(
    frame: Frame,
    outcomes: tuple[NDArray[np.int8], NDArray[np.int8]],
    *,
    is_attack: bool,
    settings: AnalysisSettings,
) -> Iterator[CategoryDifference]:
    repeats = frame.manifest.repeats
    label = np.tile(frame.samples.is_attack, repeats) == is_attack
    codes = np.tile(frame.samples.category.codes, repeats)
    names, sides = [], []
    for code in np.unique(codes[label]).tolist():
        names.append(frame.samples.category.names[code] or NOT_STATED)
        where = label & (codes == code)
        sides.append(
            compare_where(frame, outcomes[0], second=outcomes[1], where=where, settings=settings)
        )
    rows = zip(names, adjust_sides(sides), strict=True)
    for name, side in sorted(rows, key=lambda row: (-abs(row[1].difference.value or 0.0), row[0])):
        yield CategoryDifference(
            category=name,
            is_attack=is_attack,
            side=side,
            is_greyed=side.difference.pairs < settings.min_per_category,
        )


def _latency(
    frame: Frame,
    arms: tuple[DefenseColumn, DefenseColumn],
    *,
    is_attack: bool,
    settings: AnalysisSettings,
) -> LatencyDifference:
    times = [_times_ms(frame, arm) for arm in arms]
    label = np.tile(frame.samples.is_attack, frame.manifest.repeats) == is_attack
    both = label & ~np.isnan(times[0]) & ~np.isnan(times[1])
    first, second = (each[both] for each in times)
    if frame.is_grouped:
        groups = np.tile(frame.samples.group.codes, frame.manifest.repeats)[both]
        drawing = DrawPlan(seed=settings.seed, replicates=_replicates(len(first), settings))
        median = median_difference(
            first, second, groups=groups, confidence=settings.confidence, drawing=drawing
        )
    else:
        median = _independent_median(first - second, settings)
    return LatencyDifference(
        is_attack=is_attack,
        median=median,
        first_ms=float(np.median(first)) if len(first) else None,
        second_ms=float(np.median(second)) if len(second) else None,
        untimed=int(label.sum() - both.sum()),
    )


def _replicates(pairs: int, settings: AnalysisSettings) -> int:
    """Draw less often where there are many pairs: the limits of a median hardly move then."""
    return min(settings.replicates, max(_LEAST_DRAWS, _MOST_CELLS // max(1, pairs)))


def _independent_median(gaps: NDArray[np.float64], settings: AnalysisSettings) -> Difference:
    """Estimate the median of differences that belong to no groups, by order statistics."""
    median = estimate_quantile(gaps, 0.5, confidence=settings.confidence)
    return Difference(
        value=median.value,
        low=median.low,
        high=median.high,
        confidence=settings.confidence,
        method="median of paired differences, order statistics",
        pairs=len(gaps),
        reason=median.reason,
    )


def _times_ms(frame: Frame, arm: DefenseColumn) -> NDArray[np.float64]:
    """Return how long each position took; nan where nothing to compare was measured."""
    wide = np.full(frame.manifest.repeats * frame.sample_count, np.nan)
    # A time limit that was hit says how long one waited, not how long it took.
    kept = is_timed(arm) & (arm.records.error_kind < 0)
    at = arm.records.repeat.astype(np.int64) * frame.sample_count + arm.records.sample
    wide[at[kept]] = arm.records.latency_ns[kept] / 1e6
    return wide


def _differing(
    frame: Frame, outcomes: tuple[NDArray[np.int8], NDArray[np.int8]], *, of_first: bool
) -> NDArray[np.int64]:
    """Return the samples only one side got wrong: attacks before benign ones, by severity."""
    attack = np.tile(frame.samples.is_attack, frame.manifest.repeats)
    first, second = outcomes
    paired = (first > MISSING) & (first <= BLOCK) & (second > MISSING) & (second <= BLOCK)
    erred_first, erred_second = ((each == BLOCK) != attack for each in outcomes)
    alone = erred_first & ~erred_second if of_first else erred_second & ~erred_first
    rows = (paired & alone).reshape(frame.manifest.repeats, frame.sample_count)
    found = np.flatnonzero(rows.any(axis=0))
    ranks = np.array(
        [_SEVERITIES.index(name) if name in _SEVERITIES else -1 for name in _names(frame)]
    )
    severity = ranks[frame.samples.severity.codes[found]]
    return found[np.lexsort((found, -severity, ~frame.samples.is_attack[found]))]


def _names(frame: Frame) -> Sequence[str]:
    return frame.samples.severity.names
