"""A defense in processes of its own: any language, any environment, one crash never the run's."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.errors import ConfigError
from guardmark.core.outcome import Decision, ErrorKind, Evidence, Outcome
from guardmark.core.protocols import BatchLimits, Capabilities
from guardmark.core.values import dataclass
from guardmark.defenses.answers import unless_same
from guardmark.defenses.baseline import NOTHING_SHOWN, in_order
from guardmark.defenses.command.process import ProcessFault, Replies, WorkerProcess

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from guardmark.core.sample import Prompt, View
    from guardmark.defenses.answers import AnswerReader
    from guardmark.defenses.command.process import ProcessRecipe

_MOST_STARTS: Final = 3  # starts in a row that may fail before the defense is given up
_MOST_MESSAGE: Final = 2_000
_BY_HAND: Final = (
    'Next: start it by hand and type {"id": 1, "text": "hello"}: it must print one line of JSON '
    'such as {"id": 1, "blocked": false}.'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessLimits:
    """How many processes there are, how long an answer may take, when one begins anew."""

    workers: int = 1
    batch: int = 1
    timeout_s: float = 60.0
    restart_after: int | None = None
    resets: bool = False


class ProcessPool:
    """The processes of one defense: started when they are needed, replaced when they fail."""

    def __init__(self, recipe: ProcessRecipe, limits: ProcessLimits) -> None:
        self._recipe = recipe
        self._limits = limits
        self._loop: asyncio.AbstractEventLoop | None = None
        self._room = asyncio.Semaphore(limits.workers)
        self._idle: list[WorkerProcess] = []
        self._every: set[WorkerProcess] = set()
        self._failed_starts = 0
        self._given_up = ""

    @property
    def workers(self) -> int:
        """How many texts or batches are asked about at once."""
        return self._limits.workers

    async def start(self) -> None:
        """Start one process, or raise a ProcessFault that says why it cannot be."""
        self._join_loop()
        self._idle.append(await self._take())

    async def ask(self, texts: Sequence[str]) -> Replies:
        """Send some texts to a process that is free; a process that fails is not asked again."""
        self._join_loop()
        async with self._room:
            try:
                worker = await self._take()
            except ProcessFault as error:
                return Replies(answers=[None] * len(texts), took_ns=0, fault=error)
            is_sound = False
            try:
                if self._limits.resets:
                    await worker.reset(self._limits.timeout_s)
                exchange = await worker.exchange(texts, timeout_s=self._limits.timeout_s)
                is_sound = exchange.fault is None
            except ProcessFault as error:
                return Replies(answers=[None] * len(texts), took_ns=0, fault=error)
            finally:  # also when whoever asked waits no longer
                last = self._limits.restart_after
                if is_sound and (last is None or worker.asked < last):
                    self._idle.append(worker)
                else:
                    self._end(worker)
        return exchange

    async def _take(self) -> WorkerProcess:
        while self._idle:
            worker = self._idle.pop()
            if not worker.is_ended:
                return worker
            self._end(worker)  # it ended by itself, after it had answered
        while not self._given_up:
            try:
                worker = await self._started()
            except ProcessFault as error:
                self._failed_starts += 1
                if error.kind is not ErrorKind.CRASH or self._failed_starts >= _MOST_STARTS:
                    times = ""
                    if self._failed_starts > 1:
                        times = f" {self._failed_starts} times in a row"
                    self._given_up = f"the process did not start{times}: {error}"
            else:
                self._failed_starts = 0
                return worker
        raise ProcessFault(ErrorKind.CRASH, self._given_up)

    async def _started(self) -> WorkerProcess:
        try:
            worker = WorkerProcess(self._recipe)
        except OSError as error:
            program, reason = self._recipe.command[0], error.strerror or str(error)
            if isinstance(error, FileNotFoundError) and shutil.which(program):
                reason = "the interpreter that its first line names does not exist"
            message = f"{program!r} cannot be run: {reason}"
            raise ProcessFault(ErrorKind.CRASH, message) from error
        self._every.add(worker)
        is_ready = False
        try:
            await worker.become_ready(self._recipe)
            is_ready = True
        finally:
            if not is_ready:
                self._end(worker)
        return worker

    def _join_loop(self) -> None:
        """Begin anew on the running loop: pipes belong to the loop they were opened on."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self.end()
            self._loop, self._room = loop, asyncio.Semaphore(self._limits.workers)

    def _end(self, worker: WorkerProcess) -> None:
        self._every.discard(worker)
        worker.end()

    def end(self) -> None:
        """End all processes; the next question starts new ones."""
        self._idle.clear()
        for worker in list(self._every):
            self._end(worker)


class _InProcesses:
    """What both ways to be asked share."""

    def __init__(
        self,
        name: str,
        pool: ProcessPool,
        *,
        reader: AnswerReader,
        view: View,
        files: tuple[Path, ...] = (),
    ) -> None:
        self.name = name
        self.view = view
        self._files = files
        self._pool = pool
        self._reader = reader

    @property
    def capabilities(self) -> Capabilities:
        """What is stated of it."""
        return Capabilities(
            view=self.view,
            most_at_once=self._pool.workers,
            threshold=self._reader.threshold,
            files=self._files,
        )

    async def start(self) -> None:
        """Start one process, to see that it can be; a ConfigError says why it cannot."""
        try:
            await self._pool.start()
        except ProcessFault as error:
            message = f"{self.name} cannot be used: {error}."
            if "Next: " not in message:
                message += f"\n{_BY_HAND}"
            raise ConfigError(message) from error

    async def close(self) -> None:
        """End all processes; the next question starts new ones."""
        self._pool.end()

    async def _ask_one(self, text: str) -> Decision:
        exchange = await self._pool.ask([text])
        fields, fault = exchange.answers[0], exchange.fault
        if fault is not None:
            return _failed(fault.kind, str(fault), exchange.took_ns)
        return unless_same(self._read(fields or {}, exchange.took_ns, amortised=False), text)

    def _read(self, fields: Mapping[str, Any], took_ns: int, *, amortised: bool) -> Decision:
        if "error" in fields:
            return _failed(ErrorKind.CRASH, str(fields["error"]), took_ns)
        decision = self._reader.read(fields.get("answer", fields))
        return Decision(
            outcome=decision.outcome,
            score=decision.score,
            score_kind=decision.score_kind,
            latency_ns=took_ns,
            amortised=amortised,
            evidence=decision.evidence,
            text=decision.text,
        )


class CommandDefense(_InProcesses):
    """Asks a process about one text at a time."""

    async def decide(self, prompt: Prompt) -> Decision:
        """Ask about one prompt."""
        text = prompt.shown(self.view)
        if text is None:
            return NOTHING_SHOWN[self.view]
        return await self._ask_one(text)


class CommandBatchDefense(_InProcesses):
    """Writes several texts to a process before it reads the answers."""

    def __init__(self, name: str, pool: ProcessPool, *, batch: int, **common: Any) -> None:
        super().__init__(name, pool, **common)
        self.batch_limits = BatchLimits(max_count=batch)

    async def decide_batch(self, prompts: Sequence[Prompt]) -> list[Decision]:
        """Ask about several prompts; what a failing process left open is asked one by one."""
        shown = [prompt.shown(self.view) for prompt in prompts]
        decisions = await self._ask([text for text in shown if text is not None])
        return in_order(shown, decisions, self.view)

    async def _ask(self, texts: Sequence[str]) -> list[Decision]:
        if len(texts) < 2:
            return [await self._ask_one(text) for text in texts]
        exchange = await self._pool.ask(texts)
        share, fault = exchange.took_ns // len(texts), exchange.fault
        # After a line that nobody asked for, no answer can be told from another's.
        is_lost = fault is not None and fault.kind is ErrorKind.CONTRACT
        decisions = []
        for text, fields in zip(texts, exchange.answers, strict=True):
            if is_lost or fields is None:
                decisions.append(await self._ask_one(text))
            else:
                decision = self._read(fields, share, amortised=True)
                decisions.append(unless_same(decision, text))
        return decisions


def _failed(kind: ErrorKind, message: str, took_ns: int) -> Decision:
    return Decision(
        outcome=Outcome.ERROR,
        error_kind=kind,
        latency_ns=took_ns,
        evidence=Evidence(message=message[:_MOST_MESSAGE] or "an error without a message"),
    )
