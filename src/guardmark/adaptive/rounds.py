"""Round 1 and the control arms: what needs no feedback."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.adaptive.beliefs import BatteryRecord
from guardmark.adaptive.questions import Account, Query
from guardmark.attacks.battery import battery
from guardmark.core.layers import BLIND, NULL

if TYPE_CHECKING:
    from guardmark.adaptive.questions import Steps
    from guardmark.adaptive.state import SearchState

_DRAWS = 20


def run_battery(scene: SearchState) -> Steps[BatteryRecord]:
    """Try every chain of the fixed list on every attack that was blocked at first."""
    record = BatteryRecord()
    for chain in battery():
        batch = [
            query
            for place in scene.blocked
            if (query := scene.variant(place, chain, index=0, account=Account.BATTERY, round_="R1"))
            is not None
        ]
        if not batch:
            continue
        answers = yield batch
        passes = [i for i, answer in enumerate(answers) if answer.passed]
        held = yield from scene.confirm([(batch[i], answers[i]) for i in passes])
        won = {passes[i] for i in held}
        for i, query in enumerate(batch):
            if not query.is_proved or answers[i].is_blocked is None:
                continue
            record.outcomes.setdefault(chain.key, {})[query.sample] = i in won
            if i in won:
                record.wins.setdefault(query.sample, query)
    return record


def run_null(scene: SearchState) -> Steps[None]:
    """Send each blocked text again, as often as the search may try.

    Whatever this gains is chance in the defense and no merit of any attack.
    """
    live = list(scene.blocked)
    for _ in range(scene.budget):
        if not live:
            return
        batch = [
            Query(
                place,
                scene.samples[place].prompt.text,
                Account.SEARCH,
                "null",
                tier="V0",
                layer=scene.layer(NULL),
                is_again=True,
            )
            for place in live
        ]
        answers = yield batch
        passes = [each for each in zip(batch, answers, strict=True) if each[1].passed]
        held = yield from scene.confirm(passes)
        won = {passes[number][0].sample for number in held}
        live = [place for place in live if place not in won]


def run_blind(scene: SearchState) -> Steps[None]:
    """Try arms drawn at random, to the end of the budget, learning nothing.

    Tries go on after a bypass, so that they are exchangeable and ASR@k can be estimated.
    """
    chains = scene.singles()
    draws = {place: scene.draw("blind", scene.samples[place].id) for place in scene.blocked}
    for index in range(scene.budget):
        batch = []
        for place in scene.blocked:
            for _ in range(_DRAWS):
                query = scene.variant(
                    place,
                    draws[place].choice(chains),
                    index=index,
                    account=Account.SEARCH,
                    round_="blind",
                    arm=BLIND,
                )
                if query is not None and query.is_proved:
                    batch.append(query)
                    break
        if not batch:
            return
        answers = yield batch
        yield from scene.confirm(
            [each for each in zip(batch, answers, strict=True) if each[1].passed]
        )
