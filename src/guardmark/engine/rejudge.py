"""Stored answers judged again, as a new layer; no call to the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.core.errors import BudgetReached, ConfigError
from guardmark.core.record import FIRST_LAYER, Stage
from guardmark.engine.calls import NOTHING_TO_JUDGE, as_verdict
from guardmark.engine.plan import NO_GUARD, Plan
from guardmark.engine.recorder import open_recorder
from guardmark.engine.run_monitor import OUTCOMES, UNLABELLED, Halt, Progress, RunMonitor
from guardmark.engine.runner import raise_for, summary_of
from guardmark.engine.supervision import StopSignal, supervise
from guardmark.store.schema import OUTCOME_CODE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guardmark.core.protocols import Judge
    from guardmark.core.sample import Prompt
    from guardmark.engine.recorder import Recorder
    from guardmark.engine.runner import RunSummary
    from guardmark.store.records import RecordWriter


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
    recorders = [
        open_recorder(monitor, NO_GUARD, Stage.JUDGE, layer=layer, repeat=repeat)
        for repeat in range(plan.repeats)
    ]
    answers = [
        writer.record_batch(NO_GUARD, Stage.MODEL, repeat=repeat) for repeat in range(plan.repeats)
    ]
    part = counters.of(layer, Stage.JUDGE)
    part.planned = sum(
        writer.stored.count_by_outcome(batch)[code] for batch in answers for code in _ANSWERED
    )
    if not part.planned:
        raise ConfigError(
            "The run holds no answers of a target model, so there is nothing to judge.\n"
            "Next: name a run with a pipeline."
        )
    feed = _answers(recorders, monitor)
    workers = (_judge_each(judge, feed, monitor) for _ in range(plan.in_flight(judge.name)))
    await supervise(workers, monitor.tick)
    monitor.store(is_forced=True)
    writer.note_head()
    raise_for(monitor)
    return summary_of(monitor, counters)


_ANSWERED = tuple(OUTCOME_CODE["answered"] + label for label in (0, OUTCOMES, UNLABELLED))
"""Where the counts of answers lie, label by label; the first is the code of an answer itself."""


def _answers(
    recorders: list[Recorder], monitor: RunMonitor
) -> Iterator[tuple[Recorder, int, bool, Prompt, str]]:
    stored = monitor.writer.stored
    for repeat, recorder in enumerate(recorders):
        batch = monitor.writer.record_batch(NO_GUARD, Stage.MODEL, repeat=repeat)
        for chunk in stored.pending(recorder.batch, order=monitor.order):
            texts = stored.texts(batch, chunk.positions)
            outcomes = stored.outcomes(batch, chunk.positions)
            for position, is_attack, prompt in zip(
                chunk.positions, chunk.attacks, chunk.prompts, strict=True
            ):
                if outcomes.get(position) == _ANSWERED[0]:
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
