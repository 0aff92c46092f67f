"""A variant that is a conversation: which chains make one, and how a guard is shown it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from guardmark.attacks.contract import Slot
from guardmark.core.sample import Message, Prompt, Role

if TYPE_CHECKING:
    from guardmark.attacks.contract import OperatorChain

TURNS: Final = "turns"
"""Parameter of an operator over turns: how many the user takes."""
_OPERATORS: Final = ("lead_in@", "split_turns@", "return_to@")
"""Names as they stand in the key of a chain, whose last operator alone makes a conversation."""


def is_talk(key: str) -> bool:
    """Tell from the key of a chain whether its variants are conversations."""
    return key.rpartition(" + ")[2].startswith(_OPERATORS)


def turns_of(chain: OperatorChain) -> int:
    """Return how many turns a user takes in a variant of a chain: calls that it costs."""
    last = chain.arms[-1]
    if last.operator.slot is not Slot.TURNS:
        return 1
    return int(dict(last.settings)[TURNS])


def takes_turns(prompt: Prompt) -> bool:
    """Tell whether what is under test can be spread over turns: the user's last words, no image."""
    at = prompt.under_test % len(prompt.messages)
    message = prompt.messages[at]
    return at == len(prompt.messages) - 1 and message.role is Role.USER and not message.images


def turn_texts(variant: str) -> list[str]:
    """Return a conversation up to each turn of its user, the last one whole."""
    messages = json.loads(variant)
    texts = []
    for number, (role, _) in enumerate(messages, start=1):
        if role == Role.USER.value:
            texts.append(json.dumps(messages[:number], ensure_ascii=False, separators=(",", ":")))
    return texts


def prompt_of(prompt: Prompt, variant: str, key: str) -> Prompt:
    """Put the variant of a chain in the place of what is under test: a text, or a conversation."""
    if not is_talk(key):
        return prompt.with_text(variant)
    messages = list(prompt.messages[: prompt.under_test % len(prompt.messages)])
    for role, words in json.loads(variant):
        messages.append(Message(role=Role(role), content=words))
    return Prompt(
        messages=tuple(messages),
        under_test=len(messages) - 1,
        tools=prompt.tools,
        session=prompt.session,
    )


def spell_talk(variant: str, key: str) -> str:
    """Return the variant of a chain as a person reads it: who says what, where it has turns."""
    if not is_talk(key):
        return variant
    return "\n".join(f"[{role}] {words}" for role, words in json.loads(variant))
