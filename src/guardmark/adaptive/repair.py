"""Counterfactual repair: what cleaning texts before the defense would close, cost and open."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from guardmark.adaptive.questions import Account, Query
from guardmark.canon.steps import REPAIR_STEPS, apply_steps
from guardmark.defenses.canonical import WHOLE, steps_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.adaptive.questions import Steps, TryAnswer
    from guardmark.adaptive.state import SearchState

REPAIR: Final = "repair"
"""Round of bypasses and benign texts, cleaned."""
HELD: Final = "repair, held"
"""Round of attacks that are blocked as they are, cleaned: may any pass now?"""
JOINT: Final = "+"
"""Between the steps of a repair of several."""
SINGLE: Final = (*(step.value for step in REPAIR_STEPS), WHOLE)
_MOST: Final = 200


def run_repair(scene: SearchState, wins: Sequence[Query]) -> Steps[None]:
    """Ask about every bypass again, the text cleaned in one way at a time.

    Beside the bypasses stand benign texts that pass and attacks that are blocked, both as they
    are: a repair may cost false alarms, and may hide from the defense what it knew an attack by.
    What helped by itself is tried once more together. A text that cleaning leaves alone keeps
    its answer and costs nothing.
    """
    asked = [(win.sample, win.text, REPAIR) for win in wins]
    asked += [(place, scene.samples[place].prompt.text, REPAIR) for place in _some(scene, REPAIR)]
    asked += [(place, scene.samples[place].prompt.text, HELD) for place in _some(scene, HELD)]
    if not asked:
        return
    useful: list[str] = []
    for name in SINGLE:
        batch = _cleaned(asked, name)
        answers = yield batch
        if _net(batch, answers, scene) > 0:
            useful.append(name)
    together = JOINT.join(step.value for step in steps_of(useful))
    if len(useful) > 1 and together != JOINT.join(step.value for step in steps_of([WHOLE])):
        yield _cleaned(asked, together)


def _some(scene: SearchState, round_: str) -> list[int]:
    places = scene.quiet if round_ == REPAIR else scene.blocked
    return sorted(scene.draw(round_).sample(places, min(len(places), _MOST)))


def _cleaned(asked: Sequence[tuple[int, str, str]], name: str) -> list[Query]:
    steps = steps_of(name.split(JOINT))
    return [
        Query(place, apply_steps(text, steps), Account.REPAIR, round_, name)
        for place, text, round_ in asked
    ]


def _net(batch: Sequence[Query], answers: Sequence[TryAnswer], scene: SearchState) -> float:
    """Return the share closed, less the shares of benign texts lost and of attacks opened."""
    hits: Counter[str] = Counter()
    trials: Counter[str] = Counter()
    for query, answer in zip(batch, answers, strict=True):
        if answer.is_blocked is None:
            continue
        is_attack = scene.samples[query.sample].is_attack
        kind = "opened" if query.round == HELD else "closed" if is_attack else "lost"
        trials[kind] += 1
        hits[kind] += answer.passed if kind == "opened" else answer.is_blocked
    share = {kind: hits[kind] / trials[kind] for kind in trials}
    return share.get("closed", 0.0) - share.get("lost", 0.0) - share.get("opened", 0.0)
