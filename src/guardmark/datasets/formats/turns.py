"""A conversation as the guard of a chat service meets it: one question at each turn of its user."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from guardmark.core.sample import Label, Role, Sample

if TYPE_CHECKING:
    from collections.abc import Iterator

CONVERSATION: Final = "conversation"
TURN: Final = "turn"
TURNS: Final = "turns"
"""Metadata of a turn: id of its conversation, its number from 1, and how many are asked about."""


def by_turn(sample: Sample) -> Iterator[Sample]:
    """Yield each turn of the user as a sample, with what was said before it.

    Of an attack the last one asks for the harm. What comes before it is no attack, and not surely
    benign either: it has no label, and stands in no rate of single texts. What comes after it is
    left out, since the harm is done. A benign conversation is benign at each turn.
    """
    messages = sample.prompt.messages
    under_test = sample.prompt.under_test % len(messages)
    places = [number for number, each in enumerate(messages) if each.role is Role.USER]
    if sample.is_attack and sample.harm_turn is not None:
        places = places[: sample.harm_turn]
    for number, place in enumerate(places, start=1):
        is_last = number == len(places)
        turn = replace(
            sample,
            id=f"{sample.id}@{number}",
            prompt=replace(sample.prompt, messages=messages[: place + 1], under_test=place),
            group=sample.lineage,
            metadata={
                **sample.metadata,
                CONVERSATION: sample.id,
                TURN: number,
                TURNS: len(places),
            },
        )
        if place != under_test:  # what is marked in the text under test is of that text alone
            turn = replace(turn, must_keep=(), spans=())
        if sample.is_attack and not is_last:
            turn = replace(turn, label=Label.UNLABELLED, severity=None, expected="")
        yield turn
