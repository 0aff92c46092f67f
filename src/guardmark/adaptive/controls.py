"""What the evaluator asks afterwards: the benign twin, and transfer."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from guardmark.adaptive.questions import Account, Query
from guardmark.attacks.battery import battery
from guardmark.attacks.catalogue import parse_chain

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from guardmark.adaptive.questions import Steps
    from guardmark.adaptive.state import SearchState
    from guardmark.attacks.contract import OperatorChain

_MOST_BENIGN: Final = 200
_MOST_WINNERS: Final = 12


def run_twin(scene: SearchState, wins: Sequence[Query]) -> Steps[None]:
    """Do to benign texts what was done to attacks: same chains, parameters and seeds."""
    places = _some(scene, scene.benign, "twin")
    for chain in tried_chains(wins):
        batch = [
            query
            for place in places
            if (query := scene.variant(place, chain, index=0, account=Account.TWIN, round_="twin"))
            is not None
        ]
        if batch:
            yield batch


def run_transfer(scene: SearchState, wins: Sequence[Query], *, source: str) -> Steps[None]:
    """Replay what won against another defense, one call each."""
    blocked = set(scene.blocked)
    batch = [
        Query(win.sample, win.text, Account.TRANSFER, f"from {source}", win.chain, win.tier)
        for win in wins
        if win.sample in blocked
    ]
    if batch:
        yield batch


def _some(scene: SearchState, places: tuple[int, ...], purpose: str) -> list[int]:
    return sorted(scene.draw(purpose).sample(places, min(len(places), _MOST_BENIGN)))


def tried_chains(wins: Iterable[Query]) -> list[OperatorChain]:
    """Return what is done to benign texts: the battery, and the most frequent winners."""
    fixed = {chain.key: chain for chain in battery()}
    # Neither parts of a text nor what a model wrote can be done to another text.
    count = Counter(win.chain for win in wins if " [" not in win.chain)
    best = sorted(count, key=lambda key: (-count[key], key))
    for key in [key for key in best if key not in fixed][:_MOST_WINNERS]:
        fixed[key] = parse_chain(key)
    return list(fixed.values())
