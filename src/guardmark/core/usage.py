"""What calls use, tokens, seconds and money: of one call, of many together, and its price.

A count that a service did not tell is None, never zero. Each count is added up over the calls that
told it; tokens read and written together are known only of a call that told both.
"""

from __future__ import annotations

from dataclasses import field, fields
from math import ceil
from typing import Protocol, TypeVar

from guardmark.core.values import dataclass

_UNTOLD = {"json": False}
Number = TypeVar("Number", int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What one call used, as the service reported it.

    Attributes:
        prompt_tokens: Tokens read, or None when not reported.
        completion_tokens: Tokens written, or None when not reported.
        cost: In the currency of the user's price table, or None without one.
        requests: How many requests were sent for it, where the attempts do not say it, or None.
    """

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost: float | None = None
    requests: int | None = None

    @property
    def tokens(self) -> int | None:
        """Tokens read and written, or None unless both are reported."""
        if self.prompt_tokens is None or self.completion_tokens is None:
            return None
        return self.prompt_tokens + self.completion_tokens

    def __add__(self, other: Usage) -> Usage:
        """Return what both calls used; what only one of them reported stands alone."""
        return Usage(
            prompt_tokens=_sum(self.prompt_tokens, other.prompt_tokens),
            completion_tokens=_sum(self.completion_tokens, other.completion_tokens),
            cost=_sum(self.cost, other.cost),
            requests=_sum(self.requests, other.requests),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageTotals:
    """What several calls used together; sums say over how many calls they are.

    Attributes:
        calls: All of them, failed ones among them.
        requests: What was sent for these calls: what was sent or asked again is counted again.
        failed: Calls without an answer.
        reported: Calls that told both what they read and what they wrote.
        tokens_read: Over the calls that told it.
        tokens_written: Over the calls that told it.
        priced: Calls with a price.
        cost: Over those, in the user's currency; None where no call has a price.
        tokens: Read and written, over the calls that told both.
        timed: Calls with a service time.
        seconds: Over those.
    """

    calls: int = 0
    requests: int = 0
    failed: int = 0
    reported: int = field(default=0, metadata={"json": "calls_with_tokens"})
    tokens_read: int = 0
    tokens_written: int = 0
    priced: int = field(default=0, metadata={"json": "calls_with_price"})
    cost: float | None = None
    tokens: int = 0
    timed: int = field(default=0, metadata=_UNTOLD)
    seconds: float = field(default=0.0, metadata=_UNTOLD)

    def plus(
        self,
        usage: Usage | None,
        *,
        latency_ns: int | None = None,
        failed: bool = False,
        requests: int = 1,
    ) -> UsageTotals:
        """Return these totals with one more call."""
        used = usage or Usage()
        together = used.tokens
        return UsageTotals(
            calls=self.calls + 1,
            requests=self.requests + requests,
            failed=self.failed + failed,
            reported=self.reported + (together is not None),
            tokens_read=self.tokens_read + (used.prompt_tokens or 0),
            tokens_written=self.tokens_written + (used.completion_tokens or 0),
            priced=self.priced + (used.cost is not None),
            cost=_sum(self.cost, used.cost),
            tokens=self.tokens + (together or 0),
            timed=self.timed + (latency_ns is not None),
            seconds=self.seconds + (latency_ns or 0) / 1e9,
        )

    def __add__(self, other: UsageTotals) -> UsageTotals:
        """Return what both used together."""
        names = [field.name for field in fields(self) if field.name != "cost"]
        sums = {name: getattr(self, name) + getattr(other, name) for name in names}
        return UsageTotals(cost=_sum(self.cost, other.cost), **sums)


def _sum(first: Number | None, second: Number | None) -> Number | None:
    if first is None or second is None:
        return second if first is None else first
    return first + second


class Price(Protocol):
    """What calls of a part cost, in the user's currency."""

    @property
    def input_per_1k(self) -> float:
        """Price of a thousand tokens read."""
        ...

    @property
    def output_per_1k(self) -> float:
        """Price of a thousand tokens written."""
        ...

    @property
    def per_call(self) -> float:
        """Price of a call."""
        ...

    @property
    def per_unit(self) -> float:
        """Price of a unit of text that is shown."""
        ...

    @property
    def unit_characters(self) -> int:
        """How many characters a unit has."""
        ...


def call_price(price: Price, characters: int = 0) -> float:
    """Price a call without its tokens; a unit that is begun is paid for, one at least."""
    if not price.per_unit:
        return price.per_call
    return price.per_call + price.per_unit * max(1, ceil(characters / price.unit_characters))


def price_of(price: Price, *, read: float | None, written: float | None) -> float | None:
    """Price the call and its tokens; None where these cost something and nobody counted them."""
    if (read is None and price.input_per_1k) or (written is None and price.output_per_1k):
        return None
    tokens = (read or 0) * price.input_per_1k + (written or 0) * price.output_per_1k
    return price.per_call + tokens / 1000
