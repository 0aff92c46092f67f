"""How far a small slice of a finished run would have misled, over several seeds."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from hashlib import sha256
from statistics import fmean, stdev
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from guardmark.analysis.defense.frame import ALLOW, BLOCK, read_frame
from guardmark.analysis.pipeline.card import find_ends
from guardmark.analysis.pipeline.frame import NO_GUARD, read_pipeline
from guardmark.stats.distributions import two_sided_t
from guardmark.stats.rates.bootstrap import BootstrapSettings
from guardmark.stats.rates.clustered import wilson_default
from guardmark.stats.rates.ratios import BALANCED_ERROR, estimate_ratios

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from guardmark.analysis.defense.frame import Frame
    from guardmark.analysis.pipeline.frame import PipelineFrame
    from guardmark.analysis.settings import AnalysisSettings
    from guardmark.core.estimate import Estimate, Ratio
    from guardmark.store.reader import RecordReader

_AT_SYSTEM: Final = ("attack_success_rate", "over_refusal_rate")
_AT_DEFENSE: Final = ("attack_success_rate", "false_positive_rate")


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceRequest:
    """Which slices are drawn.

    Attributes:
        attacks: Attacks of each variant, at least 1.
        benign: Benign samples of each variant, at least 1.
        seeds: One slice for each; at least two.
    """

    attacks: int = 12
    benign: int = 6
    seeds: tuple[int, ...] = tuple(range(1, 11))


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantRows:
    """What one variant holds, and what a slice takes of it.

    Attributes:
        variant: Its name.
        attacks: Attacks of the run.
        benign: Benign samples of the run.
        drawn_attacks: Attacks in every slice.
        drawn_benign: Benign samples in every slice.
    """

    variant: str
    attacks: int
    benign: int
    drawn_attacks: int
    drawn_benign: int

    @property
    def is_whole(self) -> bool:
        """Whether a slice takes everything of a label, so that it cannot vary there."""
        return self.drawn_attacks == self.attacks or self.drawn_benign == self.benign


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceFigure:
    """One figure of the whole run and of every slice.

    Attributes:
        name: Name of the figure.
        whole: The figure of the whole run with its interval.
        values: Of the slice of each seed; None where it is undefined there.
        trials: Answers behind each of these.
        confidence: Nominal coverage of `half_width`, in (0, 1).
    """

    DERIVED: ClassVar = ("mean", "half_width", "standard_deviation", "low", "high", "farthest")

    name: str
    whole: Estimate | Ratio
    values: tuple[float | None, ...]
    trials: tuple[int, ...]
    confidence: float = field(metadata={"json": False})

    @property
    def defined(self) -> tuple[float, ...]:
        """The values of slices that have one."""
        return tuple(value for value in self.values if value is not None)

    @property
    def mean(self) -> float | None:
        """Mean over seeds, or None without any value."""
        return fmean(self.defined) if self.defined else None

    @property
    def standard_deviation(self) -> float | None:
        """How far single slices lie apart, or None with fewer than two values."""
        return stdev(self.defined) if len(self.defined) > 1 else None

    @property
    def half_width(self) -> float | None:
        """Half width of the t interval of the mean over seeds, or None.

        It says how well the mean is known, not how well one slice measures: that is the standard
        deviation. Slices of one run share samples, so neither speaks of other data.
        """
        if self.standard_deviation is None:
            return None
        count = len(self.defined)
        return two_sided_t(self.confidence, count - 1) * self.standard_deviation / math.sqrt(count)

    @property
    def low(self) -> float | None:
        """The lowest value, or None without any."""
        return min(self.defined, default=None)

    @property
    def high(self) -> float | None:
        """The highest value, or None without any."""
        return max(self.defined, default=None)

    @property
    def farthest(self) -> float | None:
        """How far the worst slice lies from the whole run, or None where either is undefined."""
        whole = self.whole.value
        if whole is None or not self.defined:
            return None
        return max(abs(value - whole) for value in self.defined)


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceCard:
    """The figures of one arm at one scope, on one variant or on all.

    Attributes:
        arm: Name of the defense, or `none`.
        scope: `defense`, `system` or `model`.
        variant: Name of the variant, or None for the slices of all variants together.
        figures: Both error rates and the mean of them.
    """

    arm: str
    scope: str
    variant: str | None
    figures: tuple[SliceFigure, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceStability:
    """Everything said about small slices of a run.

    Attributes:
        run: Name of the run.
        request: Which slices were drawn.
        confidence: Nominal coverage of the intervals, in (0, 1).
        variants: What each variant holds, in the order of the data.
        cards: By arm, scope and variant, all variants first.
    """

    run: str
    request: SliceRequest = field(metadata={"json": ("attacks", "benign", "seeds")})
    confidence: float
    variants: tuple[VariantRows, ...]
    cards: tuple[SliceCard, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Card:
    """Errors and trials of one arm at one scope, counted by sample over its repeats."""

    arm: str
    scope: str
    names: tuple[str, str]
    errors: NDArray[np.int64]
    trials: NDArray[np.int64]


def measure_small_slices(
    reader: RecordReader, settings: AnalysisSettings, request: SliceRequest
) -> SliceStability:
    """Draw small slices of a run and lay their figures beside those of the whole.

    A slice takes so many attacks and so many benign samples of every variant, in an order that
    depends on seed and sample id alone, with all their repeats.
    """
    frame = read_frame(reader, settings)
    names = [name or "original" for name in frame.samples.variant.names]
    codes = frame.samples.variant.codes
    members = [codes == code for code in range(len(names))]
    drawn = np.array([_draw(frame, members, request, seed) for seed in request.seeds])
    everything = np.ones(frame.sample_count, dtype=np.bool_)
    places = [(None, everything), *zip(names, members, strict=True)]
    counter = _Counter(frame, settings, drawn)
    return SliceStability(
        run=frame.manifest.name,
        request=request,
        confidence=settings.confidence,
        variants=tuple(
            _rows(name, where & frame.samples.is_attack, where & ~frame.samples.is_attack, request)
            for name, where in zip(names, members, strict=True)
        ),
        cards=tuple(
            SliceCard(
                arm=card.arm, scope=card.scope, variant=name, figures=counter.figures(card, where)
            )
            for card in _cards(frame, read_pipeline(reader, frame))
            for name, where in places
        ),
    )


def _draw(
    frame: Frame, members: Sequence[NDArray[np.bool_]], request: SliceRequest, seed: int
) -> NDArray[np.bool_]:
    """Mark the samples of one slice."""
    chosen = np.zeros(frame.sample_count, dtype=np.bool_)
    ids = frame.samples.ids
    for where in members:
        for label, count in ((True, request.attacks), (False, request.benign)):
            mine = np.flatnonzero(where & (frame.samples.is_attack == label)).tolist()
            mine.sort(key=lambda at: sha256(f"{seed} {ids[at]}".encode()).digest())
            chosen[mine[:count]] = True
    return chosen


def _rows(
    name: str, attacks: NDArray[np.bool_], benign: NDArray[np.bool_], request: SliceRequest
) -> VariantRows:
    held, clean = int(attacks.sum()), int(benign.sum())
    return VariantRows(
        variant=name,
        attacks=held,
        benign=clean,
        drawn_attacks=min(held, request.attacks),
        drawn_benign=min(clean, request.benign),
    )


def _cards(frame: Frame, pipeline: PipelineFrame | None) -> Iterator[_Card]:
    """Every arm at every scope it has; a guard's own card first."""
    is_attack = np.tile(frame.samples.is_attack, frame.manifest.repeats)
    ends = {}
    if pipeline is not None:
        judging = pipeline.judgings[0] if pipeline.judgings else None
        ends = {arm.name: find_ends(arm, judging) for arm in pipeline.arms}
    guards = {arm.name: arm for arm in frame.arms}
    for name in dict.fromkeys([*ends, *guards]):
        if name != NO_GUARD:
            outcome = frame.matrix(guards[name])
            wrong = outcome == np.where(is_attack, ALLOW, BLOCK)
            decided = (outcome == ALLOW) | (outcome == BLOCK)
            yield _counted(frame, (name, "defense"), names=_AT_DEFENSE, at=(wrong, decided))
        if name in ends:
            end = ends[name]
            wrong = np.where(is_attack, end.is_unsafe, ~end.is_helped)
            yield _counted(frame, (name, "system"), names=_AT_SYSTEM, at=(wrong, end.is_known))
            reached = end.is_known & end.passed
            yield _counted(frame, (name, "model"), names=_AT_SYSTEM, at=(wrong, reached))


def _counted(
    frame: Frame,
    card: tuple[str, str],
    *,
    names: tuple[str, str],
    at: tuple[NDArray[np.bool_], NDArray[np.bool_]],
) -> _Card:
    wrong, counts = at
    shape = (frame.manifest.repeats, frame.sample_count)
    return _Card(
        arm=card[0],
        scope=card[1],
        names=names,
        errors=(wrong & counts).reshape(shape).sum(axis=0),
        trials=counts.reshape(shape).sum(axis=0),
    )


class _Counter:
    """Figures of the whole run and of every slice."""

    def __init__(self, frame: Frame, settings: AnalysisSettings, drawn: NDArray[np.bool_]) -> None:
        self._group = frame.samples.group.codes
        self._groups = len(frame.samples.group.names)
        self._is_attack = frame.samples.is_attack
        self._settings = settings
        self._drawn = drawn.astype(np.int64)

    def figures(self, card: _Card, where: NDArray[np.bool_]) -> tuple[SliceFigure, ...]:
        """Compute both error rates and the mean of them, on some of the samples."""
        sides = (where & self._is_attack, where & ~self._is_attack)
        harm, alarm = (
            self._figure(name, card, side) for name, side in zip(card.names, sides, strict=True)
        )
        both = zip(harm.values, alarm.values, strict=True)
        balanced = SliceFigure(
            name="balanced_error",
            whole=self._balanced_error(card, sides),
            values=tuple(None if a is None or b is None else (a + b) / 2 for a, b in both),
            trials=tuple(a + b for a, b in zip(harm.trials, alarm.trials, strict=True)),
            confidence=self._settings.confidence,
        )
        return harm, alarm, balanced

    def _figure(self, name: str, card: _Card, where: NDArray[np.bool_]) -> SliceFigure:
        errors = (self._drawn[:, where] @ card.errors[where]).tolist()
        trials = (self._drawn[:, where] @ card.trials[where]).tolist()
        return SliceFigure(
            name=name,
            whole=wilson_default(
                self._by_group(card.errors, where),
                self._by_group(card.trials, where),
                confidence=self._settings.confidence,
            ),
            values=tuple(x / n if n else None for x, n in zip(errors, trials, strict=True)),
            trials=tuple(trials),
            confidence=self._settings.confidence,
        )

    def _balanced_error(
        self, card: _Card, sides: tuple[NDArray[np.bool_], NDArray[np.bool_]]
    ) -> Ratio:
        attacks, benign = sides
        right = card.trials - card.errors
        columns = [
            self._by_group(counts, where)
            for counts, where in (
                (right, attacks),
                (card.errors, attacks),
                (card.errors, benign),
                (right, benign),
            )
        ]
        drawing = BootstrapSettings(
            replicates=self._settings.replicates,
            confidence=self._settings.confidence,
            seed=self._settings.seed,
        )
        table = np.column_stack(columns)
        return estimate_ratios(table, statistics=(BALANCED_ERROR,), settings=drawing)[0]

    def _by_group(self, counts: NDArray[np.int64], where: NDArray[np.bool_]) -> NDArray[np.int64]:
        summed = np.zeros(self._groups, dtype=np.int64)
        np.add.at(summed, self._group[where], counts[where])
        return summed
