"""Several defenses as one: any, all, the majority, the first that answers, or a cascade."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, cast

from pydantic import Field, model_validator

from guardmark.config.deadline import GrownSettings, holds_interpreter, total_timeout
from guardmark.config.settings import Rate
from guardmark.core.errors import UnknownName
from guardmark.core.outcome import CategoryFinding, Decision, Evidence, Outcome, ScoreKind
from guardmark.core.protocols import BatchDefense, Defense, InlineDefense, SampleBound
from guardmark.core.record import present_call
from guardmark.core.sample import View
from guardmark.defenses.calls.pricing import was_sent, with_usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from guardmark.config.settings import BuildContext
    from guardmark.core.sample import Prompt, Sample
    from guardmark.defenses.calls.pricing import PricedChain, PricedPart

    Votes = Sequence[tuple[str, Decision]]
    Charge = PricedPart | PricedChain

Member = Defense | InlineDefense | BatchDefense


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


def _is_enough(votes: Votes, chain: _Chain) -> bool:
    is_short = chain.short_circuit or chain.rule in (ChainRule.FIRST, ChainRule.CASCADE)
    size = len(chain.members)
    return is_short and settled(votes, size, chain.rule, between=chain.between) is not None


@dataclass(frozen=True, slots=True, eq=False)
class _Chain:
    """Members in their order and how they decide, both ways they are asked.

    A member that fails does not vote; unless the others settle it, the chain fails as it did.
    """

    name: str
    members: Sequence[Any]
    _: KW_ONLY
    rule: ChainRule = ChainRule.ANY
    short_circuit: bool = True
    view: View = View.CONVERSATION
    between: Between = _EVERYTHING
    prices: Mapping[str, Charge] = field(default_factory=dict)  # of members in this process

    def __post_init__(self) -> None:
        """Refuse a chain of nothing, which would allow everything."""
        if not self.members:
            raise ValueError("a chain needs at least one member")

    @property
    def threshold(self) -> float | None:
        """The threshold that all members share, or None."""
        return common_threshold(self.members)

    def bind(self, samples: Iterable[Sample]) -> None:
        """Tell the members that want to know of the samples."""
        bound = [member for member in self.members if isinstance(member, SampleBound)]
        known = list(samples) if len(bound) > 1 else samples  # an iterator serves one member only
        for member in bound:
            member.bind(known)

    def paid_for(self, votes: Votes, prompt: Prompt) -> float | None:
        """Return what the members that were asked cost here; None where none has a price."""
        priced = [(self.prices[name], vote) for name, vote in votes if name in self.prices]
        costs = [price.of_answer(vote.evidence, prompt) for price, vote in priced if was_sent(vote)]
        return sum(cost or 0.0 for cost in costs) if costs else None


class InlineChain(_Chain):
    """A chain whose members all answer at once."""

    __slots__ = ()

    @property
    def timeout_s(self) -> float | None:
        """The time of all members together."""
        return total_timeout(self.members)

    @property
    def holds_interpreter(self) -> bool:
        """Whether a member does."""
        return any(map(holds_interpreter, self.members))

    def decide_now(self, prompt: Prompt) -> Decision:
        """Ask the members about one prompt."""
        votes: list[tuple[str, Decision]] = []
        for member in self.members:
            votes.append((member.name, member.decide_now(prompt)))
            if _is_enough(votes, self):
                break
        decision = combine(votes, len(self.members), self.rule, between=self.between)
        return with_usage(decision, cost=self.paid_for(votes, prompt)) if self.prices else decision


class ChainDefense(_Chain):
    """A chain with members that must be awaited; its latency is the sum of theirs."""

    __slots__ = ()

    async def decide(self, prompt: Prompt) -> Decision:
        """Ask the members about one prompt."""
        votes: list[tuple[str, Decision]] = []
        total_ns = 0
        for member in self.members:
            began = perf_counter_ns()
            decision = await _ask(member, prompt)
            took = perf_counter_ns() - began
            total_ns += took if decision.latency_ns is None else decision.latency_ns
            votes.append((member.name, decision))
            if _is_enough(votes, self):
                break
        size, rule = len(self.members), self.rule
        decision = combine(votes, size, rule, latency_ns=total_ns, between=self.between)
        if not self.prices:
            return decision
        paid, asking = self.paid_for(votes, prompt), present_call()
        if asking is not None:
            asking.beside += paid or 0.0  # what members behind services cost is counted there, too
            return decision
        return with_usage(decision, cost=paid)


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
        members: list[Member] = []
        for member in self.of:
            if member not in context.defenses or member == name:
                raise UnknownName("defense", member, set(context.defenses) - {name})
            members.append(cast("Member", context.defenses[member]))
        options: dict[str, Any] = {
            "rule": ChainRule(self.rule),
            "short_circuit": self.short_circuit,
            "between": self.between or _EVERYTHING,
            "prices": {name: context.charges[name] for name in self.of if name in context.charges},
        }
        inline = [member for member in members if isinstance(member, InlineDefense)]
        if len(inline) == len(members):
            return InlineChain(name, inline, **options)
        return ChainDefense(name, members, **options)
