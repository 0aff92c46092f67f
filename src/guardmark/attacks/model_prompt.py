"""How models that help an attack are asked: fixed words, then one JSON document."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING

from guardmark.core.sample import Message, Prompt, Role

if TYPE_CHECKING:
    from collections.abc import Mapping


def model_prompt(system: str, document: Mapping[str, object]) -> Prompt:
    """Write one call."""
    said = json.dumps(document, ensure_ascii=False)
    return Prompt(
        messages=(
            Message(role=Role.SYSTEM, content=system),
            Message(role=Role.USER, content=said),
        )
    )


def ask_again(before: Prompt, said: str, *, request: str, most: int) -> Prompt:
    """Ask once more for an answer that could not be read."""
    return Prompt(
        messages=(
            *before.messages,
            Message(role=Role.ASSISTANT, content=said[:most]),
            Message(role=Role.USER, content=request),
        )
    )


def told_counts(strategies: Mapping[str, tuple[int, int]]) -> dict[str, str]:
    """Put into words how often each strategy got through."""
    return {name: f"{passed} of {tried}" for name, (tried, passed) in strategies.items()}


def digest_of(*fixed: str) -> str:
    """Return the SHA-256 of everything fixed that a model is told, in hex."""
    return sha256("\0".join(fixed).encode()).hexdigest()
