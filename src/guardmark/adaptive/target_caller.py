"""Asking the target model and its judges on the evaluator's account, every answer stored once."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field, replace
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final

from guardmark.adaptive.caller import Interrupted, prompt_of
from guardmark.adaptive.target import KnownAnswers, TargetQuestion
from guardmark.adaptive.trial import Account, text_digest
from guardmark.core.errors import IncomparableRuns
from guardmark.core.outcome import ErrorKind, Evidence, Response, Verdict, VerdictLabel
from guardmark.engine.calls import as_response, as_verdict, attempt
from guardmark.store.codec import evidence_to_json
from guardmark.store.codes import FLAG_CACHED

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from guardmark.adaptive.target import A, ProtectedTarget, Question
    from guardmark.core.protocols import Judge
    from guardmark.core.record import Record, RecordKey
    from guardmark.core.sample import Prompt, Sample
    from guardmark.engine.run_monitor import StopSignal
    from guardmark.store.records import RecordWriter

BATCH: Final = 64
"""Questions between two commits."""


@dataclass(slots=True, kw_only=True)
class TargetCaller:
    """Asks one target model and its judges."""

    protected: ProtectedTarget
    samples: Sequence[Sample]
    writer: RecordWriter
    stop: StopSignal
    concurrency: int = 16
    is_replay: bool = False
    calls: Counter[tuple[str, Account]] = field(default_factory=Counter)
    _known: dict[tuple[int, str], KnownAnswers] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Take over what the run knows of texts as they are."""
        for position, known in self.protected.as_run.items():
            self._known[position, text_digest(self.samples[position].prompt.text)] = known

    async def ask(self, questions: Sequence[Question]) -> None:
        """Ask about texts, and have the answers judged."""
        for start in range(0, len(questions), BATCH):
            batch = questions[start : start + BATCH]
            self.may_go_on()
            responses = await self._respond(batch)
            verdicts: list[dict[str, Verdict]] = [{} for _ in batch]
            answered = [i for i, each in enumerate(responses) if each.text is not None]
            for layer, judge in self.protected.judged:
                pairs = [(batch[i], responses[i].text or "") for i in answered]
                said = await self._judge(pairs, judge, layer=layer)
                for i, verdict in zip(answered, said, strict=True):
                    verdicts[i][layer] = verdict
            for question, response, said_of in zip(batch, responses, verdicts, strict=True):
                self._remember(question, response, said_of)
            self.writer.flush()

    def may_go_on(self) -> None:
        """Commit and stop where that is wished."""
        if self.stop.is_set:
            self.writer.flush()
            raise Interrupted(self.stop.reason)

    async def settle(
        self,
        question: Question,
        key: RecordKey,
        *,
        known: A | None,
        read: Callable[[Record], A],
        call: Callable[[], Awaitable[A]],
    ) -> TargetQuestion[A]:
        """Take a stored answer, a known one, or call."""
        record = self.protected.memory.get(key)
        if record is not None:
            note = json.loads(record.text or "{}")
            if note.get("text") != text_digest(question.text):
                raise IncomparableRuns(
                    f"A stored answer of the target model ({key.layer}, try {key.repeat}) is about "
                    "another text than these settings make.\n"
                    "Next: use the settings and version that wrote it, or a new run."
                )
            return TargetQuestion(read(record), None if note["free"] else 0, not self.is_replay)
        if known is not None:
            return TargetQuestion(known, None, is_stored=False)
        if self.is_replay:
            raise IncomparableRuns(
                f"The trace holds no answer of the target model for try {key.repeat} in "
                f"{key.layer}.\nNext: replay it with the data, budget and seed it was written with."
            )
        began = perf_counter_ns()
        answer = await call()
        return TargetQuestion(answer, perf_counter_ns() - began, is_stored=False)

    async def side_by_side(
        self, work: Sequence[Callable[[], Awaitable[TargetQuestion[A]]]]
    ) -> list[TargetQuestion[A]]:
        """Carry out several questions at once."""
        gate = asyncio.Semaphore(self.concurrency)

        async def one(each: Callable[[], Awaitable[TargetQuestion[A]]]) -> TargetQuestion[A]:
            async with gate:
                return await each()

        return await asyncio.gather(*(one(each) for each in work))

    async def response_to(self, question: Question, prompt: Prompt) -> TargetQuestion[Response]:
        """Ask the target model, unless the answer is known."""
        before = self._known.get((question.key.sample, text_digest(question.text)))

        async def call() -> Response:
            return _whole(as_response(await attempt(self.protected.model.answer, prompt)))

        return await self.settle(
            question,
            question.key,
            known=None if before is None else before.response,
            read=_response_of,
            call=call,
        )

    def store_response(
        self, question: Question, asked: TargetQuestion[Response], *, note: str
    ) -> None:
        """Store an answer of the target model, unless it is stored, and count the call."""
        key, response = question.key, asked.answer
        if asked.took_ns is not None:
            self.calls[key.layer, question.account] += 1
        if asked.is_stored:
            return
        lane = self.writer.record_batch(key.defense, key.stage, layer=key.layer, repeat=key.repeat)
        evidence = response.evidence or Evidence()
        # The text column of a try holds its note; the answer itself is kept as raw evidence.
        kept = replace(response, text=note, evidence=replace(evidence, raw=response.text or ""))
        flags = FLAG_CACHED if asked.took_ns is None else 0
        lane.add_response(key.sample, kept, latency_ns=asked.took_ns or None, flags=flags)

    async def _respond(self, batch: Sequence[Question]) -> list[Response]:
        def work(question: Question) -> Callable[[], Awaitable[TargetQuestion[Response]]]:
            prompt = prompt_of(self.samples[question.key.sample], question.text)
            return lambda: self.response_to(question, prompt)

        found = await self.side_by_side([work(question) for question in batch])
        for question, asked in zip(batch, found, strict=True):
            note = question.note(account=question.account, is_free=asked.took_ns is None)
            self.store_response(question, asked, note=note)
        return [asked.answer for asked in found]

    async def _judge(
        self, answered: Sequence[tuple[Question, str]], judge: Judge, *, layer: str
    ) -> list[Verdict]:
        def work(question: Question, text: str) -> Callable[[], Awaitable[TargetQuestion[Verdict]]]:
            prompt = prompt_of(self.samples[question.key.sample], question.text)
            before = self._known.get((question.key.sample, text_digest(question.text)))

            async def call() -> Verdict:
                return _sound(as_verdict(await attempt(judge.judge, prompt, text)))

            return lambda: self.settle(
                question,
                replace(question.key, layer=layer),
                known=None if before is None else before.verdicts.get(layer),
                read=_verdict_of,
                call=call,
            )

        found = await self.side_by_side([work(*each) for each in answered])
        for (question, _), asked in zip(answered, found, strict=True):
            self._store_verdict(question, asked, layer=layer)
        return [asked.answer for asked in found]

    def _store_verdict(
        self, question: Question, asked: TargetQuestion[Verdict], *, layer: str
    ) -> None:
        key, verdict, is_free = question.key, asked.answer, asked.took_ns is None
        if not is_free:
            self.calls[layer, Account.VERDICT] += 1
        if asked.is_stored:
            return
        lane = self.writer.record_batch(key.defense, key.stage, layer=layer, repeat=key.repeat)
        said = "{}" if verdict.evidence is None else evidence_to_json(verdict.evidence)
        lane.add_verdict(
            key.sample,
            replace(verdict, evidence=None),
            latency_ns=asked.took_ns or None,
            flags=FLAG_CACHED if is_free else 0,
        )
        note = question.note(account=Account.VERDICT, is_free=is_free)
        lane.details.append((key.sample, note, None if said == "{}" else said))

    def _remember(
        self, question: Question, response: Response, verdicts: Mapping[str, Verdict]
    ) -> None:
        if response.text is None:
            return
        sound = {
            layer: said for layer, said in verdicts.items() if said.label is not VerdictLabel.ERROR
        }
        place = (question.key.sample, text_digest(question.text))
        self._known[place] = KnownAnswers(response=response, verdicts=sound)


def _whole(response: Response) -> Response:
    """Make an answer either a text or an error, never both and never neither."""
    if response.text is None and response.error_kind is None:
        return replace(response, error_kind=ErrorKind.CONTRACT)
    return response if response.error_kind is None else replace(response, text=None)


def _sound(verdict: Verdict) -> Verdict:
    if verdict.score is None or 0.0 <= verdict.score <= 1.0:
        return verdict
    evidence = Evidence(message=f"the score {verdict.score!r} is not in [0, 1]")
    return Verdict(label=VerdictLabel.ERROR, error_kind=ErrorKind.CONTRACT, evidence=evidence)


def _response_of(record: Record) -> Response:
    if record.error_kind is not None:
        return Response(text=None, error_kind=record.error_kind)
    evidence = record.evidence
    return Response(text="" if evidence is None else evidence.raw, evidence=evidence)


def _verdict_of(record: Record) -> Verdict:
    return Verdict(
        label=VerdictLabel(record.outcome),
        answer_mode=record.answer_mode,
        score=record.score,
        error_kind=record.error_kind,
    )
