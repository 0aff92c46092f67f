"""Asking a defense, as it is or repaired: in line, in batches, or side by side."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import replace
from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final

from guardmark.adaptive.asker import Asked, TryAsker, score_fault
from guardmark.adaptive.state import PROBE, Account, Query, TryAnswer, is_confirmed
from guardmark.attacks.talks import TURNS, is_talk
from guardmark.config.deadline import FOLDER_TIMEOUT_S
from guardmark.core.errors import BudgetReached
from guardmark.core.outcome import Decision, ErrorKind, Evidence, Outcome
from guardmark.defenses.canonical import CanonicalDefense, Cleaning
from guardmark.engine.asking import Question
from guardmark.engine.calls import as_coroutine, as_decision, decide_batch, inline_decide
from guardmark.engine.execution.batches import limits_of
from guardmark.store.layers import ADAPTIVE, REPAIRED, REPAIRED_FIRST

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    from guardmark.adaptive.asker import AskContext, Known, Take
    from guardmark.adaptive.state import Steps, T
    from guardmark.canon.steps import Step
    from guardmark.core.protocols import Guard
    from guardmark.store.under_way import CallKey

_SLICE: Final = 32  # calls in line between two looks at the clock and at the wish to stop
_SLICE_NS: Final = 200_000_000  # none is begun after, so that what is slow is seen at once
_RETRIES: Final = 2  # a failed call is no answer: it is asked again, at nobody's expense
_ATTACKS: Final = (Account.BASELINE, Account.BATTERY, Account.SEARCH)
_BEHIND: Final = REPAIRED.removeprefix(ADAPTIVE)  # the layer of a try, whatever its seed
_BEHIND_FIRST: Final = REPAIRED_FIRST.removeprefix(ADAPTIVE)
_FINAL: Final = (ErrorKind.SKIPPED, ErrorKind.LENGTH, ErrorKind.CONTRACT)
_FINAL_HERE: Final = (*_FINAL, ErrorKind.TIMEOUT)  # a search would take all of its time again


class DefenseAsker:
    """Asks one defense, or a repaired one, and stores every answer.

    A repaired defense is asked about the text as it is, and where that passes about the cleaned
    one. Each of these calls is a row: those about texts as they are stand in a layer of their own.
    """

    def __init__(self, guard: Guard, context: AskContext, *, repair: tuple[Step, ...] = ()) -> None:
        self.guard = guard
        self.bypasses: dict[tuple[int, str], Query] = {}
        self.blocked: dict[tuple[int, str], None] = {}
        self.context = context
        self._first = None
        if repair:
            self._first = _asker_of(guard, context, has_seeds=False)
            guard = CanonicalDefense(guard.name, guard, Cleaning(steps=repair))
        self.asker = _asker_of(guard, context, has_seeds=not repair)

    async def drive(self, steps: Steps[T]) -> T:
        """Carry out a procedure to its end."""
        try:
            batch = next(steps)
            while True:
                batch = steps.send(await self.ask(batch))
        except StopIteration as end:
            result: T = end.value
            return result

    async def ask(self, batch: Sequence[Query]) -> list[TryAnswer]:
        """Ask about several texts."""
        settled: dict[int, Decision] = {}
        if self._first is not None:
            first = [replace(query, layer=f"{query.layer}{_BEHIND_FIRST}") for query in batch]
            for number, each in enumerate(await _ask(self._first, first, settled)):
                if each.answer.outcome is not Outcome.ALLOW:
                    settled[number] = each.answer
            batch = [replace(query, layer=f"{query.layer}{_BEHIND}") for query in batch]
        answers = list(map(_answer, await _ask(self.asker, batch, settled)))
        self._store_confirmations(batch, answers)
        self._remember(batch, answers)
        return answers

    def _remember(self, batch: Sequence[Query], answers: Sequence[TryAnswer]) -> None:
        """Keep what a repair is asked about: bypasses, and attacks that were blocked."""
        for query, answer in zip(batch, answers, strict=True):
            if query.account not in _ATTACKS or query.chain == PROBE:
                continue
            if TURNS in query.chain and is_talk(query.chain):
                continue  # a repair cleans one text, and no conversation
            if answer.passed and query.is_proved:
                self.bypasses.setdefault((query.sample, query.text), query)
            elif answer.is_blocked and self.context.samples[query.sample].is_attack:
                self.blocked[query.sample, query.text] = None

    def _store_confirmations(self, batch: Sequence[Query], answers: Sequence[TryAnswer]) -> None:
        """Record what the re-sends of each pass came to, once."""
        groups: defaultdict[tuple[str, int, int], list[TryAnswer]] = defaultdict(list)
        for query, answer in zip(batch, answers, strict=True):
            if query.resend_of is not None:
                groups[query.layer, query.sample, query.resend_of].append(answer)
        for (layer, sample, number), resends in groups.items():
            stored = self.context.stored.get((self.guard.name, layer, sample, number))
            if self.context.is_replay or stored is None or stored.is_confirmed is None:
                answered = [answer for answer in resends if answer.is_blocked is not None]
                passed = [answer for answer in answered if answer.passed]
                self.context.writer.tries(self.guard.name, layer).confirm(
                    (number, sample),
                    sent=len(answered),
                    passed=len(passed),
                    is_confirmed=is_confirmed(resends),
                )


async def _ask(
    asker: TryAsker[Query, Decision], batch: Sequence[Query], settled: Mapping[int, Decision]
) -> list[Asked[Query, Decision]]:
    """Ask about several texts, and again where a call failed."""
    asked = await asker.ask(batch, settled)
    for _ in range(_RETRIES):
        failed = [i for i, each in enumerate(asked) if not each.is_lasting and i not in settled]
        if not failed:
            break
        again = await asker.ask([batch[i] for i in failed])
        for i, each in zip(failed, again, strict=True):
            asked[i] = each
    return asked


def _asker_of(guard: Guard, context: AskContext, *, has_seeds: bool) -> TryAsker[Query, Decision]:
    """Return who asks a defense; every seed pays for its own answers where seeds are compared."""
    decide = as_coroutine(guard)
    final: Collection[ErrorKind] = _FINAL
    if guard.capabilities.is_inline:
        final = _FINAL_HERE

    async def respond(query: Query, row: CallKey) -> Decision:
        answer = await context.ask(decide, guard.name, row, context.prompt_of(query))
        return _sound(as_decision(answer))

    def is_lasting(decision: Decision) -> bool:
        return decision.outcome is not Outcome.ERROR or decision.error_kind in final

    in_bulk: Callable[[Sequence[Query], Take[Decision]], Awaitable[None]] | None = None
    if guard.capabilities.is_inline:
        in_bulk = partial(_call_inline, guard, context)
    elif guard.capabilities.batch is not None:
        in_bulk = partial(_call_batches, guard, context)
    known: Known[Decision] = defaultdict(dict)
    if not has_seeds:  # one memory for all layers
        answers = dict[tuple[int, str], Decision]()
        known = defaultdict(lambda: answers)
    return TryAsker(
        name=guard.name,
        context=context,
        respond=respond,
        in_bulk=in_bulk,
        read=lambda record: Decision(
            outcome=Outcome(record.outcome),
            score=record.score,
            score_kind=record.score_kind,
            error_kind=record.error_kind,
            evidence=record.evidence,
        ),
        is_lasting=is_lasting,
        known=known,
    )


async def _call_inline(
    guard: Guard, context: AskContext, batch: Sequence[Query], take: Take[Decision]
) -> None:
    """Ask a defense in this process, a slice at a time, so that others get their turn."""
    decide, patience, at, end_ns = inline_decide(guard), context.patience, 0, 0
    timeout_s = guard.capabilities.timeout_s
    if patience.is_foreign:
        timeout_s = FOLDER_TIMEOUT_S

    def is_over() -> bool:
        return perf_counter_ns() > end_ns

    while at < len(batch):
        context.may_go_on()
        part = [context.prompt_of(query) for query in batch[at : at + _SLICE]]
        part = part[: context.affordable(guard.name, part)]
        end_ns = perf_counter_ns() + _SLICE_NS
        answers = context.asker.ask_here(
            decide, part, timeout_s=timeout_s, stop=context.stop, is_over=is_over
        )
        for decision, took, prompt in zip(*answers, part, strict=False):
            take(at, _sound(context.priced(guard.name, prompt, decision)), took)
            patience.note(guard.name, took, decision.error_kind)
            at += 1
        await asyncio.sleep(0)


async def _call_batches(
    guard: Guard, context: AskContext, batch: Sequence[Query], take: Take[Decision]
) -> None:
    """Ask a defense in batches as large as it takes."""
    decide, size, start = partial(decide_batch, guard), max(1, limits_of(guard).max_count), 0
    while start < len(batch):
        context.may_go_on()
        part = [context.prompt_of(query) for query in batch[start : start + size]]
        part = part[: context.affordable(guard.name, part)]
        questions = [Question(guard.name, (prompt,)) for prompt in part]
        try:
            decisions, took = await context.asker.ask_together(decide, questions)
        except BudgetReached as reached:
            context.reached.append(str(reached))
            return
        for number, decision in enumerate(decisions, start):
            take(number, _sound(decision), max(1, took))
        start += len(part)


def tells_of_failure(evidence: Evidence) -> bool:
    """Tell whether what lies behind a block speaks of a failure."""
    return bool(evidence.message or (evidence.attempts and evidence.attempts[-1].error))


def _sound(decision: Decision) -> Decision:
    """Return a decision, or an error in its place where its score is none."""
    fault = score_fault(decision.score)
    if fault is not None:
        return fault.as_decision()
    return decision


def _answer(asked: Asked[Query, Decision]) -> TryAnswer:
    """Return what a try came to; failures have no decision, and reasons are those of blocks."""
    decision, number = asked.answer, asked.key[-1]
    if decision.outcome not in {Outcome.ALLOW, Outcome.BLOCK}:
        return TryAnswer(is_blocked=None, number=number)
    is_blocked, is_complaint, reason = decision.outcome is Outcome.BLOCK, False, ""
    if is_blocked and decision.evidence is not None:
        is_complaint, reason = tells_of_failure(decision.evidence), decision.evidence.reason
    return TryAnswer(
        is_blocked=is_blocked,
        score=decision.score,
        is_complaint=is_complaint,
        reason=reason,
        number=number,
    )
