"""Asking a defense: texts in waves, failed calls again, and what re-sends of a pass came to."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final

from guardmark.adaptive.asker import Asker, Kind, digest_of_text, prompt_of
from guardmark.adaptive.questions import Query, TryAnswer, is_confirmed
from guardmark.core.outcome import Decision, ErrorKind, Evidence, Outcome
from guardmark.core.protocols import BatchDefense, InlineDefense
from guardmark.engine.calls import (
    as_coroutine,
    as_decision,
    attempt,
    decide_batch,
    decide_unless_abandoned,
    skipping,
)
from guardmark.store.tries import TryRecord, TrySubject

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Mapping, Sequence

    from guardmark.adaptive.asker import AskContext, Take
    from guardmark.adaptive.questions import Account, Steps, T
    from guardmark.core.sample import Prompt
    from guardmark.engine.plan import AnyDefense

_SLICE: Final = 256  # calls in line between two looks at the wish to stop
_FLUSH_AT: Final = 20_000  # rows; a commit has a price of its own
_RETRIES: Final = 2  # a failed call is no answer: it is asked again, at nobody's expense
_FINAL: Final = (ErrorKind.SKIPPED, ErrorKind.LENGTH, ErrorKind.CONTRACT)


class DefenseAsker:
    """Asks one defense and stores every answer."""

    def __init__(self, defense: AnyDefense, context: AskContext) -> None:
        self.defense = defense
        self.context = context
        kind = Kind(
            digest=digest_of_text,
            subject=_subject_of,
            call=self._call,
            store=_as_told,
            read=_decision_of,
            is_lasting=_is_decided,
            flush_at=_FLUSH_AT,
        )
        self._asker = Asker(name=defense.name, kind=kind, context=context)

    @property
    def calls(self) -> Counter[tuple[str, Account]]:
        """Calls by layer and account."""
        return self._asker.calls

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
        found = await self._asker.ask(batch)
        for _ in range(_RETRIES):
            failed = [i for i, (decision, _) in enumerate(found) if _is_passing(decision)]
            if not failed:
                break
            again = await self._asker.ask([batch[i] for i in failed])
            for i, each in zip(failed, again, strict=True):
                found[i] = each
        answers = [_answer(decision, place[-1]) for decision, place in found]
        self._store_confirmations(batch, answers)
        return answers

    def known(self, layer: str) -> dict[tuple[int, str], Decision]:
        """Return a copy of what was answered in a layer so far."""
        return dict(self._asker.known[layer])

    def begin(self, layer: str, known: Mapping[tuple[int, str], Decision]) -> None:
        """Let an arm know answers of another one, so that it pays for none of them again."""
        self._asker.known[layer] = dict(known)

    def forget(self, layer: str) -> None:
        """Drop what is known in a layer that asks nothing more; its rows are stored."""
        self._asker.known.pop(layer, None)

    def flush(self) -> None:
        """Commit what was answered."""
        self._asker.flush()

    def _store_confirmations(self, batch: Sequence[Query], answers: Sequence[TryAnswer]) -> None:
        """Record what the re-sends of each pass came to, once."""
        groups: defaultdict[tuple[str, int, int], list[TryAnswer]] = defaultdict(list)
        for query, answer in zip(batch, answers, strict=True):
            if query.resend_of is not None:
                groups[query.layer, query.sample, query.resend_of].append(answer)
        for (layer, sample, number), resends in groups.items():
            stored = self.context.stored.get((self.defense.name, layer, sample, number))
            if self.context.is_replay or stored is None or stored.is_confirmed is None:
                self.context.writer.tries(self.defense.name, layer).confirm(
                    (number, sample),
                    sent=sum(answer.is_blocked is not None for answer in resends),
                    passed=sum(answer.passed for answer in resends),
                    is_confirmed=is_confirmed(resends),
                )

    async def _call(self, batch: Sequence[Query], take: Take[Decision]) -> None:
        context, defense = self.context, self.defense
        prompts = [prompt_of(context.samples[query.sample], query.text) for query in batch]
        if isinstance(defense, InlineDefense):
            await self._call_inline(defense, prompts, take)
            return
        context.may_go_on()
        if isinstance(defense, BatchDefense):
            await self._call_batches(defense, prompts, take)
            return
        decide = as_coroutine(defense)

        async def call(query: Query) -> Decision:
            prompt = prompt_of(context.samples[query.sample], query.text)
            return _sound(as_decision(await attempt(decide, prompt)))

        await context.side_by_side(batch, call, take)

    async def _call_inline(
        self, defense: InlineDefense, prompts: Sequence[Prompt], take: Take[Decision]
    ) -> None:
        decide = skipping(defense.decide_now, defense.view)
        for start in range(0, len(prompts), _SLICE):
            self.context.may_go_on()
            part = prompts[start : start + _SLICE]
            decisions, latencies = decide_unless_abandoned(decide, part, self.context.stop)
            for number, (decision, took) in enumerate(
                zip(decisions, latencies, strict=True), start
            ):
                take(number, _sound(decision), took)
            if len(decisions) < len(part):
                self.context.may_go_on()
            await asyncio.sleep(0)

    async def _call_batches(
        self, defense: BatchDefense, prompts: Sequence[Prompt], take: Take[Decision]
    ) -> None:
        size = max(1, defense.batch_limits.max_count)
        for start in range(0, len(prompts), size):
            part = prompts[start : start + size]
            began = perf_counter_ns()
            decisions = await decide_batch(defense, part)
            took = max(1, (perf_counter_ns() - began) // len(part))
            for number, decision in enumerate(decisions, start):
                take(number, _sound(decision), took)


def tells_of_failure(evidence: Evidence) -> bool:
    """Tell whether what lies behind a block speaks of a failure."""
    return bool(evidence.message or (evidence.attempts and evidence.attempts[-1].error))


def _subject_of(query: Query, digest: str, _: Decision) -> TrySubject:
    return TrySubject(
        account=query.account.value,
        round=query.round,
        digest=digest,
        chain=query.chain,
        tier=query.tier,
        size=len(query.text),
        decoded=query.decoded,
        resend_of=query.resend_of,
    )


def _as_told(decision: Decision) -> Decision:
    return decision


def _is_decided(decision: Decision) -> bool:
    return decision.outcome is not Outcome.ERROR


def _decision_of(record: TryRecord) -> Decision:
    return Decision(
        outcome=Outcome(record.outcome),
        score=record.score,
        score_kind=record.score_kind,
        error_kind=record.error_kind,
        evidence=record.evidence,
    )


def _is_passing(decision: Decision) -> bool:
    return decision.outcome is Outcome.ERROR and decision.error_kind not in _FINAL


def _sound(decision: Decision) -> Decision:
    if decision.score is None or 0.0 <= decision.score <= 1.0:
        return decision
    message = f"the score {decision.score!r} is not in [0, 1]"
    return Decision(
        outcome=Outcome.ERROR,
        error_kind=ErrorKind.CONTRACT,
        evidence=Evidence(message=message),
    )


def _answer(decision: Decision, number: int) -> TryAnswer:
    if decision.outcome not in {Outcome.ALLOW, Outcome.BLOCK}:
        return TryAnswer(is_blocked=None, number=number)
    evidence = decision.evidence
    if decision.outcome is Outcome.ALLOW or evidence is None:
        is_blocked = decision.outcome is Outcome.BLOCK
        return TryAnswer(is_blocked=is_blocked, score=decision.score, number=number)
    return TryAnswer(
        is_blocked=True,
        score=decision.score,
        is_complaint=tells_of_failure(evidence),
        reason=evidence.reason,
        number=number,
    )
