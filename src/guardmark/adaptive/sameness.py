"""Which candidates may be sent: those that a judge calls the same request, in any order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from guardmark.adaptive.attacker_thread import CandidateStatus
from guardmark.adaptive.model_asker import Ask, ReplyKind
from guardmark.adaptive.questions import Account
from guardmark.attacks.contract import Tier
from guardmark.attacks.prompts import equivalence_prompt
from guardmark.core.layers import CANDIDATES, TWIN_CANDIDATES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.adaptive.attacker_thread import AttackerThread, Draft
    from guardmark.adaptive.model_asker import ModelAsker
    from guardmark.adaptive.state import SearchState
    from guardmark.core.sample import Prompt

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
    scene: SearchState,
    models: ModelAsker,
    turn: Sequence[tuple[AttackerThread, Draft]],
    *,
    side: Side,
) -> list[tuple[AttackerThread, Draft]]:
    """Return the candidates that may be sent, each with its tier; note why others may not."""
    open_ = [(pursuit, draft) for pursuit, draft in turn if not draft.tier]
    if models.plan.judge is None:
        for _, draft in open_:
            draft.tier = Tier.V4.value
        return list(turn)
    asks = [
        vote
        for pursuit, draft in open_
        for vote in _votes(scene, models.name, pursuit, draft=draft, side=side)[: models.plan.votes]
    ]
    votes, each = await models.ask(asks), models.plan.votes
    for i, (pursuit, draft) in enumerate(open_):
        said = {_SAME.get(reply.kind) for reply in votes[each * i : each * (i + 1)]}
        if said == {True}:
            draft.tier = Tier.V3.value
            continue
        fate = CandidateStatus.DIFFERENT if said == {False} else CandidateStatus.UNDECIDED
        fate = CandidateStatus.UNJUDGED if None in said else fate
        pursuit.refuse(draft, fate)
        models.note(pursuit.position, draft.note(fate), layer=side.candidates)
    return [(pursuit, draft) for pursuit, draft in turn if draft.tier]


def _votes(
    scene: SearchState, name: str, pursuit: AttackerThread, *, draft: Draft, side: Side
) -> list[Ask]:
    """Ask whether it is the same request, in both orders."""
    sample, number = pursuit.target.sample, pursuit.judged
    pursuit.judged += 1
    original = sample.prompt.text
    asks = []
    for order, (first, second) in enumerate(((original, draft.text), (draft.text, original))):
        draw = scene.draw(side.votes, name, sample.id, number, order)
        prompt: Prompt = equivalence_prompt(first, second, call=f"{draw.getrandbits(48):012x}")
        asks.append(
            Ask(
                sample=pursuit.position,
                account=side.judge,
                prompt=prompt,
                seed=draw.getrandbits(31),
                note={"candidate": number, "order": order},
                pair=(first, second),
            )
        )
    return asks
