"""Asking anybody: stored answers first, then known ones, then calls; every answer stored once."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from guardmark.adaptive.questions import text_digest
from guardmark.core.errors import IncomparableRuns
from guardmark.store.tries import TryRecord, TrySubject, read_tries

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guardmark.adaptive.questions import Account
    from guardmark.core.outcome import Decision, Response, Verdict
    from guardmark.core.sample import Prompt, Sample
    from guardmark.engine.run_monitor import StopSignal
    from guardmark.store.reader import RecordReader
    from guardmark.store.records import RecordWriter

Place = tuple[str, str, int, int]
"""Name of the defense, layer, position of the sample, number of the try."""


class Question(Protocol):
    """What every kind of question says of itself."""

    @property
    def layer(self) -> str:
        """Where its answer is stored."""

    @property
    def sample(self) -> int:
        """Position of the sample it is about."""

    @property
    def account(self) -> Account:
        """Who pays for it."""

    @property
    def is_again(self) -> bool:
        """Whether it is asked although the answer is known."""


Q = TypeVar("Q", bound=Question)
A = TypeVar("A")
Take = Callable[[int, A, int | None], None]
"""Takes the answer to a question by its number, and its latency in nanoseconds."""
Known = defaultdict[str, dict[tuple[int, str], A]]
"""Layer to position of a sample and hash of a text to answer."""


class Interrupted(Exception):
    """The wish to stop was seen; everything answered is stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(Generic[Q, A]):
    """What sets one kind of question apart from the others."""

    digest: Callable[[Q], str]
    subject: Callable[[Q, str, A], TrySubject]
    call: Callable[[Sequence[Q], Take[A]], Awaitable[None]]
    store: Callable[[A], Decision | Response | Verdict]
    read: Callable[[TryRecord], A]
    is_lasting: Callable[[A], bool] | None = None  # None where every question is asked
    number: Callable[[Q], int] | None = None  # where it is not the next one
    flush_at: int  # answers after which they are committed


@dataclass(slots=True, kw_only=True)
class AskContext:
    """What all askers of a measurement share."""

    writer: RecordWriter
    samples: Sequence[Sample]
    stop: StopSignal
    concurrency: int = 16
    stored: Mapping[Place, TryRecord] = field(default_factory=dict)
    is_replay: bool = False

    def may_go_on(self) -> None:
        """Commit and stop where that is wished."""
        if self.stop.is_set:
            self.writer.flush()
            raise Interrupted(self.stop.reason)

    async def side_by_side(
        self, questions: Sequence[Q], call: Callable[[Q], Awaitable[A]], take: Take[A]
    ) -> None:
        """Ask several questions at once, none after the wish to stop."""
        gate = asyncio.Semaphore(self.concurrency)

        async def one(number: int) -> None:
            async with gate:
                if self.stop.is_set:
                    return
                began = perf_counter_ns()
                answer = await call(questions[number])
                take(number, answer, perf_counter_ns() - began)

        await asyncio.gather(*(one(number) for number in range(len(questions))))


@dataclass(slots=True, kw_only=True)
class Asker(Generic[Q, A]):
    """Asks questions of one kind on behalf of one defense."""

    name: str
    kind: Kind[Q, A]
    context: AskContext
    known: Known[A] = field(default_factory=lambda: defaultdict(dict))
    calls: Counter[tuple[str, Account]] = field(default_factory=Counter)
    _next: Counter[tuple[str, int]] = field(default_factory=Counter)
    _waiting: int = 0

    def take_place(self, layer: str, sample: int) -> Place:
        """Return where the next row about a sample stands."""
        number = self._next[layer, sample]
        self._next[layer, sample] = number + 1
        return self.name, layer, sample, number

    async def ask(self, questions: Sequence[Q]) -> list[tuple[A, Place]]:
        """Ask about each once; return the answers and where they stand."""
        kind, places, digests = self.kind, list[Place](), list[str]()
        answers: list[A | None] = [None] * len(questions)
        fresh, twins = list[int](), dict[tuple[str, int, str], int]()
        for index, question in enumerate(questions):
            place, digest = self._place(question), kind.digest(question)
            places.append(place)
            digests.append(digest)
            source = (question.layer, question.sample, digest)
            is_asked = question.is_again or kind.is_lasting is None
            if (stored := self.context.stored.get(place)) is not None:
                answers[index] = self._recall(question, place, digest=digest, stored=stored)
            elif not is_asked and (known := self._known(source)) is not None:
                answers[index] = known
                self._store(question, place, digest=digest, answer=known, is_free=True)
            elif is_asked or source not in twins:
                twins[source] = index
                fresh.append(index)
        await self._call(questions, places, digests=digests, answers=answers, fresh=fresh)
        found = list[A]()
        for index, question in enumerate(questions):
            source = (question.layer, question.sample, digests[index])
            answer = answers[index]
            if answer is None:  # the same text stands earlier among these questions
                answer = found[twins[source]]
                self._store(question, places[index], digest=source[2], answer=answer, is_free=True)
            if kind.is_lasting is not None and kind.is_lasting(answer):
                self.known[source[0]][source[1:]] = answer
            found.append(answer)
        return list(zip(found, places, strict=True))

    def flush(self) -> None:
        """Commit what was answered."""
        self.context.writer.flush()
        self._waiting = 0

    def add(
        self,
        place: Place,
        subject: TrySubject,
        row: Decision | Response | Verdict,
        *,
        is_free: bool,
    ) -> None:
        """Store something that nobody was asked for, unless it is stored already."""
        if place not in self.context.stored:
            name, layer, sample, number = place
            batch = self.context.writer.tries(name, layer)
            batch.add((number, sample), subject, row, is_free=is_free)
            self._waiting += 1

    def _place(self, question: Q) -> Place:
        if self.kind.number is None:
            return self.take_place(question.layer, question.sample)
        return self.name, question.layer, question.sample, self.kind.number(question)

    def _known(self, source: tuple[str, int, str]) -> A | None:
        return self.known[source[0]].get(source[1:])

    async def _call(
        self,
        questions: Sequence[Q],
        places: Sequence[Place],
        *,
        digests: Sequence[str],
        answers: list[A | None],
        fresh: Sequence[int],
    ) -> None:
        if not fresh:
            return
        if self.context.is_replay:
            raise IncomparableRuns(
                f"The trace holds no answer for {self._told(places[fresh[0]])}.\n"
                "Next: replay it with the data, budget and seed it was written with."
            )

        def take(number: int, answer: A, latency_ns: int | None) -> None:
            index = fresh[number]
            question, digest = questions[index], digests[index]
            answers[index] = answer
            self.calls[question.layer, question.account] += 1
            self._store(
                question, places[index], digest=digest, answer=answer, latency_ns=latency_ns
            )

        await self.kind.call([questions[index] for index in fresh], take)
        if any(answers[index] is None for index in fresh):
            self.context.may_go_on()

    def _recall(self, question: Q, place: Place, *, digest: str, stored: TryRecord) -> A:
        if stored.subject.digest != digest:
            raise IncomparableRuns(
                f"What is stored for {self._told(place)} is about another text than these "
                "settings make.\n"
                "Next: use the settings and version that wrote it, or a new run."
            )
        answer = self.kind.read(stored)
        if not stored.is_free:
            self.calls[question.layer, question.account] += 1
        if self.context.is_replay:
            self._store(question, place, digest=digest, answer=answer, is_free=stored.is_free)
        return answer

    def _store(
        self,
        question: Q,
        place: Place,
        *,
        digest: str,
        answer: A,
        latency_ns: int | None = None,
        is_free: bool = False,
    ) -> None:
        name, layer, sample, number = place
        subject, row = self.kind.subject(question, digest, answer), self.kind.store(answer)
        batch = self.context.writer.tries(name, layer)
        batch.add((number, sample), subject, row, is_free=is_free, latency_ns=latency_ns)
        self._waiting += 1
        if self._waiting >= self.kind.flush_at:
            self.flush()

    def _told(self, place: Place) -> str:
        _, layer, sample, number = place
        return f"try {number} at sample {self.context.samples[sample].id!r} ({layer})"


def stored_tries(reader: RecordReader) -> dict[Place, TryRecord]:
    """Return everything that was asked before, and what was answered."""
    return {(t.defense, t.layer, t.sample, t.number): t for t in read_tries(reader)}


def prompt_of(sample: Sample, text: str) -> Prompt:
    """Put a text in the place of a sample's text under test."""
    return sample.prompt.with_text(text)


def digest_of_text(question: HasText) -> str:
    """Return the hash of the text that a question is about."""
    return text_digest(question.text)


class HasText(Protocol):
    """A question about one text."""

    @property
    def text(self) -> str:
        """The text."""
