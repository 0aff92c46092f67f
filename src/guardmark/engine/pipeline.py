"""One sample through guards, target model and judges, in several arms over one answer."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.chunks import split_prefix
from guardmark.core.errors import BudgetReached
from guardmark.core.manifest import LatencyMode, Policy
from guardmark.core.outcome import Decision, Evidence, Outcome, Response, Verdict
from guardmark.core.place import NO_GUARD, Place, split_stored, stored_name
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
from guardmark.engine.execution.sessions import session_id
from guardmark.engine.plan import layer_of
from guardmark.engine.recorder import PendingSample, Recorder, open_recorder
from guardmark.engine.run_monitor import Halt
from guardmark.store.schema import OUTCOME_CODE

if TYPE_CHECKING:
    from collections.abc import (
        Awaitable,
        Callable,
        Coroutine,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )

    from guardmark.core.protocols import ChatModel, Guard, Judge
    from guardmark.engine.asking import Answered
    from guardmark.engine.plan import Pipeline
    from guardmark.engine.run_monitor import RunMonitor
    from guardmark.store.samples import Chunk

    Step = Callable[[SampleState, str], Awaitable[None]]

_ALLOW: Final = OUTCOME_CODE["allow"]
_BLOCK: Final = OUTCOME_CODE["block"]
_MALFORMED: Final = OUTCOME_CODE["malformed"]
_ERROR: Final = OUTCOME_CODE["error"]
_ANSWERED: Final = OUTCOME_CODE["answered"]
_LETS_THROUGH: Final = (Policy.ALLOW, Policy.FALLBACK_TO_MAIN)
_NOTHING_LEFT: Final = Evidence(reason="a guard before it left nothing of the text")
NOTHING_TO_ANSWER: Final = Response(text="", evidence=_NOTHING_LEFT)
"""What comes of a request of which a guard left nothing: the model is not called."""
_NOTHING_TO_LOOK_AT: Final = Decision(outcome=Outcome.ALLOW, evidence=_NOTHING_LEFT)


_BARE_ANSWER: Final = Call(MODEL)
Queue = asyncio.Queue["tuple[SampleState, str] | None"]
"""Of samples on their way to a part, and of what guards made of their text before."""


class _Recorders(dict[tuple[str, str, int], Recorder]):
    """Where answers are recorded, by part, by what was made of the text, and by repeat."""

    def __init__(self, open_recorder: Callable[[Call, int], Recorder]) -> None:
        super().__init__()
        self._open = open_recorder

    def __missing__(self, key: tuple[str, str, int]) -> Recorder:
        """Open the recorder of calls that are made for the first time."""
        part, after, repeat = key
        recorder = self[key] = self._open(Call(part, after), repeat)
        return recorder


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
        self._programs = programs_of(
            pipeline,
            lambda name: self._guards[name].reads_answers,
            leaves_out=frozenset([_BLOCK, *self._codes_with(Policy.BLOCK)]),
        )
        for guard in plan.guards:
            if guard.name in pipeline.guards_at(Place.OUTPUT):
                self._guards[stored_name(guard.name, Place.OUTPUT)] = _work_behind(guard, monitor)
            if guard.name in pipeline.guards_at(Place.CONTEXT):
                work = DefenseWork(guard, (), monitor)  # each document has a recorder of its own
                self._guards[stored_name(guard.name, Place.CONTEXT)] = work
        self._behind = {name for program in self._programs for name in program.behind}
        self._context = {guard.part for program in self._programs for guard in program.context}
        self._sessions = {
            name: program
            for program in self._programs
            for name in program.parts
            if self._guards[name].guard.capabilities.keeps_session
        }
        is_single = plan.timing.mode is LatencyMode.ISOLATED
        elsewhere = {
            name
            for name, guard in self._guards.items()
            if name not in self._context
            and name not in self._sessions
            and (guard.is_asked_once or isinstance(guard.guard, ActorDefense))
        }
        self.asks = {
            name
            for name, guard in self._guards.items()
            if name in self._behind
            or name in self._context
            or name in self._sessions
            or not (is_single or guard.guard.capabilities.is_inline or name in elsewhere)
        }
        self._first_calls = {name: Call(name) for name in self._guards}
        self._answering = [_answering(pipeline.model, repeat) for repeat in repeats]
        self._judges = {layer_of(judge, pipeline.judges): judge for judge in pipeline.judges}
        self._judge_calls = tuple(Call(JUDGES + layer) for layer in self._judges)
        self._recorders = _Recorders(self._open_recorder)
        for repeat in repeats:
            for call in (_BARE_ANSWER, *self._judge_calls):
                self._recorders[*call, repeat] = self._open_recorder(call, repeat)
            for name, work in self._guards.items():
                if name not in self._context:
                    self._recorders[name, "", repeat] = work.recorders[repeat]
        self._open_stored()
        self._queues: dict[str, Queue] = {}
        self._workers: dict[str, int] = {}
        self._batch_queues: list[BatchQueue] = []
        self._open = 0
        self._is_fed = False
        self._room = asyncio.Semaphore(1 if is_single else self._window())

    def _codes_with(self, policy: Policy) -> list[int]:
        """Return the outcomes without a decision that a policy holds for."""
        plan = self._monitor.plan
        policies = {_MALFORMED: plan.on_malformed, _ERROR: plan.on_error}
        return [code for code, of_code in policies.items() if of_code is policy]

    def _open_stored(self) -> None:
        """Open the recorders of calls about single texts that an earlier invocation made."""
        for name in self._monitor.writer.defenses():
            part, after = split_stored(name)
            if not after:
                continue
            parts = [part] if part in self._guards else []
            if part == NO_GUARD:
                parts = [JUDGES + layer for layer in self._judges]
                if split_prefix(after)[1] is None:
                    parts.append(MODEL)
            for each in parts:
                for repeat in range(self._monitor.plan.repeats):
                    call = Call(each, after)
                    self._recorders[*call, repeat] = self._open_recorder(call, repeat)

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
        # Calls about prefixes of an answer, or about documents, are many: they count as one part.
        counted = name + split_prefix(call.after)[0]
        if call.part in self._context:
            counted = name
        return open_recorder(
            self._monitor,
            name + call.after,
            stage,
            layer=layer,
            repeat=repeat,
            part=asked,
            counted_as=counted,
            is_about_all=not call.after,
        )

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
            elsewhere = self._behind | self._context | self._sessions.keys()
            if name in self.asks and takes_batches(guard.guard, plan) and name not in elsewhere:
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
                self._release(errand[0])

        return [work() for _ in range(workers)]

    def _send(self, call: Call, state: SampleState) -> None:
        """Send a call, unless it was sent, or one about the same text was: its answer serves."""
        if call in state.asked:
            return
        part, after = call
        if after:
            if part in self._sessions:
                twins: Iterable[Call] = ()  # its session has to hear every call
            elif part in self._context:
                twins = state.document_twins(call)
            else:
                twins = state.twins(call, is_behind=part in self._behind)
            for twin in twins:
                if state.is_answered(twin):
                    answer = self._stored_answer(twin, state)
                    if answer is not None:
                        state.asked.add(call)
                        self._share(call, state, answer)
                        return
                elif twin in state.asked:
                    return  # every arm is walked again when its answer comes
            self._recorders[part, after, state.repeat].progress.planned += 1
        state.asked.add(call)
        state.open += 1
        self._queues[part].put_nowait((state, after))

    def _stored_answer(self, call: Call, state: SampleState) -> Any:
        """Return what was answered to a call: in this invocation, or as it is stored."""
        if call in state.answers:
            return state.answers[call]
        batch = self._recorders[*call, state.repeat].batch
        return self._monitor.writer.stored.answer(batch, state.position)

    def _release(self, state: SampleState) -> None:
        state.open -= 1
        if state.open:
            return
        is_whole = "" in state.replies and not self._behind
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
            position: SampleState(
                position=position,
                repeat=repeat,
                is_attack=attack,
                prompt=prompt,
                requests={"": prompt},
            )
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
            state.asked.add(call)
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
        if call.part in self._context:  # whatever its view, it is shown one message
            state.written[name] = text
            return
        is_behind = call.part in self._behind
        is_whole = self._guards[call.part].guard.capabilities.may_write
        has_calls = not is_behind and bool(prompt.messages[prompt.under_test].calls)
        state.written[name] = text if is_whole and not has_calls else None

    def _start(self, state: SampleState) -> None:
        state.open = 1  # held until everything it starts with is sent
        for name in self.asks:
            if name not in self._behind and name not in self._context:
                self._send(self._first_calls[name], state)
        self._go_on(state)
        self._release(state)

    def _go_on(self, state: SampleState) -> None:
        """Walk every arm as far as the answers go, and send what the next of its calls needs."""
        # A sample that is let in and that no guard wrote anew needs no other request.
        if not state.is_let_in or self._behind or self._context or state.written:
            # All walks first: they find what guards wrote, and so the calls about the same text.
            calls = [next_call(program, state, self._passes) for program in self._programs]
            if state.besides:
                calls += state.besides
                state.besides = []
            for call in calls:
                if call is not None:
                    self._go(call, state)
        if state.is_let_in and not state.is_with_judges and "" in state.replies:
            state.is_with_judges = True  # whoever stands behind the model
            for call in self._judge_calls:
                self._send(call, state)

    def _go(self, call: Call, state: SampleState) -> None:
        """Send what an arm needs next, unless that is asked elsewhere."""
        part, after = call
        if part == JUDGES:
            # What had gone out is judged, and the whole answer: was it unsafe, and how much of it?
            for each in dict.fromkeys(filter(None, (after, split_prefix(after)[0]))):
                for layer in self._judges:
                    self._send(Call(JUDGES + layer, each), state)
        elif after or part not in self._guards or part in self.asks:
            self._send(call, state)

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
                self._recorders[*call, state.repeat].progress.planned -= 1

    def _share(self, call: Call, state: SampleState, answer: Decision | Response | Verdict) -> None:
        """Record the answer to the same question of another arm, and walk on with it."""
        recorder = self._recorders[*call, state.repeat]
        recorder.progress.planned += 1
        code = recorder.record_shared(state.position, answer, is_attack=state.is_attack)
        if isinstance(answer, Decision):
            self._note_decision(call, state, answer, code)
        elif isinstance(answer, Response):
            self._note_response(call, state, answer, code)
        else:
            self._note_verdict(call, state, answer)

    def _note_decision(self, call: Call, state: SampleState, decision: Decision, code: int) -> None:
        """Note what a guard decided, and send what the arms need next."""
        state.answers[call] = decision
        state.codes[call.part + call.after] = code
        if code == _ALLOW and decision.text is not None:
            self._note_written(call, state, decision.text)
        self._go_on(state)

    def _note_response(self, call: Call, state: SampleState, response: Response, code: int) -> None:
        """Note what the model answered, and send what the arms need next."""
        state.answers[call] = response
        state.model_codes[call.after] = code
        if code == _ANSWERED and response.text is not None:
            state.replies[call.after] = Reply(call.after, response.text)
        self._go_on(state)

    def _note_verdict(self, call: Call, state: SampleState, verdict: Verdict) -> None:
        """Note what a judge said; equal answers to rewritten texts may wait for it."""
        state.answers[call] = verdict
        state.judged.add(call)
        if state.written or self._context:
            self._go_on(state)

    def _ask_guard(
        self,
        ask: Callable[[Prompt], Awaitable[Decision]],
        item: PendingSample,
        call: Call,
        state: SampleState,
    ) -> Awaitable[Answered]:
        """Ask a guard; one that keeps a session hears every call itself, under the arm's id."""
        program = self._sessions.get(call.part)
        if program is None:
            return self._monitor.asker.ask(ask, item.question())
        # What it is asked about a text that the arm's guards wrote anew before it is no part of
        # what the arm has it hear.
        is_before = call.part in program.before
        history = call.after if is_before else program.history(state.written)
        guard = self._guards[call.part].guard.name
        words = guard, "arm", state.position, state.repeat, history
        session = session_id(self._monitor.writer.manifest, *words)
        item = item._replace(prompt=replace(item.prompt, session=session))
        return self._monitor.asker.put(ask, item.question())

    def _guard_step(self, name: str) -> Step:
        ask, first = as_coroutine(self._guards[name].guard), self._first_calls[name]
        is_before = name not in self._behind and name not in self._context

        async def step(state: SampleState, after: str) -> None:
            call = Call(name, after) if after else first
            recorder = self._recorders[name, after, state.repeat]
            prompt = state.requests[after] if is_before else self._shown(call, state)
            item = PendingSample(recorder, state.position, state.is_attack, prompt or state.prompt)
            answer: object = SKIPPED
            took: int | None = None
            if after and self._is_left_empty(call, state):
                answer = _NOTHING_TO_LOOK_AT
            elif prompt is not None:
                answer, took = await self._ask_guard(ask, item, call, state)
            decision = as_decision(answer)
            code = recorder.record_decision(item, decision, latency_ns=took)
            self._note_decision(call, state, decision, code)

        return step

    def _shown(self, call: Call, state: SampleState) -> Prompt | None:
        """Return a document by itself, or the request with its answer where there is one."""
        if call.part in self._context:
            return Prompt(messages=(state.documents[call.after],), under_test=0)
        return self._answered(call, state)

    def _is_left_empty(self, call: Call, state: SampleState) -> bool:
        """Tell whether a guard would be shown nothing."""
        if call.part in self._context:
            document = state.documents[call.after]
            return not (document.content.strip() or document.images)
        return state.is_left_empty(call, is_behind=call.part in self._behind)

    def _batch_step(self, name: str, queue: BatchQueue) -> Step:
        async def step(state: SampleState, after: str) -> None:
            call = Call(name, after)
            recorder = self._recorders[name, after, state.repeat]
            item = PendingSample(recorder, state.position, state.is_attack, state.requests[after])
            if after and state.is_left_empty(call, is_behind=False):
                code = recorder.record_decision(item, _NOTHING_TO_LOOK_AT, latency_ns=None)
                self._note_decision(call, state, _NOTHING_TO_LOOK_AT, code)
                return
            recorded = await queue.ask(item)
            if recorded is not None:
                self._note_decision(call, state, *recorded)

        return step

    async def _answer(self, state: SampleState, after: str) -> None:
        call = Call(MODEL, after) if after else _BARE_ANSWER
        recorder, prompt = self._recorders[MODEL, after, state.repeat], state.requests[after]
        response, position = NOTHING_TO_ANSWER, state.position
        took: int | None = None
        if not (after and state.is_left_empty(call, is_behind=False)):
            question = recorder.question(position, self._pipeline.model.name, prompt)
            ask = self._answering[state.repeat]
            answer, took = await self._monitor.asker.ask(ask, question)
            response = as_response(answer)
        code = recorder.record_answer(
            position, response, is_attack=state.is_attack, latency_ns=took
        )
        self._note_response(call, state, response, code)

    async def _judge(self, judge: Judge, layer: str, state: SampleState, after: str) -> None:
        call, answered = Call(JUDGES + layer, after), state.reply(after)
        reply = "" if answered is None else answered.text
        recorder, position = self._recorders[*call, state.repeat], state.position
        answer: object = NOTHING_TO_JUDGE
        took: int | None = None
        if reply.strip():
            # It judges what came out against what the user had asked for.
            question = recorder.question(position, judge.name, state.prompt, reply)
            answer, took = await self._monitor.asker.ask(judge.judge, question)
        verdict = as_verdict(answer)
        recorder.record_answer(position, verdict, is_attack=state.is_attack, latency_ns=took)
        self._note_verdict(call, state, verdict)

    def _answered(self, call: Call, state: SampleState) -> Prompt | None:
        """Return the request with its answer, which is what a guard behind the model looks at."""
        reply = state.reply(call.after)
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
