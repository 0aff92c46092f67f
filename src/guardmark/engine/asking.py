"""The one asker: every call of a part is admitted, noted, timed, paid for and made here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from time import perf_counter_ns
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from guardmark.core.errors import BudgetReached
from guardmark.core.outcome import Decision, Response, Verdict
from guardmark.core.sample import Prompt
from guardmark.defenses.calls.pricing import was_sent, with_usage
from guardmark.engine.calls import decide_all, failure_or_raise
from guardmark.net.call_account import CallAccount
from guardmark.store.cache import key_of

if TYPE_CHECKING:
    from guardmark.core.outcome import Evidence
    from guardmark.core.sample import View
    from guardmark.defenses.calls.pricing import PricedChain, PricedPart
    from guardmark.engine.calls import Answers
    from guardmark.engine.plan import CachedParts, Spending
    from guardmark.engine.supervision import StopSignal
    from guardmark.store.under_way import CallKey, CallsUnderWay

T = TypeVar("T")
AskBatch = Callable[[Sequence[Prompt]], Awaitable[list[Decision]]]
Address = tuple[str, int | None, int | None, str]
"""Part, case, repeat, and what is shown; case and repeat are None where they make no difference."""
_MOST_KNOWN = 200_000
"""Answers that an asker keeps, so that memory stays flat."""


class Question(NamedTuple):
    """What is asked of a part.

    Attributes:
        part: Name of the part.
        about: The prompt and, for a judge, the response.
        position: Position of the sample or case; None where the call belongs to none, as a probe
            does.
        repeat: Which repetition.
        row: Numbers of the row that the answer becomes, noted while the call is under way.
    """

    part: str
    about: tuple[Prompt, *tuple[str, ...]]
    position: int | None = None
    repeat: int = 0
    row: CallKey | None = None


class Answered(NamedTuple):
    """What a part answered, or how it failed; and its time, or None where nobody was asked now."""

    answer: Any
    took_ns: int | None


class Asker:
    """Puts questions to parts, on behalf of a run, a search or a probe.

    The same question to the same part about the same case in the same repeat is put once, whoever
    asks: its answer is stored already (then nobody comes here), kept by the answer cache, known
    from before, being waited for by somebody else, or called for now.

    Attributes:
        spending: Who counts the calls, and what they cost.
        busy_ns: Time of all calls together.
        by_text: Guards whose answer depends on the text alone, and what each is shown: they are
            asked about a text once, whatever the case and the repeat.
    """

    __slots__ = ("_cached", "_known", "_under_way", "busy_ns", "by_text", "spending")

    def __init__(
        self,
        spending: Spending,
        *,
        under_way: CallsUnderWay | None = None,
        cached: CachedParts | None = None,
        by_text: Mapping[str, View] = MappingProxyType({}),
    ) -> None:
        self.spending = spending
        self.busy_ns = 0
        self.by_text = by_text
        self._under_way = under_way
        self._cached = cached
        self._known: dict[Address, asyncio.Future[Answered]] = {}

    def ask(
        self, call: Callable[..., Awaitable[Any]], question: Question
    ) -> Coroutine[Any, Any, Answered]:
        """Put a question to a part that is awaited, unless the answer cache has its answer.

        Raises:
            BudgetReached: If the call could pass a limit; then it was not made.
        """
        if self._cached is None or question.part not in self._cached.identities:
            return self.put(call, question)
        return self._ask_or_recall(call, question, self._cached)

    async def _ask_or_recall(
        self, call: Callable[..., Awaitable[Any]], question: Question, cached: CachedParts
    ) -> Answered:
        prompt, *others = question.about
        asked = (prompt.digest().hex(), *others)
        identity = cached.identities[question.part]
        key = key_of(identity, repeat=question.repeat, asked=asked)
        kept = cached.cache.recall(key)
        if kept is not None:
            return Answered(kept, None)
        answered = await self.put(call, question)
        if isinstance(answered.answer, Decision | Response | Verdict):
            cached.cache.keep(key, answered.answer)
        return answered

    async def ask_once(
        self, call: Callable[..., Awaitable[Any]], question: Question, *, case: int
    ) -> tuple[Answered, bool]:
        """Put a question about a case once: others wait for the same answer, or get it again.

        Returns:
            The answer, and whether it is new: asked for by this call.
        """
        address = self._address(question, case)
        known = self._known.get(address)
        while known is not None:
            try:
                return await asyncio.shield(known), False
            except asyncio.CancelledError:
                if not known.cancelled():
                    raise
            known = self._known.get(address)  # who had asked gave up: it is asked anew
        if len(self._known) >= _MOST_KNOWN:
            return await self.ask(call, question), True
        known = self._known[address] = asyncio.get_running_loop().create_future()
        try:
            answered = await self.ask(call, question)
        except BaseException:
            del self._known[address]
            known.cancel()
            raise
        known.set_result(answered)
        return answered, True

    def _address(self, question: Question, case: int) -> Address:
        """Return what equal questions have in common."""
        part, (prompt, *others) = question.part, question.about
        view = self.by_text.get(part)
        if view is not None:
            return part, None, None, prompt.shown(view) or ""
        return part, case, question.repeat, "\0".join([prompt.digest().hex(), *others])

    def forget(self, case: int) -> None:
        """Forget the answers about a case that nobody will ask about again."""
        for address in [address for address in self._known if address[1] == case]:
            del self._known[address]

    async def ask_together(
        self, decide: AskBatch, questions: Sequence[Question]
    ) -> tuple[list[Decision], int]:
        """Ask about a batch; return the decisions and the share of each in the time."""
        under_way = self._under_way
        if under_way is not None:
            for question in questions:
                if question.row is not None:
                    under_way.leave(question.row)
        charges = [await self.admit(question.part, question.about[0]) for question in questions]
        start = perf_counter_ns()
        with CallAccount() as account:
            decisions = await decide([question.about[0] for question in questions])
        took = perf_counter_ns() - start
        if under_way is not None:
            for question in questions:
                if question.row is not None:
                    under_way.arrive(question.row)
        self.busy_ns += took
        settled = []
        for charge, decision in zip(charges, decisions, strict=True):
            settled.append(decision if charge is None else self.settle(charge, decision, account))
        return settled, took // len(questions)

    def ask_here(
        self,
        decide: Callable[[Prompt], object],
        prompts: Sequence[Prompt],
        *,
        timeout_s: float | None,
        stop: StopSignal,
        is_over: Callable[[], bool] | None = None,
    ) -> Answers:
        """Ask an inline guard, in this thread, until all is answered or the run is to end.

        Who asks knows beforehand what the calls may cost, and counts them afterwards.
        """
        start = perf_counter_ns()
        answers = decide_all(decide, prompts, timeout_s=timeout_s, stop=stop, is_over=is_over)
        self.busy_ns += perf_counter_ns() - start
        return answers

    async def put(self, call: Callable[..., Awaitable[Any]], question: Question) -> Answered:
        """Put a question to a part that is awaited, whatever is known of its answer."""
        part, about, position, repeat, row = question
        under_way = self._under_way
        with CallAccount(None if position is None else (part, repeat, position)) as account:
            charge = await self.admit(part, about[0])
            if row is not None and under_way is not None:
                under_way.leave(row)
            start = perf_counter_ns()
            # Not in a function of its own: that would be woken whenever the loop wakes the call.
            try:
                answer = await call(*about)
            except BudgetReached:
                if row is not None and under_way is not None:
                    under_way.arrive(row)  # the budget ran out before the request was sent
                raise
            except BaseException as error:  # noqa: BLE001 - the edge to foreign code: a record
                answer = failure_or_raise(error)
            took = perf_counter_ns() - start
            if row is not None and under_way is not None:
                under_way.arrive(row)
        self.busy_ns += took
        return Answered(self.settle(charge, answer, account), took)

    async def admit(self, part: str, prompt: Prompt) -> Charge | None:
        """Count a call before it leaves; the requests of a service are counted where they are sent.

        Raises:
            BudgetReached: If it could pass a limit.
        """
        spending = self.spending
        if part in spending.at_service:
            return None
        price = spending.prices.get(part)
        charge = Charge(prompt, 0.0 if price is None else price.of_call(prompt), price)
        await spending.meter.admit(charge.reserved)
        return charge

    def settle(self, charge: Charge | None, answer: T, account: CallAccount) -> T:
        """Count what a call did cost, and return its answer with that among its evidence."""
        meter = self.spending.meter
        if charge is None:
            if account.beside:
                meter.count(0, account.beside)
            return _with_requests(answer, account)
        if charge.price is not None:
            answer = charge.price.stamp(answer, charge.prompt)
        if account.beside:
            answer = with_usage(answer, cost=account.beside)
        evidence: Any = getattr(answer, "evidence", None)
        try:
            usage = evidence.usage if evidence is not None and was_sent(answer) else None
            cost = None if usage is None else usage.cost
            meter.settle(charge.reserved, (cost or 0.0) if was_sent(answer) else 0.0)
            if evidence is not None and len(evidence.attempts) > 1:
                meter.count(len(evidence.attempts) - 1)
        except (TypeError, AttributeError):
            meter.settle(
                charge.reserved, charge.reserved
            )  # evidence of wrong types: all that was reserved counts
        return answer


class Charge(NamedTuple):
    """What was set aside for a call of a part that no client of services counts."""

    prompt: Prompt
    reserved: float
    price: PricedPart | PricedChain | None


def _with_requests(answer: T, account: CallAccount) -> T:
    """Return an answer of a service with what its requests cost, and how many there were."""
    evidence: Evidence | None = getattr(answer, "evidence", None)
    stated = 1 if evidence is None else max(1, len(evidence.attempts))
    requests = account.requests if account.requests > stated else None
    paid = account.cost + account.beside
    cost = paid if paid and not account.unpriced else None
    return with_usage(answer, cost=cost, requests=requests)
