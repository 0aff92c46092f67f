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
from guardmark.analysis.pipeline.chunks import ChunkCalls, read_lengths
from guardmark.core.chunks import MOST_CALLS, ChunkRule, after_prefix, split_prefix
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
        chunks: Its calls, where it is asked while the answer grows: the last is its decision.
    """

    guard: str
    place: Place
    stored: str
    decision: Codes
    goes_on: Flags
    waited_ms: Floats
    chunks: ChunkCalls | None = None

    def passes(self, *lets_through: int) -> Flags:
        """Tell what it lets pass, as it was or written anew."""
        return np.isin(self.decides(lets_through), (ALLOW, *lets_through)) | self.goes_on

    def decides(self, lets_through: tuple[int, ...] = ()) -> Codes:
        """Return what it decides where some outcomes let a sample pass."""
        if self.chunks is None or not lets_through:
            return self.decision
        return self.chunks.end(lets_through).decision


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

    def cut(self, characters: NDArray[np.int64]) -> RewrittenTexts:
        """Return the names of prefixes of answers, this many characters long; 0: none of them."""
        cut = np.flatnonzero(characters > 0)
        names, codes = [""], np.zeros(len(self.codes), dtype=np.int32)
        seen: dict[str, int] = {}
        for at in cut.tolist():
            name = after_prefix(self.names[self.codes[at]], int(characters[at]))
            if name not in seen:
                seen[name] = len(names)
                names.append(name)
            codes[at] = seen[name]
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
        behind = [_drawn(step) for step in self.steps if step.place is Place.OUTPUT]
        return " -> ".join([*before, "model", *behind])

    @property
    def chunks(self) -> ChunkCalls | None:
        """The calls of its guard about a growing answer, where it has one."""
        return self.steps[-1].chunks if self.steps else None

    def gone_out(self, lets_through: tuple[int, ...] = ()) -> RewrittenTexts | None:
        """Return what had gone out of answers before their block, where anything had."""
        if self.chunks is None:
            return None
        reached = self.reached(len(self.steps) - 1, lets_through=lets_through)
        characters = np.where(reached, self.chunks.end(lets_through).gone_out, 0)
        return self.came_out.cut(characters)

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
        passes, decided = step.passes(*lets_through), step.decides(lets_through)
        decision = np.where(is_going & ~passes, decided, decision).astype(np.int8)
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


def stated_chunks(manifest: RunManifest) -> dict[str, ChunkRule]:
    """Return how often the arms that ask while an answer grows do so."""
    pipeline = manifest.settings.get("pipeline")
    stated = pipeline.get("arms") if isinstance(pipeline, Mapping) else None
    rules = {}
    for name, guards in stated.items() if isinstance(stated, Mapping) else ():
        output = guards.get(Place.OUTPUT.value)
        if isinstance(output, Mapping):
            every = output.get("every")
            rules[str(name)] = ChunkRule(
                every=every if isinstance(every, int) else None,
                most_calls=int(output.get("most_calls", MOST_CALLS)),
            )
    return rules


def _drawn(step: GuardStep) -> str:
    every = None if step.chunks is None else step.chunks.rule.every
    if every is None:
        return step.guard
    return f"{step.guard} (every {'character' if every == 1 else f'{every:,} characters'})"


def _names(stated: object) -> tuple[str, ...]:
    if isinstance(stated, Mapping):
        stated = stated.get("guard")
    if isinstance(stated, str):
        return (stated,)
    return tuple(map(str, stated)) if isinstance(stated, list | tuple) else ()


def read_arms(reader: ArmReader) -> Iterator[PipelineArm]:
    """Yield the arms of a pipeline, in the order of the configuration."""
    frame = reader.frame
    placed, chunks = stated_places(frame.manifest), stated_chunks(frame.manifest)
    for name, places in placed.items():
        wanted = [(guard, place) for place, guards in places.items() for guard in guards]
        stored = [(guard, place, stored_name(guard, place)) for guard, place in wanted]
        # Of a run that was cut short, the arms of which the records hold each guard.
        if all(own in reader.known for _, _, own in stored):
            yield replace(reader.arm(name, stored, chunks=chunks.get(name)), is_placed=True)
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
        self._prefixes: dict[str, list[tuple[str, int, RecordColumns]]] = {}
        self._lengths: dict[str, NDArray[np.int64]] = {}

    def arm(
        self,
        name: str,
        guards: Sequence[tuple[str, Place, str]],
        *,
        chunks: ChunkRule | None = None,
    ) -> PipelineArm:
        """Read an arm from its guards, each with its place and the name it is stored under.

        Where it asks while an answer grows, its last guard is the one behind the model.
        """
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
        if chunks is not None:
            written = _written_before(written, steps[-1].stored)
            steps = (*steps[:-1], self._stream(steps[-1], chunks, asked=written))
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

    def _stream(self, step: GuardStep, rule: ChunkRule, *, asked: RewrittenTexts) -> GuardStep:
        """Return a guard with its calls about more and more of each answer."""
        calls = ChunkCalls.plan(rule, self._lengths_of(asked))
        for whole, characters, records in self._prefixes_of(step.stored):
            if rule.every is None or characters % rule.every or whole not in asked.names:
                continue
            here = asked.codes == asked.names.index(whole)
            columns = self._columns(records)
            calls.note(characters // rule.every - 1, columns.said, columns.waited_ms, here=here)
        calls.note_last(step.decision, step.waited_ms)
        end = calls.end()
        nowhere = np.zeros_like(step.goes_on)
        return replace(
            step, decision=end.decision, goes_on=nowhere, waited_ms=end.waited_ms, chunks=calls
        )

    def _lengths_of(self, asked: RewrittenTexts) -> NDArray[np.int64]:
        """Return how many characters each answer has; -1 where there is none."""
        lengths = np.full(len(asked.codes), -1, dtype=np.int64)
        for code, after in enumerate(asked.names):
            name = f"{NO_GUARD}{after}"
            if name not in self._lengths and name in self.known:
                self._lengths[name] = read_lengths(self._reader, self.frame, name)
            if name in self._lengths:
                lengths = np.where(asked.codes == code, self._lengths[name], lengths)
        return lengths

    def _prefixes_of(self, stored: str) -> list[tuple[str, int, RecordColumns]]:
        """Return what a guard said of prefixes of answers: of which, how long, and its records."""
        if stored not in self._prefixes:
            found = []
            for name in sorted(self.known):
                whole, characters = split_prefix(name)
                if characters is not None and part_of(name) == stored:
                    records = self._part(name).records
                    found.append((whole.removeprefix(stored), characters, records))
            self._prefixes[stored] = found
        return self._prefixes[stored]

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


def _written_before(written: RewrittenTexts, stored: str) -> RewrittenTexts:
    """Return what guards had made of texts before the last of them, which may have written too."""
    own = f"{AFTER}{stored}"
    codes = [
        written.names.index(name.removesuffix(own)) if name.endswith(own) else code
        for code, name in enumerate(written.names)
    ]
    return replace(written, codes=np.array(codes, dtype=np.int32)[written.codes])


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
