"""Names of layers, never changed once given; which judgings a run holds, and which one counts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from guardmark.core.errors import UnknownName
from guardmark.core.record import Stage
from guardmark.store.reader import RecordReader
from guardmark.store.records import RecordWriter

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

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
    *(ATTACKER, EQUIVALENCE, CANDIDATES, CRITIC),
    *(TWIN_ATTACKER, TWIN_EQUIVALENCE, TWIN_CANDIDATES),
)
"""Layers of what models are asked, and of what came of their candidates."""

TARGET: Final = "adaptive/target"  # what the target model answered to what got through
VERDICT: Final = "adaptive/verdict"  # what a judge said of that; `/<judge>` where there are several
CANARY_REPLIES: Final = "adaptive/canaries"  # numbered rows at the first sample, with their ids

LEFT_OUT: Final = "adaptive/left-out"  # its settings name the defenses that no rewriting reaches
FINDINGS_PREFIX: Final = "adaptive/findings/"  # one a defense; settings hold flags and diagnosis
REPAIRED_PREFIX: Final = "adaptive/repaired/"  # one a defense; settings hold the cleaning
AUDIT_PREFIX: Final = "adaptive/audit-"  # one a sheet, with what people said of bypasses

HEADLINE: Final = "headline/"  # then a number and the judging that figures stand on from then on
_SEED: Final = re.compile(rf"{ADAPTIVE}/seed-[1-9][0-9]*")


def seed_layer(arm: str, number: int) -> str:
    """Return the layer of an arm at the n-th seed."""
    return arm if number == 1 else f"{ADAPTIVE}/seed-{number}{arm.removeprefix(ADAPTIVE)}"


def first_layer(layer: str) -> str:
    """Return the layer of the same arm at the first seed."""
    seeded = _SEED.match(layer)
    return layer if seeded is None else f"{ADAPTIVE}{layer[seeded.end() :]}"


def asked_layers(stored: Iterable[str]) -> tuple[str, ...]:
    """Return the layers of what a defense was asked, the first seed's first."""
    numbers = sorted(
        int(seeded.group().rpartition("-")[2])
        for layer in stored
        if (seeded := _SEED.fullmatch(layer)) is not None
    )
    return (*ARMS, *(seed_layer(arm, number) for number in numbers for arm in REPEATED_ARMS))


def is_target_layer(layer: str) -> bool:
    """Tell whether rows of a layer speak of the target model and not of a defense."""
    return layer in {TARGET, VERDICT, CANARY_REPLIES} or layer.startswith(f"{VERDICT}/")


HUMAN: Final = "human"  # value of the setting `kind` of a layer that holds the labels of people


def judge_layers(reader: RecordReader) -> tuple[list[str], list[str]]:
    """Return every layer of verdicts, and those of them that hold the labels of people."""
    layers = [layer for _, stage, layer in reader.recorded_stages() if stage is Stage.JUDGE]
    return layers, [each for each in layers if reader.layer_settings(each).get("kind") == HUMAN]


def judging_names(reader: RecordReader) -> tuple[str, ...]:
    """Return what figures can stand on: every judging, and each judge of several."""
    layers, people = judge_layers(reader)
    judged = (each for each in layers if each not in people)
    return tuple(dict.fromkeys(name for each in judged for name in (each.split("/")[0], each)))


def require_judging(reader: RecordReader, name: str) -> None:
    """Refuse a judging that a run has not."""
    if name not in (known := judging_names(reader)):
        raise UnknownName("judging of this run", name, known)


def headline_of(reader: RecordReader) -> str:
    """Return the judging chosen last, else the one its configuration names, else none."""
    chosen = [each for each in reader.layers() if each.startswith(HEADLINE)]
    stated = reader.manifest().settings.get("pipeline")
    named = str(stated.get("headline") or "") if isinstance(stated, dict) else ""
    return chosen[-1].split("/", 2)[2] if chosen else named


def choose_headline(records: Path, name: str) -> None:
    """Let the figures stand on a judging from now on; the first stays, and so does every choice."""
    with RecordReader(records) as reader, RecordWriter(records) as writer:
        require_judging(reader, name)
        before = sum(each.startswith(HEADLINE) for each in reader.layers())
        writer.add_layer(f"{HEADLINE}{before + 1}/{name}", {})
        writer.note_head()
