"""Arms of a run walked over its stored calls, by sample and repeat."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from guardmark.analysis.defense.frame import (
    ALLOW,
    BLOCK,
    ERROR,
    MISSING,
    REWRITTEN,
    part_column,
)
from guardmark.analysis.defense.latency import spread_times
from guardmark.core.place import AFTER, BEHIND, Place, part_of, stored_name
from guardmark.core.record import Stage
from guardmark.core.sample import View
from guardmark.store.columns import record_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from guardmark.analysis.defense.frame import DefenseColumn, Frame
    from guardmark.core.manifest import RunManifest
    from guardmark.stats.arguments import Flags, Floats
    from guardmark.store.columns import RecordColumns
    from guardmark.store.reader import RecordReader

    Codes = NDArray[np.int8]

NO_GUARD: Final = "none"  # name of the arm without a guard; model and judges are stored under it


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardStep:
    """A guard at a place of an arm, and what it decided about what the arm showed it.

    Attributes:
        guard: Its name in the configuration.
        place: Before the model (`input`) or behind it (`output`).
        stored: The name under which its decisions are stored.
        decision: What it decided by sample and repeat; `MISSING` where it was not asked.
        goes_on: It wrote another text, and what comes of that one was asked.
        waited_ms: How long it took; nan where no time counts.
    """

    guard: str
    place: Place
    stored: str
    decision: Codes
    goes_on: Flags
    waited_ms: Floats

    def passes(self, *lets_through: int) -> Flags:
        """Tell what it lets pass, as it was or written anew."""
        return np.isin(self.decision, (ALLOW, *lets_through)) | self.goes_on


@dataclass(frozen=True, slots=True, kw_only=True)
class RewrittenTexts:
    """What guards made of texts: of each place, which of the names that follow holds its calls.

    Attributes:
        names: What stands behind the name of a part: nothing, or ` after G` for each that wrote.
        codes: Which of them, by place.
    """

    names: tuple[str, ...]
    codes: NDArray[np.int32]

    def by(self, guard: str, rewritten: Flags) -> RewrittenTexts:
        """Return what it is where a guard wrote some of the texts anew."""
        if not rewritten.any():
            return self
        names, codes = [*self.names], self.codes.copy()
        for code in np.unique(self.codes[rewritten]).tolist():
            codes[rewritten & (self.codes == code)] = len(names)
            names.append(f"{self.names[code]}{AFTER}{guard}")
        return RewrittenTexts(names=tuple(names), codes=codes)

    def read(self, own: Columns, of: Callable[[str], Columns | None]) -> Columns:
        """Put together what is stored about each place's text, of `own` where none was changed."""
        columns = own
        for code, name in enumerate(self.names[1:], start=1):
            here, other = self.codes == code, of(name)
            if other is None:
                other = own.nothing()
            columns = columns.where(here, other)
        return columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """What a part said by place, and how long it took; nan where no time counts."""

    said: Codes
    waited_ms: Floats

    def where(self, here: Flags, other: Columns) -> Columns:
        """Take the places named from other columns."""
        return Columns(
            said=np.where(here, other.said, self.said).astype(np.int8),
            waited_ms=np.where(here, other.waited_ms, self.waited_ms),
        )

    def nothing(self) -> Columns:
        """Return columns of as many places about which nobody was asked."""
        return Columns(
            said=np.full(len(self.said), MISSING, dtype=np.int8),
            waited_ms=np.full(len(self.said), np.nan),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineArm:
    """A system under test: guards around the model, in the order in which they are asked.

    Attributes:
        steps: Its guards; none in an arm without a guard.
        decision: What the guards together decided: the first that does not let pass ends it.
        model: What the model did with what the arm showed it; `MISSING` where it was not asked.
        waited_ms: How long its answer took; nan where no time counts.
        came_out: What guards made of request and answer, which verdicts are about.
        by_provider: The guards let it in, and the provider of the model blocked.
        is_placed: The configuration states its guards by place.
    """

    name: str
    steps: tuple[GuardStep, ...]
    decision: Codes
    model: Codes
    waited_ms: Floats
    came_out: RewrittenTexts
    by_provider: Flags
    is_placed: bool = False

    @property
    def asked(self) -> Flags:
        """Where the arm was asked: where its first guard was, or everywhere without one."""
        if not self.steps:
            return np.ones(len(self.decision), dtype=np.bool_)
        asked: Flags = self.steps[0].decision != MISSING
        return asked

    @property
    def drawn(self) -> str:
        """The arm as a reader would draw it: `words -> model -> leaks`."""
        before = [step.guard for step in self.steps if step.place is Place.INPUT]
        behind = [step.guard for step in self.steps if step.place is Place.OUTPUT]
        return " -> ".join([*before, "model", *behind])

    @property
    def is_rewritten(self) -> Flags:
        """Where a guard that was reached wrote the request or the answer anew."""
        rewritten = np.zeros(len(self.decision), dtype=np.bool_)
        for number, step in enumerate(self.steps):
            rewritten |= self.reached(number) & (step.decision == REWRITTEN)
        return rewritten

    def reached(self, number: int, *, lets_through: tuple[int, ...] = ()) -> Flags:
        """Tell what all guards before the one of this number let pass."""
        passing = np.ones(len(self.decision), dtype=np.bool_)
        for step in self.steps[:number]:
            passing &= step.passes(*lets_through)
        return passing

    def decided(self, lets_through: tuple[int, ...] = ()) -> Codes:
        """Return what the guards together decide where some outcomes let a sample pass."""
        return decide_together(self.steps, len(self.decision), lets_through=lets_through)


def decide_together(
    steps: Sequence[GuardStep], places: int, *, lets_through: tuple[int, ...] = ()
) -> Codes:
    """Return the first decision that does not let a sample pass, else allow."""
    decision = np.full(places, ALLOW, dtype=np.int8)
    for step in steps:
        is_going = decision == ALLOW
        passes = step.passes(*lets_through)
        decision = np.where(is_going & ~passes, step.decision, decision).astype(np.int8)
    return decision


def stated_places(manifest: RunManifest) -> dict[str, dict[Place, tuple[str, ...]]]:
    """Return the guards of each arm by place; nothing where arms are named by their guards."""
    pipeline = manifest.settings.get("pipeline")
    stated = pipeline.get("arms") if isinstance(pipeline, Mapping) else None
    arms = {}
    for name, guards in stated.items() if isinstance(stated, Mapping) else ():
        arms[str(name)] = {
            place: _names(guards.get(place.value)) for place in (Place.INPUT, Place.OUTPUT)
        }
    return arms


def _names(stated: object) -> tuple[str, ...]:
    if isinstance(stated, str):
        return (stated,)
    return tuple(map(str, stated)) if isinstance(stated, list | tuple) else ()


def read_arms(reader: ArmReader) -> Iterator[PipelineArm]:
    """Yield the arms of a pipeline, in the order of the configuration."""
    frame = reader.frame
    placed = stated_places(frame.manifest)
    for name, places in placed.items():
        wanted = [(guard, place) for place, guards in places.items() for guard in guards]
        stored = [(guard, place, stored_name(guard, place)) for guard, place in wanted]
        # Of a run that was cut short, the arms of which the records hold each guard.
        if all(own in reader.known for _, _, own in stored):
            yield replace(reader.arm(name, stored), is_placed=True)
    if placed:
        return
    guards = {arm.name: arm for arm in frame.arms}
    stated = frame.manifest.settings.get("pipeline")
    named = stated.get("guards") if isinstance(stated, dict) else None
    for name in named if isinstance(named, list) else [NO_GUARD, *guards]:
        if name in guards:
            reads_answers = guards[name].part.view == View.RESPONSE
            place = Place.OUTPUT if reads_answers else Place.INPUT
            yield reader.arm(name, [(name, place, name)])
        elif name == NO_GUARD:
            yield reader.arm(NO_GUARD, [])


class ArmReader:
    """Walks arms over the calls that are stored, all places at once."""

    def __init__(
        self,
        reader: RecordReader,
        frame: Frame,
        model: RecordColumns,
        is_judged: Callable[[RewrittenTexts], Flags],
    ) -> None:
        self.frame = frame
        self.known = frozenset(reader.defenses())
        self._reader = reader
        self._is_judged = is_judged
        self._model = self._columns(model)
        self._guards: dict[str, Columns] = {}

    def arm(self, name: str, guards: Sequence[tuple[str, Place, str]]) -> PipelineArm:
        """Read an arm from its guards, each with its place and the name it is stored under."""
        places = len(self._model.said)
        written = RewrittenTexts(names=("",), codes=np.zeros(places, dtype=np.int32))
        met: list[tuple[str, Place, str, Columns]] = []
        model = self._model
        has_model = False
        for guard, place, stored in guards:
            if place is Place.OUTPUT and not has_model:
                model, has_model = self._answers(written), True
            columns = written.read(self._guard(stored), partial(self._after, stored))
            met.append((guard, place, stored, columns))
            written = written.by(stored, columns.said == REWRITTEN)
        if not has_model:
            model = self._answers(written)
        steps = _steps(met, model=model, judged=self._is_judged(written))
        before = [step for step in steps if step.place is Place.INPUT]
        is_let_in = decide_together(before, places) == ALLOW
        decision = decide_together(steps, places)
        # Behind the model a guard had no answer to look at, which is an error of its own.
        met_provider = np.isin(decision, (ALLOW, ERROR))
        return PipelineArm(
            name=name,
            steps=steps,
            decision=decision,
            model=model.said,
            waited_ms=model.waited_ms,
            came_out=written,
            by_provider=(model.said == BLOCK) & is_let_in & met_provider,
        )

    def _answers(self, written: RewrittenTexts) -> Columns:
        """Return what the model did with what it was shown."""
        return written.read(self._model, self._answers_after)

    def _answers_after(self, after: str) -> Columns | None:
        name = f"{NO_GUARD}{after}"
        if name not in self.known:
            return None
        every = self.frame.is_every
        return self._columns(record_columns(self._reader, name, stage=Stage.MODEL, is_every=every))

    def _guard(self, stored: str) -> Columns:
        """Return what a guard decided, read once for all arms."""
        if stored not in self._guards:
            column = next((arm for arm in self.frame.arms if arm.name == stored), None)
            if column is None:
                column = self._part(stored)
            self._guards[stored] = self._columns(column.records)
        return self._guards[stored]

    def _after(self, stored: str, after: str) -> Columns | None:
        name = f"{stored}{after}"
        if name not in self.known:
            return None
        if name not in self._guards:
            self._guards[name] = self._columns(self._part(name).records)
        return self._guards[name]

    def _part(self, name: str) -> DefenseColumn:
        records = record_columns(self._reader, name, is_every=self.frame.is_every)
        guard = part_of(name).removesuffix(BEHIND)
        threshold = dict(self.frame.settings.thresholds).get(guard)
        if not len(records.sample):
            threshold = None
        return part_column(self.frame.manifest, records, threshold)

    def _columns(self, records: RecordColumns) -> Columns:
        return Columns(
            said=self.frame.codes(records, records.outcome),
            waited_ms=spread_times(self.frame, records),
        )


def _steps(
    met: Sequence[tuple[str, Place, str, Columns]], *, model: Columns, judged: Flags
) -> tuple[GuardStep, ...]:
    """Return the guards of an arm; a text goes on where the next part was asked about it."""
    steps = []
    for number, (guard, place, stored, columns) in enumerate(met):
        following = met[number + 1 : number + 2]
        is_last = not following or following[0][1] is not place
        if not is_last:
            was_asked = following[0][3].said != MISSING
        elif place is Place.INPUT:
            was_asked = model.said != MISSING
        else:
            was_asked = judged
        steps.append(
            GuardStep(
                guard=guard,
                place=place,
                stored=stored,
                decision=columns.said,
                goes_on=(columns.said == REWRITTEN) & was_asked,
                waited_ms=columns.waited_ms,
            )
        )
    return tuple(steps)
