"""A target model in this process; questions that come together share batches."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

from guardmark.core.outcome import Evidence, Response
from guardmark.models.chat import USUAL_ROLES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from guardmark.core.outcome import Usage
    from guardmark.core.sample import Prompt, Role

    ChatMessages = list[dict[str, str]]
    Waiting = tuple[ChatMessages, "asyncio.Future[LocalAnswer]"]


class LocalAnswer(Protocol):
    """What a local model wrote."""

    @property
    def text(self) -> str:
        """The answer."""
        ...

    @property
    def finish_reason(self) -> str:
        """Why it stopped."""
        ...

    @property
    def usage(self) -> Usage:
        """Tokens read and written."""
        ...

    @property
    def service_ns(self) -> int:
        """Its share of the time of its batch."""
        ...


class Generator(Protocol):
    """Answers several conversations at once."""

    def complete(
        self, conversations: Sequence[Sequence[Mapping[str, str]]]
    ) -> Sequence[LocalAnswer]:
        """Answer conversations, in their order."""
        ...


class LocalTarget:
    """A model that answers whole conversations in this process.

    While one batch is answered, questions gather for the next; none waits for company.

    Args:
        name: Name in reports.
        generator: The model.
        system_prompt: Put before the conversation; empty for none.
        roles: Role to the template's word for it, where it differs from the usual.
        most: Most questions of one batch.
        files: What model and prompt were read from.
    """

    def __init__(
        self,
        name: str,
        generator: Generator,
        *,
        system_prompt: str = "",
        roles: Mapping[Role, str] | None = None,
        most: int = 32,
        files: tuple[Path, ...] = (),
    ) -> None:
        self.name = name
        self.files = files
        self._generator = generator
        self._before = [{"role": "system", "content": system_prompt}] if system_prompt else []
        self._roles = {**USUAL_ROLES, **(roles or {})}
        self._most = most
        self._waiting: list[Waiting] = []
        self._worker: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"guardmark-{name}")

    async def answer(self, prompt: Prompt) -> Response:
        """Answer one prompt.

        Args:
            prompt: The conversation; its contents are rendered unaltered.

        Returns:
            The answer with finish reason and usage. What the model raises goes through.
        """
        messages = [
            *self._before,
            *({"role": self._roles[m.role], "content": m.content} for m in prompt.messages),
        ]
        future: asyncio.Future[LocalAnswer] = asyncio.get_running_loop().create_future()
        self._waiting.append((messages, future))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        answer = await future
        return Response(
            text=answer.text,
            latency_ns=answer.service_ns,
            evidence=Evidence(finish_reason=answer.finish_reason, usage=answer.usage),
        )

    async def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            await asyncio.sleep(0)  # questions asked in the same breath come along
            batch = [one for one in self._waiting[: self._most] if not one[1].done()]
            del self._waiting[: self._most]
            asked = [messages for messages, _ in batch]
            done = loop.run_in_executor(self._thread, self._generator.complete, asked)
            await asyncio.wait([done])
            failure = done.exception()
            for index, (_, future) in enumerate(batch):
                if future.done():  # whoever asked was cancelled meanwhile
                    continue
                if failure is not None:
                    future.set_exception(failure)
                else:
                    future.set_result(done.result()[index])
