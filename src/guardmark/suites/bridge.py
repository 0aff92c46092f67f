"""Between a program that calls tools itself and a case: each call waits for its result."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.case import AgentCall, FinalAnswer, ToolCalls
from guardmark.core.outcome import ErrorKind
from guardmark.core.sample import Role

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from guardmark.core.case import Conversation, Move

_TURNS: Final = 8
"""Turns of the loop that are waited for further calls that a program makes at once."""
_REASON: Final = 300


class CallBridge:
    """Turns what a program does, tools called and an answer given, into the moves of an agent."""

    def __init__(
        self, run: Callable[[Conversation, CallBridge], Awaitable[str]], *, timeout_s: float
    ) -> None:
        self._run = run
        self._timeout_s = timeout_s
        self._task: asyncio.Task[str] | None = None
        self._calls: asyncio.Queue[AgentCall] = asyncio.Queue()
        self._waiting: dict[str, asyncio.Future[str]] = {}
        self._number = 0

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Call a tool, and wait for what the agent may read of its result."""
        self._number += 1
        call = AgentCall(name=name, arguments=dict(arguments), id=f"call-{self._number}")
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting[call.id] = future
        self._calls.put_nowait(call)
        return await future

    async def next(self, conversation: Conversation) -> Move:
        """Hand results over, and wait for the next calls or for the answer."""
        if self._task is None:
            self._task = asyncio.ensure_future(self._run(conversation, self))
        self._hand_over(conversation)
        first = asyncio.ensure_future(self._calls.get())
        done, _ = await asyncio.wait(
            {first, self._task}, timeout=self._timeout_s, return_when=asyncio.FIRST_COMPLETED
        )
        if first in done:
            calls = [first.result()]
            for _ in range(_TURNS):
                await asyncio.sleep(0)
            while not self._calls.empty():
                calls.append(self._calls.get_nowait())
            return ToolCalls(calls=tuple(calls))
        first.cancel()
        if not done:
            return _failed(ErrorKind.TIMEOUT, f"no move within {self._timeout_s:g} s")
        return _answer_of(self._task)

    def _hand_over(self, conversation: Conversation) -> None:
        for message in conversation.messages:
            if message.role is Role.TOOL:
                future = self._waiting.pop(message.answers, None)
                if future is not None and not future.done():
                    future.set_result(message.content)

    async def close(self) -> None:
        """End the program, wherever it stands."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


def _answer_of(task: asyncio.Task[str]) -> Move:
    if task.cancelled():
        return _failed(ErrorKind.CRASH, "the agent was cancelled")
    error = task.exception()
    if error is not None:
        return _failed(ErrorKind.CRASH, f"{type(error).__name__}: {error}")
    answer: object = task.result()
    if not isinstance(answer, str):
        return _failed(
            ErrorKind.CONTRACT, f"expected the answer as a text, got {type(answer).__name__}"
        )
    return FinalAnswer(text=answer)


def _failed(kind: ErrorKind, message: str) -> FinalAnswer:
    return FinalAnswer(text="", error_kind=kind, message=message[:_REASON])
