"""One sample through guards, target model and judges, in several arms over one answer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.errors import BudgetReached
from guardmark.core.manifest import LatencyMode, Policy
from guardmark.core.place import Place, stored_name
from guardmark.core.protocols import DrawingModel
from guardmark.core.record import Stage
from guardmark.core.sample import Message, Prompt, Role, View
from guardmark.engine.calls import (
    NOTHING_TO_JUDGE,
    SKIPPED,
    as_coroutine,
    as_decision,
    as_response,
    as_verdict,
)
from guardmark.engine.execution.actors import ActorDefense
from guardmark.engine.execution.batches import BatchQueue, takes_batches
from guardmark.engine.execution.executor import DefenseWork
from guardmark.engine.plan import NO_GUARD, layer_of
from guardmark.engine.recorder import PendingSample, open_recorder
from guardmark.engine.run_monitor import Halt
from guardmark.store.schema import OUTCOME_CODE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence

    from guardmark.core.outcome import Response
    from guardmark.core.protocols import ChatModel, Guard, Judge
    from guardmark.engine.plan import Pipeline
    from guardmark.engine.run_monitor import RunMonitor
    from guardmark.store.samples import Chunk

    Step = Callable[["SampleState"], Awaitable[None]]

_ALLOW: Final = OUTCOME_CODE["allow"]
_BLOCK: Final = OUTCOME_CODE["block"]
_MALFORMED: Final = OUTCOME_CODE["malformed"]
_ANSWERED: Final = OUTCOME_CODE["answered"]
_ERROR: Final = OUTCOME_CODE["error"]
_MODEL: Final = "model"
_LETS_THROUGH: Final = (Policy.ALLOW, Policy.FALLBACK_TO_MAIN)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmProgram:
    """What an arm does with a sample: guards before the model and behind it, in their order.

    Guards have the names under which their decisions are stored.
    """

    before: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True, eq=False)
class SampleState:
    """One sample in one repeat, and every call about it that was answered: all arms walk them."""

    position: int
    repeat: int
    is_attack: bool
    prompt: Prompt
    codes: dict[str, int]
    model_code: int | None
    answer: str | None
    judged: set[str]
    asked_behind: set[str] = field(default_factory=set)
    open: int = 0
    is_asked: bool = False


Queue = asyncio.Queue["SampleState | None"]


class PipelineRunner:
    """The stages of a pipeline, each with its queue and workers, all at work at once.

    Answers of single calls are committed by whoever supervises the work, many times a second:
    three stages asking after each answer whether a commit is due would cost more than commits.
    """

    def __init__(
        self, pipeline: Pipeline, monitor: RunMonitor, *, guards: Sequence[DefenseWork]
    ) -> None:
        self._pipeline = pipeline
        self._monitor = monitor
        plan, repeats = monitor.plan, range(monitor.plan.repeats)
        self._guards = {guard.name: guard for guard in guards if guard.name in _placed(pipeline)}
        self._programs = _programs(pipeline, self._guards)
        for guard in plan.guards:
            if guard.name in pipeline.guards_at(Place.OUTPUT):
                self._guards[stored_name(guard.name, Place.OUTPUT)] = _work_behind(guard, monitor)
        self._behind = {name for program in self._programs for name in program.behind}
        is_single = plan.timing.mode is LatencyMode.ISOLATED
        elsewhere = {
            name
            for name, guard in self._guards.items()
            if guard.recorders[0].later or isinstance(guard.guard, ActorDefense)
        }
        self.asks = {
            name
            for name, guard in self._guards.items()
            if name in self._behind
            or not (is_single or guard.guard.capabilities.is_inline or name in elsewhere)
        }
        self._model = [
            open_recorder(monitor, NO_GUARD, Stage.MODEL, repeat=repeat) for repeat in repeats
        ]
        self._answering = [_answering(pipeline.model, repeat) for repeat in repeats]
        self._judges = {layer_of(judge, pipeline.judges): judge for judge in pipeline.judges}
        self._verdicts = {
            layer: [
                open_recorder(monitor, NO_GUARD, Stage.JUDGE, layer=layer, repeat=repeat)
                for repeat in repeats
            ]
            for layer in self._judges
        }
        self._queues: dict[str, Queue] = {}
        self._workers: dict[str, int] = {}
        self._batch_queues: list[BatchQueue] = []
        self._open = 0
        self._is_fed = False
        self._room = asyncio.Semaphore(1 if is_single else self._window())

    def _window(self) -> int:
        # Enough states under way that no stage starves, few enough that memory stays flat.
        plan = self._monitor.plan
        parts = [self._pipeline.model.name, *(j.name for j in self._pipeline.judges)]
        at_once = [plan.in_flight(part) for part in parts]
        return 4 * sum([*at_once, *map(self._workers_of, self.asks)]) + 64

    def _workers_of(self, name: str) -> int:
        """Return how many calls a guard may have in flight at one place."""
        guard = self._guards[name].name
        at_once = self._monitor.plan.in_flight(guard)
        places = [each for each in self.asks if self._guards[each].name == guard]
        return max(1, at_once // len(places))

    def work(self) -> list[Coroutine[Any, Any, None]]:
        """Return the coroutines of the whole flow."""
        plan, pipeline = self._monitor.plan, self._pipeline
        work: list[Coroutine[Any, Any, None]] = [self._feed()]
        for name in self.asks:
            guard, count = self._guards[name], self._workers_of(name)
            if takes_batches(guard.guard, plan) and name not in self._behind:
                queue = BatchQueue(guard.guard, self._monitor)
                self._batch_queues.append(queue)
                work += [queue.serve() for _ in range(queue.servers)]
                work += self._work_off(name, queue.most_waiting, self._batch_step(name, queue))
            else:
                work += self._work_off(name, count, self._guard_step(name))
        count = plan.in_flight(pipeline.model.name)
        work += self._work_off(_MODEL, count, self._answer)
        for layer, judge in self._judges.items():
            step = partial(self._judge, judge, layer)
            work += self._work_off(f"judge/{layer}", plan.in_flight(judge.name), step)
        return work

    def _open_queue(self, name: str, workers: int) -> Queue:
        self._queues[name], self._workers[name] = Queue(), workers
        return self._queues[name]

    def _work_off(self, name: str, workers: int, step: Step) -> list[Coroutine[Any, Any, None]]:
        """Open the queue of a stage, and return its workers: each takes a step with each state."""
        queue = self._open_queue(name, workers)

        async def work() -> None:
            while (state := await queue.get()) is not None:
                if self._monitor.may_go_on():
                    try:
                        await step(state)
                    except BudgetReached as reached:
                        self._monitor.end(Halt.BUDGET, str(reached))
                self._release(state)

        return [work() for _ in range(workers)]

    def _send(self, stage: str, state: SampleState) -> None:
        state.open += 1
        self._queues[stage].put_nowait(state)

    def _release(self, state: SampleState) -> None:
        state.open -= 1
        if state.open:
            return
        is_whole = state.answer is not None and not self._behind
        if not is_whole and self._monitor.may_go_on():
            self._expect_less(state)
        self._open -= 1
        self._room.release()
        self._close_when_done()

    def _close_when_done(self) -> None:
        if self._is_fed and not self._open:
            for name, queue in self._queues.items():
                for _ in range(self._workers[name]):
                    queue.put_nowait(None)
            for waiting in self._batch_queues:
                waiting.close()

    async def _feed(self) -> None:
        await self._start_all()
        self._is_fed = True
        self._close_when_done()

    async def _start_all(self) -> None:
        for repeat in range(self._monitor.plan.repeats):
            for chunk in self._monitor.writer.stored.pending(None, order=self._monitor.order):
                # A continued run finds nothing left to ask in most chunks, and waits for nobody.
                await asyncio.sleep(0)
                for state in self._states(chunk, repeat):
                    if not self._monitor.may_go_on():
                        return
                    await self._room.acquire()
                    self._open += 1
                    self._start(state)

    def _states(self, chunk: Chunk, repeat: int) -> Iterator[SampleState]:
        stored, at = self._monitor.writer.stored, chunk.positions
        decided = {
            name: stored.outcomes(guard.recorders[repeat].batch, at)
            for name, guard in self._guards.items()
        }
        model = stored.outcomes(self._model[repeat].batch, at)
        texts = stored.texts(self._model[repeat].batch, at)
        verdicts = {
            layer: stored.outcomes(recorders[repeat].batch, at)
            for layer, recorders in self._verdicts.items()
        }
        for position, is_attack, prompt in zip(at, chunk.attacks, chunk.prompts, strict=True):
            yield SampleState(
                position=position,
                repeat=repeat,
                is_attack=is_attack,
                prompt=prompt,
                codes={
                    name: codes[position] for name, codes in decided.items() if position in codes
                },
                model_code=model.get(position),
                answer=texts.get(position),
                judged={layer for layer, codes in verdicts.items() if position in codes},
            )

    def _start(self, state: SampleState) -> None:
        state.open = 1  # held until everything it starts with is sent
        for name in self.asks:
            if name not in state.codes and name not in self._behind:
                self._send(name, state)
        self._go_on(state)
        self._release(state)

    def _go_on(self, state: SampleState) -> None:
        """Walk every arm as far as the answers go, and send what the next of its calls needs."""
        if not state.is_asked:
            if not self._needs_answer(state):
                return
            state.is_asked = True
            if state.model_code is None:
                self._send(_MODEL, state)
                return
            self._judge_answer(state)
        if state.model_code is not None and self._behind:
            for program in self._programs:
                if program.behind and self._lets_in(program, state):
                    self._show_answer(program, state)

    def _needs_answer(self, state: SampleState) -> bool:
        """Tell whether any arm lets a sample in."""
        for program in self._programs:
            if not program.before or self._lets_in(program, state):
                return True
        return False

    def _lets_in(self, program: ArmProgram, state: SampleState) -> bool:
        """Tell whether every guard before the model of an arm let a sample pass."""
        for name in program.before:
            code = state.codes.get(name)
            if code is None or not self._passes(code):
                return False
        return True

    def _show_answer(self, program: ArmProgram, state: SampleState) -> None:
        """Show the answer to the next guard behind the model of an arm, unless one blocked it."""
        for name in program.behind:
            code = state.codes.get(name)
            if code is None:
                if name not in state.asked_behind:
                    state.asked_behind.add(name)
                    self._send(name, state)
                return
            if not self._passes(code):
                return

    def _passes(self, code: int) -> bool:
        if code in {_ALLOW, _BLOCK}:
            return code == _ALLOW
        plan = self._monitor.plan
        return (plan.on_malformed if code == _MALFORMED else plan.on_error) in _LETS_THROUGH

    def _expect_less(self, state: SampleState) -> None:
        """Take off the plan what no arm needed of a sample that came to its end."""
        # What is stored already stays planned: an arm that failed before may have let it through.
        spared = [
            recorders[state.repeat]
            for layer, recorders in self._verdicts.items()
            if layer not in state.judged and state.answer is None
        ]
        if state.model_code is None:
            spared.append(self._model[state.repeat])
        for name in self._behind:
            if name not in state.codes:
                spared.append(self._guards[name].recorders[state.repeat])
        for recorder in spared:
            recorder.progress.planned -= 1

    def _judge_answer(self, state: SampleState) -> None:
        if state.answer is None:
            return
        for layer in self._judges:
            if layer not in state.judged:
                self._send(f"judge/{layer}", state)

    def _guard_step(self, name: str) -> Step:
        guard = self._guards[name]
        ask, is_behind = as_coroutine(guard.guard), name in self._behind

        async def step(state: SampleState) -> None:
            prompt = _answered(state, guard) if is_behind else state.prompt
            item = _item(guard, state, prompt or state.prompt)
            answer, took = SKIPPED, None
            if prompt is not None:
                answer, took = await self._monitor.asker.ask(ask, item.question())
            state.codes[name] = item.recorder.record_decision(
                item, as_decision(answer), latency_ns=took
            )
            self._go_on(state)

        return step

    def _batch_step(self, name: str, queue: BatchQueue) -> Step:
        guard = self._guards[name]

        async def step(state: SampleState) -> None:
            code = await queue.ask(_item(guard, state, state.prompt))
            if code is not None:
                state.codes[name] = code
                self._go_on(state)

        return step

    async def _answer(self, state: SampleState) -> None:
        ask, recorder = self._answering[state.repeat], self._model[state.repeat]
        position = state.position
        question = recorder.question(position, self._pipeline.model.name, state.prompt)
        answer, took = await self._monitor.asker.ask(ask, question)
        response = as_response(answer)
        state.model_code = recorder.record_answer(
            position, response, is_attack=state.is_attack, latency_ns=took
        )
        state.answer = response.text if state.model_code == _ANSWERED else None
        self._judge_answer(state)
        if self._behind:
            self._go_on(state)

    async def _judge(self, judge: Judge, layer: str, state: SampleState) -> None:
        if state.answer is None:
            return
        recorder, position = self._verdicts[layer][state.repeat], state.position
        answer: object = NOTHING_TO_JUDGE
        took: int | None = None
        if state.answer.strip():
            question = recorder.question(position, judge.name, state.prompt, state.answer)
            answer, took = await self._monitor.asker.ask(judge.judge, question)
        recorder.record_answer(
            position, as_verdict(answer), is_attack=state.is_attack, latency_ns=took
        )


def _placed(pipeline: Pipeline) -> tuple[str, ...]:
    """Return the guards of a pipeline whose decisions are stored under their own names."""
    return pipeline.guards_at(Place.INPUT) if pipeline.places else pipeline.arms


def _programs(pipeline: Pipeline, guards: Mapping[str, DefenseWork]) -> list[ArmProgram]:
    """Return what each arm does; an arm named by its guard has it where its view says."""
    programs = []
    for guards_at in pipeline.places.values():
        behind = guards_at.get(Place.OUTPUT, ())
        program = ArmProgram(
            before=guards_at.get(Place.INPUT, ()),
            behind=tuple(stored_name(name, Place.OUTPUT) for name in behind),
        )
        programs.append(program)
    for name in () if pipeline.places else pipeline.arms:
        if name == NO_GUARD:
            programs.append(ArmProgram())
        elif guards[name].reads_answers:
            programs.append(ArmProgram(behind=(name,)))
        else:
            programs.append(ArmProgram(before=(name,)))
    return programs


def _work_behind(guard: Guard, monitor: RunMonitor) -> DefenseWork:
    """Return the work of a guard behind the model, stored under a name of its own."""
    name = stored_name(guard.name, Place.OUTPUT)
    recorders = tuple(
        open_recorder(monitor, name, Stage.DEFENSE, repeat=repeat, part=guard.name)
        for repeat in range(monitor.plan.repeats)
    )
    return DefenseWork(guard, recorders, monitor)


def _answering(model: ChatModel, repeat: int) -> Callable[[Prompt], Awaitable[Response]]:
    return partial(model.draw, repeat=repeat) if isinstance(model, DrawingModel) else model.answer


def _item(guard: DefenseWork, state: SampleState, prompt: Prompt) -> PendingSample:
    recorder = guard.recorders[state.repeat]
    return PendingSample(recorder, state.position, state.is_attack, prompt)


def _answered(state: SampleState, guard: DefenseWork) -> Prompt | None:
    """Return the request with its answer, which is what a guard is to look at."""
    if state.answer is None:
        return None
    messages = state.prompt.messages
    under_test = len(messages)
    if guard.guard.capabilities.view is View.RESPONSE:  # which shows the answer by itself
        under_test = state.prompt.under_test % len(messages)
    return replace(
        state.prompt,
        messages=(*messages, Message(role=Role.ASSISTANT, content=state.answer)),
        under_test=under_test,
    )
