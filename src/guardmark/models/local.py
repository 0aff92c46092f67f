"""A target model in this process; questions that come together share batches."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from guardmark.core.outcome import Evidence, Response
from guardmark.core.sample import Role
from guardmark.inference.generator import Draws
from guardmark.models.chat import USUAL_ROLES, SystemPromptSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from guardmark.config.settings import BuildContext
    from guardmark.core.outcome import ChatAnswer
    from guardmark.core.sample import Prompt
    from guardmark.inference.generator import LocalGenerator

    ChatMessages = list[dict[str, str]]


_MOST_TOGETHER = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Randomness:
    """How far answers are left to chance."""

    temperature: float
    top_p: float = 1.0
    seed: int = 0

    def seed_of(self, messages: ChatMessages, repeat: int) -> int:
        """Return the seed of one answer."""
        question = json.dumps([self.seed, repeat, messages], sort_keys=True)
        return int.from_bytes(sha256(question.encode()).digest()[:8])

    def draws(self, seeds: Sequence[int]) -> Draws:
        """Return how the answers of one batch are drawn."""
        return Draws(temperature=self.temperature, top_p=self.top_p, seeds=tuple(seeds))


@dataclass(frozen=True, slots=True, eq=False)
class _Question:
    messages: ChatMessages
    seed: int
    answer: asyncio.Future[ChatAnswer]


class LocalTarget:
    """A model that answers whole conversations in this process.

    While one batch is answered, questions gather for the next; none waits for company.
    """

    def __init__(
        self,
        name: str,
        generator: LocalGenerator,
        *,
        randomness: Randomness | None = None,
        system_prompt: str = "",
        roles: Mapping[Role, str] | None = None,
        files: tuple[Path, ...] = (),
    ) -> None:
        self.name = name
        self.files = files
        self._generator = generator
        self._randomness = randomness
        self._before = [{"role": "system", "content": system_prompt}] if system_prompt else []
        self._roles = {**USUAL_ROLES, **(roles or {})}
        self._waiting: list[_Question] = []
        self._worker: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"guardmark-{name}")

    async def answer(self, prompt: Prompt) -> Response:
        """Answer one prompt, as the first repetition does."""
        return await self.draw(prompt, repeat=0)

    async def draw(self, prompt: Prompt, *, repeat: int) -> Response:
        """Answer one prompt."""
        messages = [
            *self._before,
            *({"role": self._roles[m.role], "content": m.content} for m in prompt.messages),
        ]
        future: asyncio.Future[ChatAnswer] = asyncio.get_running_loop().create_future()
        seed = self._randomness.seed_of(messages, repeat) if self._randomness else 0
        self._waiting.append(_Question(messages, seed, future))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        answer = await future
        return Response(
            text=answer.text,
            latency_ns=answer.service_ns,
            evidence=Evidence(
                finish_reason=answer.finish_reason, usage=answer.usage, message=answer.message
            ),
        )

    async def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            await asyncio.sleep(0)  # questions asked in the same breath come along
            batch = [one for one in self._waiting[:_MOST_TOGETHER] if not one.answer.done()]
            del self._waiting[:_MOST_TOGETHER]
            done = loop.run_in_executor(self._thread, self._complete(batch))
            await asyncio.wait([done])
            failure = done.exception()
            for index, question in enumerate(batch):
                future = question.answer
                if future.done():  # whoever asked was cancelled meanwhile
                    continue
                if failure is not None:
                    future.set_exception(failure)
                else:
                    future.set_result(done.result()[index])

    def _complete(self, batch: Sequence[_Question]) -> Callable[[], Sequence[ChatAnswer]]:
        asked = [question.messages for question in batch]
        if self._randomness is None:
            return partial(self._generator.complete, asked)
        draws = self._randomness.draws([question.seed for question in batch])
        return partial(self._generator.complete, asked, draws=draws)


class LocalModelSettings(SystemPromptSettings):
    """A target model in this process; needs the [hf] extra.

    It takes the likeliest token each time unless a temperature says otherwise.
    """

    path: str
    temperature: float = Field(0.0, ge=0, le=2)
    top_p: float = Field(1.0, gt=0, le=1)
    seed: int | None = Field(None, ge=0)  # the seed of the run if not given
    max_tokens: int = Field(256, ge=1)
    device: Literal["auto", "cpu", "cuda"] = "auto"
    batch_tokens: int = Field(4096, ge=64)
    roles: dict[Role, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _drawn(self) -> LocalModelSettings:
        if not self.temperature and (self.top_p < 1 or self.seed is not None):
            raise ValueError("top_p and seed need a temperature above 0: nothing is drawn at 0")
        return self

    def build(self, name: str, context: BuildContext) -> object:
        """Build the model."""
        from guardmark.inference.generator import LocalGenerator

        path = context.folder / self.path
        generator = LocalGenerator(
            path, max_tokens=self.max_tokens, budget=self.batch_tokens, device=self.device
        )
        return LocalTarget(
            name,
            generator,
            randomness=self._randomness(context.seed),
            system_prompt=self.before(context.folder),
            roles=self.roles,
            files=(path,),
        )

    @property
    def most_written(self) -> int:
        """The most tokens that an answer can have."""
        return self.max_tokens

    def _randomness(self, seed: int) -> Randomness | None:
        if not self.temperature:
            return None
        seed = seed if self.seed is None else self.seed
        return Randomness(temperature=self.temperature, top_p=self.top_p, seed=seed)
