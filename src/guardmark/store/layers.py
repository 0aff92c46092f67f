"""Names of the layers under which an adaptive measurement is stored.

Who attacks writes them and who counts reads them, in every file that was ever stored: a name once
given is never changed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

ADAPTIVE: Final = "adaptive"
"""Layer of everything the adaptive attacker and its evaluator ask."""
BLIND: Final = "adaptive/blind"
"""Layer of the control arm that draws at random and learns nothing."""
NULL: Final = "adaptive/null"
"""Layer of the control arm that sends the same text again."""
GRADIENT: Final = "adaptive/gradient"
"""Layer of the arm that sees the gradient of the defense's loss (access A3)."""
ARMS: Final = (ADAPTIVE, BLIND, NULL, GRADIENT)
"""Layers of what a defense is asked, at the first seed."""
REPEATED_ARMS: Final = (ADAPTIVE, BLIND, NULL)
"""Arms that every seed has; all else is asked once."""

ATTACKER: Final = "adaptive/attacker"
"""Layer of what an attacker model is asked."""
EQUIVALENCE: Final = "adaptive/equivalence"
"""Layer of what a judge of sameness is asked."""
CANDIDATES: Final = "adaptive/candidates"
"""Layer of what became of each candidate of an attacker model."""
CRITIC: Final = "adaptive/critic"
"""Layer of what a critic of blocked candidates is asked."""
TWIN_ATTACKER: Final = "adaptive/twin/attacker"
"""Layer of what an attacker model is asked about benign texts."""
TWIN_EQUIVALENCE: Final = "adaptive/twin/equivalence"
"""Layer of what a judge of sameness is asked about benign texts."""
TWIN_CANDIDATES: Final = "adaptive/twin/candidates"
"""Layer of what became of each candidate made from a benign text."""
MODEL_LAYERS: Final = (
    *(ATTACKER, EQUIVALENCE, CANDIDATES, CRITIC),
    *(TWIN_ATTACKER, TWIN_EQUIVALENCE, TWIN_CANDIDATES),
)
"""Layers of what models are asked, and of what came of their candidates."""

TARGET: Final = "adaptive/target"
"""Layer of what the target model answered to attacks and to what got through."""
VERDICT: Final = "adaptive/verdict"
"""Layer of what a judge said of these answers; `/<judge>` behind it where there are several."""
CANARY_REPLIES: Final = "adaptive/canaries"
"""Layer of what the target model made of canaries. They are no samples of the run: their rows
stand at its first sample, numbered, with the canary's id beside the answer."""

LEFT_OUT: Final = "adaptive/left-out"
"""Layer whose settings name the defenses that no rewriting reaches."""
FINDINGS_PREFIX: Final = "adaptive/findings/"
"""Start of the layers, one a defense, whose settings hold flags and diagnosis."""
AUDIT_PREFIX: Final = "adaptive/audit-"
"""Start of the layers, one a sheet, that hold what people said of bypasses."""

_SEED: Final = re.compile(rf"{ADAPTIVE}/seed-[1-9][0-9]*")


def seed_layer(arm: str, number: int) -> str:
    """Return the layer of an arm at the n-th seed."""
    return arm if number == 1 else f"{ADAPTIVE}/seed-{number}{arm.removeprefix(ADAPTIVE)}"


def first_layer(layer: str) -> str:
    """Return the layer of the same arm at the first seed."""
    found = _SEED.match(layer)
    return layer if found is None else f"{ADAPTIVE}{layer[found.end() :]}"


def asked_layers(stored: Iterable[str]) -> tuple[str, ...]:
    """Return the layers of what a defense was asked, the first seed's first."""
    numbers = sorted(
        int(found.group().rpartition("-")[2])
        for layer in stored
        if (found := _SEED.fullmatch(layer)) is not None
    )
    return (*ARMS, *(seed_layer(arm, number) for number in numbers for arm in REPEATED_ARMS))


def is_target_layer(layer: str) -> bool:
    """Tell whether rows of a layer speak of the target model and not of a defense."""
    return layer in {TARGET, VERDICT, CANARY_REPLIES} or layer.startswith(f"{VERDICT}/")
