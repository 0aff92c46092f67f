"""Stored answers judged again, as a new layer; no call to the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from guardmark.core.chunks import split_prefix
from guardmark.core.errors import BudgetReached, ConfigError
from guardmark.core.place import AFTER, NO_GUARD
from guardmark.core.record import FIRST_LAYER, Stage
from guardmark.engine.calls import NOTHING_TO_JUDGE, as_verdict
from guardmark.engine.recorder import open_recorder
from guardmark.engine.run_monitor import OUTCOMES, UNLABELLED, Halt, Progress, RunMonitor
from guardmark.engine.runner import raise_for, summary_of
from guardmark.engine.supervision import StopSignal, supervise
from guardmark.store.schema import OUTCOME_CODE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guardmark.core.protocols import Judge
    from guardmark.core.sample import Prompt
    from guardmark.engine.plan import Plan
    from guardmark.engine.recorder import Recorder
    from guardmark.engine.runner import RunSummary
    from guardmark.store.records import RecordBatch, RecordWriter


async def judge_again(
    plan: Plan,
    writer: RecordWriter,
    *,
    judge: Judge,
    layer: str,
    progress: Progress | None = None,
    stop: StopSignal | None = None,
) -> RunSummary:
    """Judge the stored answers of the target model into a layer of their own."""
    if layer == FIRST_LAYER or layer.startswith(f"{FIRST_LAYER}/"):
        raise ConfigError(f"The layer {layer!r} belongs to the run. Next: choose another name.")
    counters = progress or Progress()
    monitor = RunMonitor(plan, writer, progress=counters, stop=stop or StopSignal(), stop_rule=None)
    sources = [
        _Answers(
            open_recorder(
                monitor, name, Stage.JUDGE, layer=layer, repeat=repeat, is_about_all=False
            ),
            *_answers_under(writer, name, repeat),
        )
        for name in _answered(writer)
        for repeat in range(plan.repeats)
    ]
    part = counters.of(layer, Stage.JUDGE)
    part.planned = sum(_count(writer, each) for each in sources)
    if not part.planned:
        raise ConfigError(
            "The run holds no answers of a target model, so there is nothing to judge.\n"
            "Next: name a run with a pipeline."
        )
    feed = _answers(sources, monitor)
    workers = (_judge_each(judge, feed, monitor) for _ in range(plan.in_flight(judge.name)))
    await supervise(workers, monitor.tick)
    monitor.store(is_forced=True)
    writer.note_head()
    raise_for(monitor)
    return summary_of(monitor, counters)


_ANSWERED = tuple(OUTCOME_CODE["answered"] + label for label in (0, OUTCOMES, UNLABELLED))
"""Where the counts of answers lie, label by label; the first is the code of an answer itself."""


class _Answers(NamedTuple):
    """Answers to judge, and where the verdicts go."""

    recorder: Recorder
    batch: RecordBatch
    is_rewritten: bool  # by a guard behind the model, whose decisions the batch holds
    characters: int | None = None  # that had gone out before a block; None: the whole answer
    judged: tuple[RecordBatch, ...] = ()  # of what had gone out: which answers the run judged


def _count(writer: RecordWriter, answers: _Answers) -> int:
    """Count the answers that stand in one place, or those of which so much had gone out."""
    if answers.characters is not None:
        return max((writer.stored.count(each) for each in answers.judged), default=0)
    if answers.is_rewritten:
        return writer.stored.count_rewritten(answers.batch)
    counts = writer.stored.count_by_outcome(answers.batch)
    return sum(counts[code] for code in _ANSWERED)


def _answered(writer: RecordWriter) -> list[str]:
    """Return the names under which a run has answers: as they were, and after guards."""
    after = [name for name in writer.defenses() if name.startswith(f"{NO_GUARD}{AFTER}")]
    return [NO_GUARD, *after]


def _answers_under(
    writer: RecordWriter, name: str, repeat: int
) -> tuple[RecordBatch, bool, int | None, tuple[RecordBatch, ...]]:
    """Return where the answers of a name stand: with the model, or with the guard that wrote.

    What had gone out before a block is judged of the answers of which the run's judges were asked.
    """
    whole, characters = split_prefix(name)
    judged: tuple[RecordBatch, ...] = ()
    if characters is not None:
        judged = tuple(
            writer.record_batch(name, Stage.JUDGE, layer=layer, repeat=repeat)
            for layer in writer.layers()
            if layer.partition("/")[0] == FIRST_LAYER
        )
    return *_whole_answers(writer, whole, repeat), characters, judged


def _whole_answers(writer: RecordWriter, name: str, repeat: int) -> tuple[RecordBatch, bool]:
    model = writer.record_batch(name, Stage.MODEL, repeat=repeat)
    before, is_after, guard = name.removeprefix(NO_GUARD).rpartition(AFTER)
    if not is_after or writer.stored.count(model):
        return model, False
    return writer.record_batch(f"{guard}{before}", repeat=repeat), True


def _answers(
    sources: Sequence[_Answers], monitor: RunMonitor
) -> Iterator[tuple[Recorder, int, bool, Prompt, str]]:
    stored = monitor.writer.stored
    for recorder, batch, is_rewritten, characters, judged in sources:
        for chunk in stored.pending(recorder.batch, order=monitor.order):
            if is_rewritten:
                texts = stored.rewritten(batch, chunk.positions)
            else:
                texts = stored.texts(batch, chunk.positions)
                outcomes = stored.outcomes(batch, chunk.positions)
                texts = {at: text for at, text in texts.items() if outcomes[at] == _ANSWERED[0]}
            if characters is not None:
                wanted = {at for each in judged for at in stored.outcomes(each, chunk.positions)}
                texts = {at: text[:characters] for at, text in texts.items() if at in wanted}
            for position, is_attack, prompt in zip(
                chunk.positions, chunk.attacks, chunk.prompts, strict=True
            ):
                if position in texts:
                    yield recorder, position, is_attack, prompt, texts[position]


async def _judge_each(
    judge: Judge, feed: Iterator[tuple[Recorder, int, bool, Prompt, str]], monitor: RunMonitor
) -> None:
    for recorder, position, is_attack, prompt, text in feed:
        if not monitor.may_go_on():
            return
        answer: object = NOTHING_TO_JUDGE
        took: int | None = None
        if text.strip():
            try:
                question = recorder.question(position, judge.name, prompt, text)
                answer, took = await monitor.asker.ask(judge.judge, question)
            except BudgetReached as reached:
                monitor.end(Halt.BUDGET, str(reached))
                return
        recorder.record_answer(position, as_verdict(answer), is_attack=is_attack, latency_ns=took)
        monitor.store()
