"""Several defenses as one: any, all, the majority, the first that answers, or a cascade."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, cast

from pydantic import Field, model_validator

from guardmark.config.deadline import GrownSettings
from guardmark.config.settings import Rate
from guardmark.core.errors import UnknownName
from guardmark.core.outcome import CategoryFinding, Decision, Evidence, Outcome, ScoreKind
from guardmark.core.protocols import Capabilities
from guardmark.core.sample import View
from guardmark.defenses.calls.pricing import was_sent, with_usage
from guardmark.defenses.guard import as_guard
from guardmark.net.call_account import present_account

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from guardmark.config.settings import BuildContext
    from guardmark.core.protocols import Guard, SampleBound
    from guardmark.core.sample import Prompt, Sample
    from guardmark.defenses.calls.pricing import PricedChain, PricedPart
    from guardmark.defenses.guard import AnyDefense

    Votes = Sequence[tuple[str, Decision]]
    Charge = PricedPart | PricedChain


class ChainRule(StrEnum):
    """How members' decisions become one."""

    ANY = "any"
    ALL = "all"
    MAJORITY = "majority"
    FIRST = "first"
    CASCADE = "cascade"


Between = tuple[float, float]
_EVERYTHING: Final = (0.0, 1.0)
_ALLOWED = Decision(outcome=Outcome.ALLOW)


@dataclass(frozen=True, slots=True, eq=False)
class ChainDefense:
    """Members in their order, and how their decisions become one.

    A member that fails does not vote; unless the others settle it, the chain fails as it did.
    Where all members answer at once the chain does too, and whoever asks takes its time;
    otherwise its latency is the sum of theirs.
    """

    name: str
    members: Sequence[AnyDefense]
    _: KW_ONLY
    rule: ChainRule = ChainRule.ANY
    short_circuit: bool = True
    between: Between = _EVERYTHING
    prices: Mapping[str, Charge] = field(default_factory=dict)  # of members in this process
    guards: tuple[Guard, ...] = field(init=False)
    capabilities: Capabilities = field(init=False)

    def __post_init__(self) -> None:
        """Refuse a chain of nothing, which would allow everything."""
        if not self.members:
            raise ValueError("a chain needs at least one member")
        object.__setattr__(self, "guards", tuple(map(as_guard, self.members)))
        object.__setattr__(self, "capabilities", _together(self.guards))

    def bind(self, samples: Iterable[Sample]) -> None:
        """Tell the members that want to know of the samples."""
        known = list(samples)  # an iterator would serve one member only
        for member in self.guards:
            if member.capabilities.needs_samples:
                cast("SampleBound", member).bind(known)

    async def decide_all(self, prompts: Sequence[Prompt]) -> list[Decision]:
        """Ask the members about each prompt."""
        return [await self._decide(prompt) for prompt in prompts]

    async def _decide(self, prompt: Prompt) -> Decision:
        votes: list[tuple[str, Decision]] = []
        total_ns = 0
        for member in self.guards:
            began = perf_counter_ns()
            (decision,) = await member.decide_all([prompt])
            took = perf_counter_ns() - began
            total_ns += took if decision.latency_ns is None else decision.latency_ns
            votes.append((member.name, decision))
            if self._is_enough(votes):
                break
        decision = combine(
            votes,
            len(self.guards),
            self.rule,
            latency_ns=None if self.capabilities.is_inline else total_ns,
            between=self.between,
        )
        return self._with_cost(decision, votes, prompt) if self.prices else decision

    def _is_enough(self, votes: Votes) -> bool:
        if not self.short_circuit and self.rule not in (ChainRule.FIRST, ChainRule.CASCADE):
            return False
        return settled(votes, len(self.guards), self.rule, between=self.between) is not None

    def _with_cost(self, decision: Decision, votes: Votes, prompt: Prompt) -> Decision:
        """Count what members in this process cost: beside the others' requests, or as all."""
        paid = self._paid_for(votes, prompt)
        account = None if self.capabilities.is_inline else present_account()
        if account is not None:
            account.beside += paid or 0.0  # what members behind services cost is counted there, too
            return decision
        return with_usage(decision, cost=paid)

    def _paid_for(self, votes: Votes, prompt: Prompt) -> float | None:
        """Return what the members that were asked cost here; None where none has a price."""
        costs = []
        for name, vote in votes:
            if name in self.prices and was_sent(vote):
                costs.append(self.prices[name].of_answer(vote.evidence, prompt) or 0.0)
        return sum(costs) if costs else None


def _together(members: Sequence[Guard]) -> Capabilities:
    """Return what can be said of several guards that are asked one after the other."""
    every = [member.capabilities for member in members]
    thresholds = {each.threshold for each in every}
    return Capabilities(
        view=View.CONVERSATION,
        is_inline=all(each.is_inline for each in every),
        timeout_s=_total_timeout(every),
        holds_interpreter=any(each.holds_interpreter for each in every),
        needs_samples=any(each.needs_samples for each in every),
        threshold=thresholds.pop() if len(thresholds) == 1 else None,
    )


def _total_timeout(members: Sequence[Capabilities]) -> float | None:
    """Return how long a call of several takes at most; None where one of them has no limit."""
    total = 0.0
    for each in members:
        if each.timeout_s is None:
            return None
        total += each.timeout_s
    return total


def settled(
    votes: Votes, size: int, rule: ChainRule, *, between: Between = _EVERYTHING
) -> Outcome | None:
    """Return what the votes so far already decide."""
    if rule is ChainRule.CASCADE:
        return _settled_by_score(votes, size, between)
    blocks = sum(decision.outcome is Outcome.BLOCK for _, decision in votes)
    allows = sum(decision.outcome is Outcome.ALLOW for _, decision in votes)
    if rule is ChainRule.FIRST:
        answered = (d.outcome for _, d in votes if d.outcome in (Outcome.ALLOW, Outcome.BLOCK))
        return next(answered, None)
    needed = {ChainRule.ANY: 1, ChainRule.ALL: size, ChainRule.MAJORITY: size // 2 + 1}[rule]
    if blocks >= needed:
        return Outcome.BLOCK
    return Outcome.ALLOW if allows > size - needed else None


def _settled_by_score(votes: Votes, size: int, between: Between) -> Outcome | None:
    """Let each member decide only where its score is clear, and the last one in any case."""
    low, high = between
    for number, (_, decision) in enumerate(votes, start=1):
        if decision.outcome not in (Outcome.ALLOW, Outcome.BLOCK):
            continue  # a failure settles nothing: the next one is asked
        if number == size:
            return decision.outcome
        if decision.score is not None and not low <= decision.score < high:
            return Outcome.ALLOW if decision.score < low else Outcome.BLOCK
    return None


def combine(
    votes: Votes,
    size: int,
    rule: ChainRule,
    *,
    latency_ns: int | None = None,
    between: Between = _EVERYTHING,
) -> Decision:
    """Combine members' decisions; where one took a time that nobody knows, so did the chain."""
    outcome = settled(votes, size, rule, between=between)
    plain = ((d.outcome, d.score, d.evidence) == (Outcome.ALLOW, None, None) for _, d in votes)
    times = [d.latency_ns for _, d in votes if d.latency_ns is not None]
    is_kept = any(d.evidence.from_cache for _, d in votes if d.evidence)
    if latency_ns is None and times:  # of a file; what others took in between was not measured
        latency_ns, is_kept = sum(times), is_kept or len(times) < len(votes)
    if outcome is Outcome.ALLOW and latency_ns is None and all(plain):
        return _ALLOWED
    by_score = rule is ChainRule.CASCADE and outcome is not None
    speaker = votes[-1] if by_score else _speaker(votes, outcome)
    score, kind = _score(votes, size, rule)
    behind = speaker[1].evidence or Evidence()
    return Decision(
        outcome=speaker[1].outcome if outcome is None else outcome,
        score=score,
        score_kind=kind,
        error_kind=speaker[1].error_kind if outcome is None else None,
        latency_ns=latency_ns,
        amortised=any(decision.amortised for _, decision in votes),
        evidence=Evidence(
            reason=f"{speaker[0]}: {behind.reason}" if behind.reason else speaker[0],
            native_action=behind.native_action,
            raw=behind.raw,
            message=f"{speaker[0]}: {behind.message}" if behind.message else "",
            categories=tuple(_finding(name, decision) for name, decision in votes),
            attempts=tuple(a for _, d in votes if d.evidence for a in d.evidence.attempts),
            truncated=any(d.evidence.truncated for _, d in votes if d.evidence),
            from_cache=is_kept,
        ),
    )


def _speaker(votes: Votes, outcome: Outcome | None) -> tuple[str, Decision]:
    """The first member that decided so, or the first that failed."""
    failed = (Outcome.MALFORMED, Outcome.ERROR)
    wanted = failed if outcome is None else (outcome,)
    return next(vote for vote in votes if vote[1].outcome in wanted)


def _score(votes: Votes, size: int, rule: ChainRule) -> tuple[float | None, ScoreKind]:
    if rule is ChainRule.CASCADE:
        return None, ScoreKind.NONE  # scores of different members have no common order
    if rule is ChainRule.FIRST:
        last = votes[-1][1]
        return last.score, last.score_kind
    scores = [d.score for _, d in votes if d.score is not None]
    kinds = {d.score_kind for _, d in votes}
    if len(scores) < size or len(kinds) > 1:
        return None, ScoreKind.NONE
    kind = kinds.pop()
    # Whether each confidence is a risk is not known: of several none is the highest risk.
    is_unexplained = kind is ScoreKind.CONFIDENCE and size > 1
    if is_unexplained or (rule is ChainRule.MAJORITY and size % 2 == 0):
        return None, ScoreKind.NONE
    if rule is ChainRule.MAJORITY:
        return sorted(scores)[size // 2], kind
    return (max(scores) if rule is ChainRule.ANY else min(scores)), kind


def _finding(name: str, decision: Decision) -> CategoryFinding:
    answered = decision.outcome in (Outcome.ALLOW, Outcome.BLOCK)
    flagged = decision.outcome is Outcome.BLOCK if answered else None
    return CategoryFinding(name=name, flagged=flagged, score=decision.score)


class ChainSettings(GrownSettings):
    """Combines other defenses of the configuration."""

    later: ClassVar[tuple[str, ...]] = ("between",)
    of: list[str] = Field(min_length=1)
    rule: Literal["any", "all", "majority", "first", "cascade"] = "any"
    short_circuit: bool = True
    between: tuple[Rate, Rate] | None = None

    @model_validator(mode="after")
    def _limits_of_a_cascade(self) -> ChainSettings:
        if (self.rule == "cascade") != (self.between is not None):
            raise ValueError("rule cascade goes with between: [low, high], and only that rule")
        if self.between is not None and self.between[0] >= self.between[1]:
            raise ValueError("between needs two limits, the lower one first")
        return self

    def build(self, name: str, context: BuildContext) -> object:
        """Build the defense."""
        members: list[AnyDefense] = []
        for member in self.of:
            if member not in context.defenses or member == name:
                raise UnknownName("defense", member, set(context.defenses) - {name})
            members.append(cast("AnyDefense", context.defenses[member]))
        options: dict[str, Any] = {
            "rule": ChainRule(self.rule),
            "short_circuit": self.short_circuit,
            "between": self.between or _EVERYTHING,
            "prices": {name: context.charges[name] for name in self.of if name in context.charges},
        }
        return ChainDefense(name, members, **options)
