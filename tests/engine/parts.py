"""Parts that answer by rule, for tests of the engine."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from guardmark.core.manifest import PartManifest
from guardmark.core.outcome import (
    ALLOWED,
    BLOCKED,
    Decision,
    Evidence,
    Response,
    Verdict,
    VerdictLabel,
)
from guardmark.core.sample import Prompt, View
from guardmark.core.usage import Usage
from guardmark.engine.plan import BuiltPart


def number_of(prompt: Prompt) -> int:
    """The number a sample's text names."""
    return int(prompt.messages[0].content.split()[1])


def thirds(prompt: Prompt) -> Decision:
    """Block every third sample."""
    return BLOCKED if number_of(prompt) % 3 == 0 else ALLOWED


@dataclass
class Inline:
    """Answers at once."""

    name: str = "inline"
    rule: Callable[[Prompt], Decision] = thirds
    view: View = View.TEXT
    calls: Counter[int] = field(default_factory=Counter)

    def decide(self, prompt: Prompt) -> Decision:
        """Count the call and follow the rule."""
        self.calls[number_of(prompt)] += 1
        return self.rule(prompt)


def built(make: Callable[[], Inline]) -> BuiltPart:
    """Build a part as a process does."""
    part = make()
    return BuiltPart(part=part, manifest=PartManifest(name=part.name, kind="defense", type="test"))


@dataclass
class Remote:
    """Answers after a while."""

    name: str = "remote"
    rule: Callable[[Prompt], Decision] = thirds
    delay_s: float = 0.001
    view: View = View.TEXT
    calls: Counter[int] = field(default_factory=Counter)
    now: int = 0
    most: int = 0

    async def decide(self, prompt: Prompt) -> Decision:
        """Count the call, wait, and follow the rule."""
        self.calls[number_of(prompt)] += 1
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(self.delay_s)
        finally:
            self.now -= 1
        return self.rule(prompt)


@dataclass(frozen=True)
class Limits:
    """How large a batch may be."""

    max_count: int = 8
    max_tokens: int | None = None
    max_wait_s: float = 0.0


@dataclass
class Batched:
    """Answers batches."""

    name: str = "batched"
    rule: Callable[[Prompt], Decision] = thirds
    batch_limits: Limits = field(default_factory=Limits)
    view: View = View.TEXT
    batches: list[list[int]] = field(default_factory=list)

    async def decide_batch(self, prompts: Sequence[Prompt]) -> list[Decision]:
        """Note the batch and follow the rule."""
        self.batches.append([number_of(prompt) for prompt in prompts])
        await asyncio.sleep(0.001)
        return [self.rule(prompt) for prompt in prompts]


@dataclass
class Model:
    """Answers with the number of the sample."""

    name: str = "tutor"
    delay_s: float = 0.001
    rule: Callable[[Prompt], Response] = lambda p: Response(text=f"answer {number_of(p)}")
    calls: Counter[int] = field(default_factory=Counter)

    async def answer(self, prompt: Prompt) -> Response:
        """Count the call, wait, and follow the rule."""
        self.calls[number_of(prompt)] += 1
        await asyncio.sleep(self.delay_s)
        return self.rule(prompt)


@dataclass
class Judging:
    """Finds every fifth answer unsafe."""

    name: str = "judge"
    delay_s: float = 0.001
    calls: Counter[int] = field(default_factory=Counter)

    async def judge(self, prompt: Prompt, response: str) -> Verdict:
        """Count the call, wait, and follow the rule."""
        number = int(response.split()[1])
        assert number == number_of(prompt)
        self.calls[number] += 1
        await asyncio.sleep(self.delay_s)
        label = VerdictLabel.UNSAFE if number % 5 == 0 else VerdictLabel.SAFE
        usage = Usage(prompt_tokens=2, completion_tokens=1, cost=0.5)
        return Verdict(label=label, evidence=Evidence(usage=usage))
