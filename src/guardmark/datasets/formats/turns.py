"""A conversation as the guard of a chat service meets it: one question at each turn of its user."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal

from guardmark.core.sample import Label, MarkedSpan, Message, Role, Sample

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guardmark.core.sample import Image

AskedTurns = Literal["last", "each", "both"]
"""What of a conversation is asked about: its text under test, each turn of its user, or each turn
and all of them joined into one message."""
CONVERSATION: Final = "conversation"
TURN: Final = "turn"
TURNS: Final = "turns"
"""Metadata of a turn: id of its conversation, its number from 1, and how many are asked about."""
JOINED: Final = "joined"
"""Variant of turns in one message, and in its metadata how many these are."""
BETWEEN_TURNS: Final = "\n\n"
"""What stands between turns in one message."""
_KEPT: Final = (Role.SYSTEM, Role.DOCUMENT)  # what stays around turns that are joined


def by_turn(sample: Sample, *, is_joined: bool = False) -> Iterator[Sample]:
    """Yield each turn of the user as a sample, with what was said before it.

    Of an attack the last one asks for the harm. What comes before it is no attack, and not surely
    benign either: it has no label, and stands in no rate of single texts. What comes after it is
    left out, since the harm is done. A benign conversation is benign at each turn.

    Where wanted, the same turns follow in one message.
    """
    messages = sample.prompt.messages
    under_test = sample.prompt.under_test % len(messages)
    positions = [at for at, message in enumerate(messages) if message.role is Role.USER]
    if sample.is_attack and sample.harm_turn is not None:
        positions = positions[: sample.harm_turn]
    for number, position in enumerate(positions, start=1):
        is_last = number == len(positions)
        turn = replace(
            sample,
            id=f"{sample.id}@{number}",
            prompt=replace(sample.prompt, messages=messages[: position + 1], under_test=position),
            group=sample.lineage,
            metadata={
                **sample.metadata,
                CONVERSATION: sample.id,
                TURN: number,
                TURNS: len(positions),
            },
        )
        if position != under_test:  # what is marked in the text under test is of that text alone
            turn = replace(turn, must_keep=(), spans=())
        if sample.is_attack and not is_last:
            turn = replace(turn, label=Label.UNLABELLED, severity=None, expected="")
        yield turn
    if is_joined and len(positions) > 1:
        yield _joined(sample, positions)


def _joined(sample: Sample, positions: Sequence[int]) -> Sample:
    """Put the user's messages at some positions into one, without the replies between them.

    It has no label: the conversation stands in the rates of single texts already, and what is added
    for a comparison must not move them.
    """
    messages = sample.prompt.messages
    turns = [messages[position] for position in positions]
    images: list[Image] = []
    for turn in turns:
        images.extend(turn.images)
    whole = Message(
        role=Role.USER,
        content=BETWEEN_TURNS.join(turn.content for turn in turns),
        images=tuple(images),
    )
    around = [message for message in messages[: positions[-1]] if message.role in _KEPT]
    prompt = replace(sample.prompt, messages=(*around, whole), under_test=len(around))
    under_test = sample.prompt.under_test % len(messages)
    spans: list[MarkedSpan] = []
    must_keep: tuple[str, ...] = ()
    if under_test in positions:
        before = turns[: positions.index(under_test)]
        shift = sum(len(turn.content) + len(BETWEEN_TURNS) for turn in before)
        for span in sample.spans:
            spans.append(MarkedSpan(span.start + shift, span.end + shift, span.kind))
        must_keep = sample.must_keep
    return replace(
        sample,
        id=f"{sample.id}@{JOINED}",
        prompt=prompt,
        group=sample.lineage,
        variant=JOINED if sample.variant == "original" else f"{sample.variant}, {JOINED}",
        metadata={**sample.metadata, CONVERSATION: sample.id, JOINED: len(positions)},
        label=Label.UNLABELLED,
        severity=None,
        expected="",
        harm_turn=None,
        spans=tuple(spans),
        must_keep=must_keep,
    )
