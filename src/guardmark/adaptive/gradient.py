"""The arm with gradient access (A3): what following the gradient brings through."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.adaptive.questions import Account, Query
from guardmark.attacks.application import tier_of
from guardmark.core.layers import GRADIENT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guardmark.adaptive.questions import Steps
    from guardmark.adaptive.state import SearchState
    from guardmark.core.protocols import GradientAccess, GradientAttack
    from guardmark.core.sample import Sample


def run_gradient(scene: SearchState, attack: GradientAttack, access: GradientAccess) -> Steps[None]:
    """Let an attack propose variants of every attack that was blocked at first.

    Each variant is checked like any other: protected spans first, then the tier by rule (V1 or
    V2), else V4, which brings no bypass. What alters a protected span is not asked about.
    """
    live: dict[int, Iterator[Query]] = {
        place: _variants(scene.samples[place], attack, access, place=place, most=scene.budget)
        for place in scene.blocked
    }
    while live:
        batch = [query for each in live.values() if (query := next(each, None)) is not None]
        if not batch:
            return
        answers = yield batch
        passes = [
            each
            for each in zip(batch, answers, strict=True)
            if each[1].passed and each[0].is_proved
        ]
        held = yield from scene.confirm(passes)
        won = {passes[number][0].sample for number in held}
        asked = {query.sample for query in batch}
        live = {p: each for p, each in live.items() if p in asked and p not in won}


def _variants(
    sample: Sample, attack: GradientAttack, access: GradientAccess, *, place: int, most: int
) -> Iterator[Query]:
    """Yield what may be asked, at most as many as were proposed."""
    original, seen = sample.prompt.text, {sample.prompt.text}
    for number, text in enumerate(attack.propose(sample, access, most=most), start=1):
        tier = tier_of(original, text, sample.must_keep)
        if tier is not None and text not in seen:
            seen.add(text)
            yield Query(place, text, Account.SEARCH, "gradient", attack.name, tier.value, GRADIENT)
        if number == most:
            return
