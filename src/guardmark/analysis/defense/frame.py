"""All answers of a run side by side, as columns over the same samples."""

from __future__ import annotations

from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from guardmark.analysis.frameworks.framework import code_of, is_framework, sliced_by
from guardmark.core.errors import ConfigError, UnknownName
from guardmark.core.manifest import PartManifest
from guardmark.core.place import BEHIND, part_of
from guardmark.core.record import FIRST_LAYER, Stage
from guardmark.core.values import dataclass
from guardmark.stats.drawing import split_by_group
from guardmark.store.columns import (
    Facet,
    RecordColumns,
    facet_of,
    metadata_facets,
    record_columns,
    sample_columns,
)
from guardmark.store.schema import FLAG_REWRITTEN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from guardmark.analysis.early_stop import EarlyStop, StopVerdict
    from guardmark.analysis.frameworks.framework import Framework
    from guardmark.analysis.settings import AnalysisSettings
    from guardmark.core.manifest import RunManifest
    from guardmark.store.columns import SampleColumns
    from guardmark.store.reader import RecordReader

    Floats = NDArray[np.float64]
    Marks = NDArray[np.bool_]

ALLOW: Final = 0
BLOCK: Final = 1
MALFORMED: Final = 2
ERROR: Final = 3
REWRITTEN: Final = 4  # allowed, but another text goes on: neither let through nor stopped
MISSING: Final = -1  # marks a sample a defense has no record of

LENGTH_EDGES: Final = (100, 300, 1_000, 3_000)
LENGTH_NAMES: Final = (
    "up to 100 characters",
    "101 to 300",
    "301 to 1,000",
    "1,001 to 3,000",
    "over 3,000",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DefenseColumn:
    """One defense and all its answers; it blocks from `threshold` on, None when unknown.

    Attributes:
        is_redecided: Whether the threshold was chosen after the run.
    """

    part: PartManifest
    records: RecordColumns
    threshold: float | None
    is_redecided: bool = False

    @property
    def name(self) -> str:
        """Name of the defense."""
        return self.part.name

    @property
    def is_baseline(self) -> bool:
        """Whether it only marks the floor or the ceiling."""
        return self.part.is_baseline

    @property
    def is_answered(self) -> Marks:
        """Where the defense allowed or blocked."""
        answered: Marks = self.records.outcome <= BLOCK
        return answered

    @property
    def is_blocked(self) -> Marks:
        """Where the defense blocked."""
        blocked: Marks = self.records.outcome == BLOCK
        return blocked

    @property
    def is_rewritten(self) -> Marks:
        """Where the defense let another text go on."""
        rewritten: Marks = self.records.outcome == REWRITTEN
        return rewritten

    @property
    def is_scored(self) -> Marks:
        """Where a decision came with a score."""
        return ~np.isnan(self.records.score) & self.is_answered


@dataclass(frozen=True, kw_only=True)
class Frame:
    """A run as columns, with what its reader decided beforehand.

    A position is a sample of a repeat; columns by position hold one repeat after the other.
    `stops` is the rule that could end defenses early, as far as it was decided. A counted run has
    each kind of group once: `weights` say of each sample how many such groups there are, `times`
    are kinds of records with a time and `examples` the first samples that are worth reading.
    Samples without a label are left out, unless every sample was asked for (`is_every`).

    Attributes:
        positions: Of examples in the run.
        metadata: Fields that settings name.
    """

    manifest: RunManifest
    settings: AnalysisSettings
    samples: SampleColumns
    arms: tuple[DefenseColumn, ...]
    stops: EarlyStop | None = None
    weights: NDArray[np.int64] | None = None
    times: Frame | None = None
    examples: Frame | None = None
    positions: NDArray[np.int64] | None = None
    metadata: Mapping[str, Facet] = field(default_factory=dict)
    is_every: bool = False

    @property
    def sample_count(self) -> int:
        """How many samples the columns hold."""
        return len(self.samples.is_attack)

    def count(self, codes: NDArray[np.integer], *, at_least: int) -> NDArray[np.int64]:
        """Count how often the run has each code, of one code a sample."""
        return np.bincount(codes, weights=self.weights, minlength=at_least).astype(np.int64)

    def record_weights(self, records: RecordColumns) -> NDArray[np.int64] | None:
        """Return how often the run has each record, or None for once."""
        if self.weights is None:
            return None
        return self.weights[records.sample]

    @property
    def group_weights(self) -> NDArray[np.int64] | None:
        """How many such groups the run has of each, or None for one."""
        if self.weights is None:
            return None
        often = np.empty(len(self.samples.group.names), dtype=np.int64)
        often[self.samples.group.codes] = self.weights
        return often

    @property
    def is_grouped(self) -> bool:
        """Whether samples share groups, or are run more than once."""
        return len(self.samples.group.names) < self.sample_count or self.manifest.repeats > 1

    @property
    def is_attack(self) -> Marks:
        """Labels by position."""
        return np.tile(self.samples.is_attack, self.manifest.repeats)

    @property
    def groups(self) -> NDArray[np.int32]:
        """Numbers of the groups by position."""
        return np.tile(self.samples.group.codes, self.manifest.repeats)

    @property
    def crossing(self) -> NDArray[np.int64] | None:
        """Numbers of what crosses the groups, by position; None where nothing does."""
        if self.samples.crossing is None:
            return None
        codes = self.samples.crossing.codes.astype(np.int64)
        return np.tile(codes, self.manifest.repeats)

    @cached_property
    def is_calibration(self) -> Marks:
        """Which samples thresholds are chosen on; all defenses share the half, drawn once."""
        side = split_by_group(self.samples.group.names, seed=self.settings.seed)
        return side[self.samples.group.codes]

    def candidates(self, at_least: int = 1) -> tuple[DefenseColumn, ...]:
        """Return the defenses that are no baselines, or all where these are too few."""
        arms = tuple(arm for arm in self.arms if not arm.is_baseline)
        if len(arms) >= at_least:
            return arms
        return self.arms

    def arm(self, name: str) -> DefenseColumn:
        """Return a defense by name."""
        arms = {arm.name: arm for arm in self.arms}
        if name not in arms:
            raise UnknownName("defense of this run", name, arms)
        return arms[name]

    def watched(self, arm: DefenseColumn) -> EarlyStop | None:
        """Return the rule that could end a defense, whether it did or the run went to its end."""
        is_watched = self.stops and self.stops.watches(arm.name) and not arm.is_redecided
        if is_watched:
            return self.stops
        return None

    def stopped(self, arm: DefenseColumn) -> tuple[StopVerdict, ...]:
        """Return why a defense was not asked about every sample."""
        if self.stops is None or arm.is_redecided:
            return ()
        return self.stops.stopped(arm.name)

    def facet(self, name: str) -> Facet:
        """Return a facet by name; `length` and `subcategory` are made here."""
        if name == "length":
            codes = np.searchsorted(LENGTH_EDGES, self.samples.length, side="left")
            return Facet(names=LENGTH_NAMES, table=codes.astype(np.int32))
        if name == "subcategory":
            return _joined(self.samples.category, self.samples.subcategory)
        if name in self.metadata:
            return self.metadata[name]
        facet: Facet = getattr(self.samples, name)
        return facet

    def matrix(self, arm: DefenseColumn) -> NDArray[np.int8]:
        """Return the outcomes of a defense by position."""
        return self.codes(arm.records, arm.records.outcome)

    def codes(self, records: RecordColumns, codes: NDArray[np.int8]) -> NDArray[np.int8]:
        """Return codes of the records of a part by position."""
        wide = np.full(self.manifest.repeats * self.sample_count, MISSING, dtype=np.int8)
        wide[self._positions(records)] = codes
        return wide

    def spread(self, records: RecordColumns, values: Floats, where: Marks) -> Floats:
        """Return values of some records of a part by position, nan elsewhere."""
        wide = np.full(self.manifest.repeats * self.sample_count, np.nan)
        wide[self._positions(records)[where]] = values[where]
        return wide

    def _positions(self, records: RecordColumns) -> NDArray[np.int64]:
        return records.repeat.astype(np.int64) * self.sample_count + records.sample


def column_of(
    frame: Frame,
    part: PartManifest,
    outcome: NDArray[np.int8],
    *,
    latency_ns: Floats,
) -> DefenseColumn:
    """Return a subject made of others, of what came out by position; nan where it was not timed."""
    asked = np.flatnonzero(outcome != MISSING)
    none = np.full(len(asked), -1, dtype=np.int8)
    records = RecordColumns(
        defense=part.name,
        stage=Stage.MODEL,
        layer=FIRST_LAYER,
        sample=asked % frame.sample_count,
        repeat=(asked // frame.sample_count).astype(np.int32),
        outcome=outcome[asked].astype(np.int8),
        score=np.full(len(asked), np.nan),
        latency_ns=np.nan_to_num(latency_ns[asked], nan=-1.0).astype(np.int64),
        error_kind=none,
        answer_mode=none,
        flags=np.zeros(len(asked), dtype=np.uint8),
    )
    return DefenseColumn(part=part, records=records, threshold=None)


def is_decision(outcomes: NDArray[np.int8]) -> Marks:
    """Tell which outcomes are to allow or to block."""
    decided: Marks = (outcomes >= 0) & (outcomes <= BLOCK)
    return decided


def read_frame(
    reader: RecordReader, settings: AnalysisSettings, *, is_every: bool = False
) -> Frame:
    """Read a run as columns; every sample, for exports that keep those without a label."""
    manifest = reader.manifest()
    parts = {part.name for part in manifest.parts if part.kind == "defense"}
    # The arm without a guard holds answers and verdicts only, or nothing.
    stages = reader.recorded_stages()
    others = {name for name, stage, _ in stages if stage in {Stage.MODEL, Stage.JUDGE}}
    guards = {name for name, stage, _ in stages if stage is Stage.DEFENSE}
    behind = {f"{name}{BEHIND}" for name in parts} - parts  # what guards say of answers
    known = (guards - behind) | ((parts or set(reader.defenses())) - others)
    names = []
    for name in reader.defenses():
        if name in known and (name in parts or part_of(name) == name):
            names.append(name)
    thresholds = dict(settings.thresholds)
    for name in thresholds:
        if name not in names:
            raise UnknownName("defense of this run", name, names)
    samples = sample_columns(reader, is_every=is_every)
    stops = None
    if settings.stop_when:  # most runs have no such rule
        from guardmark.analysis.early_stop import open_early_stop

        stops = open_early_stop(reader, settings.stop_when)
    arms = []
    for name in names:
        records = record_columns(reader, name, is_every=is_every)
        arms.append(part_column(manifest, records, thresholds.get(name)))
    return Frame(
        manifest=manifest,
        settings=settings,
        samples=samples,
        is_every=is_every,
        metadata=_named_facets(reader, samples, settings.slices),
        arms=tuple(arms),
        stops=stops,
    )


def _named_facets(
    reader: RecordReader, samples: SampleColumns, names: Sequence[str]
) -> dict[str, Facet]:
    """Return the facets that settings name: fields of the metadata, or codes of a framework.

    A field of the data that is called like a framework comes first: it is what its owner says.
    """
    facets = metadata_facets(reader, names)
    for name, facet in facets.items():
        if is_framework(name) and not any(facet.names):
            facets[name] = _codes(samples, sliced_by(name))
    return facets


def _codes(samples: SampleColumns, framework: Framework) -> Facet:
    """Return the code of each attack in a framework; benign samples have none."""
    category, subcategory = samples.category, samples.subcategory
    is_attack = samples.is_attack
    if category.places is not None:  # samples of one place have the label in common too
        is_attack = np.zeros(len(category.table), dtype=np.bool_)
        is_attack[category.places] = samples.is_attack
    codes = []
    for one, two, attacks in zip(
        category.table.tolist(), subcategory.table.tolist(), is_attack.tolist(), strict=True
    ):
        code = ""
        if attacks:
            code = code_of(framework, category.names[one], subcategory.names[two])
        codes.append(code)
    return facet_of(codes, category.places)


def part_column(
    manifest: RunManifest, records: RecordColumns, threshold: float | None = None
) -> DefenseColumn:
    """Return a defense with its records, decided anew where a threshold is given."""
    name, parts = records.defense, {p.name: p for p in manifest.parts if p.kind == "defense"}
    part = parts.get(name) or PartManifest(name=name, kind="defense", type="")
    records = _with_rewritten(records)
    if threshold is None:
        return DefenseColumn(part=part, records=records, threshold=part.threshold)
    records = _redecided(records, threshold)
    return DefenseColumn(part=part, records=records, threshold=threshold, is_redecided=True)


def _with_rewritten(records: RecordColumns) -> RecordColumns:
    """Set apart what was let go on as another text."""
    rewritten = (records.flags & FLAG_REWRITTEN != 0) & (records.outcome == ALLOW)
    if not rewritten.any():
        return records
    outcome = np.where(rewritten, REWRITTEN, records.outcome)
    return replace(records, outcome=outcome.astype(np.int8))


def _redecided(records: RecordColumns, threshold: float) -> RecordColumns:
    """Decide answered samples anew from their scores."""
    answered = records.outcome <= BLOCK
    bare = int((answered & np.isnan(records.score)).sum())
    if bare or not answered.any():
        raise ConfigError(
            f"The threshold of {records.defense!r} cannot be changed: "
            f"{bare or 'all'} of its answers carry no score.\n"
            "Next: name a defense that gives scores; `guardmark report RUN` lists them."
        )
    outcome = np.where(answered, records.score >= threshold, records.outcome)
    return replace(records, outcome=outcome.astype(np.int8))


def _joined(category: Facet, subcategory: Facet) -> Facet:
    """Pair categories with subcategories, since a subcategory's name may stand under two."""
    names = []
    for one, two in zip(category.table.tolist(), subcategory.table.tolist(), strict=True):
        name = ""  # samples that state none are one slice, whatever their category
        if subcategory.names[two]:
            name = f"{category.names[one]}/{subcategory.names[two]}"
        names.append(name)
    return facet_of(names, category.places)
