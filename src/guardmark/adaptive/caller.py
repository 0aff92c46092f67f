"""Asking a defense: stored answers first, then calls; answers in the order of questions."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final

from guardmark.adaptive.trial import Account, TryAnswer, text_digest
from guardmark.core.errors import IncomparableRuns
from guardmark.core.outcome import Decision, ErrorKind, Evidence, Outcome
from guardmark.core.protocols import BatchDefense, InlineDefense
from guardmark.core.record import Stage
from guardmark.engine.calls import (
    as_coroutine,
    as_decision,
    attempt,
    decide_batch,
    decide_unless_abandoned,
    skipping,
)
from guardmark.store.codec import evidence_to_json
from guardmark.store.codes import FLAG_CACHED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guardmark.adaptive.trial import Query, Steps, T
    from guardmark.core.sample import Prompt, Sample
    from guardmark.engine.calls import Answers
    from guardmark.engine.plan import AnyDefense
    from guardmark.engine.run_monitor import StopSignal
    from guardmark.store.records import RecordWriter

_SLICE: Final = 256  # calls in line between two looks at the wish to stop
_FLUSH_AT: Final = 20_000  # rows; many lanes share a commit, so it should be large
_RETRIES: Final = 2  # a failed call is no answer: it is asked again, at nobody's expense
_FINAL: Final = (ErrorKind.SKIPPED, ErrorKind.LENGTH, ErrorKind.CONTRACT)

Place = tuple[str, int, int]
"""Layer, position of the sample, number of the try."""
_Answers = dict[tuple[int, str], Decision]  # by position of the sample and digest of the text


class Interrupted(Exception):
    """The wish to stop was seen; everything answered is stored."""


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """An answer that is stored already."""

    decision: Decision
    digest: str
    is_free: bool = False


@dataclass(slots=True, kw_only=True)
class Caller:
    """Asks one defense and stores every answer."""

    defense: AnyDefense
    samples: Sequence[Sample]
    writer: RecordWriter
    stop: StopSignal
    concurrency: int = 16
    memory: Mapping[Place, StoredAnswer] = field(default_factory=dict)
    is_replay: bool = False
    calls: Counter[tuple[str, Account]] = field(default_factory=Counter)
    _next: Counter[tuple[str, int]] = field(default_factory=Counter)
    _known: defaultdict[str, _Answers] = field(default_factory=lambda: defaultdict(dict))
    _waiting: int = 0

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
        digests = [text_digest(query.text) for query in batch]
        decisions: list[Decision | None] = [None] * len(batch)
        open_places = list(range(len(batch)))
        for _ in range(_RETRIES + 1):
            found = await self._round(
                [batch[i] for i in open_places], [digests[i] for i in open_places]
            )
            for place, decision in zip(open_places, found, strict=True):
                decisions[place] = decision
            open_places = [i for i in open_places if _is_passing(decisions[i])]
            if not open_places:
                break
        if self._waiting >= _FLUSH_AT:
            self.flush()
        return [_answer(decision) for decision in decisions if decision is not None]

    def known(self, layer: str) -> dict[tuple[int, str], Decision]:
        """Return a copy of what was answered in a layer so far."""
        return dict(self._known[layer])

    def begin(self, layer: str, known: Mapping[tuple[int, str], Decision]) -> None:
        """Let an arm know answers of another one, so that it pays for none of them again."""
        self._known[layer] = dict(known)

    def forget(self, layer: str) -> None:
        """Drop what is known in a layer that asks nothing more; its rows are stored."""
        self._known.pop(layer, None)

    def flush(self) -> None:
        """Commit what was answered."""
        self.writer.flush()
        self._waiting = 0

    async def _round(self, batch: list[Query], digests: list[str]) -> list[Decision]:
        """Ask once about each; store a row for each."""
        found: list[Decision | None] = [None] * len(batch)
        fresh: list[int] = []
        places: list[Place] = []
        sources: list[tuple[str, int, str]] = []
        twins: dict[tuple[str, int, str], int] = {}
        for index, query in enumerate(batch):
            number = self._next[query.layer, query.sample]
            self._next[query.layer, query.sample] = number + 1
            places.append((query.layer, query.sample, number))
            source = (query.layer, query.sample, digests[index])
            sources.append(source)
            remembered = self.memory.get(places[-1])
            if remembered is not None:
                found[index] = self._recall(remembered, query, digests[index])
            elif not query.is_again and (known := self._answer_to(source)) is not None:
                found[index] = known
                self._store(query, places[-1], digest=digests[index], decision=known, latency=None)
            elif query.is_again or source not in twins:
                twins[source] = index
                fresh.append(index)
        decided, latencies = await self._call([batch[i] for i in fresh])
        for index, decision in zip(fresh, decided, strict=True):
            found[index] = _sound(decision)
            self.calls[batch[index].layer, batch[index].account] += 1
        timed = dict(zip(fresh, latencies, strict=True))
        answers: list[Decision] = []
        for index, query in enumerate(batch):
            # None: the same text stands earlier in this batch.
            decision = found[index] or answers[twins[sources[index]]]
            if found[index] is None or index in timed:
                took = timed.get(index)
                self._store(
                    query, places[index], digest=digests[index], decision=decision, latency=took
                )
            if decision.outcome is not Outcome.ERROR:
                self._known[batch[index].layer][sources[index][1:]] = decision
            answers.append(decision)
        return answers

    def _answer_to(self, source: tuple[str, int, str]) -> Decision | None:
        layer, sample, digest = source
        return self._known[layer].get((sample, digest))

    def _recall(self, remembered: StoredAnswer, query: Query, digest: str) -> Decision:
        if remembered.digest != digest:
            raise IncomparableRuns(
                f"The stored tries at sample {self.samples[query.sample].id!r} are about other "
                "texts than these settings make.\n"
                "Next: use the settings and version that wrote them, or a new run."
            )
        if not remembered.is_free:
            self.calls[query.layer, query.account] += 1
        if self.is_replay:
            latency = None if remembered.is_free else 0
            number = self._next[query.layer, query.sample] - 1
            place = (query.layer, query.sample, number)
            self._store(query, place, digest=digest, decision=remembered.decision, latency=latency)
        return remembered.decision

    def _store(
        self, query: Query, place: Place, *, digest: str, decision: Decision, latency: int | None
    ) -> None:
        """Take one row; without a latency nothing was called."""
        layer, sample, number = place
        lane = self.writer.record_batch(self.defense.name, Stage.TRY, layer=layer, repeat=number)
        evidence = decision.evidence
        said = "{}" if evidence is None else evidence_to_json(evidence)
        bare = decision if evidence is None else replace(decision, evidence=None)
        flags = FLAG_CACHED if latency is None else 0
        lane.add_decision(sample, bare, latency_ns=latency or None, flags=flags)
        lane.details.append(
            (sample, query.note(digest, is_free=latency is None), None if said == "{}" else said)
        )
        self._waiting += 1

    async def _call(self, batch: list[Query]) -> Answers:
        if not batch:
            return [], []
        if self.is_replay:
            first = batch[0]
            raise IncomparableRuns(
                f"The trace holds no answer for try {self._next[first.layer, first.sample]} at "
                f"sample {self.samples[first.sample].id!r} ({first.layer}).\n"
                "Next: replay it with the data, budget and seed it was written with."
            )
        prompts = [prompt_of(self.samples[query.sample], query.text) for query in batch]
        defense = self.defense
        if isinstance(defense, InlineDefense):
            return await self._call_inline(defense, prompts)
        self._may_go_on()
        if isinstance(defense, BatchDefense):
            return await self._call_batches(defense, prompts)
        gate, decide = asyncio.Semaphore(self.concurrency), as_coroutine(defense)

        async def one(prompt: Prompt) -> tuple[Decision, int]:
            async with gate:
                began = perf_counter_ns()
                decision = as_decision(await attempt(decide, prompt))
                return decision, perf_counter_ns() - began

        answered = await asyncio.gather(*(one(prompt) for prompt in prompts))
        return [each[0] for each in answered], [each[1] for each in answered]

    async def _call_inline(self, defense: InlineDefense, prompts: list[Prompt]) -> Answers:
        decide = skipping(defense.decide_now, defense.view)
        decisions: list[Decision] = []
        latencies: list[int] = []
        for start in range(0, len(prompts), _SLICE):
            self._may_go_on()
            part = prompts[start : start + _SLICE]
            answered, took = decide_unless_abandoned(decide, part, self.stop)
            if len(answered) < len(part):
                self._may_go_on()
            decisions += answered
            latencies += took
            await asyncio.sleep(0)
        return decisions, latencies

    async def _call_batches(self, defense: BatchDefense, prompts: list[Prompt]) -> Answers:
        decisions: list[Decision] = []
        latencies: list[int] = []
        size = max(1, defense.batch_limits.max_count)
        for start in range(0, len(prompts), size):
            part = prompts[start : start + size]
            began = perf_counter_ns()
            decisions += await decide_batch(defense, part)
            latencies += [max(1, (perf_counter_ns() - began) // len(part))] * len(part)
        return decisions, latencies

    def _may_go_on(self) -> None:
        if self.stop.is_set:
            self.flush()
            raise Interrupted(self.stop.reason)


def prompt_of(sample: Sample, text: str) -> Prompt:
    """Put a text in the place of a sample's text under test."""
    return sample.prompt.with_text(text)


def tells_of_failure(evidence: Evidence) -> bool:
    """Tell whether what lies behind a block speaks of a failure."""
    return bool(evidence.message or (evidence.attempts and evidence.attempts[-1].error))


def _is_passing(decision: Decision | None) -> bool:
    if decision is None or decision.outcome is not Outcome.ERROR:
        return False
    return decision.error_kind not in _FINAL


def _sound(decision: Decision) -> Decision:
    if decision.score is None or 0.0 <= decision.score <= 1.0:
        return decision
    message = f"the score {decision.score!r} is not in [0, 1]"
    return Decision(
        outcome=Outcome.ERROR,
        error_kind=ErrorKind.CONTRACT,
        evidence=Evidence(message=message),
    )


def _answer(decision: Decision) -> TryAnswer:
    if decision.outcome is Outcome.ALLOW:
        return TryAnswer(is_blocked=False, score=decision.score)
    if decision.outcome is Outcome.BLOCK:
        evidence = decision.evidence
        failed = evidence is not None and tells_of_failure(evidence)
        reason = "" if evidence is None else evidence.reason
        return TryAnswer(is_blocked=True, score=decision.score, is_complaint=failed, reason=reason)
    return TryAnswer(is_blocked=None)
