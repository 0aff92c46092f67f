"""Asking anybody on behalf of an attack: what is stored or known is not asked again."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from guardmark.adaptive.state import Account, Ask, Query
from guardmark.attacks.talks import TURNS, prompt_of
from guardmark.config.deadline import Patience
from guardmark.core.errors import BudgetReached, IncomparableRuns
from guardmark.core.outcome import Decision, ErrorKind, Evidence, Outcome, Response, Verdict
from guardmark.core.record import Stage
from guardmark.defenses.calls.failure import Failure
from guardmark.engine.asking import Asker, Question
from guardmark.engine.plan import Spending
from guardmark.engine.run_monitor import Progress
from guardmark.engine.supervision import supervise
from guardmark.store.schema import OUTCOME_CODE
from guardmark.store.tries import read_tries

if TYPE_CHECKING:
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


class Interrupted(Exception):
    """Raised where the user wants to stop; everything answered is stored."""


@dataclass(slots=True, kw_only=True)
class AskContext:
    """What all askers of a measurement share.

    Attributes:
        writer: Where rows are stored.
        samples: All samples, by position.
        stop: The wish to stop.
        concurrency: Calls in flight at once.
        stored: Rows of earlier commands, or of the trace that is replayed.
        is_replay: Whether a trace is replayed, and nobody is asked.
        calls: Calls by layer and by who pays for them.
        progress: Counts that others read meanwhile.
        spending: Who counts the calls, and what they cost.
        reached: Which limit of what may be spent was reached.
        patience: How long a foreign defense may take.
        asker: What every call goes through.
    """

    writer: RecordWriter
    samples: Sequence[Sample]
    stop: StopSignal
    concurrency: int = 16
    stored: Mapping[TryKey, TryRecord] = field(default_factory=dict)
    is_replay: bool = False
    calls: Counter[tuple[str, Account]] = field(default_factory=Counter)
    progress: Progress = field(default_factory=Progress)
    spending: Spending = field(default_factory=Spending)
    reached: list[str] = field(default_factory=list)
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
            cost = 0.0
            if decision.evidence and decision.evidence.usage is not None:
                cost = decision.evidence.usage.cost or 0.0
            self.spending.meter.count(1, cost)
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
    """A question, where its row stands, and the answer once it is there.

    Attributes:
        question: What is asked.
        key: Where its row stands.
        subject: What the row says of the question.
        source: What questions with the same answer share within a layer: sample and text.
        answer: What was answered.
        is_answered: Whether it is.
        is_lasting: Whether the same text gets the same answer again.
    """

    question: Q
    key: TryKey
    subject: TrySubject
    source: tuple[int, str]
    answer: A = field(init=False)
    is_answered: bool = False
    is_lasting: bool = False


@dataclass(slots=True, kw_only=True)
class TryAsker(Generic[Q, A]):
    """Asks questions of one kind on behalf of one defense, and stores what it answers as tries.

    What is stored, or known of an equal text, is not asked: every call goes through the asker of
    the measurement.

    Attributes:
        name: Under which the rows stand.
        context: What all askers of the measurement share.
        respond: Asks one question; its answer becomes the row.
        read: Reads an answer back from its row.
        in_bulk: Asks many questions; without it they are asked side by side.
        is_lasting: Whether an answer would be given again to the same text.
        kept: What is stored of an answer, where that is not all.
        details: What the row says of an answer beside it.
        is_timed: Whether the time of a call is measured here.
        known: Answers that are not asked for again, by layer.
        calls: Calls by layer and by who pays for them.
    """

    name: str
    context: AskContext
    respond: Callable[[Q, CallKey], Awaitable[A]]
    read: Callable[[TryRecord], A]
    in_bulk: Callable[[Sequence[Q], Take[A]], Awaitable[None]] | None = None
    is_lasting: Callable[[A], bool] = lambda _: False
    kept: Callable[[A], A] | None = None
    details: Callable[[Q, A], Mapping[str, object]] | None = None
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
        batch = [self._placed(question) for question in questions]
        fresh: list[Asked[Q, A]] = []
        first: dict[tuple[str, tuple[int, str]], Asked[Q, A]] = {}
        given = settled or {}
        for number, each in enumerate(batch):
            layer, is_again = each.question.layer, each.question.is_again
            stored = self.context.stored.get(each.key)
            known = given.get(number)
            if known is None and not is_again:
                known = self.known[layer].get(each.source)
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
        """Ask what nothing stored or known answers; a replay cannot, and says so."""
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
            if self.is_timed:
                self._store(asked, answer, latency_ns=latency_ns)
            else:
                self._store(asked, answer)

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

        most = min(context.concurrency, len(fresh))
        if is_watched:
            most = 1
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
        answer = asked.answer
        if self.kept is not None:
            answer = self.kept(answer)
        self.context.add(asked.key, asked.subject, answer, is_free=is_free, latency_ns=latency_ns)

    def _count(self, question: Q, answer: A) -> None:
        kind = Outcome.ALLOW
        if getattr(answer, "error_kind", None):
            kind = Outcome.ERROR
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
    return {(each.defense, each.layer, each.sample, each.number): each for each in tries}


def kept_response(response: Response, most: int | None = None) -> Response:
    """Return an answer as it is stored: its words are evidence."""
    raw = (response.text or "")[:most]
    return replace(response, evidence=replace(response.evidence or Evidence(), raw=raw))


def response_of(record: TryRecord) -> Response:
    """Read the answer of a model back."""
    evidence = record.evidence or Evidence()
    text = None
    if record.error_kind is None:
        text = evidence.raw
    return Response(text=text, error_kind=record.error_kind, evidence=evidence)


def score_fault(score: float | None) -> Failure | None:
    """Return why an answer with this score is none, or None."""
    if score is None or 0.0 <= score <= 1.0:
        return None
    return Failure(ErrorKind.CONTRACT, f"the score {score!r} is not in [0, 1]")
