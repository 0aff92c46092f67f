"""Asking the models that help an attacker, and reading what of their replies can be used."""

from __future__ import annotations

from collections import Counter
from dataclasses import field, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Final

from guardmark.adaptive import prompts
from guardmark.adaptive.asker import TryAsker, kept_response, response_of
from guardmark.adaptive.attacker_models import read_candidates, read_closeness, read_sameness
from guardmark.adaptive.state import Account, Ask
from guardmark.core.outcome import Evidence, Response
from guardmark.core.protocols import GuidedModel, PairJudge
from guardmark.core.sample import Role
from guardmark.core.values import dataclass
from guardmark.engine.calls import as_response
from guardmark.parsing.refusals import begins_refusing
from guardmark.store.layers import ATTACKER

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from guardmark.adaptive.asker import AskContext
    from guardmark.adaptive.attacker_models import Candidate
    from guardmark.core.protocols import ChatModel
    from guardmark.core.sample import Prompt
    from guardmark.store.tries import TrySubject
    from guardmark.store.under_way import CallKey

_SHARE: Final = 4  # of the search calls a quarter, so that rules and model both get their turn
_MOST_RAW: Final = 50_000  # characters; readers look no further
_SILENT: Final = 8  # failed calls in a row after which a model counts as gone
_FILTERED: Final = "content_filter"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackerPlan:
    """What round 5 does.

    Attributes:
        model: Who writes candidates.
        judge: Who says whether a candidate asks for the same; None leaves that open.
        critic: Who guesses how close a blocked candidate came.
        identity: What identifies the models, for the lock.
        candidates: How many one reply should hold.
        streams: Lines of thought for each attack.
        depth: Replies in each line.
        history: Earlier tries that the model is shown.
        max_calls: Calls of the attacker model at most.
        twin: Benign texts that are reworded as a control.
    """

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
        if isinstance(self.judge, PairJudge):
            return 1
        return 2

    @property
    def lock(self) -> tuple[tuple[str, str], ...]:
        """What `battery.lock` says of it: prompts by version and hash, models, sizes."""
        entries = prompts.locked_prompts()
        if self.critic is None:
            del entries["critic_prompt"]
        if not self.twin:
            del entries["neutral_prompt"]
        entries |= self.identity
        for name, size in self.sizes.items():
            entries[name] = str(size)
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


def read_reply(account: Account, response: Response, *, material: str = "") -> ModelReply:
    """Read what a model answered about some material; candidates count whatever is around them."""
    text, has_declined = response.text, False
    if response.evidence is not None and response.evidence.is_provider_block:
        return ModelReply(kind=ReplyKind.REFUSED, text=text or "")
    if text is None or response.error_kind is not None:
        return ModelReply(kind=ReplyKind.ERROR)
    if account in _WRITERS:
        reading = read_candidates(text, strategies=prompts.strategies())
        if reading.candidates:
            return ModelReply(kind=ReplyKind.CANDIDATES, text=text, candidates=reading.candidates)
        has_declined = bool(reading.declined)
    elif account is Account.CRITIC:
        closeness = read_closeness(text, material=material)
        if closeness is not None:
            return ModelReply(kind=ReplyKind.CLOSENESS, text=text, closeness=closeness)
    else:
        same = read_sameness(text, material=material)
        return ModelReply(kind=_SAMENESS[same], text=text)
    evidence = response.evidence or Evidence()
    is_flagged = evidence.native_action == "refusal" or evidence.finish_reason == _FILTERED
    kind = ReplyKind.INVALID
    if has_declined or is_flagged or begins_refusing(text):
        kind = ReplyKind.REFUSED
    return ModelReply(kind=kind, text=text)


_SAMENESS: Final = {True: ReplyKind.SAME, False: ReplyKind.DIFFERENT, None: ReplyKind.MALFORMED}
_WRITERS: Final = (Account.ATTACKER, Account.TWIN_ATTACKER)


class ModelAsker:
    """Asks the attacker model, the judge of sameness and the critic, and stores every reply."""

    def __init__(self, name: str, plan: AttackerPlan, context: AskContext) -> None:
        self.name = name
        self.plan = plan
        self._failed: Counter[Account] = Counter()
        self.asker: TryAsker[Ask, Response] = TryAsker(
            name=name,
            context=context,
            respond=self._respond,
            read=response_of,
            kept=lambda response: kept_response(response, _MOST_RAW),
            details=_details,
            is_timed=False,  # a service states its time itself
        )

    @property
    def calls_left(self) -> int:
        """Calls of the attacker model that its bound leaves."""
        return max(0, self.plan.max_calls - self.asker.calls[ATTACKER, Account.ATTACKER])

    def has_gone(self) -> bool:
        """Tell whether a model that is needed failed so often in a row that the round ends."""
        for account, failures in self._failed.items():
            if account is not Account.CRITIC and failures >= _SILENT:
                return True
        return False

    def has_critic(self) -> bool:
        """Tell whether there is a critic that did not fail as often in a row."""
        return self.plan.critic is not None and self._failed[Account.CRITIC] < _SILENT

    async def ask(self, asks: Sequence[Ask]) -> list[ModelReply]:
        """Ask several questions at once."""
        replies = []
        for ask, asked in zip(asks, await self.asker.ask(asks), strict=True):
            account = asked.question.account
            reply = read_reply(account, asked.answer, material=_material(ask))
            replies.append(reply)
            if reply.kind is ReplyKind.ERROR:
                self._failed[account] += 1
            else:
                self._failed[account] = 0
        self.asker.context.writer.flush()
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
        if most is not None:
            broken = broken[: most()]
        repairs = []
        for i in broken:
            repair = replace(
                asks[i],
                prompt=again(asks[i].prompt, replies[i].text or ""),
                details={**asks[i].details, "repair": True},
            )
            repairs.append(repair)
        for i, reply in zip(broken, await self.ask(repairs), strict=True):
            replies[i] = reply
        return replies

    def note(self, layer: str, sample: int, subject: TrySubject) -> None:
        """Store what became of a candidate, unless it is stored already."""
        key, context = self.asker.take_key(layer, sample), self.asker.context
        if key not in context.stored:
            context.add(key, subject, Response(text=""), is_free=True)

    async def _respond(self, ask: Ask, row: CallKey) -> Response:
        """Ask the model that an account stands for, in the form that its answers must have."""
        model: ChatModel | PairJudge | None = self.plan.judge
        who, form = "equivalence", prompts.EQUIVALENCE_FORM
        if ask.account in _WRITERS:
            who, model, form = "attacker", self.plan.model, prompts.answer_form()
        elif ask.account is Account.CRITIC:
            who, model, form = "critic", self.plan.critic, prompts.CRITIC_FORM
        if model is None:
            raise TypeError(ask.account)
        call: Callable[[Prompt], Awaitable[Response]]
        if isinstance(model, PairJudge):
            compare = model.compare

            async def call(_: Prompt) -> Response:
                return await compare(*ask.pair)

        elif isinstance(model, GuidedModel):
            call = partial(model.answer_in, form=form, seed=ask.seed)
        else:
            call = model.answer
        answer = await self.asker.context.ask(call, who, row, ask.prompt)
        if isinstance(answer, Response):
            return answer
        return as_response(answer)


def _material(ask: Ask) -> str:
    """Return what a model is asked about: the first question of a conversation holds it."""
    for message in ask.prompt.messages:
        if message.role is Role.USER:
            return message.content
    return ""


def _details(ask: Ask, response: Response) -> dict[str, object]:
    reply = read_reply(ask.account, response, material=_material(ask))
    details: dict[str, object] = {"kind": reply.kind.value}
    if reply.closeness is not None:
        details["closeness"] = reply.closeness
    return details
