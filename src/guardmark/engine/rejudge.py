"""Stored answers judged again, as a new layer; no call to the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from guardmark.core.errors import ConfigError
from guardmark.core.record import FIRST_LAYER, Stage
from guardmark.engine import memory
from guardmark.engine.answers import as_verdict
from guardmark.engine.ledger import RunMonitor
from guardmark.engine.plan import NO_GUARD, Plan
from guardmark.engine.progress import Progress
from guardmark.engine.runner import raise_for, summary_of
from guardmark.engine.stop import StopSignal
from guardmark.engine.watch import supervise
from guardmark.store.codes import OUTCOME_CODE

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

    from guardmark.core.protocols import Judge
    from guardmark.core.sample import Prompt
    from guardmark.engine.desk import Recorder
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
    """Judge the stored answers of the target model into a layer of their own.

    Earlier layers stay as they are. Interrupted and given again, it goes on where it was.
    """
    if layer == FIRST_LAYER or layer.startswith(f"{FIRST_LAYER}/"):
        raise ConfigError(f"The layer {layer!r} belongs to the run. Next: choose another name.")
    counters = progress or Progress()
    ledger = RunMonitor(plan, writer, progress=counters, stop=stop or StopSignal(), stop_rule=None)
    desks = [
        ledger.desk(NO_GUARD, Stage.JUDGE, layer=layer, repeat=repeat)
        for repeat in range(plan.repeats)
    ]
    answers = [writer.lane(NO_GUARD, Stage.MODEL, repeat=repeat) for repeat in range(plan.repeats)]
    tally = counters.tally(layer, Stage.JUDGE)
    tally.planned = sum(writer.stored.tally(lane)[code] for lane in answers for code in _ANSWERED)
    if not tally.planned:
        raise ConfigError(
            "The run holds no answers of a target model, so there is nothing to judge.\n"
            "Next: name a run with a pipeline."
        )
    feed = _answers(desks, ledger)
    workers: list[Coroutine[Any, Any, None]] = [
        _judge_each(judge, feed, ledger) for _ in range(plan.in_flight(judge.name))
    ]
    await supervise(workers, ledger)
    ledger.store(is_forced=True)
    writer.note_head()
    raise_for(ledger)
    return summary_of(ledger, counters)


_ANSWERED = (OUTCOME_CODE["answered"], OUTCOME_CODE["answered"] + len(OUTCOME_CODE))


def _answers(
    desks: list[Recorder], ledger: RunMonitor
) -> Iterator[tuple[Recorder, int, bool, Prompt, str]]:
    stored = ledger.writer.stored
    for repeat, desk in enumerate(desks):
        lane = ledger.writer.lane(NO_GUARD, Stage.MODEL, repeat=repeat)
        for chunk in stored.pending(desk.lane):
            texts = stored.texts(lane, chunk.positions)
            outcomes = stored.outcomes(lane, chunk.positions)
            for position, is_attack, prompt in zip(
                chunk.positions, chunk.attacks, chunk.prompts, strict=True
            ):
                if outcomes.get(position) == _ANSWERED[0]:
                    yield desk, position, is_attack, prompt, texts[position]


async def _judge_each(
    judge: Judge, feed: Iterator[tuple[Recorder, int, bool, Prompt, str]], ledger: RunMonitor
) -> None:
    for desk, position, is_attack, prompt, text in feed:
        if not ledger.may_go_on():
            return
        answer, took = await memory.ask(
            judge.judge, (prompt, text), ledger=ledger, part=judge.name, repeat=desk.lane.repeat
        )
        verdict = as_verdict(answer)
        code = desk.lane.add_verdict(position, verdict, latency_ns=took)
        ledger.took(desk, code=code, is_attack=is_attack, evidence=verdict.evidence)
        if code == OUTCOME_CODE["error"]:
            ledger.met_error()
        ledger.store()
