"""What the evaluator asks afterwards: the benign twin, repairs, transfer."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from guardmark.attacks.battery import battery
from guardmark.attacks.catalogue import parse_chain
from guardmark.canon import REPAIR_STEPS, apply_steps, canonicalize
from guardmark.engine.adaptive.trial import Account, Query

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from guardmark.attacks.chain import Chain
    from guardmark.engine.adaptive.scene import Scene
    from guardmark.engine.adaptive.trial import Steps

WHOLE: Final = "canon"
"""Repair by the whole canonicaliser."""
REPAIRS: Final = (*(step.value for step in REPAIR_STEPS), WHOLE)
_MOST_BENIGN: Final = 200
_MOST_WINNERS: Final = 12


def run_twin(scene: Scene, wins: Sequence[Query]) -> Steps[None]:
    """Do to benign texts what was done to attacks: same chains, parameters and seeds.

    Args:
        scene: After round 0.
        wins: What got through; its most frequent chains are tried beside the battery.
    """
    places = _some(scene, scene.benign, "twin")
    for chain in _tried(wins):
        batch = [
            query
            for place in places
            if (query := scene.variant(place, chain, index=0, account=Account.TWIN, round_="twin"))
            is not None
        ]
        if batch:
            yield batch


def run_repair(scene: Scene, wins: Sequence[Query]) -> Steps[None]:
    """Ask about every bypass again, the text cleaned in one way at a time.

    A text that cleaning leaves alone keeps its answer and costs nothing.

    Args:
        scene: After round 0.
        wins: What got through.
    """
    benign = [
        (place, scene.samples[place].prompt.text) for place in _some(scene, scene.quiet, "repair")
    ]
    attacks = [(win.sample, win.text) for win in wins]
    for name in REPAIRS:
        batch = [
            Query(place, _repaired(text, name), Account.REPAIR, "repair", name)
            for place, text in (*attacks, *benign)
        ]
        if batch:
            yield batch


def run_transfer(scene: Scene, wins: Sequence[Query], *, source: str) -> Steps[None]:
    """Replay what won against another defense, one call each.

    Args:
        scene: Of the defense that is asked, after round 0.
        wins: What got through the other one.
        source: Name of the other one.
    """
    blocked = set(scene.blocked)
    batch = [
        Query(win.sample, win.text, Account.TRANSFER, f"from {source}", win.chain, win.tier)
        for win in wins
        if win.sample in blocked
    ]
    if batch:
        yield batch


def _repaired(text: str, name: str) -> str:
    if name == WHOLE:
        return canonicalize(text)
    return apply_steps(text, [step for step in REPAIR_STEPS if step.value == name])


def _some(scene: Scene, places: tuple[int, ...], purpose: str) -> list[int]:
    return sorted(scene.draw(purpose).sample(places, min(len(places), _MOST_BENIGN)))


def _tried(wins: Iterable[Query]) -> list[Chain]:
    fixed = {chain.key: chain for chain in battery()}
    count = Counter(win.chain for win in wins if " [" not in win.chain)
    best = sorted(count, key=lambda key: (-count[key], key))
    for key in [key for key in best if key not in fixed][:_MOST_WINNERS]:
        fixed[key] = parse_chain(key)
    return list(fixed.values())
