"""Asking anybody: stored answers first, then known ones, then calls; every answer stored once."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from guardmark.adaptive.state import PROBE, Account, Ask, Query, TryAnswer, is_confirmed
from guardmark.attacks.talks import TURNS, is_talk, prompt_of
from guardmark.config.deadline import FOLDER_TIMEOUT_S, Patience
from guardmark.core.errors import BudgetReached, IncomparableRuns
from guardmark.core.outcome import Decision, ErrorKind, Evidence, Outcome, Response, Verdict
from guardmark.core.record import Stage
from guardmark.defenses.calls.failure import Failure
from guardmark.defenses.canonical import CanonicalDefense, Cleaning
from guardmark.engine.asking import Asker, Question
from guardmark.engine.calls import (
    as_coroutine,
    as_decision,
    decide_batch,
    inline_decide,
)
from guardmark.engine.execution.batches import limits_of
from guardmark.engine.plan import Spending
from guardmark.engine.run_monitor import Progress
from guardmark.engine.supervision import supervise
from guardmark.store.layers import ADAPTIVE, REPAIRED, REPAIRED_FIRST
from guardmark.store.schema import OUTCOME_CODE
from guardmark.store.tries import read_tries

if TYPE_CHECKING:
    from guardmark.adaptive.state import Steps, T
    from guardmark.canon.steps import Step
    from guardmark.core.protocols import Guard
    from guardmark.core.sample import Prompt, Sample
    from guardmark.engine.supervision import StopSignal
    from guardmark.store.reader import RecordReader
    from guardmark.store.records import RecordWriter
    from guardmark.store.tries import TryRecord, TrySubject
    from guardmark.store.under_way import CallKey

TryKey = tuple[str, str, int, int]
"""Name of the defense, layer, position of the sample, number of the try."""
Q = TypeVar("Q", Query, Ask)
A = TypeVar("A", Decision, Response, Verdict)
Take = Callable[[int, A, int], None]
"""Takes the answer to a question by its number, and its latency in nanoseconds."""
Known = defaultdict[str, dict[tuple[int, str], A]]
"""Layer to position of a sample and hash of a text to answer."""
_FLUSH_AT: Final = 20_000  # rows; a commit has a price of its own
_SLICE: Final = 32  # calls in line between two looks at the clock and at the wish to stop
_SLICE_NS: Final = 200_000_000  # none is begun after, so that what is slow is seen at once
_RETRIES: Final = 2  # a failed call is no answer: it is asked again, at nobody's expense
_ATTACKS: Final = (Account.BASELINE, Account.BATTERY, Account.SEARCH)
_BEHIND: Final = REPAIRED.removeprefix(ADAPTIVE)  # the layer of a try, whatever its seed
_BEHIND_FIRST: Final = REPAIRED_FIRST.removeprefix(ADAPTIVE)
_FINAL: Final = (ErrorKind.SKIPPED, ErrorKind.LENGTH, ErrorKind.CONTRACT)
_FINAL_HERE: Final = (*_FINAL, ErrorKind.TIMEOUT)  # a search would take all of its time again


class Interrupted(Exception):
    """The wish to stop was seen; everything answered is stored."""


@dataclass(slots=True, kw_only=True)
class AskContext:
    """What all askers of a measurement share."""

    writer: RecordWriter
    samples: Sequence[Sample]
    stop: StopSignal
    concurrency: int = 16
    stored: Mapping[TryKey, TryRecord] = field(default_factory=dict)
    is_replay: bool = False
    calls: Counter[tuple[str, Account]] = field(default_factory=Counter)
    progress: Progress = field(default_factory=Progress)
    spending: Spending = field(default_factory=Spending)
    reached: list[str] = field(default_factory=list)  # which limit of what may be spent
    patience: Patience = field(default_factory=Patience)
    asker: Asker = field(init=False)

    def __post_init__(self) -> None:
        """Make what every call goes through."""
        self.asker = Asker(self.spending, under_way=self.writer.under_way)

    def prompt_of(self, query: Query) -> Prompt:
        """Return the prompt of a sample with a text, or a conversation, in place of its own."""
        prompt = self.samples[query.sample].prompt
        if TURNS in query.chain:  # asked before every call: most chains have no such setting
            return prompt_of(prompt, query.text, query.chain)
        return prompt.with_text(query.text)

    def may_go_on(self) -> None:
        """Commit what is due; stop where that is wished."""
        if self.stop.is_set:
            self.writer.flush()
            raise Interrupted(self.stop.reason)
        if self.reached:
            self.writer.flush()
            raise BudgetReached(
                f"The budget is reached: {self.reached[0]}. All answers are stored.\n"
                "Next: give the same command again to go on; its budget begins anew."
            )
        self.tick()

    async def ask(
        self, call: Callable[..., Awaitable[Any]], part: str, row: CallKey, *about: Any
    ) -> Any:
        """Ask a part once, if what may be spent allows it; the answer will stand in a row.

        Raises:
            BudgetReached: If a limit could be passed.
        """
        return (await self.asker.put(call, Question(part, about, row=row))).answer

    def affordable(self, part: str, prompts: Sequence[Prompt]) -> int:
        """Return about how many of some prompts a part in this process may be asked now."""
        if part in self.spending.at_service:
            return len(prompts)
        meter, price = self.spending.meter, self.spending.prices.get(part)
        room, cost = meter.room(len(prompts)), 0.0
        if price is not None and room:
            costs = [price.of_call(prompt) for prompt in prompts[:room]]
            room, cost = meter.affordable(costs), costs[0]
        if not room:
            self.reached.append(meter.refusal(cost))
            self.may_go_on()
        return room

    def priced(self, part: str, prompt: Prompt, decision: Decision) -> Decision:
        """Count a call of a part in this process that was made already."""
        price = self.spending.prices.get(part)
        if price is not None:
            decision = price.stamp(decision, prompt)
        if part not in self.spending.at_service:
            usage = decision.evidence.usage if decision.evidence else None
            self.spending.meter.count(1, 0.0 if usage is None else usage.cost or 0.0)
        return decision

    def tick(self, _: int = 0) -> bool:
        """Commit what is due; what is under way is always waited for."""
        self.writer.flush_if_due(perf_counter_ns(), count=_FLUSH_AT)
        return True

    def call_key(self, key: TryKey) -> CallKey:
        """Return under which numbers a row stands in the records."""
        name, layer, sample, number = key
        batch = self.writer.tries(name, layer)
        return batch.defense, batch.layer, sample, number

    def add(
        self,
        key: TryKey,
        subject: TrySubject,
        answer: Decision | Response | Verdict,
        *,
        is_free: bool,
        latency_ns: int | None = None,
    ) -> None:
        """Store one row."""
        name, layer, sample, number = key
        batch = self.writer.tries(name, layer)
        batch.add((number, sample), subject, answer, is_free=is_free, latency_ns=latency_ns)


@dataclass(slots=True, kw_only=True)
class Asked(Generic[Q, A]):
    """A question, where its row stands, and the answer once it is there."""

    question: Q
    key: TryKey
    subject: TrySubject
    source: tuple[int, str]  # what questions with the same answer share within a layer
    answer: A = field(init=False)
    is_answered: bool = False
    is_lasting: bool = False  # whether the same text gets the same answer again


@dataclass(slots=True, kw_only=True)
class TryAsker(Generic[Q, A]):
    """Asks questions of one kind on behalf of one defense, and stores what it answers as tries.

    What is stored, or known of an equal text, is not asked: every call goes through the asker of
    the measurement.
    """

    name: str
    context: AskContext
    respond: Callable[[Q, CallKey], Awaitable[A]]
    read: Callable[[TryRecord], A]
    in_bulk: Callable[[Sequence[Q], Take[A]], Awaitable[None]] | None = None
    is_lasting: Callable[[A], bool] = lambda _: False  # whether it answers the same text again
    kept: Callable[[A], A] | None = None  # what is stored of it, where that is not all
    details: Callable[[Q, A], Mapping[str, object]] | None = None  # what is said of it
    is_timed: bool = True
    known: Known[A] = field(default_factory=lambda: defaultdict(dict))
    calls: Counter[tuple[str, Account]] = field(default_factory=Counter)
    _next: Counter[tuple[str, int]] = field(default_factory=Counter)

    def take_key(self, layer: str, sample: int, number: int | None = None) -> TryKey:
        """Return where the next row about a sample stands."""
        if number is None:
            number = self._next[layer, sample]
            self._next[layer, sample] = number + 1
        return self.name, layer, sample, number

    async def ask(
        self, questions: Sequence[Q], settled: Mapping[int, A] | None = None
    ) -> list[Asked[Q, A]]:
        """Ask about each once, except where the answer is settled already, by number."""
        batch, fresh = [self._placed(question) for question in questions], list[Asked[Q, A]]()
        first: dict[tuple[str, tuple[int, str]], Asked[Q, A]] = {}
        for number, each in enumerate(batch):
            layer, is_again = each.question.layer, each.question.is_again
            stored = self.context.stored.get(each.key)
            known = None if is_again else self.known[layer].get(each.source)
            known = (settled or {}).get(number, known)
            if stored is not None:
                self._recall(each, stored)
            elif known is not None:
                self._store(each, known, is_free=True)
            elif is_again or (layer, each.source) not in first:
                fresh.append(each)
            if not is_again:
                first.setdefault((layer, each.source), each)
        await self._call(fresh)
        for each in batch:
            layer = each.question.layer
            if not each.is_answered:  # the same text stands earlier among these questions
                self._store(each, first[layer, each.source].answer, is_free=True)
            each.is_lasting = self.is_lasting(each.answer)
            if each.is_lasting:
                self.known[layer][each.source] = each.answer
        return batch

    def _placed(self, question: Q) -> Asked[Q, A]:
        key = self.take_key(question.layer, question.sample, question.number)
        subject = question.subject
        source = question.sample, subject.digest
        return Asked(question=question, key=key, subject=subject, source=source)

    async def _call(self, fresh: Sequence[Asked[Q, A]]) -> None:
        if not fresh:
            return
        if self.context.is_replay:
            raise IncomparableRuns(
                f"The trace holds no answer for {self._shown(fresh[0].key)}.\n"
                "Next: replay it with the data, budget and seed it was written with."
            )
        self.context.may_go_on()

        def take(number: int, answer: A, latency_ns: int) -> None:
            asked = fresh[number]
            self._count(asked.question, answer)
            self._store(asked, answer, latency_ns=latency_ns if self.is_timed else None)

        if self.in_bulk is None:
            await self._side_by_side(fresh, take)
        else:
            await self.in_bulk([each.question for each in fresh], take)
        if not all(each.is_answered for each in fresh):
            self.context.may_go_on()

    async def _side_by_side(self, fresh: Sequence[Asked[Q, A]], take: Take[A]) -> None:
        """Ask several questions at once, none after the wish to stop."""
        context, numbers = self.context, iter(range(len(fresh)))
        is_watched = context.patience.is_foreign and self.is_timed  # helpers are the person's own

        async def work() -> None:
            for number in numbers:
                if context.stop.is_set or context.reached:
                    return
                row = context.call_key(fresh[number].key)
                began = perf_counter_ns()
                try:
                    answer = await self.respond(fresh[number].question, row)
                except BudgetReached as reached:
                    context.reached.append(str(reached))
                    return
                took = perf_counter_ns() - began
                take(number, answer, took)
                if is_watched:
                    context.patience.note(self.name, took)

        most = 1 if is_watched else min(context.concurrency, len(fresh))
        await supervise([work() for _ in range(most)], context.tick)

    def _recall(self, asked: Asked[Q, A], stored: TryRecord) -> None:
        if stored.subject.digest != asked.subject.digest:
            raise IncomparableRuns(
                f"What is stored for {self._shown(asked.key)} is about another text than these "
                "settings make.\n"
                "Next: use the settings and version that wrote it, or a new run."
            )
        asked.answer, asked.is_answered = self.read(stored), True
        asked.subject = asked.subject._replace(details=stored.subject.details)
        if not stored.is_free:
            self._count(asked.question, asked.answer)
        if self.context.is_replay:
            self._add(asked, is_free=stored.is_free)

    def _store(
        self, asked: Asked[Q, A], answer: A, *, latency_ns: int | None = None, is_free: bool = False
    ) -> None:
        asked.answer, asked.is_answered = answer, True
        if self.details is not None:
            details = {**asked.subject.details, **self.details(asked.question, answer)}
            asked.subject = asked.subject._replace(details=details)
        self._add(asked, latency_ns=latency_ns, is_free=is_free)

    def _add(self, asked: Asked[Q, A], *, is_free: bool, latency_ns: int | None = None) -> None:
        """Store the row of an answer."""
        answer = asked.answer if self.kept is None else self.kept(asked.answer)
        self.context.add(asked.key, asked.subject, answer, is_free=is_free, latency_ns=latency_ns)

    def _count(self, question: Q, answer: A) -> None:
        kind = Outcome.ERROR if getattr(answer, "error_kind", None) else Outcome.ALLOW
        self.context.progress.of(self.name, Stage.TRY).counts[OUTCOME_CODE[kind]] += 1
        for calls in (self.calls, self.context.calls):
            calls[question.layer, question.account] += 1

    def _shown(self, key: TryKey) -> str:
        _, layer, sample, number = key
        return f"try {number} at sample {self.context.samples[sample].id!r} ({layer})"


def stored_tries(reader: RecordReader) -> dict[TryKey, TryRecord]:
    """Return everything that was asked before, and what was answered."""
    return by_key(read_tries(reader))


def by_key(tries: Iterable[TryRecord]) -> dict[TryKey, TryRecord]:
    """Return tries by where they stand."""
    return {(t.defense, t.layer, t.sample, t.number): t for t in tries}


def kept_response(response: Response, most: int | None = None) -> Response:
    """Return an answer as it is stored: its words are evidence."""
    raw = (response.text or "")[:most]
    return replace(response, evidence=replace(response.evidence or Evidence(), raw=raw))


def response_of(record: TryRecord) -> Response:
    """Read the answer of a model back."""
    evidence = record.evidence or Evidence()
    text = evidence.raw if record.error_kind is None else None
    return Response(text=text, error_kind=record.error_kind, evidence=evidence)


def score_fault(score: float | None) -> Failure | None:
    """Return why an answer with this score is none, or None."""
    if score is None or 0.0 <= score <= 1.0:
        return None
    return Failure(ErrorKind.CONTRACT, f"the score {score!r} is not in [0, 1]")


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
        self._first = _asker_of(guard, context, has_seeds=False) if repair else None
        if repair:
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
            first = [replace(q, layer=f"{q.layer}{_BEHIND_FIRST}") for q in batch]
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
                self.context.writer.tries(self.guard.name, layer).confirm(
                    (number, sample),
                    sent=sum(answer.is_blocked is not None for answer in resends),
                    passed=sum(answer.passed for answer in resends),
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
    decide, answers = as_coroutine(guard), dict[tuple[int, str], Decision]()
    final = _FINAL_HERE if guard.capabilities.is_inline else _FINAL

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
        known=defaultdict(dict if has_seeds else lambda: answers),
    )


async def _call_inline(
    guard: Guard, context: AskContext, batch: Sequence[Query], take: Take[Decision]
) -> None:
    decide, patience, at, end_ns = inline_decide(guard), context.patience, 0, 0
    timeout_s = FOLDER_TIMEOUT_S if patience.is_foreign else guard.capabilities.timeout_s

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
    fault = score_fault(decision.score)
    return decision if fault is None else fault.as_decision()


def _answer(asked: Asked[Query, Decision]) -> TryAnswer:
    decision, number = asked.answer, asked.key[-1]
    if decision.outcome not in {Outcome.ALLOW, Outcome.BLOCK}:
        return TryAnswer(is_blocked=None, number=number)
    is_blocked = decision.outcome is Outcome.BLOCK
    evidence = decision.evidence if is_blocked else None
    return TryAnswer(
        is_blocked=is_blocked,
        score=decision.score,
        is_complaint=evidence is not None and tells_of_failure(evidence),
        reason="" if evidence is None else evidence.reason,
        number=number,
    )
