"""Names of layers that hold no judging; once given, a name is never changed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

ADAPTIVE: Final = "adaptive"  # everything the adaptive attacker and its evaluator ask
BLIND: Final = "adaptive/blind"  # the control arm that draws at random and learns nothing
NULL: Final = "adaptive/null"  # the control arm that sends the same text again
GRADIENT: Final = "adaptive/gradient"  # the arm that sees the gradient of the loss (access A3)
REPAIRED: Final = "adaptive/repaired"  # the attack on the repaired defense, fixed list included
REPAIRED_FIRST: Final = "adaptive/repaired-first"  # its texts as they are, before cleaned ones
ARMS: Final = (ADAPTIVE, BLIND, NULL, GRADIENT, REPAIRED, REPAIRED_FIRST)
"""Layers of what a defense is asked, at the first seed."""
REPEATED_ARMS: Final = (ADAPTIVE, BLIND, NULL)  # arms that every seed has; all else is asked once

ATTACKER: Final = "adaptive/attacker"  # what an attacker model is asked
EQUIVALENCE: Final = "adaptive/equivalence"  # what a judge of sameness is asked
CANDIDATES: Final = "adaptive/candidates"  # what became of an attacker model's candidates
CRITIC: Final = "adaptive/critic"  # what a critic of blocked candidates is asked
TWIN_ATTACKER: Final = "adaptive/twin/attacker"  # the same three about benign texts
TWIN_EQUIVALENCE: Final = "adaptive/twin/equivalence"
TWIN_CANDIDATES: Final = "adaptive/twin/candidates"
MODEL_LAYERS: Final = (
    ATTACKER,
    EQUIVALENCE,
    CANDIDATES,
    CRITIC,
    TWIN_ATTACKER,
    TWIN_EQUIVALENCE,
    TWIN_CANDIDATES,
)
"""Layers of what models are asked, and of what came of their candidates."""

TARGET: Final = "adaptive/target"  # what the target model answered to what got through
VERDICT: Final = "adaptive/verdict"  # what a judge said of that; `/<judge>` where there are several
CANARY_REPLIES: Final = "adaptive/canaries"  # numbered rows at the first sample, with their ids

LEFT_OUT: Final = "adaptive/left-out"  # its settings name the defenses that no rewriting reaches
FINDINGS_PREFIX: Final = "adaptive/findings/"  # one a defense; settings hold flags and diagnosis
REPAIRED_PREFIX: Final = "adaptive/repaired/"  # one a defense; settings hold the cleaning
AUDIT_PREFIX: Final = "adaptive/audit-"  # one a sheet, with what people said of bypasses

PLANTED_PREFIX: Final = "planted/"  # then a number and a judge: what it said of planted answers
HEADLINE: Final = "headline/"  # then a number and the judging that figures stand on from then on
_SEED: Final = re.compile(rf"{ADAPTIVE}/seed-[1-9][0-9]*")


def seed_layer(arm: str, number: int) -> str:
    """Return the layer of an arm at the n-th seed."""
    if number == 1:
        return arm
    return f"{ADAPTIVE}/seed-{number}{arm.removeprefix(ADAPTIVE)}"


def first_layer(layer: str) -> str:
    """Return the layer of the same arm at the first seed."""
    seeded = _SEED.match(layer)
    if seeded is None:
        return layer
    return f"{ADAPTIVE}{layer[seeded.end() :]}"


def asked_layers(stored: Iterable[str]) -> tuple[str, ...]:
    """Return the layers of what a defense was asked, the first seed's first."""
    numbers: set[int] = set()
    for layer in stored:
        seeded = _SEED.match(layer)
        if seeded is not None and first_layer(layer) in ARMS:
            numbers.add(int(seeded.group().rpartition("-")[2]))
    layers = list(ARMS)
    for number in sorted(numbers):
        layers += [seed_layer(arm, number) for arm in ARMS]
    return tuple(layers)


def is_target_layer(layer: str) -> bool:
    """Tell whether rows of a layer speak of the target model and not of a defense."""
    return layer in {TARGET, VERDICT, CANARY_REPLIES} or layer.startswith(f"{VERDICT}/")
