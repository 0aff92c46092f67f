"""Arms of a run walked over its stored calls, by sample and repeat."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

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
from guardmark.analysis.pipeline.columns import Columns, RewrittenTexts
from guardmark.analysis.pipeline.documents import DocumentWalk, leaving_out, read_documents
from guardmark.core.chunks import MOST_CALLS, ChunkRule, split_prefix
from guardmark.core.place import (
    AFTER,
    ALL_DOCUMENTS,
    NO_GUARD,
    Place,
    guard_of,
    part_of,
    stored_name,
)
from guardmark.core.record import Stage
from guardmark.core.sample import View
from guardmark.core.values import dataclass
from guardmark.store.columns import record_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from guardmark.analysis.defense.frame import DefenseColumn, Frame
    from guardmark.analysis.pipeline.documents import DocumentDecisions, DocumentPlaces
    from guardmark.core.manifest import RunManifest
    from guardmark.stats.arguments import Flags, Floats
    from guardmark.store.columns import RecordColumns
    from guardmark.store.reader import RecordReader

    Codes = NDArray[np.int8]


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardStep:
    """A guard at a place of an arm, and what it decided about what the arm showed it.

    Attributes:
        guard: Its name in the configuration.
        place: Before the model (`input`, `context`) or behind it (`output`).
        stored: The name under which its decisions are stored.
        decision: What it decided by sample and repeat; `MISSING` where it was not asked. A guard of
            documents that left some out lets another text go on.
        goes_on: It wrote another text, and what comes of that one was asked.
        waited_ms: How long it took; nan where no time counts.
        documents: What it did with each document, where it looks at these.
        leaves_out: Outcomes without a decision by which the policies leave a document out.
        chunks: Its calls, where it is asked while the answer grows: the last is its decision.
    """

    guard: str
    place: Place
    stored: str
    decision: Codes
    goes_on: Flags
    waited_ms: Floats
    documents: DocumentDecisions | None = None
    leaves_out: tuple[int, ...] = ()
    chunks: ChunkCalls | None = None

    def passes(self, lets_through: tuple[int, ...] = (), blocks: tuple[int, ...] = ()) -> Flags:
        """Tell what it lets pass, as it was or written anew.

        Where a failure blocks, a document was left out and the sample went on without it.
        """
        through = [ALLOW]
        through += [code for code in lets_through if code not in self.leaves_out]
        through += [code for code in blocks if code in self.leaves_out]
        return np.isin(self.decides(lets_through), through) | self.goes_on

    def decides(self, lets_through: tuple[int, ...] = ()) -> Codes:
        """Return what it decides where some outcomes let a sample pass."""
        if self.chunks is None or not lets_through:
            return self.decision
        return self.chunks.end(lets_through).decision


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
        context: dict[str, list[str]] = {}
        for step in self.steps:
            if step.place is not Place.CONTEXT:
                continue
            documents = "docs"
            if step.stored.endswith(ALL_DOCUMENTS):
                documents = "all docs"
            context.setdefault(documents, []).append(step.guard)
        for documents, guards in context.items():
            before.append(f"{documents}[{', '.join(guards)}]")
        return " -> ".join([*before, "model", *behind])

    @property
    def chunks(self) -> ChunkCalls | None:
        """The calls of its guard about a growing answer, where it has one."""
        if not self.steps:
            return None
        return self.steps[-1].chunks

    def gone_out(self, lets_through: tuple[int, ...] = ()) -> RewrittenTexts | None:
        """Return what had gone out of answers before their block, where anything had."""
        if self.chunks is None:
            return None
        reached = self.reached(len(self.steps) - 1, lets_through=lets_through)
        characters = np.where(reached, self.chunks.end(lets_through).gone_out, 0)
        return self.came_out.cut(characters)

    @property
    def is_rewritten(self) -> Flags:
        """Where a guard that was reached wrote the request, a document or the answer anew."""
        rewritten = np.zeros(len(self.decision), dtype=np.bool_)
        for number, step in enumerate(self.steps):
            is_so = step.decision == REWRITTEN
            if step.documents is not None:
                is_so &= step.documents.anywhere(step.documents.written)
            rewritten |= self.reached(number) & is_so
        return rewritten

    @property
    def is_left_out(self) -> Flags:
        """Where a guard that was reached left a document out."""
        left_out = np.zeros(len(self.decision), dtype=np.bool_)
        for number, step in enumerate(self.steps):
            if step.documents is not None:
                left_out |= self.reached(number) & step.documents.anywhere(step.documents.left_out)
        return left_out

    def reached(self, number: int, *, lets_through: tuple[int, ...] = ()) -> Flags:
        """Tell what all guards before the one of this number let pass."""
        passing = np.ones(len(self.decision), dtype=np.bool_)
        for step in self.steps[:number]:
            passing &= step.passes(lets_through)
        return passing

    def decided(self, lets_through: tuple[int, ...], blocks: tuple[int, ...]) -> Codes:
        """Return what the guards together decide where some outcomes let pass, or block."""
        places = len(self.decision)
        return decide_together(self.steps, places, lets_through=lets_through, blocks=blocks)


def decide_together(
    steps: Sequence[GuardStep],
    places: int,
    *,
    lets_through: tuple[int, ...] = (),
    blocks: tuple[int, ...] = (),
) -> Codes:
    """Return the first decision that does not let a sample pass, else allow."""
    decision = np.full(places, ALLOW, dtype=np.int8)
    for step in steps:
        is_going = decision == ALLOW
        passes, decided = step.passes(lets_through, blocks), step.decides(lets_through)
        decision = np.where(is_going & ~passes, decided, decision).astype(np.int8)
    return decision


StatedGuard = tuple[str, Place, str]
"""A guard of an arm, its place, and the name its decisions are stored under."""


def stated_guards(manifest: RunManifest) -> dict[str, list[StatedGuard]]:
    """Return the guards of each arm in order; nothing where arms are named by their guards."""
    arms = {}
    for name, places in _stated_arms(manifest).items():
        guards: list[StatedGuard] = []
        for place in (Place.INPUT, Place.CONTEXT, Place.OUTPUT):
            for guard, stored in _stated_at(place, places.get(place.value)):
                guards.append((guard, place, stored))
        arms[name] = guards
    return arms


def _stated_arms(manifest: RunManifest) -> dict[str, Mapping[str, Any]]:
    """Return the arms of the configuration as they were written; none without a pipeline."""
    pipeline = manifest.settings.get("pipeline")
    if not isinstance(pipeline, Mapping):
        return {}
    arms = pipeline.get("arms")
    if not isinstance(arms, Mapping):
        return {}
    return {str(name): places for name, places in arms.items()}


def _as_list(stated: object) -> Sequence[object]:
    """Return what is stated as a list: a single value may stand for a list of one."""
    if isinstance(stated, list | tuple):
        return stated
    return [stated]


def _stated_at(place: Place, stated: object) -> Iterator[tuple[str, str]]:
    """Yield the guards at a place and the names they are stored under."""
    for entry in _as_list(stated):
        if isinstance(entry, str):
            yield entry, stored_name(entry, place)
        elif isinstance(entry, Mapping):
            suffix = ""
            if place is Place.CONTEXT and entry.get("each") is False:
                suffix = ALL_DOCUMENTS
            for name in _as_list(entry.get("guard")):
                yield str(name), f"{stored_name(str(name), place)}{suffix}"


def stated_chunks(manifest: RunManifest) -> dict[str, ChunkRule]:
    """Return how often the arms that ask while an answer grows do so."""
    rules = {}
    for name, places in _stated_arms(manifest).items():
        output = places.get(Place.OUTPUT.value)
        if not isinstance(output, Mapping):
            continue
        every = output.get("every")
        if not isinstance(every, int):
            every = None
        most_calls = int(output.get("most_calls", MOST_CALLS))
        rules[name] = ChunkRule(every=every, most_calls=most_calls)
    return rules


def _drawn(step: GuardStep) -> str:
    """Name a guard, and how often it is asked while an answer grows."""
    every = None
    if step.chunks is not None:
        every = step.chunks.rule.every
    if every is None:
        return step.guard
    if every == 1:
        return f"{step.guard} (every character)"
    return f"{step.guard} (every {every:,} characters)"


def read_arms(reader: ArmReader) -> Iterator[PipelineArm]:
    """Yield the arms of a pipeline, in the order of the configuration."""
    frame = reader.frame
    placed, chunks = stated_guards(frame.manifest), stated_chunks(frame.manifest)
    for name, guards_at in placed.items():
        # Of a run that was cut short, the arms of which the records hold each guard.
        if _are_held(reader, guards_at):
            arm = reader.arm(name, guards_at, chunks=chunks.get(name))
            yield replace(arm, is_placed=True)
    if placed:
        return
    guards = {arm.name: arm for arm in frame.arms}
    named: list[str] = [NO_GUARD, *guards]
    pipeline = frame.manifest.settings.get("pipeline")
    if isinstance(pipeline, dict) and isinstance(pipeline.get("guards"), list):
        named = pipeline["guards"]
    for name in named:
        if name in guards:
            place = Place.INPUT
            if guards[name].part.view == View.RESPONSE:
                place = Place.OUTPUT
            yield reader.arm(name, [(name, place, name)])
        elif name == NO_GUARD:
            yield reader.arm(NO_GUARD, [])


def _are_held(reader: ArmReader, guards: Sequence[StatedGuard]) -> bool:
    """Tell whether the records hold every guard of an arm.

    A guard of documents has no record where no sample brings any: it has to be a part of the run.
    """
    parts = {part.name for part in reader.frame.manifest.parts}
    for guard, place, stored in guards:
        if place is Place.CONTEXT and guard not in parts:
            return False
        if place is not Place.CONTEXT and stored not in reader.known:
            return False
    return True


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
        self._documents: DocumentPlaces | None = None
        self._prefixes: dict[str, list[tuple[str, int, RecordColumns]]] = {}
        self._lengths: dict[str, NDArray[np.int64]] = {}

    def arm(
        self,
        name: str,
        guards: Sequence[StatedGuard],
        *,
        chunks: ChunkRule | None = None,
    ) -> PipelineArm:
        """Read an arm from its guards, each with its place and the name it is stored under.

        Where it asks while an answer grows, its last guard is the one behind the model.
        """
        places = len(self._model.said)
        written = RewrittenTexts(names=("",), codes=np.zeros(places, dtype=np.int32))
        met: list[_Met] = []
        model = self._model
        has_model = False
        walk: DocumentWalk | None = None
        for guard, place, stored in guards:
            if place is Place.OUTPUT and not has_model:
                model, has_model = self._answers(written), True
            if place is Place.CONTEXT:
                walk = walk or self._walk(written)
                columns, changed, documents = walk.past(stored)
                met.append(_Met(guard, place, stored, columns, changed, documents))
            else:
                columns = written.read(self._guard(stored), partial(self._after, stored))
                changed = columns.said == REWRITTEN
                met.append(_Met(guard, place, stored, columns, changed))
            written = written.by(stored, changed)
        if not has_model:
            model = self._answers(written)
        steps = _steps(
            met,
            model=model,
            judged=self._is_judged(written),
            leaves_out=leaving_out(self.frame.manifest),
        )
        if chunks is not None:
            written = _written_before(written, steps[-1].stored)
            steps = (*steps[:-1], self._stream(steps[-1], chunks, asked=written))
        before = [step for step in steps if step.place is not Place.OUTPUT]
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

    def _walk(self, written: RewrittenTexts) -> DocumentWalk:
        """Return the walk of documents past guards, from what came of the request so far."""
        if self._documents is None:
            self._documents = read_documents(self._reader, self.frame)
        manifest = self.frame.manifest
        return DocumentWalk(self._documents, written, manifest=manifest, read=self._said)

    def _said(self, name: str) -> Columns:
        """Return what is stored under a name, which may be nothing."""
        columns = self._after(name, "")
        if columns is None:
            return self._model.nothing()
        return columns

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
            prefixes = []
            for name in sorted(self.known):
                whole, characters = split_prefix(name)
                if characters is not None and part_of(name) == stored:
                    records = self._part(name).records
                    prefixes.append((whole.removeprefix(stored), characters, records))
            self._prefixes[stored] = prefixes
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
            records = None
            for arm in self.frame.arms:
                if arm.name == stored:
                    records = arm.records
            if records is None:
                records = self._part(stored).records
            self._guards[stored] = self._columns(records)
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
        threshold = dict(self.frame.settings.thresholds).get(guard_of(name))
        if not len(records.sample):
            threshold = None
        return part_column(self.frame.manifest, records, threshold)

    def _columns(self, records: RecordColumns) -> Columns:
        return Columns(
            said=self.frame.codes(records, records.outcome),
            waited_ms=spread_times(self.frame, records),
        )


class _Met(NamedTuple):
    """A guard of an arm and what it said about what it was shown.

    Attributes:
        changed: Where what goes on has a place to stand in.
    """

    guard: str
    place: Place
    stored: str
    columns: Columns
    changed: Flags
    documents: DocumentDecisions | None = None


def _written_before(written: RewrittenTexts, stored: str) -> RewrittenTexts:
    """Return what guards had made of texts before the last of them, which may have written too."""
    own = f"{AFTER}{stored}"
    codes = np.arange(len(written.names), dtype=np.int32)
    for code, name in enumerate(written.names):
        if name.endswith(own):
            codes[code] = written.names.index(name.removesuffix(own))
    return replace(written, codes=codes[written.codes])


def _steps(
    met: Sequence[_Met], *, model: Columns, judged: Flags, leaves_out: tuple[int, ...]
) -> tuple[GuardStep, ...]:
    """Return the guards of an arm; a text goes on where the next part was asked about it."""
    steps = []
    for number, (guard, place, stored, columns, changed, documents) in enumerate(met):
        following = met[number + 1 : number + 2]
        is_behind = place is Place.OUTPUT
        if following and (following[0].place is Place.OUTPUT) == is_behind:
            was_asked = following[0].columns.said != MISSING
        elif is_behind:
            was_asked = judged
        else:
            was_asked = model.said != MISSING
        step = GuardStep(
            guard=guard,
            place=place,
            stored=stored,
            decision=columns.said,
            goes_on=(columns.said == REWRITTEN) & changed & was_asked,
            waited_ms=columns.waited_ms,
        )
        if documents is not None:
            step = replace(step, documents=documents, leaves_out=leaves_out)
        steps.append(step)
    return tuple(steps)
