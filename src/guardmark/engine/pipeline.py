"""One sample through guard, target model and judges, in several arms over one answer."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.manifest import LatencyMode, Policy
from guardmark.core.protocols import DrawingModel, InlineDefense
from guardmark.core.record import Stage, asking_about
from guardmark.core.sample import Message, Prompt, Role, View
from guardmark.engine import memory
from guardmark.engine.answers import as_response, as_verdict, gather, layer_of
from guardmark.engine.asking import asking
from guardmark.engine.batches import ask_batch, form
from guardmark.engine.calls import SKIPPED, as_decision
from guardmark.engine.desk import PendingSample
from guardmark.engine.plan import NO_GUARD
from guardmark.engine.tasks import takes_batches
from guardmark.store.codes import OUTCOME_CODE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence

    from guardmark.core.outcome import Response, Verdict
    from guardmark.core.protocols import ChatModel, Judge
    from guardmark.engine.desk import Recorder
    from guardmark.engine.ledger import RunMonitor
    from guardmark.engine.memory import About
    from guardmark.engine.plan import Pipeline
    from guardmark.engine.tasks import DefenseTask
    from guardmark.store.samples import Chunk

_ALLOW: Final = OUTCOME_CODE["allow"]
_BLOCK: Final = OUTCOME_CODE["block"]
_MALFORMED: Final = OUTCOME_CODE["malformed"]
_ANSWERED: Final = OUTCOME_CODE["answered"]
_ERROR: Final = OUTCOME_CODE["error"]
_MODEL: Final = "model"
_LETS_THROUGH: Final = (Policy.ALLOW, Policy.FALLBACK_TO_MAIN)


class SampleState:
    """One sample in one repeat, on its way through the stages."""

    __slots__ = (
        "answer",
        "codes",
        "is_asked",
        "is_attack",
        "judged",
        "model_code",
        "open",
        "position",
        "prompt",
        "repeat",
    )

    def __init__(self, position: int, *, repeat: int, is_attack: bool, prompt: Prompt) -> None:
        self.position = position
        self.repeat = repeat
        self.is_attack = is_attack
        self.prompt = prompt
        self.codes: dict[str, int] = {}
        self.model_code: int | None = None
        self.answer: str | None = None
        self.judged: set[str] = set()
        self.open = 0
        self.is_asked = False


Queue = asyncio.Queue["SampleState | None"]


class PipelineRunner:
    """The stages of a pipeline, each with its queue and workers, all at work at once.

    Answers of single calls are committed by whoever supervises the work, many times a second:
    three stages asking after each answer whether a commit is due would cost more than commits.
    """

    def __init__(
        self, pipeline: Pipeline, ledger: RunMonitor, *, arms: Sequence[DefenseTask]
    ) -> None:
        self._pipeline = pipeline
        self._ledger = ledger
        plan, repeats = ledger.plan, range(ledger.plan.repeats)
        self._arms = {task.name: task for task in arms if task.name in pipeline.arms}
        is_single = plan.timing.mode is LatencyMode.ISOLATED
        self.asks = {
            name
            for name, task in self._arms.items()
            if task.defense.view is View.RESPONSE
            or not (is_single or isinstance(task.defense, InlineDefense))
        }
        self._model = [ledger.desk(NO_GUARD, Stage.MODEL, repeat=repeat) for repeat in repeats]
        self._answering = [_answering(pipeline.model, repeat) for repeat in repeats]
        self._judges = {layer_of(judge, pipeline.judges): judge for judge in pipeline.judges}
        self._verdicts = {
            layer: [
                ledger.desk(NO_GUARD, Stage.JUDGE, layer=layer, repeat=repeat) for repeat in repeats
            ]
            for layer in self._judges
        }
        self._stations: dict[str, Queue] = {}
        self._workers: dict[str, int] = {}
        self._open = 0
        self._is_fed = False
        self._room = asyncio.Semaphore(1 if is_single else self._window())

    def _window(self) -> int:
        # Enough cases under way that no stage starves, few enough that memory stays flat.
        plan = self._ledger.plan
        parts = [*self.asks, self._pipeline.model.name, *(j.name for j in self._pipeline.judges)]
        return 4 * sum(plan.in_flight(part) for part in parts) + 64

    # --- stations --------------------------------------------------------------------------

    def work(self) -> list[Coroutine[Any, Any, None]]:
        """Return the coroutines of the whole flow."""
        plan, pipeline = self._ledger.plan, self._pipeline
        work: list[Coroutine[Any, Any, None]] = [self._feed()]
        for name in self.asks:
            task = self._arms[name]
            if takes_batches(task.defense, plan) and task.defense.view is not View.RESPONSE:
                count = plan.concurrency_of.get(name, 1)
                queue = self._station(name, count)
                work += [self._guard_batches(task, queue) for _ in range(count)]
            else:
                count = plan.in_flight(name)
                queue = self._station(name, count)
                work += [self._guard_each(task, queue) for _ in range(count)]
        count = plan.in_flight(pipeline.model.name)
        queue = self._station(_MODEL, count)
        work += [self._answer_each(queue) for _ in range(count)]
        for layer, judge in self._judges.items():
            count = plan.in_flight(judge.name)
            queue = self._station(f"judge/{layer}", count)
            work += [self._judge_each(judge, layer, queue) for _ in range(count)]
        return work

    def _station(self, name: str, workers: int) -> Queue:
        self._stations[name], self._workers[name] = Queue(), workers
        return self._stations[name]

    def _send(self, station: str, case: SampleState) -> None:
        case.open += 1
        self._stations[station].put_nowait(case)

    def _release(self, case: SampleState) -> None:
        case.open -= 1
        if case.open:
            return
        self._open -= 1
        self._room.release()
        self._close_when_done()

    def _close_when_done(self) -> None:
        if self._is_fed and not self._open:
            for name, queue in self._stations.items():
                for _ in range(self._workers[name]):
                    queue.put_nowait(None)

    # --- feeding ---------------------------------------------------------------------------

    async def _feed(self) -> None:
        await self._start_all()
        self._is_fed = True
        self._close_when_done()

    async def _start_all(self) -> None:
        for repeat in range(self._ledger.plan.repeats):
            for chunk in self._ledger.writer.stored.pending(None):
                # A continued run finds nothing left to ask in most chunks, and waits for nobody.
                await asyncio.sleep(0)
                for case in self._cases(chunk, repeat):
                    if not self._ledger.may_go_on():
                        return
                    await self._room.acquire()
                    self._open += 1
                    self._start(case)

    def _cases(self, chunk: Chunk, repeat: int) -> Iterator[SampleState]:
        stored, at = self._ledger.writer.stored, chunk.positions
        arms = {n: stored.outcomes(t.desks[repeat].lane, at) for n, t in self._arms.items()}
        model = stored.outcomes(self._model[repeat].lane, at)
        texts = stored.texts(self._model[repeat].lane, at)
        verdicts = {
            layer: stored.outcomes(desks[repeat].lane, at)
            for layer, desks in self._verdicts.items()
        }
        for position, is_attack, prompt in zip(at, chunk.attacks, chunk.prompts, strict=True):
            case = SampleState(position, repeat=repeat, is_attack=is_attack, prompt=prompt)
            case.codes = {
                name: found[position] for name, found in arms.items() if position in found
            }
            case.model_code, case.answer = model.get(position), texts.get(position)
            case.judged = {layer for layer, found in verdicts.items() if position in found}
            yield case

    def _start(self, case: SampleState) -> None:
        case.open = 1  # held until everything it starts with is sent
        for name in self.asks:
            if name not in case.codes and self._arms[name].defense.view is not View.RESPONSE:
                self._send(name, case)
        self._go_on(case)
        self._release(case)

    # --- from stage to stage ---------------------------------------------------------------

    def _go_on(self, case: SampleState) -> None:
        if case.is_asked:
            return
        if not self._needs_answer(case):
            if len(case.codes) == len(self._arms):
                self._expect_less(case, has_answer=False)
            return
        case.is_asked = True
        if case.model_code is None:
            self._send(_MODEL, case)
        else:
            self._after_answer(case)

    def _needs_answer(self, case: SampleState) -> bool:
        for arm in self._pipeline.arms:
            if arm == NO_GUARD or self._arms[arm].defense.view is View.RESPONSE:
                return True
            code = case.codes.get(arm)
            if code is not None and self._passes(code):
                return True
        return False

    def _passes(self, code: int) -> bool:
        if code in {_ALLOW, _BLOCK}:
            return code == _ALLOW
        plan = self._ledger.plan
        return (plan.on_malformed if code == _MALFORMED else plan.on_error) in _LETS_THROUGH

    def _expect_less(self, case: SampleState, *, has_answer: bool) -> None:
        # What is stored already stays planned: an arm that failed before may have let it through.
        desks = [
            desks[case.repeat]
            for layer, desks in self._verdicts.items()
            if layer not in case.judged
        ]
        if not has_answer and case.model_code is None:
            desks.append(self._model[case.repeat])
        for desk in desks:
            desk.tally.planned -= 1

    def _after_answer(self, case: SampleState) -> None:
        for name in self.asks:
            if self._arms[name].defense.view is View.RESPONSE and name not in case.codes:
                self._send(name, case)
        if case.answer is None:
            self._expect_less(case, has_answer=True)
            return
        for layer in self._judges:
            if layer not in case.judged:
                self._send(f"judge/{layer}", case)

    # --- the stages ------------------------------------------------------------------------

    async def _guard_each(self, task: DefenseTask, queue: Queue) -> None:
        ask = asking(task.defense)
        is_last = task.defense.view is View.RESPONSE
        while (case := await queue.get()) is not None:
            if self._ledger.may_go_on():
                prompt = _answered(case) if is_last else case.prompt
                item = _item(task, case, prompt or case.prompt)
                answer, took = SKIPPED, None
                if prompt is not None:
                    answer, took = await self._ask(ask, (prompt,), task.name, case)
                case.codes[task.name] = self._ledger.took_decision(
                    item, as_decision(answer), latency_ns=took
                )
                self._go_on(case)
            self._release(case)

    async def _guard_batches(self, task: DefenseTask, queue: Queue) -> None:
        defense = task.defense
        if not takes_batches(defense, self._ledger.plan):
            return
        limits, is_open = defense.batch_limits, True
        while is_open:
            cases, is_open = await gather(queue, limits.max_count, limits.max_wait_s)
            by_item = {_item(task, case, case.prompt): case for case in cases}
            for batch in form(list(by_item), defense):
                room = self._ledger.room(len(batch))
                codes = await ask_batch(defense, batch[:room], ledger=self._ledger) if room else []
                for item, code in zip(batch, codes, strict=False):
                    by_item[item].codes[task.name] = code
                    self._go_on(by_item[item])
            for case in cases:
                self._release(case)

    async def _answer_each(self, queue: Queue) -> None:
        ledger, model = self._ledger, self._pipeline.model
        while (case := await queue.get()) is not None:
            if ledger.may_go_on():
                call = self._answering[case.repeat]
                answer, took = await self._ask(call, (case.prompt,), model.name, case)
                response = as_response(answer)
                desk = self._model[case.repeat]
                code = desk.lane.add_response(case.position, response, latency_ns=took)
                case.model_code = code
                case.answer = response.text if code == _ANSWERED else None
                self._took(desk, case, code=code, answer=response)
                self._after_answer(case)
            self._release(case)

    async def _judge_each(self, judge: Judge, layer: str, queue: Queue) -> None:
        ledger = self._ledger
        while (case := await queue.get()) is not None:
            if ledger.may_go_on() and case.answer is not None:
                about = (case.prompt, case.answer)
                answer, took = await self._ask(judge.judge, about, judge.name, case)
                verdict = as_verdict(answer)
                desk = self._verdicts[layer][case.repeat]
                code = desk.lane.add_verdict(case.position, verdict, latency_ns=took)
                self._took(desk, case, code=code, answer=verdict)
            self._release(case)

    async def _ask(
        self, call: Callable[..., Awaitable[Any]], about: About, part: str, case: SampleState
    ) -> tuple[Any, int | None]:
        with asking_about(part, case.repeat, case.position):
            return await memory.ask(call, about, ledger=self._ledger, part=part, repeat=case.repeat)

    def _took(
        self, desk: Recorder, case: SampleState, *, code: int, answer: Response | Verdict
    ) -> None:
        self._ledger.took(desk, code=code, is_attack=case.is_attack, evidence=answer.evidence)
        if code == _ERROR:
            self._ledger.met_error()


def _answering(model: ChatModel, repeat: int) -> Callable[[Prompt], Awaitable[Response]]:
    return partial(model.draw, repeat=repeat) if isinstance(model, DrawingModel) else model.answer


def _item(task: DefenseTask, case: SampleState, prompt: Prompt) -> PendingSample:
    desk = task.desks[case.repeat]
    return PendingSample(desk=desk, position=case.position, is_attack=case.is_attack, prompt=prompt)


def _answered(case: SampleState) -> Prompt | None:
    if case.answer is None:
        return None
    messages = case.prompt.messages
    return Prompt(
        messages=(*messages, Message(role=Role.ASSISTANT, content=case.answer)),
        under_test=case.prompt.under_test % len(messages),
    )
