"""Asking the models that help an attacker: who they are, and what of their replies can be used."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from guardmark.adaptive.asker import Asker, Kind
from guardmark.adaptive.questions import Account
from guardmark.attacks.prompts import (
    CRITIC_FORM,
    CRITIC_VERSION,
    EQUIVALENCE_FORM,
    EQUIVALENCE_VERSION,
    FORM,
    NEUTRAL_VERSION,
    PROMPT_VERSION,
    STRATEGIES,
    critic_digest,
    equivalence_digest,
    neutral_digest,
    prompt_digest,
)
from guardmark.core.outcome import ErrorKind, Evidence, Response
from guardmark.core.protocols import GuidedModel, PairJudge
from guardmark.engine.calls import Failure, attempt, not_a
from guardmark.judges.rules import REFUSALS
from guardmark.parsing.attacker_models import read_candidates, read_closeness, read_sameness
from guardmark.store.layers import (
    ATTACKER,
    CANDIDATES,
    CRITIC,
    EQUIVALENCE,
    TWIN_ATTACKER,
    TWIN_EQUIVALENCE,
)
from guardmark.store.tries import TryRecord, TrySubject

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from guardmark.adaptive.asker import AskContext, Take
    from guardmark.core.protocols import ChatModel
    from guardmark.core.sample import Prompt
    from guardmark.parsing.attacker_models import Candidate

ROUND: Final = "R5"
"""Round in which models help the attacker."""
_SHARE: Final = 4  # of the search calls a quarter, so that rules and model both get their turn
_FLUSH_AT: Final = 16  # replies; each was paid for, so few may be lost to a power cut
_MOST_RAW: Final = 50_000  # characters; readers look no further
_SILENT: Final = 8  # failed calls in a row after which a model counts as gone
_BEGINNING: Final = 300
_REFUSAL: Final = re.compile("|".join(f"(?:{each})" for each in REFUSALS), re.IGNORECASE)
_FILTERED: Final = "content_filter"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackerPlan:
    """What round 5 does."""

    model: ChatModel
    judge: ChatModel | PairJudge | None = None
    critic: ChatModel | None = None
    identity: Mapping[str, str] = field(default_factory=dict)
    candidates: int = 4
    streams: int = 3
    depth: int = 5
    history: int = 6
    max_calls: int = 1_000
    twin: int = 0

    @property
    def votes(self) -> int:
        """How often a candidate is judged: in both orders, unless the order means nothing."""
        return 1 if isinstance(self.judge, PairJudge) else 2

    @property
    def lock(self) -> tuple[tuple[str, str], ...]:
        """What `battery.lock` says of it: prompts by version and hash, models, sizes."""
        entries = {
            "prompt": f"{PROMPT_VERSION} {prompt_digest()}",
            "equivalence_prompt": f"{EQUIVALENCE_VERSION} {equivalence_digest()}",
        }
        if self.critic is not None:
            entries["critic_prompt"] = f"{CRITIC_VERSION} {critic_digest()}"
        if self.twin:
            entries["neutral_prompt"] = f"{NEUTRAL_VERSION} {neutral_digest()}"
        entries |= self.identity
        entries |= {name: str(value) for name, value in self.sizes.items()}
        return tuple(sorted(entries.items()))

    @property
    def sizes(self) -> dict[str, int]:
        """How often is asked, and for how much."""
        names = ("candidates", "streams", "depth", "history", "max_calls", "twin")
        return {name: getattr(self, name) for name in names}

    def tries(self, budget: int) -> int:
        """Return how many of the search calls of an attack are set aside for candidates."""
        return min(self.candidates * self.streams * self.depth, budget // _SHARE)


class ReplyKind(StrEnum):
    """What a reply is; only `candidates`, `same`, `different` and `closeness` can be used."""

    CANDIDATES = "candidates"
    REFUSED = "refused"
    INVALID = "invalid"
    SAME = "same"
    DIFFERENT = "different"
    CLOSENESS = "closeness"
    MALFORMED = "malformed"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReply:
    """What came of one question to a model."""

    kind: ReplyKind
    text: str | None = None
    candidates: tuple[Candidate, ...] = ()
    closeness: float | None = None


def read_attacker(response: Response) -> ModelReply:
    """Read what an attacker model answered; candidates count whatever stands around them."""
    text = response.text
    if text is None or response.error_kind is not None:
        return ModelReply(kind=ReplyKind.ERROR)
    reading = read_candidates(text, strategies=STRATEGIES)
    if reading.candidates:
        return ModelReply(kind=ReplyKind.CANDIDATES, text=text, candidates=reading.candidates)
    return _unusable(response, text, has_declined=bool(reading.declined))


def read_critic(response: Response) -> ModelReply:
    """Read what a critic answered; without a figure, the reply is no low figure either."""
    text = response.text
    if text is None or response.error_kind is not None:
        return ModelReply(kind=ReplyKind.ERROR)
    closeness = read_closeness(text)
    if closeness is not None:
        return ModelReply(kind=ReplyKind.CLOSENESS, text=text, closeness=closeness)
    return _unusable(response, text)


def read_vote(response: Response) -> ModelReply:
    """Read what a judge of sameness answered."""
    if response.text is None or response.error_kind is not None:
        return ModelReply(kind=ReplyKind.ERROR)
    same = read_sameness(response.text)
    kinds = {True: ReplyKind.SAME, False: ReplyKind.DIFFERENT, None: ReplyKind.MALFORMED}
    return ModelReply(kind=kinds[same], text=response.text)


def _unusable(response: Response, text: str, *, has_declined: bool = False) -> ModelReply:
    """Tell a refusal, by a field or by the words it begins with, from an invalid reply."""
    evidence = response.evidence or Evidence()
    is_flagged = evidence.native_action == "refusal" or evidence.finish_reason == _FILTERED
    is_refusal = has_declined or is_flagged or _REFUSAL.search(text[:_BEGINNING]) is not None
    return ModelReply(kind=ReplyKind.REFUSED if is_refusal else ReplyKind.INVALID, text=text)


def response_of(record: TryRecord) -> Response:
    """Read the answer of a model back."""
    evidence = record.evidence or Evidence()
    if record.error_kind is not None:
        return Response(text=None, error_kind=record.error_kind, evidence=evidence)
    return Response(text=evidence.raw, evidence=evidence)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One question to a model."""

    sample: int
    account: Account
    prompt: Prompt
    seed: int
    note: Mapping[str, object]
    pair: tuple[str, str] | None = None
    is_again: bool = True

    @property
    def layer(self) -> str:
        """Where its answer is stored."""
        return _TOPICS[self.account].layer


@dataclass(frozen=True, slots=True, kw_only=True)
class _Topic:
    """Where questions of one account go, and how replies are read."""

    layer: str
    form: Mapping[str, object]
    read: Callable[[Response], ModelReply]


_TOPICS: Final = {
    Account.ATTACKER: _Topic(layer=ATTACKER, form=FORM, read=read_attacker),
    Account.EQUIVALENCE: _Topic(layer=EQUIVALENCE, form=EQUIVALENCE_FORM, read=read_vote),
    Account.CRITIC: _Topic(layer=CRITIC, form=CRITIC_FORM, read=read_critic),
    Account.TWIN_ATTACKER: _Topic(layer=TWIN_ATTACKER, form=FORM, read=read_attacker),
    Account.TWIN_EQUIVALENCE: _Topic(layer=TWIN_EQUIVALENCE, form=EQUIVALENCE_FORM, read=read_vote),
}
_WRITERS: Final = (Account.ATTACKER, Account.TWIN_ATTACKER)


class ModelAsker:
    """Asks the attacker model, the judge of sameness and the critic, and stores every reply."""

    def __init__(self, name: str, plan: AttackerPlan, context: AskContext) -> None:
        self.name = name
        self.plan = plan
        self._context = context
        self._failed: Counter[Account] = Counter()
        kind = Kind(
            digest=_digest,
            subject=_subject_of,
            call=self._call,
            store=_stored,
            read=response_of,
            flush_at=_FLUSH_AT,
        )
        self._asker = Asker(name=name, kind=kind, context=context)

    @property
    def calls(self) -> Counter[tuple[str, Account]]:
        """Calls by layer and account."""
        return self._asker.calls

    @property
    def calls_left(self) -> int:
        """Calls of the attacker model that its bound leaves."""
        return max(0, self.plan.max_calls - self.calls[ATTACKER, Account.ATTACKER])

    def has_gone(self) -> bool:
        """Tell whether a model that is needed failed so often in a row that the round ends."""
        needed = (count for who, count in self._failed.items() if who is not Account.CRITIC)
        return max(needed, default=0) >= _SILENT

    def has_critic(self) -> bool:
        """Tell whether there is a critic that did not fail as often in a row."""
        return self.plan.critic is not None and self._failed[Account.CRITIC] < _SILENT

    async def ask(self, asks: Sequence[Ask]) -> list[ModelReply]:
        """Ask several questions at once."""
        answers = await self._asker.ask(asks)
        self.flush()
        replies = []
        for ask, (response, _) in zip(asks, answers, strict=True):
            replies.append(_TOPICS[ask.account].read(response))
            failed = replies[-1].kind is ReplyKind.ERROR
            self._failed[ask.account] = self._failed[ask.account] + 1 if failed else 0
        return replies

    async def ask_until_readable(
        self,
        asks: Sequence[Ask],
        *,
        again: Callable[[Prompt, str], Prompt],
        most: Callable[[], int] | None = None,
    ) -> list[ModelReply]:
        """Ask several questions, and once more where the reply cannot be read."""
        replies = await self.ask(asks)
        broken = [i for i, reply in enumerate(replies) if reply.kind is ReplyKind.INVALID]
        repairs = []
        broken = broken if most is None else broken[: most()]
        for i in broken:
            prompt = again(asks[i].prompt, replies[i].text or "")
            repairs.append(replace(asks[i], prompt=prompt, note={**asks[i].note, "repair": True}))
        for i, reply in zip(broken, await self.ask(repairs), strict=True):
            replies[i] = reply
        return replies

    def note(self, sample: int, subject: TrySubject, *, layer: str = CANDIDATES) -> None:
        """Store what became of a candidate, unless it is stored already."""
        place = self._asker.take_place(layer, sample)
        self._asker.add(place, subject, Response(text=""), is_free=True)

    def flush(self) -> None:
        """Commit what was answered."""
        self._asker.flush()

    async def _call(self, asks: Sequence[Ask], take: Take[Response]) -> None:
        def taken(number: int, response: Response, _: int | None) -> None:
            take(number, response, None)  # of its time a service tells itself

        await self._context.side_by_side(asks, self._respond, taken)

    async def _respond(self, ask: Ask) -> Response:
        model, pair = self._model(ask.account), ask.pair
        if isinstance(model, PairJudge):
            answer: object = await attempt(model.compare, *(pair or ("", "")))
        elif isinstance(model, GuidedModel):

            async def guided(prompt: Prompt) -> Response:
                form = _TOPICS[ask.account].form
                return await model.answer_in(prompt, form=form, seed=ask.seed)

            answer = await attempt(guided, ask.prompt)
        else:
            answer = await attempt(model.answer, ask.prompt)
        if isinstance(answer, Response):
            return answer
        failure = answer if isinstance(answer, Failure) else not_a("Response", answer)
        return failure.as_response()

    def _model(self, account: Account) -> ChatModel | PairJudge:
        judge = self.plan.critic if account is Account.CRITIC else self.plan.judge
        model = self.plan.model if account in _WRITERS else judge
        if model is None:
            raise TypeError(account)
        return model


def _subject_of(ask: Ask, digest: str, response: Response) -> TrySubject:
    reply = _TOPICS[ask.account].read(response)
    details = {**ask.note, "kind": reply.kind.value}
    if reply.closeness is not None:
        details["closeness"] = reply.closeness
    return TrySubject(account=ask.account.value, round=ROUND, digest=digest, details=details)


def _stored(response: Response) -> Response:
    raw = (response.text or "")[:_MOST_RAW]
    evidence = replace(response.evidence or Evidence(), raw=raw)
    if response.text is not None and response.error_kind is None:
        return replace(response, evidence=evidence)
    error = response.error_kind or ErrorKind.CONTRACT
    return replace(response, text=None, error_kind=error, evidence=evidence)


def _digest(ask: Ask) -> str:
    messages = [[m.role.value, m.content] for m in ask.prompt.messages]
    asked = json.dumps([messages, ask.seed], separators=(",", ":"))
    return blake2b(asked.encode(), digest_size=16).hexdigest()
