"""Round 5: a model writes candidates, a judge says which ask the same, the defense answers."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from guardmark.adaptive.attacker_thread import AttackerThread, CandidateStatus, Draft, interleaved
from guardmark.adaptive.critic import Critic
from guardmark.adaptive.model_asker import Ask
from guardmark.adaptive.questions import Account, Query
from guardmark.adaptive.sameness import ATTACKS, prove
from guardmark.attacks.contract import Tier
from guardmark.attacks.prompts import STRATEGIES, Situation, attacker_prompt, repair_prompt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.adaptive.defense_asker import DefenseAsker
    from guardmark.adaptive.diagnosis import Diagnosis
    from guardmark.adaptive.model_asker import ModelAsker
    from guardmark.adaptive.questions import TryAnswer
    from guardmark.adaptive.state import SearchState, Target

_ROUND = "R5"


async def run_attacker(
    scene: SearchState,
    targets: Sequence[Target],
    *,
    diagnosis: Diagnosis,
    defenses: DefenseAsker,
    models: ModelAsker,
) -> dict[str, tuple[int, int]]:
    """Let a model try what rules did not bring through.

    All attacks take a step together; what a step teaches is used in the next. No reply decides
    anything but which texts are sent: a failed, refused or unreadable one sends none.
    """
    open_targets = [t for t in targets if t.win is None and t.tries < scene.budget]
    if not open_targets:
        return {}
    work = _Round(scene, diagnosis, defenses, models)
    pursuits = [AttackerThread.of(t, streams=models.plan.streams) for t in open_targets]
    for depth in range(models.plan.depth):
        live = [each for each in pursuits if each.may_try(scene.budget)]
        if not live or models.has_gone() or not models.calls_left:
            break
        await work.write(live, depth)
        while not models.has_gone() and (
            batch := [each for each in live if each.queue and each.may_try(scene.budget)]
        ):
            await work.send(batch)
    for pursuit in pursuits:
        for draft in pursuit.queue:
            models.note(pursuit.position, draft.note(CandidateStatus.UNUSED))
    models.flush()
    return work.record()


class _Round:
    """What every step of the round looks at, and how strategies fared so far."""

    def __init__(
        self, scene: SearchState, diagnosis: Diagnosis, defenses: DefenseAsker, models: ModelAsker
    ) -> None:
        self.scene = scene
        self.diagnosis = diagnosis
        self.defenses = defenses
        self.models = models
        self.critic = Critic(scene=scene, diagnosis=diagnosis, models=models)
        self.tried: Counter[tuple[int | None, str]] = Counter()
        self.passed: Counter[tuple[int | None, str]] = Counter()

    def record(self) -> dict[str, tuple[int, int]]:
        """Add up how strategies fared, over all attacks."""
        found: Counter[str] = Counter()
        passed: Counter[str] = Counter()
        for (_, name), count in self.tried.items():
            found[name] += count
        for (_, name), count in self.passed.items():
            passed[name] += count
        return {name: (count, passed[name]) for name, count in found.items()}

    async def write(self, live: Sequence[AttackerThread], depth: int) -> None:
        """Ask for candidates; queue those that may be sent."""
        models = self.models
        lines = [
            (pursuit, stream)
            for stream in range(models.plan.streams)
            for pursuit in live
            # No more lines than the rest of the budget can use.
            if stream * models.plan.candidates < self.scene.budget - pursuit.target.tries
        ][: models.calls_left]
        await self.critic.guess(lines, strategies=self._record)
        asks = [self._ask(pursuit, stream, depth) for pursuit, stream in lines]
        replies = await models.ask_until_readable(
            asks, again=repair_prompt, most=lambda: models.calls_left
        )
        written: dict[int, list[list[Draft]]] = {pursuit.position: [] for pursuit in live}
        for (pursuit, stream), reply in zip(lines, replies, strict=True):
            written[pursuit.position].append(
                [
                    Draft(stream=stream, depth=depth, strategy=each.strategy, text=each.text)
                    for each in reply.candidates[: models.plan.candidates]
                ]
            )
        for pursuit in live:
            for draft in interleaved(written[pursuit.position]):
                fate = pursuit.take(draft)
                if fate is not None:
                    models.note(pursuit.position, draft.note(fate))

    def _ask(self, pursuit: AttackerThread, stream: int, depth: int) -> Ask:
        plan, sample = self.models.plan, pursuit.target.sample
        draw = self.scene.draw("attacker", self.models.name, sample.id, stream, depth)
        prompt = attacker_prompt(
            Situation(
                call=f"{draw.getrandbits(48):012x}",
                defense=self.models.name,
                kind=self.diagnosis.kind,
                folds=self.diagnosis.folds,
                trigger=self.diagnosis.core_of(pursuit.position),
                request=sample.prompt.text,
                must_keep=sample.must_keep,
                refuted=pursuit.refuted,
                strategies=self._record(pursuit),
                tries=self.critic.shown(pursuit.past[stream]),
                wanted=plan.candidates,
                stream=(stream + 1, plan.streams),
            ),
            system=self.critic.system,
        )
        return Ask(
            sample=pursuit.position,
            account=Account.ATTACKER,
            prompt=prompt,
            seed=draw.getrandbits(31),
            note={"stream": stream, "depth": depth, "repair": False},
        )

    def _record(self, pursuit: AttackerThread) -> dict[str, tuple[int, int]]:
        """How often each strategy was tried and got through, as far as an attack is told."""
        keys = {name: self._heard_of(pursuit, name) for name in STRATEGIES}
        return {name: (self.tried[key], self.passed[key]) for name, key in keys.items()}

    def _heard_of(self, pursuit: AttackerThread, strategy: str) -> tuple[int | None, str]:
        """Under which name the outcomes of a strategy are kept: for all, or for one attack."""
        return (None if self.scene.shares_memory else pursuit.position), strategy

    async def send(self, batch: Sequence[AttackerThread]) -> None:
        """Try the next candidate of each attack that has one."""
        turn = [(pursuit, pursuit.queue.popleft()) for pursuit in batch]
        turn = await prove(self.scene, self.models, turn, side=ATTACKS)
        queries = [
            Query(
                pursuit.position,
                draft.text,
                Account.SEARCH,
                _ROUND,
                f"attacker [{draft.strategy}]",
                draft.tier,
            )
            for pursuit, draft in turn
        ]
        answers = await self.defenses.ask(queries)
        through = [i for i, answer in enumerate(answers) if answer.passed]
        held = await self.defenses.drive(
            self.scene.confirm([(queries[i], answers[i]) for i in through])
        )
        won = {through[i] for i in held}
        for i, (pursuit, draft) in enumerate(turn):
            self._learn(pursuit, draft, answers[i], query=queries[i] if i in won else None)

    def _learn(
        self, pursuit: AttackerThread, draft: Draft, answer: TryAnswer, *, query: Query | None
    ) -> None:
        pursuit.target.tries += 1
        pursuit.target.seen.add(draft.text)
        pursuit.answered(draft, answer, is_through=query is not None)
        self.models.note(pursuit.position, draft.note(CandidateStatus.SENT))
        if answer.is_blocked is not None:
            key = self._heard_of(pursuit, draft.strategy)
            self.tried[key] += 1
            self.passed[key] += query is not None
        if query is not None and draft.tier == Tier.V4.value:
            pursuit.is_through_unproved = True
        elif query is not None:
            pursuit.target.win = query
