"""A guard model in this process, asked in batches."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

from guardmark.core.sample import View
from guardmark.defenses.classifier import ClassifierBatchLimits
from guardmark.defenses.skipping import NOTHING_SHOWN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from guardmark.core.outcome import Decision
    from guardmark.core.sample import Prompt
    from guardmark.defenses.guard_model import GuardAnswer, GuardReader


class GuardGenerator(Protocol):
    """Answers several conversations at once."""

    def complete(
        self, conversations: Sequence[Sequence[Mapping[str, str]]]
    ) -> Sequence[GuardAnswer]:
        """Answer conversations, in their order."""
        ...


class LocalGuardDefense:
    """A guard model in this process."""

    def __init__(
        self,
        name: str,
        generator: GuardGenerator,
        *,
        reader: GuardReader,
        view: View = View.TEXT,
        policy: str = "",
        files: tuple[Path, ...] = (),
    ) -> None:
        self.name = name
        self.view = view
        self.threshold = reader.threshold
        self.batch_limits = ClassifierBatchLimits(max_count=32)
        self.files = files
        self._generator = generator
        self._reader = reader
        self._policy = policy
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"guardmark-{name}")

    async def decide_batch(self, prompts: Sequence[Prompt]) -> list[Decision]:
        """Ask the guard about several prompts."""
        write = self._reader.profile.messages
        asked = [write(prompt, self.view, policy=self._policy) for prompt in prompts]
        conversations = [messages for messages in asked if messages is not None]
        loop = asyncio.get_running_loop()
        complete = self._generator.complete
        found = await loop.run_in_executor(self._thread, complete, conversations)
        amortised = len(conversations) > 1
        answers = iter([self._reader.decision(answer, amortised=amortised) for answer in found])
        return [NOTHING_SHOWN[self.view] if m is None else next(answers) for m in asked]

    async def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)
