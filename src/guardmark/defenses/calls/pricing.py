"""What calls of a part cost that no client of services counts: commands, functions, plug-ins."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

from guardmark.core.outcome import Decision, ErrorKind, Evidence, Response, Verdict
from guardmark.core.sample import View
from guardmark.core.usage import Usage, call_price, price_of
from guardmark.core.values import dataclass
from guardmark.defenses.calls.failure import Failure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guardmark.core.sample import Prompt
    from guardmark.core.usage import Price

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedPart:
    """The price of a part, and what it is shown of a prompt."""

    price: Price
    view: View = View.TEXT

    def of_call(self, prompt: Prompt) -> float:
        """Return what one call about a prompt costs, tokens aside."""
        if not self.price.per_unit:
            return self.price.per_call
        shown = prompt.shown(self.view, beside_images=True) or ""
        return call_price(self.price, len(shown))

    def of_answer(self, evidence: Evidence | None, prompt: Prompt) -> float | None:
        """Return what an answer cost: what it says itself, else calls and tokens at the price."""
        usage, calls = Usage(), 1
        if evidence is not None:
            usage, calls = evidence.usage or usage, max(1, len(evidence.attempts))
        if usage.cost is not None:
            return usage.cost
        tokens = price_of(self.price, read=usage.prompt_tokens, written=usage.completion_tokens)
        if tokens is None:
            return None
        return calls * self.of_call(prompt) + tokens - self.price.per_call

    def stamp(self, answer: _Answer, prompt: Prompt) -> _Answer:
        """Return an answer with what it cost; what was not asked, or was kept, costs nothing."""
        if not isinstance(answer, Decision | Response | Verdict | Failure) or not was_sent(answer):
            return answer
        return with_usage(answer, cost=self.of_answer(answer.evidence, prompt))


@runtime_checkable
class HasPricedMembers(Protocol):
    """A guard made of others, which says itself what those it asked did cost."""

    @property
    def prices(self) -> Mapping[str, PricedPart | PricedChain]:
        """The prices of members in this process, by name."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedChain:
    """The prices of members of a chain, which says itself what those it asked did cost."""

    members: tuple[PricedPart | PricedChain, ...]

    def of_call(self, prompt: Prompt) -> float:
        """Return what one call costs at most."""
        return sum(member.of_call(prompt) for member in self.members)

    def of_answer(self, evidence: Evidence | None, _prompt: Prompt) -> float | None:
        """Return what an answer cost, as the chain says."""
        usage = None if evidence is None else evidence.usage
        return None if usage is None else usage.cost

    def stamp(self, answer: _Answer, _prompt: Prompt) -> _Answer:
        """Return an answer as it is."""
        return answer


def was_sent(answer: object) -> bool:
    """Tell whether somebody was asked for an answer."""
    evidence: Evidence | None = getattr(answer, "evidence", None)
    is_kept = evidence is not None and evidence.from_cache
    return not is_kept and getattr(answer, "error_kind", None) is not ErrorKind.SKIPPED


def with_usage(
    answer: _Answer, *, cost: float | None = None, requests: int | None = None
) -> _Answer:
    """Return an answer of a part whose usage says what it cost, and how many requests it took."""
    if cost is None and requests is None:
        return answer
    if not isinstance(answer, Decision | Response | Verdict | Failure):
        return answer
    evidence = answer.evidence or Evidence()
    usage = evidence.usage or Usage()
    usage = replace(
        usage,
        cost=usage.cost if cost is None else cost,
        requests=usage.requests if requests is None else requests,
    )
    if isinstance(answer, Failure):
        return replace(answer, usage=usage)
    return replace(answer, evidence=replace(evidence, usage=usage))
