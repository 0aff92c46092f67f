"""The benign twin of round 5: the same model rewords benign texts, and the defense is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.adaptive.attacker_thread import AttackerThread, CandidateStatus, Draft
from guardmark.adaptive.model_asker import Ask
from guardmark.adaptive.questions import REWORDING, Account, Query
from guardmark.adaptive.sameness import BENIGN, prove
from guardmark.adaptive.state import Target
from guardmark.attacks.prompts import (
    STRATEGIES,
    Situation,
    attacker_prompt,
    neutral_text,
    repair_prompt,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guardmark.adaptive.defense_asker import DefenseAsker
    from guardmark.adaptive.diagnosis import Diagnosis
    from guardmark.adaptive.model_asker import ModelAsker
    from guardmark.adaptive.state import SearchState

_PURPOSE = "attacker twin"


async def run_rewording(
    scene: SearchState,
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
    wanted = min(models.plan.twin, len(scene.benign))
    if not wanted or models.has_gone():
        return
    places = sorted(scene.draw(_PURPOSE).sample(scene.benign, wanted))
    pursuits = [
        AttackerThread.of(Target(position=place, sample=scene.samples[place]), streams=1)
        for place in places
    ]
    told = {name: record.get(name, (0, 0)) for name in STRATEGIES}
    asks = [_ask(scene, diagnosis, each, models=models, record=told) for each in pursuits]
    replies = await models.ask_until_readable(asks, again=repair_prompt)
    for pursuit, reply in zip(pursuits, replies, strict=True):
        for each in reply.candidates[: models.plan.candidates]:
            draft = Draft(stream=0, depth=0, strategy=each.strategy, text=each.text)
            fate = pursuit.take(draft)
            if fate is not None:
                models.note(pursuit.position, draft.note(fate), layer=BENIGN.candidates)
    while not models.has_gone() and (batch := [each for each in pursuits if each.queue]):
        await _send(scene, batch, defenses=defenses, models=models)
    for pursuit in pursuits:
        for draft in pursuit.queue:
            models.note(
                pursuit.position, draft.note(CandidateStatus.UNUSED), layer=BENIGN.candidates
            )
    models.flush()


async def _send(
    scene: SearchState,
    batch: Sequence[AttackerThread],
    *,
    defenses: DefenseAsker,
    models: ModelAsker,
) -> None:
    """Ask the defense about the next candidate of each benign text that has one."""
    turn = [(pursuit, pursuit.queue.popleft()) for pursuit in batch]
    turn = await prove(scene, models, turn, side=BENIGN)
    await defenses.ask(
        [
            Query(
                pursuit.position,
                draft.text,
                Account.REWORDED,
                REWORDING,
                f"attacker [{draft.strategy}]",
                draft.tier,
            )
            for pursuit, draft in turn
        ]
    )
    for pursuit, draft in turn:
        models.note(pursuit.position, draft.note(CandidateStatus.SENT), layer=BENIGN.candidates)


def _ask(
    scene: SearchState,
    diagnosis: Diagnosis,
    pursuit: AttackerThread,
    *,
    models: ModelAsker,
    record: Mapping[str, tuple[int, int]],
) -> Ask:
    sample = pursuit.target.sample
    draw = scene.draw(_PURPOSE, models.name, sample.id)
    situation = Situation(
        call=f"{draw.getrandbits(48):012x}",
        defense=models.name,
        kind=diagnosis.kind,
        folds=diagnosis.folds,
        request=sample.prompt.text,
        must_keep=sample.must_keep,
        strategies=record,
        wanted=models.plan.candidates,
        stream=(1, 1),
    )
    return Ask(
        sample=pursuit.position,
        account=BENIGN.writer,
        prompt=attacker_prompt(situation, system=neutral_text()),
        seed=draw.getrandbits(31),
        note={"stream": 0, "depth": 0, "repair": False},
    )
