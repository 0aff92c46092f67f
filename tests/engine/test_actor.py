"""One worker of a cluster, asked in this process: what it answers, and what it cannot hold."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from functools import partial

from tests.engine.parts import Batched, Inline, Remote, built

from guardmark.core.errors import ConfigError
from guardmark.core.outcome import Decision
from guardmark.core.sample import Prompt
from guardmark.engine.execution.worker import BuiltThere, DefenseActor
from guardmark.engine.plan import BuiltPart

PROMPTS = [Prompt.of_text(f"text {number} ...") for number in range(6)]


class Narrow(Batched):
    """Has room for two texts at once."""

    async def decide_batch(self, prompts: Sequence[Prompt]) -> list[Decision]:
        """Refuse more."""
        if len(prompts) > 2:
            raise MemoryError
        return await super().decide_batch(prompts)


def answered(make: Callable[[], object], prompts: Sequence[Prompt] = PROMPTS) -> list[str]:
    """Outcomes that an actor gives."""
    actor = DefenseActor()
    assert isinstance(actor.load(partial(built, make), 0), BuiltThere)  # type: ignore[arg-type]
    answer = actor.ask(prompts)
    actor.close()
    if not answer:
        return []
    decisions, latencies = pickle.loads(answer)  # noqa: S301 - made above
    assert len(decisions) == len(latencies) == len(prompts)
    return [decision.outcome.value for decision in decisions]


def test_every_kind_of_defense_answers_alike() -> None:
    """At once, after a while, or in batches."""
    expected = ["allow" if number % 3 else "block" for number in range(6)]
    assert [answered(make) for make in (Inline, Remote, Batched)] == [expected] * 3


def test_a_batch_that_memory_cannot_hold_comes_back_empty() -> None:
    """In place of being asked one by one: who sent it halves it, and the next ones."""
    assert answered(Narrow) == []
    assert answered(Narrow, PROMPTS[:2]) == ["block", "allow"]


def refuse() -> BuiltPart:
    """Find other files than the run began with."""
    raise ConfigError("another revision")


def test_what_cannot_be_built_is_told() -> None:
    """In words, not as an exception of another machine."""
    assert DefenseActor().load(refuse, 0) == "another revision"
