"""How far a small slice of a finished run would have misled, over several seeds."""

from __future__ import annotations

from dataclasses import field, replace
from hashlib import sha256
from operator import add
from statistics import fmean, stdev
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from guardmark.analysis.defense.frame import ALLOW, BLOCK, is_decision, read_frame
from guardmark.analysis.pipeline.frame import DEFENSE, SYSTEM, PlaceRates, find_ends, read_pipeline
from guardmark.core.values import dataclass
from guardmark.stats.rates.means import mean_half_width

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guardmark.analysis.defense.frame import Frame
    from guardmark.analysis.pipeline.frame import PipelineFrame
    from guardmark.analysis.settings import AnalysisSettings
    from guardmark.core.estimate import Estimate
    from guardmark.stats.arguments import Flags
    from guardmark.stats.figures import Ratio
    from guardmark.store.reader import RecordReader


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


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceFigure:
    """One figure of the whole run and of every slice.

    Attributes:
        name: Name of the figure.
        whole: The figure of the whole run with its interval.
        values: Of the slice of each seed; None where it is undefined there.
        trials: Answers behind each of these.
        confidence: Nominal coverage of `half_width`.
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
        if self.defined:
            return fmean(self.defined)
        return None

    @property
    def standard_deviation(self) -> float | None:
        """How far single slices lie apart, or None with fewer than two values."""
        if len(self.defined) > 1:
            return stdev(self.defined)
        return None

    @property
    def half_width(self) -> float | None:
        """Half width of the t interval of the mean over seeds, not of one slice, or None."""
        if self.standard_deviation is None:
            return None
        return mean_half_width(
            self.standard_deviation, len(self.defined), confidence=self.confidence
        )

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


class _Card(NamedTuple):
    """Which places of one arm at one scope are wrong, and which are counted."""

    arm: str
    scope: str
    is_wrong: Flags
    trials: Flags


def measure_small_slices(
    reader: RecordReader, settings: AnalysisSettings, request: SliceRequest
) -> SliceStability:
    """Draw slices by seed and sample id alone, and lay their figures beside those of the whole."""
    frame = read_frame(reader, settings)
    rates, variant = PlaceRates(frame, settings), frame.samples.variant
    variants: list[tuple[str, Flags]] = []
    for code, name in enumerate(variant.names):
        variants.append((name or "original", variant.codes == code))
    of_variants = [of_variant for _, of_variant in variants]
    slices = [_draw(frame, request, seed, of_variants) for seed in request.seeds]
    drawn = np.tile(np.array(slices), rates.repeats)
    rows = []
    for name, of_variant in variants:
        attacks = int(np.count_nonzero(frame.samples.is_attack[of_variant]))
        benign = int(np.count_nonzero(of_variant)) - attacks
        row = VariantRows(
            variant=name,
            attacks=attacks,
            benign=benign,
            drawn_attacks=min(attacks, request.attacks),
            drawn_benign=min(benign, request.benign),
        )
        rows.append(row)
    everything = np.ones(frame.sample_count, dtype=np.bool_)
    parts: list[tuple[str | None, Flags]] = [(None, everything), *variants]
    cards = []
    for card in _cards(frame, read_pipeline(reader, frame)):
        for part, of_part in parts:
            figures = _figures(rates, card, np.tile(of_part, rates.repeats), drawn=drawn)
            cards.append(SliceCard(arm=card.arm, scope=card.scope, variant=part, figures=figures))
    return SliceStability(
        run=frame.manifest.name,
        request=request,
        confidence=settings.confidence,
        variants=tuple(rows),
        cards=tuple(cards),
    )


def _draw(frame: Frame, request: SliceRequest, seed: int, members: Sequence[Flags]) -> Flags:
    """Mark the samples of one slice."""
    chosen, ids = np.zeros(frame.sample_count, dtype=np.bool_), frame.samples.ids
    for where in members:
        for label, count in ((True, request.attacks), (False, request.benign)):
            mine = np.flatnonzero(where & (frame.samples.is_attack == label)).tolist()
            mine.sort(key=lambda at: sha256(f"{seed} {ids[at]}".encode()).digest())
            chosen[mine[:count]] = True
    return chosen


def _cards(frame: Frame, pipeline: PipelineFrame | None) -> Iterator[_Card]:
    """Yield every arm at every scope it has; a guard's own card first."""
    ends = {}
    if pipeline is not None:
        for arm in pipeline.arms:
            ends[arm.name] = find_ends(arm, pipeline.judging)
    guards = {column.name: column for column in frame.arms}
    for name in dict.fromkeys([*ends, *guards]):
        if name in guards:
            outcome = frame.matrix(guards[name])
            wrong = outcome == np.where(frame.is_attack, ALLOW, BLOCK)
            yield _Card(name, DEFENSE, wrong, is_decision(outcome))
        if name in ends:
            wrong = ends[name].is_wrong(frame.is_attack)
            for scope in (SYSTEM, "model"):
                yield _Card(name, scope, wrong, ends[name].trials(scope))


def _figures(
    rates: PlaceRates, card: _Card, where: Flags, *, drawn: Flags
) -> tuple[SliceFigure, ...]:
    """Compute both error rates and the mean of them, on some of the places."""
    sides, trials = [], card.trials & where
    false_alarm = "over_refusal_rate"
    if card.scope == DEFENSE:
        false_alarm = "false_positive_rate"
    names = {"attack_success_rate": rates.is_attack, false_alarm: ~rates.is_attack}
    for name, label in names.items():
        sizes = (drawn & trials & label).sum(axis=1).tolist()
        errors = (drawn & trials & label & card.is_wrong).sum(axis=1).tolist()
        values: list[float | None] = []
        for wrong, size in zip(errors, sizes, strict=True):
            value = None
            if size:
                value = wrong / size
            values.append(value)
        side = SliceFigure(
            name=name,
            whole=rates.of(card.is_wrong, trials & label),
            values=tuple(values),
            trials=tuple(sizes),
            confidence=rates.confidence,
        )
        sides.append(side)
    harm, alarm = sides
    means: list[float | None] = []
    for on_attacks, on_benign in zip(harm.values, alarm.values, strict=True):
        if on_attacks is None or on_benign is None:
            means.append(None)
        else:
            means.append((on_attacks + on_benign) / 2)
    balanced = replace(
        harm,
        name="balanced_error",
        whole=rates.balanced_error(card.is_wrong, trials),
        values=tuple(means),
        trials=tuple(map(add, harm.trials, alarm.trials)),
    )
    return harm, alarm, balanced
