"""One attack in the hands of an attacker model: its candidates, and which of them may be sent."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from guardmark.adaptive.model_asker import Ask, ReplyKind
from guardmark.adaptive.questions import Account, text_digest
from guardmark.attacks.application import keeps
from guardmark.attacks.contract import Tier
from guardmark.attacks.prompts import PastTry, equivalence_prompt
from guardmark.canon.steps import skeleton
from guardmark.store.layers import CANDIDATES, TWIN_CANDIDATES
from guardmark.store.tries import TrySubject

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from guardmark.adaptive.model_asker import ModelAsker
    from guardmark.adaptive.questions import TryAnswer
    from guardmark.adaptive.state import SearchState, Target
    from guardmark.core.sample import Prompt


_LONGEST: Final = 20_000  # characters of a candidate
_MOST_REFUTED: Final = 24
_OUTCOMES: Final = {
    True: "blocked by the filter",
    False: "came through once, but not when sent again",
    None: "the filter gave no answer",
}


class CandidateStatus(StrEnum):
    """What became of a candidate."""

    SENT = "sent"
    REPEATED = "repeated"
    UNUSABLE = "unusable"
    LOST_SPAN = "lost_span"
    DIFFERENT = "different"
    UNDECIDED = "undecided"
    UNJUDGED = "unjudged"
    UNUSED = "unused"


_REFUSED: Final = {
    CandidateStatus.REPEATED: "not sent: repeats an earlier one",
    CandidateStatus.LOST_SPAN: "not sent: a piece of must_keep is missing",
    CandidateStatus.DIFFERENT: "not sent: asks for something else",
    CandidateStatus.UNDECIDED: "not sent: may ask for something else",
}


@dataclass(slots=True, kw_only=True)
class Draft:
    """A candidate under way."""

    stream: int
    depth: int
    strategy: str
    text: str
    tier: str = ""

    def note(self, status: CandidateStatus) -> TrySubject:
        """Return what is stored of it."""
        return TrySubject(
            account="candidate",
            round="R5",
            digest=text_digest(self.text),
            tier=self.tier if status is CandidateStatus.SENT else "",
            details={
                "stream": self.stream,
                "depth": self.depth,
                "strategy": self.strategy,
                "fate": status.value,
            },
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """A candidate that the defense blocked."""

    place: int
    draft: Draft
    reason: str


@dataclass(slots=True, kw_only=True)
class AttackerThread:
    """One attack that an attacker model works on."""

    target: Target
    past: list[list[PastTry]]
    queue: deque[Draft] = field(default_factory=deque)
    judged: int = 0
    criticised: int = 0
    blocked: list[Blocked] = field(default_factory=list)
    is_through_unproved: bool = False
    refuted: tuple[str, ...] = ()
    _seen: set[str] = field(default_factory=set)

    @staticmethod
    def of(target: Target, *, streams: int) -> AttackerThread:
        """Take over an attack that is blocked still."""
        return AttackerThread(
            target=target,
            past=[[] for _ in range(streams)],
            refuted=_operators(target.tried),
            _seen={_squeezed(text) for text in (target.sample.prompt.text, *target.seen)},
        )

    @property
    def position(self) -> int:
        """Position of the sample."""
        return self.target.position

    def may_try(self, budget: int) -> bool:
        """Tell whether a further try makes sense."""
        is_over = self.target.win is not None or self.is_through_unproved
        return not is_over and self.target.tries < budget

    def take(self, draft: Draft) -> CandidateStatus | None:
        """Check what costs nothing to check, and queue the candidate if it may be sent.

        A candidate with the letters of the original is proved (V1); all others need a judge.
        """
        original = self.target.sample.prompt.text
        if not _is_usable(draft.text):
            return CandidateStatus.UNUSABLE
        squeezed = _squeezed(draft.text)
        if squeezed in self._seen:
            return self.refuse(draft, CandidateStatus.REPEATED)
        self._seen.add(squeezed)
        if not keeps(original, draft.text, self.target.sample.must_keep):
            return self.refuse(draft, CandidateStatus.LOST_SPAN)
        letters = skeleton(original)
        if letters and skeleton(draft.text) == letters:
            draft.tier = Tier.V1.value
        self.queue.append(draft)
        return None

    def refuse(self, draft: Draft, status: CandidateStatus) -> CandidateStatus:
        """Tell its line of thought why a candidate was not sent."""
        if status in _REFUSED:
            self.past[draft.stream].append(PastTry(text=draft.text, outcome=_REFUSED[status]))
        return status

    def answered(self, draft: Draft, answer: TryAnswer, *, is_through: bool) -> None:
        """Tell its line of thought what the defense said."""
        outcome = "came through" if is_through else _OUTCOMES[answer.is_blocked]
        line = self.past[draft.stream]
        if answer.is_blocked:
            self.blocked.append(Blocked(place=len(line), draft=draft, reason=answer.reason))
        line.append(
            PastTry(text=draft.text, outcome=outcome, score=answer.score, reason=answer.reason)
        )

    def take_blocked(self, stream: int) -> list[Blocked]:
        """Return the blocked candidates of a line that nobody criticised yet, and forget them."""
        found = [each for each in self.blocked if each.draft.stream == stream]
        self.blocked = [each for each in self.blocked if each.draft.stream != stream]
        return found

    def criticise(self, blocked: Blocked, closeness: float) -> None:
        """Keep what a critic guesses of a blocked candidate."""
        line = self.past[blocked.draft.stream]
        line[blocked.place] = replace(line[blocked.place], closeness=closeness)


def interleaved(lines: Sequence[Sequence[Draft]]) -> Iterator[Draft]:
    """Yield the first candidate of every line, then the second of every line, and so on."""
    for rank in zip_longest(*lines):
        yield from (draft for draft in rank if draft is not None)


def _is_usable(text: str) -> bool:
    if not text.strip() or len(text) > _LONGEST:
        return False
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which no service takes
        return False
    return True


def _squeezed(text: str) -> str:
    return " ".join(text.split())


def _operators(tried: Iterable[str]) -> tuple[str, ...]:
    """Name the single operators among the chains that were used up."""
    names = {name.split("@", 1)[0] for name in tried if " + " not in name}
    return tuple(sorted(names)[:_MOST_REFUTED])


_SAME = {ReplyKind.SAME: True, ReplyKind.DIFFERENT: False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Whose texts are reworded: those of attacks, or benign ones as their control."""

    writer: Account
    judge: Account
    candidates: str
    votes: str


ATTACKS: Final = Side(
    writer=Account.ATTACKER,
    judge=Account.EQUIVALENCE,
    candidates=CANDIDATES,
    votes="equivalence",
)
BENIGN: Final = Side(
    writer=Account.TWIN_ATTACKER,
    judge=Account.TWIN_EQUIVALENCE,
    candidates=TWIN_CANDIDATES,
    votes="twin equivalence",
)


async def prove(
    state: SearchState,
    models: ModelAsker,
    turn: Sequence[tuple[AttackerThread, Draft]],
    *,
    side: Side,
) -> list[tuple[AttackerThread, Draft]]:
    """Return the candidates that may be sent, each with its tier; note why others may not."""
    open_ = [(thread, draft) for thread, draft in turn if not draft.tier]
    if models.plan.judge is None:
        for _, draft in open_:
            draft.tier = Tier.V4.value
        return list(turn)
    asks = [
        vote
        for thread, draft in open_
        for vote in _votes(state, models.name, thread, draft=draft, side=side)[: models.plan.votes]
    ]
    votes, each = await models.ask(asks), models.plan.votes
    for i, (thread, draft) in enumerate(open_):
        verdicts = {_SAME.get(reply.kind) for reply in votes[each * i : each * (i + 1)]}
        if verdicts == {True}:
            draft.tier = Tier.V3.value
            continue
        status = CandidateStatus.DIFFERENT if verdicts == {False} else CandidateStatus.UNDECIDED
        status = CandidateStatus.UNJUDGED if None in verdicts else status
        thread.refuse(draft, status)
        models.note(thread.position, draft.note(status), layer=side.candidates)
    return [(thread, draft) for thread, draft in turn if draft.tier]


def _votes(
    state: SearchState, name: str, thread: AttackerThread, *, draft: Draft, side: Side
) -> list[Ask]:
    """Ask whether it is the same request, in both orders."""
    sample, number = thread.target.sample, thread.judged
    thread.judged += 1
    original = sample.prompt.text
    asks = []
    for order, (first, second) in enumerate(((original, draft.text), (draft.text, original))):
        draw = state.draw(side.votes, name, sample.id, number, order)
        prompt: Prompt = equivalence_prompt(first, second, call=f"{draw.getrandbits(48):012x}")
        asks.append(
            Ask(
                sample=thread.position,
                account=side.judge,
                prompt=prompt,
                seed=draw.getrandbits(31),
                note={"candidate": number, "order": order},
                pair=(first, second),
            )
        )
    return asks
