"""Several defenses as one: any, all, the majority, the first that answers, or a cascade."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field, replace
from enum import StrEnum
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, cast

from pydantic import Field, model_validator

from guardmark.config.deadline import GrownSettings
from guardmark.config.settings import Rate
from guardmark.core.errors import UnknownName
from guardmark.core.outcome import ALLOWED, CategoryFinding, Decision, Evidence, Outcome, ScoreKind
from guardmark.core.protocols import Capabilities
from guardmark.core.sample import View
from guardmark.defenses.calls.pricing import was_sent, with_usage
from guardmark.defenses.guard import as_guard
from guardmark.net.call_account import present_account

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from guardmark.config.settings import BuildContext
    from guardmark.core.outcome import Attempt
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
_ANSWERS: Final = (Outcome.ALLOW, Outcome.BLOCK)
_FAILURES: Final = (Outcome.MALFORMED, Outcome.ERROR)


@dataclass(frozen=True, slots=True, eq=False)
class ChainDefense:
    """Members in their order, and how their decisions become one.

    A member that fails does not vote; unless the others settle it, the chain fails as it did.
    What a member rewrites is what the next one is shown, and what goes on where the chain allows.
    Where all members answer at once the chain does too, and whoever asks takes its time;
    otherwise its latency is the sum of theirs.

    Attributes:
        name: Its name.
        members: Who is asked, in their order.
        rule: How their decisions become one.
        short_circuit: Whether nobody is asked any more once the votes decide.
        between: Scores of a cascade between which the next member is asked.
        prices: Prices of members in this process.
        guards: The members in the form in which they are asked.
        capabilities: What is stated of the chain.
    """

    name: str
    members: Sequence[AnyDefense]
    _: KW_ONLY
    rule: ChainRule = ChainRule.ANY
    short_circuit: bool = True
    between: Between = _EVERYTHING
    prices: Mapping[str, Charge] = field(default_factory=dict)
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
        total_ns, shown, text = 0, prompt, None
        for member in self.guards:
            began = perf_counter_ns()
            (decision,) = await member.decide_all([shown])
            took_ns = perf_counter_ns() - began
            if decision.latency_ns is not None:
                took_ns = decision.latency_ns
            total_ns += took_ns
            votes.append((member.name, decision))
            if decision.outcome is Outcome.ALLOW and isinstance(decision.text, str):
                text = decision.text
                if self.capabilities.may_write and not prompt.messages[prompt.under_test].calls:
                    shown = prompt.with_text(text)
            if self._is_enough(votes):
                break
        latency_ns = None  # whoever asks takes the time of a chain that answers at once
        if not self.capabilities.is_inline:
            latency_ns = total_ns
        decision = combine(
            votes, len(self.guards), self.rule, latency_ns=latency_ns, between=self.between
        )
        if decision.outcome is Outcome.ALLOW and text is not None and text != prompt.text:
            decision = replace(decision, text=text)
        if not self.prices:
            return decision
        return self._with_cost(decision, votes, prompt)

    def _is_enough(self, votes: Votes) -> bool:
        if not self.short_circuit and self.rule not in (ChainRule.FIRST, ChainRule.CASCADE):
            return False
        return settled(votes, len(self.guards), self.rule, between=self.between) is not None

    def _with_cost(self, decision: Decision, votes: Votes, prompt: Prompt) -> Decision:
        """Count what members in this process cost: beside the others' requests, or as all."""
        paid = self._paid_for(votes, prompt)
        if not self.capabilities.is_inline:
            account = present_account()
            if account is not None:
                # What members behind services cost is counted there, too.
                account.beside += paid or 0.0
                return decision
        return with_usage(decision, cost=paid)

    def _paid_for(self, votes: Votes, prompt: Prompt) -> float | None:
        """Return what the members that were asked cost here; None where none has a price."""
        costs = []
        for name, vote in votes:
            if name in self.prices and was_sent(vote):
                costs.append(self.prices[name].of_answer(vote.evidence, prompt) or 0.0)
        if not costs:
            return None
        return sum(costs)


def _together(members: Sequence[Guard]) -> Capabilities:
    """Return what can be said of several guards that are asked one after the other."""
    every = [member.capabilities for member in members]
    threshold = every[0].threshold
    is_inline, holds_interpreter, needs_samples = True, False, False
    for each in every:
        is_inline = is_inline and each.is_inline
        holds_interpreter = holds_interpreter or each.holds_interpreter
        needs_samples = needs_samples or each.needs_samples
        if each.threshold != threshold:
            threshold = None
    views = {each.view for each in every}
    return Capabilities(
        view=View.CONVERSATION,
        # Each is shown the message under test: where one is not, nobody can tell what it wrote.
        writes_tested=views == {View.TEXT} and all(each.may_write for each in every),
        is_inline=is_inline,
        timeout_s=_total_timeout(every),
        holds_interpreter=holds_interpreter,
        needs_samples=needs_samples,
        sees_turns=any(each.reads_talks for each in every),
        keeps_session=any(each.keeps_session for each in every),
        threshold=threshold,
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
    blocks = allows = 0
    for _, decision in votes:
        if decision.outcome not in _ANSWERS:
            continue
        if rule is ChainRule.FIRST:
            return decision.outcome
        if decision.outcome is Outcome.BLOCK:
            blocks += 1
        else:
            allows += 1
    if rule is ChainRule.FIRST:
        return None
    needed = {ChainRule.ANY: 1, ChainRule.ALL: size, ChainRule.MAJORITY: size // 2 + 1}[rule]
    if blocks >= needed:
        return Outcome.BLOCK
    if allows > size - needed:
        return Outcome.ALLOW
    return None


def _settled_by_score(votes: Votes, size: int, between: Between) -> Outcome | None:
    """Let each member decide only where its score is clear, and the last one in any case."""
    low, high = between
    for number, (_, decision) in enumerate(votes, start=1):
        if decision.outcome not in _ANSWERS:
            continue  # a failure settles nothing: the next one is asked
        if number == size:
            return decision.outcome
        if decision.score is None:
            continue
        if decision.score < low:
            return Outcome.ALLOW
        if decision.score >= high:
            return Outcome.BLOCK
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
    behind = _gathered(votes)
    if latency_ns is None and behind.times_ns:
        # Of a file; what others took in between was not measured.
        latency_ns = sum(behind.times_ns)
        behind.is_kept = behind.is_kept or len(behind.times_ns) < len(votes)
    if outcome is Outcome.ALLOW and latency_ns is None and behind.is_plain:
        return ALLOWED
    name, spoken = votes[-1]
    if rule is not ChainRule.CASCADE or outcome is None:
        name, spoken = _speaker(votes, outcome)
    score, kind = _score(votes, size, rule)
    evidence = spoken.evidence or Evidence()
    reason, message, error_kind = name, "", None
    if evidence.reason:
        reason = f"{name}: {evidence.reason}"
    if evidence.message:
        message = f"{name}: {evidence.message}"
    if outcome is None:
        error_kind = spoken.error_kind
    return Decision(
        outcome=outcome or spoken.outcome,
        score=score,
        score_kind=kind,
        error_kind=error_kind,
        latency_ns=latency_ns,
        amortised=behind.is_amortised,
        evidence=Evidence(
            reason=reason,
            native_action=evidence.native_action,
            raw=evidence.raw,
            message=message,
            categories=tuple(behind.findings),
            attempts=tuple(behind.attempts),
            truncated=behind.is_truncated,
            from_cache=behind.is_kept,
        ),
    )


@dataclass(slots=True)
class _Behind:
    """What lies behind the votes of a chain together."""

    times_ns: list[int] = field(default_factory=list)
    findings: list[CategoryFinding] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    is_plain: bool = True  # every member allowed, and said nothing
    is_amortised: bool = False
    is_truncated: bool = False
    is_kept: bool = False


def _gathered(votes: Votes) -> _Behind:
    """Gather what lies behind the votes of a chain."""
    behind = _Behind()
    for name, decision in votes:
        behind.findings.append(_finding(name, decision))
        if decision.latency_ns is not None:
            behind.times_ns.append(decision.latency_ns)
        if decision.amortised:
            behind.is_amortised = True
        evidence = decision.evidence
        if (decision.outcome, decision.score, evidence) != (Outcome.ALLOW, None, None):
            behind.is_plain = False
        if evidence is not None:
            behind.attempts.extend(evidence.attempts)
            behind.is_truncated = behind.is_truncated or evidence.truncated
            behind.is_kept = behind.is_kept or evidence.from_cache
    return behind


def _speaker(votes: Votes, outcome: Outcome | None) -> tuple[str, Decision]:
    """Return the first member that decided so, or the first that failed."""
    for name, decision in votes:
        if decision.outcome is outcome or (outcome is None and decision.outcome in _FAILURES):
            return name, decision
    raise ValueError("no member spoke")


def _score(votes: Votes, size: int, rule: ChainRule) -> tuple[float | None, ScoreKind]:
    """Return the score of a chain, where those of its members have an order that means one."""
    last = votes[-1][1]
    if rule is ChainRule.FIRST:
        return last.score, last.score_kind
    scores = _common_scores(votes)
    # Scores of a cascade's members have no common order, and an even number has no middle.
    has_none = rule is ChainRule.CASCADE or (rule is ChainRule.MAJORITY and size % 2 == 0)
    # Whether each confidence is a risk is not known: of several none is the highest risk.
    is_unexplained = last.score_kind is ScoreKind.CONFIDENCE and size > 1
    if len(scores) < size or has_none or is_unexplained:
        return None, ScoreKind.NONE
    chosen = {ChainRule.ANY: -1, ChainRule.ALL: 0, ChainRule.MAJORITY: size // 2}[rule]
    return sorted(scores)[chosen], last.score_kind


def _common_scores(votes: Votes) -> list[float]:
    """Return the scores of all members where each has one and they mean the same, else none."""
    kind, scores = votes[-1][1].score_kind, list[float]()
    for _, decision in votes:
        if decision.score is None or decision.score_kind is not kind:
            return []
        scores.append(decision.score)
    return scores


def _finding(name: str, decision: Decision) -> CategoryFinding:
    flagged = None
    if decision.outcome in _ANSWERS:
        flagged = decision.outcome is Outcome.BLOCK
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
        prices = {}
        for member in self.of:
            if member in context.charges:
                prices[member] = context.charges[member]
        options: dict[str, Any] = {
            "rule": ChainRule(self.rule),
            "short_circuit": self.short_circuit,
            "between": self.between or _EVERYTHING,
            "prices": prices,
        }
        return ChainDefense(name, members, **options)
