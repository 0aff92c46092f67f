"""A critic in round 5: it guesses how close blocked candidates came, and so which are shown."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from guardmark.adaptive.model_asker import Ask
from guardmark.adaptive.questions import Account
from guardmark.attacks.prompts import (
    TOLD_TO_ATTACKER,
    Critique,
    critic_prompt,
    critic_repair,
    system_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from guardmark.adaptive.attacker_thread import AttackerThread, Blocked
    from guardmark.adaptive.diagnosis import Diagnosis
    from guardmark.adaptive.model_asker import ModelAsker
    from guardmark.adaptive.state import SearchState
    from guardmark.attacks.prompts import PastTry


@dataclass(frozen=True, slots=True, kw_only=True)
class Critic:
    """Guesses from 1 to 10, for the choice of tries alone: no rate and no tier rests on them."""

    scene: SearchState
    diagnosis: Diagnosis
    models: ModelAsker

    @property
    def is_wanted(self) -> bool:
        """Whether guesses would be used: nobody else tells how close, and tries are shown."""
        plan = self.models.plan
        return plan.critic is not None and not self.scene.has_scores and plan.history > 0

    @property
    def system(self) -> str | None:
        """What the attacker model is told; None for what it is told without a critic."""
        return _system_with_critic() if self.is_wanted else None

    def shown(self, past: Sequence[PastTry]) -> tuple[PastTry, ...]:
        """Choose the tries of a line that the attacker model is shown."""
        most = self.models.plan.history
        if not most:
            return ()
        if all(each.closeness is None for each in past):
            return tuple(past[-most:])
        ranked = sorted(range(len(past)), key=lambda i: (past[i].closeness or 0.0, i))[-most:]
        return tuple(replace(past[i], is_best=i == ranked[-1]) for i in sorted(ranked))

    async def guess(
        self,
        lines: Sequence[tuple[AttackerThread, int]],
        *,
        strategies: Callable[[AttackerThread], Mapping[str, tuple[int, int]]],
    ) -> None:
        """Ask how close blocked candidates came, in lines that go on and where it is not known.

        An answer that failed, was refused or cannot be read leaves a candidate without a guess;
        after eight failed calls in a row nobody is asked any more.
        """
        if not self.is_wanted or not self.models.has_critic():
            return
        subjects = [
            (pursuit, blocked)
            for pursuit, stream in lines
            for blocked in pursuit.take_blocked(stream)
        ]
        asks = [
            self._ask(pursuit, blocked, strategies=strategies(pursuit))
            for pursuit, blocked in subjects
        ]
        replies = await self.models.ask_until_readable(asks, again=critic_repair)
        for (pursuit, blocked), reply in zip(subjects, replies, strict=True):
            if reply.closeness is not None:
                pursuit.criticise(blocked, reply.closeness)

    def _ask(
        self,
        pursuit: AttackerThread,
        blocked: Blocked,
        *,
        strategies: Mapping[str, tuple[int, int]],
    ) -> Ask:
        sample, draft, number = pursuit.target.sample, blocked.draft, pursuit.criticised
        pursuit.criticised += 1
        draw = self.scene.draw("critic", self.models.name, sample.id, number)
        critique = Critique(
            call=f"{draw.getrandbits(48):012x}",
            kind=self.diagnosis.kind,
            folds=self.diagnosis.folds,
            trigger=self.diagnosis.core_of(pursuit.position),
            request=sample.prompt.text,
            text=draft.text,
            strategy=draft.strategy,
            reason=blocked.reason,
            strategies=strategies,
        )
        note = {"stream": draft.stream, "depth": draft.depth, "candidate": number}
        return Ask(
            sample=pursuit.position,
            account=Account.CRITIC,
            prompt=critic_prompt(critique),
            seed=draw.getrandbits(31),
            note={**note, "repair": False},
        )


@cache
def _system_with_critic() -> str:
    return f"{system_text()}\n{TOLD_TO_ATTACKER}"
