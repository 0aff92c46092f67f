"""Signs in the text of answers and verdicts: a refusal at the beginning, a reason that repeats."""

from __future__ import annotations

import re
from typing import Final

_REFUSAL: Final = re.compile(
    r"^\W*(?:(?:i'?m|i am) (?:sorry|afraid|unable|not able)|i (?:can'?t|cannot|won'?t|will not)|"
    r"sorry\b|no puedo|lo siento|je ne peux|tut mir leid|das kann ich)",
    re.IGNORECASE,
)
_ECHO_WORDS: Final = 6


def begins_refusing(answer: str) -> bool:
    """Tell whether an answer begins as a refusal does."""
    return _REFUSAL.match(answer) is not None


def is_echo(reason: str, answer: str) -> bool:
    """Tell whether a reason repeats six words of the answer in a row."""
    said, text = reason.lower().split(), f" {' '.join(answer.lower().split())} "
    return any(
        f" {' '.join(said[at : at + _ECHO_WORDS])} " in text
        for at in range(len(said) - _ECHO_WORDS + 1)
    )
