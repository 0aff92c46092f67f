"""Where the answers of one part arrive: each is stored exactly once, and counted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from guardmark.core.outcome import ScoreKind
from guardmark.core.record import FIRST_LAYER, Stage
from guardmark.engine.asking import Question
from guardmark.engine.run_monitor import OUTCOMES, UNLABELLED
from guardmark.store.schema import FLAG_CACHED, FLAG_SHARED, OUTCOME_CODE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.core.outcome import Decision, Evidence, Response, Verdict
    from guardmark.core.sample import Prompt
    from guardmark.engine.run_monitor import ProgressCounts, RunMonitor
    from guardmark.store.codec import Answer
    from guardmark.store.records import RecordBatch
    from guardmark.store.samples import Chunk

_MALFORMED: Final = OUTCOME_CODE["malformed"]
_ERROR: Final = OUTCOME_CODE["error"]


class PendingSample(NamedTuple):
    """One sample on its way to a defense."""

    recorder: Recorder
    position: int
    is_attack: bool
    prompt: Prompt

    def question(self) -> Question:
        """Return what is asked about it."""
        return self.recorder.question(self.position, self.recorder.part, self.prompt)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Recorder:
    """Takes the answers of one part in one repeat.

    The key of a record is that of the recorder and the position of a sample, and the store
    refuses a key twice: executors need not care in which order answers come.

    Attributes:
        name: Under which its answers are counted and shown.
        part: Which part is asked; guards behind a model are stored under a name of their own.
        batch: Where its records wait for the next commit.
        progress: Counts of its answers by outcome.
        monitor: Who counts what the answers spent, and ends the run.
        labelled: How many samples have a label; the others stand behind them.
        later: Repeats that the same answers stand for.
    """

    name: str
    part: str
    batch: RecordBatch
    progress: ProgressCounts
    monitor: RunMonitor
    labelled: int
    later: tuple[RecordBatch, ...] = ()

    def question(self, position: int, part: str, prompt: Prompt, *others: str) -> Question:
        """Return a question to a part whose answer is recorded here."""
        batch = self.batch
        return Question(part, (prompt, *others), position, batch.repeat, (*batch.key, position))

    def record_decision(
        self, sample: PendingSample, decision: Decision, *, latency_ns: int | None, flags: int = 0
    ) -> int:
        """Store and count one decision of a defense."""
        position, monitor = sample.position, self.monitor
        code = self.batch.add(position, decision, latency_ns=latency_ns, flags=flags)
        place = self._place(position, code, is_attack=sample.is_attack)
        self._count(place, evidence=decision.evidence)
        if self.later:
            self._share(position, decision, place=place)
        if code >= _MALFORMED:
            monitor.note_failure(self.name, decision, code=code)
        elif decision.score_kind is ScoreKind.CONFIDENCE:
            monitor.note_confidence(self.name, decision)
        is_ruled = monitor.rule is not None and self.name == self.part
        if monitor.rule is not None and is_ruled and position < self.labelled:
            monitor.rule.observe(self.name, position, code)
            monitor.ask_rule(self.progress)
        return code

    def record_decisions(
        self, chunk: Chunk, decisions: Sequence[Decision], latencies: Sequence[int], *, flags: int
    ) -> None:
        """Store and count the decisions of a defense that answers at once."""
        add, counts, monitor = self.batch.add, self.progress.counts, self.monitor
        price = monitor.spending.prices.get(self.part)
        if price is not None:
            decisions = list(map(price.stamp, decisions, chunk.prompts))
        rule = monitor.rule
        for position, is_attack, decision, latency in zip(
            chunk.positions, chunk.attacks, decisions, latencies, strict=True
        ):
            code = add(position, decision, latency_ns=latency, flags=flags)
            place = self._place(position, code, is_attack=is_attack)
            counts[place] += 1
            if self.later:
                self._share(position, decision, place=place)
            if decision.evidence is not None:
                monitor.spend(decision.evidence, self.name, is_paid=False)
            if code >= _MALFORMED:
                monitor.note_failure(self.name, decision, code=code)
            elif decision.score_kind is ScoreKind.CONFIDENCE:
                monitor.note_confidence(self.name, decision)
            if rule is not None and position < self.labelled:
                rule.observe(self.name, position, code)
            flags = 0
        monitor.meter.calls += len(decisions)
        monitor.added += len(decisions)
        if rule is not None:
            monitor.ask_rule(self.progress)

    def record_answer(
        self, position: int, answer: Response | Verdict, *, is_attack: bool, latency_ns: int | None
    ) -> int:
        """Store and count one answer of a target model, or one verdict of a judge."""
        code = self.batch.add(position, answer, latency_ns=latency_ns)
        self._count(self._place(position, code, is_attack=is_attack), evidence=answer.evidence)
        if code == _ERROR:
            self.monitor.note_error()
        return code

    def record_shared(self, position: int, answer: Answer, *, is_attack: bool) -> int:
        """Store the answer to the same question of another arm: no call, no time, no tokens."""
        code = self.batch.add(
            position, _as_shared(answer), latency_ns=None, flags=FLAG_CACHED | FLAG_SHARED
        )
        self._count(self._place(position, code, is_attack=is_attack), evidence=None)
        return code

    def _place(self, position: int, code: int, *, is_attack: bool) -> int:
        """Return where among the counts an outcome of a sample belongs."""
        if position >= self.labelled:
            return code + UNLABELLED
        return code + OUTCOMES if is_attack else code

    def _share(self, position: int, decision: Decision, *, place: int) -> None:
        """Let an answer stand for later repeats too: no call, no time and no tokens of theirs."""
        answer = _as_shared(decision)
        for batch in self.later:
            batch.add(position, answer, latency_ns=None, flags=FLAG_CACHED | FLAG_SHARED)
        self.progress.counts[place] += len(self.later)
        self.monitor.added += len(self.later)

    def _count(self, place: int, *, evidence: Evidence | None) -> None:
        self.progress.counts[place] += 1
        self.monitor.added += 1
        if evidence is not None:
            self.monitor.spend(evidence, self.name)


def _as_shared(answer: Answer) -> Answer:
    """Return an answer without the time and the tokens that it took."""
    said = answer.evidence
    said = None if said is None else replace(said, usage=None, attempts=())
    return replace(answer, latency_ns=None, evidence=said)


def open_recorder(
    monitor: RunMonitor,
    name: str,
    stage: Stage,
    *,
    layer: str = FIRST_LAYER,
    repeat: int = 0,
    part: str = "",
    counted_as: str = "",
    is_about_all: bool = True,
) -> Recorder:
    """Open the recorder of a part in one repeat; what is stored already is counted in.

    A part that is not asked about all samples has what is stored planned, and each call when it is
    sent. Calls may be counted with those of another name.
    """
    writer = monitor.writer
    batch = writer.record_batch(name, stage, layer=layer, repeat=repeat)
    counted = counted_as or name
    progress = monitor.progress.of(counted if layer == FIRST_LAYER else layer, stage)
    counts = writer.stored.count_by_outcome(batch)
    progress.planned += writer.sample_count if is_about_all else sum(counts)
    for index, count in enumerate(counts):
        progress.counts[index] += count
    return Recorder(
        name=progress.name,
        part=part or progress.name,
        batch=batch,
        progress=progress,
        monitor=monitor,
        labelled=writer.labelled_count,
    )
