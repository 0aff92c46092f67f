"""Asking the models that help the attacker: stored replies first, then calls, all stored."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from guardmark.adaptive.caller import Interrupted
from guardmark.adaptive.model_reply import (
    ModelReply,
    ReplyKind,
    StoredReply,
    read_attacker,
    read_critic,
    read_vote,
)
from guardmark.adaptive.trial import Account
from guardmark.attacks.prompts import CRITIC_FORM, EQUIVALENCE_FORM, FORM
from guardmark.core.errors import IncomparableRuns
from guardmark.core.layers import (
    ATTACKER,
    CANDIDATES,
    CRITIC,
    EQUIVALENCE,
    TWIN_ATTACKER,
    TWIN_EQUIVALENCE,
)
from guardmark.core.outcome import ErrorKind, Evidence, Response
from guardmark.core.protocols import GuidedModel, PairJudge
from guardmark.core.record import Stage
from guardmark.engine.calls import Failure, attempt, not_a

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from guardmark.adaptive.attacker_plan import AttackerPlan
    from guardmark.adaptive.caller import Place
    from guardmark.core.protocols import ChatModel
    from guardmark.core.sample import Prompt, Sample
    from guardmark.engine.run_monitor import StopSignal
    from guardmark.store.records import RecordWriter

_FLUSH_AT: Final = 16  # replies; each was paid for, so few may be lost to a power cut
_MOST_RAW: Final = 50_000  # characters; readers look no further
_SILENT: Final = 8  # failed calls in a row after which a model counts as gone


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One question to a model."""

    sample: int
    account: Account
    prompt: Prompt
    seed: int
    note: Mapping[str, object]
    pair: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """Where questions of one account go, and how replies are read."""

    layer: str
    form: Mapping[str, object]
    read: Callable[[Response], ModelReply]


_LINES: Final = {
    Account.ATTACKER: _Line(layer=ATTACKER, form=FORM, read=read_attacker),
    Account.EQUIVALENCE: _Line(layer=EQUIVALENCE, form=EQUIVALENCE_FORM, read=read_vote),
    Account.CRITIC: _Line(layer=CRITIC, form=CRITIC_FORM, read=read_critic),
    Account.TWIN_ATTACKER: _Line(layer=TWIN_ATTACKER, form=FORM, read=read_attacker),
    Account.TWIN_EQUIVALENCE: _Line(layer=TWIN_EQUIVALENCE, form=EQUIVALENCE_FORM, read=read_vote),
}
_WRITERS: Final = (Account.ATTACKER, Account.TWIN_ATTACKER)


@dataclass(slots=True, kw_only=True)
class ModelCaller:
    """Asks the attacker model, the judge of sameness and the critic, and stores every reply."""

    name: str
    plan: AttackerPlan
    samples: Sequence[Sample]
    writer: RecordWriter
    stop: StopSignal
    concurrency: int = 16
    memory: Mapping[Place, StoredReply] = field(default_factory=dict)
    calls: Counter[tuple[str, Account]] = field(default_factory=Counter)
    _next: Counter[tuple[str, int]] = field(default_factory=Counter)
    _failed: Counter[Account] = field(default_factory=Counter)
    _waiting: int = 0

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
        gate = asyncio.Semaphore(self.concurrency)
        places = [self._place(_LINES[ask.account].layer, ask.sample) for ask in asks]
        found = [self._recall(ask, place) for ask, place in zip(asks, places, strict=True)]

        async def one(number: int) -> None:
            async with gate:
                if self.stop.is_set:
                    return
                response = await self._call(asks[number])
            reply = _LINES[asks[number].account].read(response)
            self._store(asks[number], places[number], response=response, reply=reply)
            found[number] = reply

        await asyncio.gather(*(one(i) for i, reply in enumerate(found) if reply is None))
        self.flush()
        replies = [reply for reply in found if reply is not None]
        if len(replies) < len(asks):
            raise Interrupted(self.stop.reason)
        for ask, reply in zip(asks, replies, strict=True):
            self.calls[_LINES[ask.account].layer, ask.account] += 1
            failed = reply.kind is ReplyKind.ERROR
            self._failed[ask.account] = self._failed[ask.account] + 1 if failed else 0
        return replies

    async def mend(
        self,
        asks: Sequence[Ask],
        replies: list[ModelReply],
        *,
        again: Callable[[Prompt, str], Prompt],
        most: int | None = None,
    ) -> list[ModelReply]:
        """Ask once more for each reply that could not be read."""
        broken = [i for i, reply in enumerate(replies) if reply.kind is ReplyKind.INVALID][:most]
        repairs = [
            replace(
                asks[i],
                prompt=again(asks[i].prompt, replies[i].text or ""),
                note={**asks[i].note, "repair": True},
            )
            for i in broken
        ]
        for i, reply in zip(broken, await self.ask(repairs), strict=True):
            replies[i] = reply
        return replies

    def note(self, sample: int, said: Mapping[str, object], *, layer: str = CANDIDATES) -> None:
        """Store what became of a candidate, unless it is stored already."""
        place = self._place(layer, sample)
        if place not in self.memory:
            self._add(place, Response(text=_json(said)), latency=None)

    def flush(self) -> None:
        """Commit what was answered."""
        self.writer.flush()
        self._waiting = 0

    def _place(self, layer: str, sample: int) -> Place:
        number = self._next[layer, sample]
        self._next[layer, sample] = number + 1
        return layer, sample, number

    def _recall(self, ask: Ask, place: Place) -> ModelReply | None:
        stored = self.memory.get(place)
        if stored is None:
            return None
        if stored.digest != _digest(ask):
            raise IncomparableRuns(
                f"The stored replies about sample {self.samples[ask.sample].id!r} answer other "
                "questions than these settings ask.\n"
                "Next: use the settings and version that wrote them, or a new run."
            )
        return _LINES[ask.account].read(stored.response)

    async def _call(self, ask: Ask) -> Response:
        model, pair = self._model(ask.account), ask.pair
        if isinstance(model, PairJudge):
            said: object = await attempt(model.compare, *(pair or ("", "")))
        elif isinstance(model, GuidedModel):

            async def guided(prompt: Prompt) -> Response:
                form = _LINES[ask.account].form
                return await model.answer_in(prompt, form=form, seed=ask.seed)

            said = await attempt(guided, ask.prompt)
        else:
            said = await attempt(model.answer, ask.prompt)
        if isinstance(said, Response):
            return said
        failure = said if isinstance(said, Failure) else not_a("Response", said)
        return failure.as_response()

    def _model(self, account: Account) -> ChatModel | PairJudge:
        judge = self.plan.critic if account is Account.CRITIC else self.plan.judge
        model = self.plan.model if account in _WRITERS else judge
        if model is None:
            raise TypeError(account)
        return model

    def _store(self, ask: Ask, place: Place, *, response: Response, reply: ModelReply) -> None:
        kind = reply.kind
        said = {"account": ask.account.value, "round": "R5", **ask.note, "kind": kind.value}
        if reply.closeness is not None:
            said["closeness"] = reply.closeness
        note = _json({**said, "text": _digest(ask), "free": False})
        has_text = kind is not ReplyKind.ERROR
        raw = (response.text or "")[:_MOST_RAW]
        evidence = replace(response.evidence or Evidence(), raw=raw)
        row = Response(
            text=note,
            error_kind=None if has_text else response.error_kind or ErrorKind.CONTRACT,
            evidence=evidence,
        )
        self._add(place, row, latency=response.latency_ns)
        if self._waiting >= _FLUSH_AT:
            self.flush()

    def _add(self, place: Place, row: Response, *, latency: int | None) -> None:
        layer, sample, number = place
        lane = self.writer.record_batch(self.name, Stage.TRY, layer=layer, repeat=number)
        lane.add_response(sample, row, latency_ns=latency)
        self._waiting += 1


def _digest(ask: Ask) -> str:
    said = [[m.role.value, m.content] for m in ask.prompt.messages]
    return blake2b(_json([said, ask.seed]).encode(), digest_size=16).hexdigest()


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
