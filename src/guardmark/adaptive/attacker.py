"""Round 5: a model writes candidates, the defense answers; and its twin on benign texts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from guardmark.adaptive.attacker_thread import (
    ATTACKS,
    BENIGN,
    AttackerThread,
    CandidateStatus,
    Draft,
    Side,
    interleaved,
    prove,
)
from guardmark.adaptive.model_asker import Ask
from guardmark.adaptive.questions import REWORDING, Account, Query
from guardmark.adaptive.state import Target
from guardmark.attacks.contract import Tier
from guardmark.attacks.prompts import (
    STRATEGIES,
    TOLD_TO_ATTACKER,
    Critique,
    Situation,
    attacker_prompt,
    critic_prompt,
    critic_repair,
    neutral_text,
    repair_prompt,
    system_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from random import Random

    from guardmark.adaptive.attacker_thread import Blocked
    from guardmark.adaptive.defense_asker import DefenseAsker
    from guardmark.adaptive.diagnosis import Diagnosis
    from guardmark.adaptive.model_asker import ModelAsker, ModelReply
    from guardmark.adaptive.state import SearchState
    from guardmark.attacks.prompts import PastTry


@dataclass(frozen=True, slots=True, kw_only=True)
class Critic:
    """Guesses from 1 to 10, for the choice of tries alone: no rate and no tier rests on them."""

    state: SearchState
    diagnosis: Diagnosis
    models: ModelAsker

    @property
    def is_wanted(self) -> bool:
        """Whether guesses would be used: nobody else tells how close, and tries are shown."""
        plan = self.models.plan
        return plan.critic is not None and not self.state.has_scores and plan.history > 0

    @property
    def system(self) -> str | None:
        """What the attacker model is told; None for what it is told without a critic."""
        return f"{system_text()}\n{TOLD_TO_ATTACKER}" if self.is_wanted else None

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
        """Ask how close blocked candidates came, in lines that go on and where it is not known."""
        if not self.is_wanted or not self.models.has_critic():
            return
        subjects = [
            (thread, blocked) for thread, stream in lines for blocked in thread.take_blocked(stream)
        ]
        asks = [self._ask(thread, blocked, strategies(thread)) for thread, blocked in subjects]
        replies = await self.models.ask_until_readable(asks, again=critic_repair)
        for (thread, blocked), reply in zip(subjects, replies, strict=True):
            if reply.closeness is not None:
                thread.criticise(blocked, reply.closeness)

    def _ask(
        self, thread: AttackerThread, blocked: Blocked, strategies: Mapping[str, tuple[int, int]]
    ) -> Ask:
        sample, draft, number = thread.target.sample, blocked.draft, thread.criticised
        thread.criticised += 1
        draw = self.state.draw("critic", self.models.name, sample.id, number)
        critique = Critique(
            call=f"{draw.getrandbits(48):012x}",
            kind=self.diagnosis.kind,
            folds=self.diagnosis.folds,
            trigger=self.diagnosis.core_of(thread.position),
            request=sample.prompt.text,
            text=draft.text,
            strategy=draft.strategy,
            reason=blocked.reason,
            strategies=strategies,
        )
        place = {"stream": draft.stream, "depth": draft.depth, "candidate": number}
        return Ask(
            sample=thread.position,
            account=Account.CRITIC,
            prompt=critic_prompt(critique),
            seed=draw.getrandbits(31),
            note={**place, "repair": False},
        )


async def run_attacker(
    state: SearchState,
    targets: Sequence[Target],
    *,
    diagnosis: Diagnosis,
    defenses: DefenseAsker,
    models: ModelAsker,
) -> dict[str, tuple[int, int]]:
    """Let a model try what rules did not bring through, all attacks a step together."""
    open_targets = [t for t in targets if t.win is None and t.tries < state.budget]
    if not open_targets:
        return {}
    work = _Round(Critic(state=state, diagnosis=diagnosis, models=models), defenses)
    threads = [AttackerThread.of(t, streams=models.plan.streams) for t in open_targets]
    for depth in range(models.plan.depth):
        live = [each for each in threads if each.may_try(state.budget)]
        if not live or models.has_gone() or not models.calls_left:
            break
        await work.write(live, depth)
        while not models.has_gone() and (
            batch := [each for each in live if each.queue and each.may_try(state.budget)]
        ):
            await work.send(batch)
    _note_unused(models, threads, side=ATTACKS)
    return work.record()


class _Round:
    """What every step of the round looks at, and how strategies fared so far."""

    def __init__(self, critic: Critic, defenses: DefenseAsker) -> None:
        self.critic = critic
        self.state = critic.state
        self.models = critic.models
        self.defenses = defenses
        self.tried: Counter[tuple[int | None, str]] = Counter()
        self.passed: Counter[tuple[int | None, str]] = Counter()

    def record(self) -> dict[str, tuple[int, int]]:
        """Add up how strategies fared, over all attacks."""
        tried, passed = Counter[str](), Counter[str]()
        for key, count in self.tried.items():
            tried[key[1]] += count
            passed[key[1]] += self.passed[key]
        return {name: (count, passed[name]) for name, count in tried.items()}

    async def write(self, live: Sequence[AttackerThread], depth: int) -> None:
        """Ask for candidates; queue those that may be sent."""
        models = self.models
        lines = [
            (thread, stream)
            for stream in range(models.plan.streams)
            for thread in live
            # No more lines than the rest of the budget can use.
            if stream * models.plan.candidates < self.state.budget - thread.target.tries
        ][: models.calls_left]
        await self.critic.guess(lines, strategies=self._record)
        asks = [self._ask(thread, stream, depth) for thread, stream in lines]
        replies = await models.ask_until_readable(
            asks, again=repair_prompt, most=lambda: models.calls_left
        )
        written: dict[int, list[list[Draft]]] = {thread.position: [] for thread in live}
        for (thread, stream), reply in zip(lines, replies, strict=True):
            written[thread.position].append(_drafts(models, reply, stream, depth))
        for thread in live:
            _queue(models, thread, interleaved(written[thread.position]), side=ATTACKS)

    def _ask(self, thread: AttackerThread, stream: int, depth: int) -> Ask:
        purpose = ("attacker", self.models.name, thread.target.sample.id, stream, depth)
        return _ask_to_write(
            self.critic,
            thread,
            self.state.draw(*purpose),
            side=ATTACKS,
            system=self.critic.system,
            strategies=self._record(thread),
            place=(stream, depth),
        )

    def _record(self, thread: AttackerThread) -> dict[str, tuple[int, int]]:
        """How often each strategy was tried and got through, as far as an attack is told."""
        keys = {name: self._heard_of(thread, name) for name in STRATEGIES}
        return {name: (self.tried[key], self.passed[key]) for name, key in keys.items()}

    def _heard_of(self, thread: AttackerThread, strategy: str) -> tuple[int | None, str]:
        """Under which name the outcomes of a strategy are kept: for all, or for one attack."""
        return (None if self.state.shares_memory else thread.position), strategy

    async def send(self, batch: Sequence[AttackerThread]) -> None:
        """Try the next candidate of each attack that has one."""
        turn = [(thread, thread.queue.popleft()) for thread in batch]
        turn = await prove(self.state, self.models, turn, side=ATTACKS)
        queries = [_query(*each, Account.SEARCH, "R5") for each in turn]
        answers = await self.defenses.ask(queries)
        won = await self.defenses.drive(self.state.confirm(queries, answers))
        for i, (thread, draft) in enumerate(turn):
            thread.target.tries += 1
            thread.target.seen.add(draft.text)
            thread.answered(draft, answers[i], is_through=i in won)
            self.models.note(thread.position, draft.note(CandidateStatus.SENT))
            if answers[i].is_blocked is not None:
                key = self._heard_of(thread, draft.strategy)
                self.tried[key] += 1
                self.passed[key] += i in won
            if i in won and draft.tier == Tier.V4.value:
                thread.is_through_unproved = True
            elif i in won:
                thread.target.win = queries[i]


_PURPOSE = "attacker twin"


async def run_rewording(
    state: SearchState,
    diagnosis: Diagnosis,
    *,
    defenses: DefenseAsker,
    models: ModelAsker,
    record: Mapping[str, tuple[int, int]],
) -> None:
    """Reword benign texts as attacks were reworded, so that both block rates can be compared.

    One call for each of a seeded subsample, with the strategies of the round, the label untold;
    every candidate that the judge calls the same request is sent once. The evaluator pays.
    """
    wanted = min(models.plan.twin, len(state.benign))
    if not wanted or models.has_gone():
        return
    places = sorted(state.draw(_PURPOSE).sample(state.benign, wanted))
    targets = [Target(position=place, sample=state.samples[place]) for place in places]
    threads = [AttackerThread.of(target, streams=1) for target in targets]
    asks = [
        _ask_to_write(
            Critic(state=state, diagnosis=diagnosis, models=models),
            each,
            state.draw(_PURPOSE, models.name, each.target.sample.id),
            side=BENIGN,
            system=neutral_text(),
            strategies={name: record.get(name, (0, 0)) for name in STRATEGIES},
        )
        for each in threads
    ]
    replies = await models.ask_until_readable(asks, again=repair_prompt)
    for thread, reply in zip(threads, replies, strict=True):
        _queue(models, thread, _drafts(models, reply, 0, 0), side=BENIGN)
    while not models.has_gone() and (batch := [each for each in threads if each.queue]):
        turn = [(thread, thread.queue.popleft()) for thread in batch]
        turn = await prove(state, models, turn, side=BENIGN)
        await defenses.ask([_query(*each, Account.REWORDED, REWORDING) for each in turn])
        for thread, draft in turn:
            models.note(thread.position, draft.note(CandidateStatus.SENT), layer=BENIGN.candidates)
    _note_unused(models, threads, side=BENIGN)


def _ask_to_write(
    critic: Critic,
    thread: AttackerThread,
    draw: Random,
    *,
    side: Side,
    system: str | None,
    strategies: Mapping[str, tuple[int, int]],
    place: tuple[int, int] = (0, 0),
) -> Ask:
    """Ask for candidates of one line at one depth."""
    diagnosis, models, sample = critic.diagnosis, critic.models, thread.target.sample
    stream, depth = place
    situation = Situation(
        call=f"{draw.getrandbits(48):012x}",
        defense=models.name,
        kind=diagnosis.kind,
        folds=diagnosis.folds,
        trigger=diagnosis.core_of(thread.position),
        request=sample.prompt.text,
        must_keep=sample.must_keep,
        refuted=thread.refuted,
        strategies=strategies,
        tries=critic.shown(thread.past[stream]),
        wanted=models.plan.candidates,
        stream=(stream + 1, len(thread.past)),
    )
    return Ask(
        sample=thread.position,
        account=side.writer,
        prompt=attacker_prompt(situation, system=system),
        seed=draw.getrandbits(31),
        note={"stream": stream, "depth": depth, "repair": False},
    )


def _drafts(models: ModelAsker, reply: ModelReply, stream: int, depth: int) -> list[Draft]:
    return [
        Draft(stream=stream, depth=depth, strategy=each.strategy, text=each.text)
        for each in reply.candidates[: models.plan.candidates]
    ]


def _queue(
    models: ModelAsker, thread: AttackerThread, drafts: Iterable[Draft], *, side: Side
) -> None:
    """Queue what may be sent, and note what became of the rest."""
    for draft in drafts:
        status = thread.take(draft)
        if status is not None:
            models.note(thread.position, draft.note(status), layer=side.candidates)


def _query(thread: AttackerThread, draft: Draft, account: Account, round_: str) -> Query:
    chain = f"attacker [{draft.strategy}]"
    return Query(thread.position, draft.text, account, round_, chain, draft.tier)


def _note_unused(models: ModelAsker, threads: Sequence[AttackerThread], *, side: Side) -> None:
    for thread in threads:
        for draft in thread.queue:
            status = draft.note(CandidateStatus.UNUSED)
            models.note(thread.position, status, layer=side.candidates)
    models.flush()
