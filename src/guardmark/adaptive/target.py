"""The target model behind the defenses: asked about texts, its answers judged."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from guardmark.adaptive.asker import Asker, Kind, digest_of_text, prompt_of
from guardmark.adaptive.model_asker import response_of
from guardmark.adaptive.questions import Account, text_digest
from guardmark.core.outcome import ErrorKind, Evidence, Response, Verdict, VerdictLabel
from guardmark.engine.calls import as_response, as_verdict, attempt
from guardmark.store.layers import TARGET, VERDICT
from guardmark.store.tries import TryRecord, TrySubject

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guardmark.adaptive.asker import A, AskContext, Known, Take
    from guardmark.core.protocols import ChatModel, Judge

BATCH: Final = 64
"""Questions between two commits."""
ROUND: Final = "target"
"""Round of what the target model is asked."""
_NEVER: Final = 1 << 62  # rows: what is asked together is committed together


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownAnswers:
    """What the target model answered to a text, and what judges said of it."""

    response: Response
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtectedTarget:
    """What the defenses protect, and how it is measured."""

    model: ChatModel
    judges: tuple[Judge, ...] = ()
    settings: Mapping[str, object] = field(default_factory=dict)
    as_run: Mapping[int, KnownAnswers] = field(default_factory=dict)
    canaries: int = 20

    @property
    def judged(self) -> tuple[tuple[str, Judge], ...]:
        """Each judge with the layer its verdicts are stored in."""
        if len(self.judges) == 1:
            return ((VERDICT, self.judges[0]),)
        return tuple((f"{VERDICT}/{judge.name}", judge) for judge in self.judges)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetQuestion:
    """One text for the target model in place of a sample's, or an answer to it for a judge."""

    sample: int
    text: str
    account: Account
    layer: str = TARGET
    chain: str = ""
    tier: str = ""
    response: str = ""
    is_again: bool = False

    def subject(self, digest: str, details: Mapping[str, object]) -> TrySubject:
        """Return what is stored of it."""
        return TrySubject(
            account=self.account.value,
            round=ROUND,
            digest=digest,
            chain=self.chain,
            tier=self.tier,
            details=details,
        )


class TargetAsker:
    """Asks one target model and its judges."""

    def __init__(self, protected: ProtectedTarget, context: AskContext) -> None:
        self.protected = protected
        self.context = context
        self.calls: Counter[tuple[str, Account]] = Counter()
        self._responses: Known[Response] = defaultdict(dict)
        self._verdicts: Known[Verdict] = defaultdict(dict)
        for position, known in protected.as_run.items():
            source = position, text_digest(context.samples[position].prompt.text)
            self._responses[TARGET][source] = known.response
            for layer, verdict in known.verdicts.items():
                self._verdicts[layer][source] = verdict

    async def ask(self, defense: str, questions: Sequence[TargetQuestion]) -> None:
        """Ask about texts that reached the model behind a defense, and have the answers judged."""
        responder = self._asker(defense, self._response_kind(), self._responses)
        judges = [
            (layer, self._asker(defense, self._verdict_kind(judge), self._verdicts))
            for layer, judge in self.protected.judged
        ]
        for start in range(0, len(questions), BATCH):
            batch = questions[start : start + BATCH]
            self.context.may_go_on()
            answers = await responder.ask(batch)
            for layer, judge in judges:
                await judge.ask(
                    [
                        replace(each, layer=layer, account=Account.VERDICT, response=response.text)
                        for each, (response, _) in zip(batch, answers, strict=True)
                        if response.text is not None
                    ]
                )
            self.context.writer.flush()

    async def respond(self, sample: int, text: str) -> Response:
        """Let the target model answer a text in place of a sample's."""
        prompt = prompt_of(self.context.samples[sample], text)
        return whole(as_response(await attempt(self.protected.model.answer, prompt)))

    def _asker(
        self, defense: str, kind: Kind[TargetQuestion, A], known: Known[A]
    ) -> Asker[TargetQuestion, A]:
        return Asker(name=defense, kind=kind, context=self.context, known=known, calls=self.calls)

    def _response_kind(self) -> Kind[TargetQuestion, Response]:
        async def respond(question: TargetQuestion) -> Response:
            return await self.respond(question.sample, question.text)

        async def call(questions: Sequence[TargetQuestion], take: Take[Response]) -> None:
            await self.context.side_by_side(questions, respond, take)

        return Kind(
            digest=digest_of_text,
            subject=lambda question, digest, _: question.subject(digest, {}),
            call=call,
            store=kept,
            read=response_of,
            is_lasting=lambda response: response.text is not None,
            flush_at=_NEVER,
        )

    def _verdict_kind(self, judge: Judge) -> Kind[TargetQuestion, Verdict]:
        async def compare(question: TargetQuestion) -> Verdict:
            prompt = prompt_of(self.context.samples[question.sample], question.text)
            return _sound(as_verdict(await attempt(judge.judge, prompt, question.response)))

        async def call(questions: Sequence[TargetQuestion], take: Take[Verdict]) -> None:
            await self.context.side_by_side(questions, compare, take)

        return Kind(
            digest=digest_of_text,
            subject=lambda question, digest, _: question.subject(digest, {}),
            call=call,
            store=lambda verdict: verdict,
            read=_verdict_of,
            is_lasting=lambda verdict: verdict.label is not VerdictLabel.ERROR,
            flush_at=_NEVER,
        )


def kept(response: Response) -> Response:
    """Return an answer as it is stored: its words are evidence."""
    evidence = replace(response.evidence or Evidence(), raw=response.text or "")
    return replace(response, evidence=evidence)


def whole(response: Response) -> Response:
    """Make an answer either a text or an error, never both and never neither."""
    if response.text is None and response.error_kind is None:
        return replace(response, error_kind=ErrorKind.CONTRACT)
    return response if response.error_kind is None else replace(response, text=None)


def _sound(verdict: Verdict) -> Verdict:
    if verdict.score is None or 0.0 <= verdict.score <= 1.0:
        return verdict
    evidence = Evidence(message=f"the score {verdict.score!r} is not in [0, 1]")
    return Verdict(label=VerdictLabel.ERROR, error_kind=ErrorKind.CONTRACT, evidence=evidence)


def _verdict_of(record: TryRecord) -> Verdict:
    return Verdict(
        label=VerdictLabel(record.outcome),
        answer_mode=record.answer_mode,
        score=record.score,
        error_kind=record.error_kind,
    )
