"""The target model behind the defenses: attacks as they are, what got through, and canaries.

Canaries tell whether it still reads what an operator made of a text.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import field, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Final

from guardmark.adaptive.asker import TryAsker, kept_response, response_of, score_fault
from guardmark.adaptive.comprehension import (
    LEAST_OVERLAP,
    Canary,
    canaries,
    overlap,
    question_about,
)
from guardmark.adaptive.controls import battery_and
from guardmark.adaptive.state import TARGET_ROUND, Account, Query, is_material, text_digest
from guardmark.attacks.application import apply, seed_for
from guardmark.attacks.contract import Tier
from guardmark.attacks.talks import turns_of
from guardmark.core.outcome import (
    NATIVE_REFUSAL,
    AnswerMode,
    ErrorKind,
    Evidence,
    Response,
    Verdict,
    VerdictLabel,
)
from guardmark.core.place import NO_GUARD
from guardmark.core.sample import Prompt
from guardmark.core.values import dataclass
from guardmark.engine.calls import NOTHING_TO_JUDGE, as_response, as_verdict
from guardmark.judges.rules import RulesJudge
from guardmark.store.layers import CANARY_REPLIES, TARGET, VERDICT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from guardmark.adaptive.asker import AskContext, Known
    from guardmark.attacks.contract import OperatorChain
    from guardmark.core.protocols import ChatModel, Judge
    from guardmark.store.under_way import CallKey

    Passes = Mapping[int, Sequence[Query]]

_BATCH: Final = 64  # questions between two commits
_UNKNOWN: Final = 0.5  # as good a guess as any where no canary tells
_REWORDS: Final = (Tier.V3_TABLE, Tier.V3, Tier.V4)
"""Tiers whose variants change words on purpose: giving these words back is reading, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownAnswers:
    """What the target model answered to a text, and what judges said of it."""

    response: Response
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtectedTarget:
    """What the defenses protect, and how it is measured.

    Attributes:
        model: The target model.
        judges: Who labels its answers.
        settings: What its layer says of them.
        as_run: What the run knows of attacks as they are, by position.
        canaries: How many sentences the model is to read back.
    """

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


class TargetAsker:
    """Asks one target model and its judges."""

    def __init__(self, protected: ProtectedTarget, context: AskContext) -> None:
        self.protected = protected
        self.context = context
        self._responses: Known[Response] = defaultdict(dict)
        self._verdicts: Known[Verdict] = defaultdict(dict)
        for position, known in protected.as_run.items():
            source = position, text_digest(context.samples[position].prompt.text)
            self._responses[TARGET][source] = known.response
            for layer, verdict in known.verdicts.items():
                self._verdicts[layer][source] = verdict

    async def ask(self, defense: str, questions: Sequence[Query]) -> None:
        """Ask about texts that reached the model behind a defense, and have the answers judged."""
        context = self.context
        responder = TryAsker(
            name=defense,
            context=context,
            respond=lambda query, row: self.respond(context.prompt_of(query), row),
            read=response_of,
            kept=kept_response,
            is_lasting=lambda response: response.text is not None,
            known=self._responses,
        )
        judges = []
        for layer, judge in self.protected.judged:
            judges.append((layer, self._judge_asker(defense, judge)))
        for start in range(0, len(questions), _BATCH):
            self.context.may_go_on()
            asked = await responder.ask(questions[start : start + _BATCH])
            answered = [each.question for each in asked if each.answer.text is not None]
            for layer, judging in judges:
                to_judge = [
                    replace(question, layer=layer, account=Account.VERDICT) for question in answered
                ]
                await judging.ask(to_judge)
            self.context.writer.flush()

    async def respond(self, prompt: Prompt, row: CallKey) -> Response:
        """Let the target model answer: either with a text or with an error."""
        response = as_response(
            await self.context.ask(self.protected.model.answer, "model", row, prompt)
        )
        if response.blocked_at is not None:
            # Nothing came out: an answer without a word, which helps no attacker.
            return replace(response, text="", blocked_at=None)
        if response.error_kind is not None:
            return replace(response, text=None)
        if response.text is None:
            return replace(response, error_kind=ErrorKind.CONTRACT)
        return response

    def _judge_asker(self, defense: str, judge: Judge) -> TryAsker[Query, Verdict]:
        """Return who asks one judge about answers of the target model."""

        async def compare(query: Query, row: CallKey) -> Verdict:
            response = self._responses[TARGET][query.sample, text_digest(query.text)]
            prompt = self.context.prompt_of(query)
            text = response.text or ""
            if not text.strip():
                return NOTHING_TO_JUDGE
            answer = await self.context.ask(judge.judge, judge.name, row, prompt, text)
            verdict = as_verdict(answer)
            fault = score_fault(verdict.score)
            if fault is not None:
                return as_verdict(fault)
            return verdict

        return TryAsker(
            name=defense,
            context=self.context,
            respond=compare,
            read=lambda record: Verdict(
                label=VerdictLabel(record.outcome),
                answer_mode=record.answer_mode,
                score=record.score,
                error_kind=record.error_kind,
            ),
            is_lasting=lambda verdict: verdict.label is not VerdictLabel.ERROR,
            known=self._verdicts,
        )


async def measure_effects(asker: TargetAsker, passes: Mapping[str, Passes], *, seed: int) -> None:
    """Ask about every attack, every operator and, of each attack, the bypass that reads best."""
    to_send = partial(Query, round=TARGET_ROUND, layer=TARGET)
    attacks = []
    for position, sample in enumerate(asker.context.samples):
        if sample.is_attack:
            attacks.append(to_send(position, sample.prompt.text, account=Account.UNDEFENDED))
    await asker.ask(NO_GUARD, attacks)
    read: dict[str, tuple[int, int]] = {}
    if asker.protected.canaries:
        named = []
        for wins in passes.values():
            for passed in wins.values():
                named += [whole_chain(query.chain) for query in passed]
        chains = battery_and(named)
        if not any(map(is_material, asker.context.samples)):
            chains = [chain for chain in chains if not chain.for_material]
        read = await probe(asker, chains, seed=seed)
    to_send = partial(to_send, account=Account.EFFECT)
    for defense, wins in passes.items():
        batch = []
        for _, passed in sorted(wins.items()):
            best = _best_read(passed, read)
            if best is not None:
                batch.append(to_send(best.sample, best.text, chain=best.chain, tier=best.tier))
        await asker.ask(defense, batch)


def by_attack(passes: Iterable[Query]) -> dict[int, tuple[Query, ...]]:
    """Put what got through together by attack, each text once."""
    texts_of: dict[int, dict[str, Query]] = {}
    for query in passes:
        texts_of.setdefault(query.sample, {}).setdefault(query.text, query)
    return {index: tuple(texts.values()) for index, texts in texts_of.items()}


def whole_chain(key: str) -> str:
    """Return the operators of a chain without the part of the text they were used on."""
    return key.partition(" [")[0]


def _best_read(passed: Sequence[Query], read: Mapping[str, tuple[int, int]]) -> Query | None:
    """Choose what the target model reads best; the earlier one where nothing tells."""

    def share(query: Query) -> float:
        well, answered = read.get(whole_chain(query.chain), (0, 0))
        if not answered:
            return _UNKNOWN
        return well / answered

    return max(passed, key=share, default=None)


class ComprehensionResult(StrEnum):
    """What a target model made of one canary."""

    READ = "read"
    LOST = "lost"
    REFUSED = "refused"
    FAILED = "failed"


async def probe(
    asker: TargetAsker, chains: Sequence[OperatorChain], *, seed: int
) -> dict[str, tuple[int, int]]:
    """Ask the target model what canaries say, plain ones first and then through each chain."""
    queries: list[Query] = []
    expected: dict[int | None, tuple[str, ...]] = {}
    for query, words in _canaries(asker, chains, seed):
        queries.append(query)
        expected[query.number] = words
    readings: dict[int | None, dict[str, object]] = {}

    async def respond(query: Query, row: CallKey) -> Response:
        response = await asker.respond(Prompt.of_text(query.text), row)
        readings[query.number] = await _reading(query.text, response, expected[query.number])
        return response

    canaries = TryAsker(
        name=NO_GUARD,
        context=asker.context,
        respond=respond,
        read=response_of,
        kept=kept_response,
        details=lambda query, _: readings[query.number],
    )
    read, answered = Counter[str](), Counter[str]()
    for start in range(0, len(queries), _BATCH):
        for asked in await canaries.ask(queries[start : start + _BATCH]):
            result = ComprehensionResult(str(asked.subject.details["reading"]))
            chain = asked.question.chain
            if result is ComprehensionResult.READ:
                read[chain] += 1
            if result in {ComprehensionResult.READ, ComprehensionResult.LOST}:
                answered[chain] += 1
        asker.context.writer.flush()
    return {chain: (read[chain], answered[chain]) for chain in answered}


def _canaries(
    asker: TargetAsker, chains: Sequence[OperatorChain], seed: int
) -> Iterator[tuple[Query, tuple[str, ...]]]:
    """Rewrite the canaries; a chain that leaves one as it is has nothing to ask about it."""

    def query(number: int, canary: Canary, *sent: str) -> Query:
        text, chain, tier = sent
        return Query(
            0,  # a canary is no sample of the run: its row stands at the first one, numbered
            question_about(text),
            Account.COMPREHENSION,
            TARGET_ROUND,
            chain,
            tier,
            CANARY_REPLIES,
            is_again=True,
            number=number,
            details={"canary": canary.id},
        )

    sentences = canaries()[: asker.protected.canaries]
    for number, each in enumerate(sentences):
        yield query(number, each, each.text, "", ""), (each.text,)
    for turn, chain in enumerate(chains, start=1):
        if turns_of(chain) > 1:
            continue  # a question about a text is no turn of a conversation
        for number, each in enumerate(sentences, start=turn * len(canaries())):
            variant = apply(chain, each.text, seed=seed_for(seed, chain.key, each.id, 0))
            if not variant.is_variant or variant.tier is None:
                continue
            expected = [each.text]
            if variant.tier in _REWORDS:
                expected.append(variant.text)
            yield query(number, each, variant.text, chain.key, variant.tier.value), tuple(expected)


async def _reading(asked: str, response: Response, expected: tuple[str, ...]) -> dict[str, object]:
    """Tell what the target model made of a canary, and how much of it was there."""
    if response.text is None:
        return {"reading": ComprehensionResult.FAILED.value, "overlap": None}
    share = max(overlap(each, response.text) for each in expected)
    result = ComprehensionResult.LOST
    if share >= LEAST_OVERLAP:
        result = ComprehensionResult.READ
    elif await _is_refusal(asked, response):
        result = ComprehensionResult.REFUSED
    return {"reading": result.value, "overlap": round(share, 4)}


async def _is_refusal(asked: str, response: Response) -> bool:
    evidence = response.evidence or Evidence()
    if evidence.native_action == NATIVE_REFUSAL or evidence.is_provider_block:
        return True
    verdict = await RulesJudge("refusals").judge(Prompt.of_text(asked), response.text or "")
    return verdict.answer_mode is AnswerMode.REFUSED_OR_BLOCKED
