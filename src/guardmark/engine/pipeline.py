"""One sample through guards, target model and judges, in several arms over one answer."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from guardmark.core.errors import BudgetReached
from guardmark.core.manifest import LatencyMode, Policy
from guardmark.core.outcome import Decision, Evidence, Outcome, Response, Verdict
from guardmark.core.place import AFTER, Place, stored_name
from guardmark.core.protocols import DrawingModel
from guardmark.core.record import FIRST_LAYER, Stage
from guardmark.core.sample import Message, Prompt, Role, View
from guardmark.engine.arms import (
    JUDGES,
    MODEL,
    Call,
    Reply,
    SampleState,
    next_call,
    programs_of,
)
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
from guardmark.engine.recorder import PendingSample, Recorder, open_recorder
from guardmark.engine.run_monitor import Halt
from guardmark.store.schema import OUTCOME_CODE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence

    from guardmark.core.protocols import ChatModel, Guard, Judge
    from guardmark.engine.plan import Pipeline
    from guardmark.engine.run_monitor import RunMonitor
    from guardmark.store.samples import Chunk

    Step = Callable[[SampleState, str], Awaitable[None]]

_ALLOW: Final = OUTCOME_CODE["allow"]
_BLOCK: Final = OUTCOME_CODE["block"]
_MALFORMED: Final = OUTCOME_CODE["malformed"]
_ANSWERED: Final = OUTCOME_CODE["answered"]
_LETS_THROUGH: Final = (Policy.ALLOW, Policy.FALLBACK_TO_MAIN)
_NOTHING_LEFT: Final = Evidence(reason="a guard before it left nothing of the text")
NOTHING_TO_ANSWER: Final = Response(text="", evidence=_NOTHING_LEFT)
"""What comes of a request of which a guard left nothing: the model is not called."""
_NOTHING_TO_LOOK_AT: Final = Decision(outcome=Outcome.ALLOW, evidence=_NOTHING_LEFT)


class _Errand(NamedTuple):
    """A sample on its way to a part, and what guards made of its text before."""

    state: SampleState
    after: str


Queue = asyncio.Queue["_Errand | None"]


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
        self._programs = programs_of(pipeline, lambda name: self._guards[name].reads_answers)
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
        self._answering = [_answering(pipeline.model, repeat) for repeat in repeats]
        self._judges = {layer_of(judge, pipeline.judges): judge for judge in pipeline.judges}
        self._recorders: dict[tuple[str, str, int], Recorder] = {}
        for repeat in repeats:
            self._open_recorder(Call(MODEL), repeat)
            for layer in self._judges:
                self._open_recorder(Call(JUDGES + layer), repeat)
            for name, work in self._guards.items():
                self._recorders[name, "", repeat] = work.recorders[repeat]
        self._open_stored()
        self._queues: dict[str, Queue] = {}
        self._workers: dict[str, int] = {}
        self._batch_queues: list[BatchQueue] = []
        self._open = 0
        self._is_fed = False
        self._room = asyncio.Semaphore(1 if is_single else self._window())

    def _open_stored(self) -> None:
        """Open the recorders of calls about rewritten texts that an earlier invocation made."""
        for name in self._monitor.writer.defenses():
            part, is_after, more = name.partition(AFTER)
            if not is_after:
                continue
            parts = [part] if part in self._guards else []
            if part == NO_GUARD:
                parts = [MODEL, *(JUDGES + layer for layer in self._judges)]
            for each in parts:
                for repeat in range(self._monitor.plan.repeats):
                    self._open_recorder(Call(each, AFTER + more), repeat)

    def _open_recorder(self, call: Call, repeat: int) -> Recorder:
        """Open the recorder of calls about what guards made of a text."""
        stage, layer, name, asked = Stage.DEFENSE, FIRST_LAYER, call.part, ""
        if call.part == MODEL:
            stage, name = Stage.MODEL, NO_GUARD
        elif call.is_of_judge:
            stage, name = Stage.JUDGE, NO_GUARD
            layer = call.part.removeprefix(JUDGES)
        else:
            asked = self._guards[call.part].guard.name
        recorder = open_recorder(
            self._monitor,
            name + call.after,
            stage,
            layer=layer,
            repeat=repeat,
            part=asked,
            is_about_all=not call.after,
        )
        self._recorders[call.part, call.after, repeat] = recorder
        return recorder

    def _recorder(self, call: Call, repeat: int) -> Recorder:
        """Return where the answer to a call is recorded."""
        recorder = self._recorders.get((*call, repeat))
        return self._open_recorder(call, repeat) if recorder is None else recorder

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
        return max(1, at_once // max(1, len(places)))

    def work(self) -> list[Coroutine[Any, Any, None]]:
        """Return the coroutines of the whole flow."""
        plan, pipeline = self._monitor.plan, self._pipeline
        work: list[Coroutine[Any, Any, None]] = [self._feed()]
        for name, guard in self._guards.items():
            step, count = self._guard_step(name), self._workers_of(name)
            if name in self.asks and takes_batches(guard.guard, plan) and name not in self._behind:
                queue = BatchQueue(guard.guard, self._monitor)
                self._batch_queues.append(queue)
                work += [queue.serve() for _ in range(queue.servers)]
                step, count = self._batch_step(name, queue), queue.most_waiting
            elif name not in self.asks and not self._may_see_rewritten(name):
                continue
            work += self._work_off(name, count, step)
        count = plan.in_flight(pipeline.model.name)
        work += self._work_off(MODEL, count, self._answer)
        for layer, judge in self._judges.items():
            judging = partial(self._judge, judge, layer)
            work += self._work_off(JUDGES + layer, plan.in_flight(judge.name), judging)
        return work

    def _may_see_rewritten(self, name: str) -> bool:
        """Tell whether another guard comes before one in any arm."""
        return any(name in program.before[1:] for program in self._programs)

    def _work_off(self, name: str, workers: int, step: Step) -> list[Coroutine[Any, Any, None]]:
        """Open the queue of a stage, and return its workers: each takes a step with each state."""
        queue: Queue = asyncio.Queue()
        self._queues[name], self._workers[name] = queue, workers

        async def work() -> None:
            while (errand := await queue.get()) is not None:
                if self._monitor.may_go_on():
                    try:
                        await step(*errand)
                    except BudgetReached as reached:
                        self._monitor.end(Halt.BUDGET, str(reached))
                self._release(errand.state)

        return [work() for _ in range(workers)]

    def _send(self, call: Call, state: SampleState) -> None:
        """Send a call, unless it was sent, or one about the same text was: its answer serves."""
        if call in state.asked or state.is_answered(call):
            return
        if call.after:
            for twin in state.twins(call, is_behind=call.part in self._behind):
                if state.is_answered(twin):
                    answer = self._stored_answer(twin, state)
                    if answer is not None:
                        state.asked.add(call)
                        self._take(call, state, answer, is_shared=True)
                        return
                elif twin in state.asked:
                    return  # every arm is walked again when its answer comes
            self._recorder(call, state.repeat).progress.planned += 1
        state.asked.add(call)
        state.open += 1
        self._queues[call.part].put_nowait(_Errand(state, call.after))

    def _stored_answer(self, call: Call, state: SampleState) -> Any:
        """Return what was answered to a call: in this invocation, or as it is stored."""
        if call in state.answers:
            return state.answers[call]
        batch = self._recorder(call, state.repeat).batch
        return self._monitor.writer.stored.answer(batch, state.position)

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
        states = {
            position: SampleState(position=position, repeat=repeat, is_attack=attack, prompt=prompt)
            for position, attack, prompt in zip(
                chunk.positions, chunk.attacks, chunk.prompts, strict=True
            )
        }
        for (part, after, of_repeat), recorder in self._recorders.items():
            if of_repeat == repeat:
                self._read_stored(Call(part, after), recorder, states)
        yield from states.values()

    def _read_stored(
        self, call: Call, recorder: Recorder, states: Mapping[int, SampleState]
    ) -> None:
        """Give samples the answers of a part that are stored."""
        stored, at, name = self._monitor.writer.stored, list(states), call.part + call.after
        outcomes = stored.outcomes(recorder.batch, at)
        texts: Mapping[int, str] = {}
        if call.part == MODEL:
            texts = stored.texts(recorder.batch, at)
        elif not call.is_of_judge and outcomes:
            texts = stored.rewritten(recorder.batch, at)
        for position, code in outcomes.items():
            state = states[position]
            if call.is_of_judge:
                state.judged.add(call)
            elif call.part == MODEL:
                state.model_codes[call.after] = code
                if code == _ANSWERED:
                    state.replies[call.after] = Reply(call.after, texts[position])
            else:
                state.codes[name] = code
                if position in texts:
                    self._note_written(call, state, texts[position])

    def _note_written(self, call: Call, state: SampleState, text: str) -> None:
        """Note what goes on in place of what a guard was shown, where that is one message."""
        name, prompt = call.part + call.after, state.prompt
        is_behind = call.part in self._behind
        is_whole = self._guards[call.part].guard.capabilities.may_write
        has_calls = not is_behind and bool(prompt.messages[prompt.under_test].calls)
        state.written[name] = text if is_whole and not has_calls else None

    def _start(self, state: SampleState) -> None:
        state.open = 1  # held until everything it starts with is sent
        for name in self.asks:
            if name not in self._behind:
                self._send(Call(name), state)
        self._go_on(state)
        self._release(state)

    def _go_on(self, state: SampleState) -> None:
        """Walk every arm as far as the answers go, and send what the next of its calls needs."""
        # All walks first: they find what guards wrote, and with it the calls about the same text.
        calls = [next_call(program, state, self._passes) for program in self._programs]
        for call in filter(None, calls):
            if call.part == JUDGES:
                self._judge_reply(state, call.after)
            elif call.after or call.part not in self._guards or call.part in self.asks:
                self._send(call, state)
        if state.is_let_in and "" in state.replies:
            self._judge_reply(state, "")  # whoever stands behind the model: the bare answer

    def _judge_reply(self, state: SampleState, after: str) -> None:
        for layer in self._judges:
            self._send(Call(JUDGES + layer, after), state)

    def _passes(self, code: int) -> bool:
        if code in {_ALLOW, _BLOCK}:
            return code == _ALLOW
        plan = self._monitor.plan
        return (plan.on_malformed if code == _MALFORMED else plan.on_error) in _LETS_THROUGH

    def _expect_less(self, state: SampleState) -> None:
        """Take off the plan what no arm needed of a sample that came to its end."""
        # What is stored already stays planned: an arm that failed before may have let it through.
        spared = []
        if "" not in state.replies:
            spared = [Call(JUDGES + layer) for layer in self._judges]
        spared += [Call(MODEL), *map(Call, self._behind)]
        for call in spared:
            if not state.is_answered(call):
                self._recorder(call, state.repeat).progress.planned -= 1

    def _take(
        self,
        call: Call,
        state: SampleState,
        answer: Decision | Response | Verdict,
        *,
        latency_ns: int | None = None,
        is_shared: bool = False,
    ) -> None:
        """Record an answer, and walk on with it."""
        recorder, position = self._recorder(call, state.repeat), state.position
        if is_shared:
            recorder.progress.planned += 1
            code = recorder.record_shared(position, answer, is_attack=state.is_attack)
        elif isinstance(answer, Decision):
            item = PendingSample(recorder, position, state.is_attack, state.prompt)
            code = recorder.record_decision(item, answer, latency_ns=latency_ns)
        else:
            code = recorder.record_answer(
                position, answer, is_attack=state.is_attack, latency_ns=latency_ns
            )
        self._note(call, state, answer, code=code)

    def _note(
        self, call: Call, state: SampleState, answer: Decision | Response | Verdict, *, code: int
    ) -> None:
        """Note what was answered to a call, and send what the arms need next."""
        state.answers[call] = answer
        if isinstance(answer, Decision):
            state.codes[call.part + call.after] = code
            if code == _ALLOW and answer.text is not None:
                self._note_written(call, state, answer.text)
        elif isinstance(answer, Response):
            state.model_codes[call.after] = code
            if code == _ANSWERED and answer.text is not None:
                state.replies[call.after] = Reply(call.after, answer.text)
        else:
            state.judged.add(call)
            if not state.is_rewritten:
                return  # nobody waits for a verdict
        self._go_on(state)

    def _guard_step(self, name: str) -> Step:
        ask, is_behind = as_coroutine(self._guards[name].guard), name in self._behind

        async def step(state: SampleState, after: str) -> None:
            call = Call(name, after)
            answer: object = SKIPPED
            took: int | None = None
            prompt = self._answered(call, state) if is_behind else state.requests[after]
            if state.is_left_empty(call, is_behind=is_behind):
                answer = _NOTHING_TO_LOOK_AT
            elif prompt is not None:
                recorder = self._recorder(call, state.repeat)
                question = recorder.question(state.position, recorder.part, prompt)
                answer, took = await self._monitor.asker.ask(ask, question)
            self._take(call, state, as_decision(answer), latency_ns=took)

        return step

    def _batch_step(self, name: str, queue: BatchQueue) -> Step:
        async def step(state: SampleState, after: str) -> None:
            call = Call(name, after)
            if state.is_left_empty(call, is_behind=False):
                self._take(call, state, _NOTHING_TO_LOOK_AT)
                return
            recorder, prompt = self._recorder(call, state.repeat), state.requests[after]
            item = PendingSample(recorder, state.position, state.is_attack, prompt)
            recorded = await queue.ask(item)
            if recorded is not None:
                self._note(call, state, recorded.decision, code=recorded.code)

        return step

    async def _answer(self, state: SampleState, after: str) -> None:
        call, answer = Call(MODEL, after), NOTHING_TO_ANSWER
        took: int | None = None
        if not state.is_left_empty(call, is_behind=False):
            recorder = self._recorder(call, state.repeat)
            name, prompt = self._pipeline.model.name, state.requests[after]
            question = recorder.question(state.position, name, prompt)
            asked = await self._monitor.asker.ask(self._answering[state.repeat], question)
            answer, took = as_response(asked.answer), asked.took_ns
        self._take(call, state, answer, latency_ns=took)

    async def _judge(self, judge: Judge, layer: str, state: SampleState, after: str) -> None:
        call, reply = Call(JUDGES + layer, after), state.replies[after].text
        answer: object = NOTHING_TO_JUDGE
        took: int | None = None
        if reply.strip():
            recorder = self._recorder(call, state.repeat)
            # It judges what came out against what the user had asked for.
            question = recorder.question(state.position, judge.name, state.prompt, reply)
            answer, took = await self._monitor.asker.ask(judge.judge, question)
        self._take(call, state, as_verdict(answer), latency_ns=took)

    def _answered(self, call: Call, state: SampleState) -> Prompt | None:
        """Return the request with its answer, which is what a guard behind the model looks at."""
        reply = state.replies.get(call.after)
        if reply is None:
            return None
        request = state.requests[reply.request]
        messages = request.messages
        under_test = len(messages)
        # This view shows the answer by itself.
        if self._guards[call.part].guard.capabilities.view is View.RESPONSE:
            under_test = request.under_test % len(messages)
        return replace(
            request,
            messages=(*messages, Message(role=Role.ASSISTANT, content=reply.text)),
            under_test=under_test,
        )


def _placed(pipeline: Pipeline) -> tuple[str, ...]:
    """Return the guards of a pipeline whose decisions are stored under their own names."""
    return pipeline.guards_at(Place.INPUT) if pipeline.places else pipeline.arms


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
