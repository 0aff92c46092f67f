"""Several defenses as one: any, all, the majority, or the first that answers."""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING, Generic, TypeVar

from guardmark.core.protocols import BatchDefense, Defense, InlineDefense, SampleBound
from guardmark.core.sample import View
from guardmark.defenses.chain_rule import ChainRule, combine, settled

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from guardmark.core.outcome import Decision
    from guardmark.core.sample import Prompt, Sample

    Votes = list[tuple[str, Decision]]

Member = Defense | InlineDefense | BatchDefense
AnyMember = TypeVar("AnyMember", bound=Member)


class _Members(Generic[AnyMember]):
    """Who is asked, and when enough of them have answered."""

    __slots__ = ("_rule", "_short", "every")

    def __init__(
        self, members: Sequence[AnyMember], rule: ChainRule, *, short_circuit: bool
    ) -> None:
        if not members:
            raise ValueError("a chain needs at least one member")
        self.every = tuple(members)
        self._rule = rule
        self._short = short_circuit or rule is ChainRule.FIRST

    def is_enough(self, votes: Votes) -> bool:
        return self._short and settled(votes, len(self.every), self._rule) is not None

    def combined(self, votes: Votes, *, latency_ns: int | None = None) -> Decision:
        return combine(votes, len(self.every), self._rule, latency_ns=latency_ns)

    def bind(self, samples: Iterable[Sample]) -> None:
        everyone: Sequence[object] = self.every
        bound = [member for member in everyone if isinstance(member, SampleBound)]
        if len(bound) == 1:
            bound[0].bind(samples)
        elif bound:
            known = list(samples)  # an iterator could serve one member only
            for member in bound:
                member.bind(known)


class InlineChain:
    """A chain whose members all answer at once.

    A member that fails does not vote. If the others settle the matter whatever it would have
    said, the chain decides; otherwise the chain fails as that member did.
    """

    __slots__ = ("_members", "name", "threshold")

    view = View.CONVERSATION

    def __init__(
        self,
        name: str,
        members: Sequence[InlineDefense],
        *,
        rule: ChainRule = ChainRule.ANY,
        short_circuit: bool = True,
    ) -> None:
        self._members = _Members(members, rule, short_circuit=short_circuit)
        self.name = name
        self.threshold = common_threshold(members)

    def bind(self, samples: Iterable[Sample]) -> None:
        """Tell the members that want to know of the samples."""
        self._members.bind(samples)

    def decide_now(self, prompt: Prompt) -> Decision:
        """Ask the members about one prompt."""
        votes: Votes = []
        for member in self._members.every:
            votes.append((member.name, member.decide_now(prompt)))
            if self._members.is_enough(votes):
                break
        return self._members.combined(votes)


class ChainDefense:
    """A chain with members that must be awaited; asked one after the other.

    The latency is the sum of what the members took: their own service time where they tell
    it, else the time of the call. Arguments are those of `InlineChain`.
    """

    __slots__ = ("_members", "name", "threshold")

    view = View.CONVERSATION

    def __init__(
        self,
        name: str,
        members: Sequence[Member],
        *,
        rule: ChainRule = ChainRule.ANY,
        short_circuit: bool = True,
    ) -> None:
        self._members = _Members(members, rule, short_circuit=short_circuit)
        self.name = name
        self.threshold = common_threshold(members)

    def bind(self, samples: Iterable[Sample]) -> None:
        """Tell the members that want to know of the samples."""
        self._members.bind(samples)

    async def decide(self, prompt: Prompt) -> Decision:
        """Ask the members about one prompt."""
        votes: Votes = []
        total_ns = 0
        for member in self._members.every:
            began = perf_counter_ns()
            decision = await _ask(member, prompt)
            took = perf_counter_ns() - began
            total_ns += took if decision.latency_ns is None else decision.latency_ns
            votes.append((member.name, decision))
            if self._members.is_enough(votes):
                break
        return self._members.combined(votes, latency_ns=total_ns)


async def _ask(member: Member, prompt: Prompt) -> Decision:
    if isinstance(member, InlineDefense):
        return member.decide_now(prompt)
    if isinstance(member, Defense):
        return await member.decide(prompt)
    return (await member.decide_batch([prompt]))[0]


def common_threshold(members: Sequence[object]) -> float | None:
    """Return the threshold all members share, or None."""
    thresholds = {getattr(member, "threshold", None) for member in members}
    return thresholds.pop() if len(thresholds) == 1 else None
