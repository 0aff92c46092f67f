"""Words, numbers and column names by which others say attack, benign, yes, no and changed.

One list for data, tables and logs of other tools. Whatever is neither a known word nor a finite
number, true or false, is unknown: nobody guesses, and what is unknown is counted.
"""

from __future__ import annotations

import math
import re
from typing import Final

ATTACK_WORDS: Final = frozenset(
    {
        "attack",
        "malicious",
        "harmful",
        "unsafe",
        "injection",
        "jailbreak",
        "adversarial",
        "hateful",
        "toxic",
        "violating",
        "vulnerable",
        "prompt injection",
        "prompt_injection",
        "prompt-injection",
    }
)
BENIGN_WORDS: Final = frozenset(
    {
        "benign",
        "harmless",
        "unharmful",
        "safe",
        "legitimate",
        "legit",
        "normal",
        "clean",
        "non-hateful",
        "not harmful",
        "not_harmful",
        "non-toxic",
        "non-malicious",
    }
)
BLOCK_WORDS: Final = frozenset(
    {
        "block",
        "blocked",
        "flag",
        "flagged",
        "deny",
        "denied",
        "refuse",
        "refused",
        "reject",
        "rejected",
        "detected",
        "triggered",
        "fail",
        "failed",
        "invalid",
        "intervened",
        "guardrail_intervened",
        "stop",
        "stopped",
    }
)
ALLOW_WORDS: Final = frozenset(
    {"allow", "allowed", "pass", "passed", "accept", "accepted", "ok", "valid"}
)
TRUE_WORDS: Final = frozenset({"true", "yes", "y", "t"})
FALSE_WORDS: Final = frozenset({"false", "no", "n", "f"})

BENIGN_COLUMNS: Final = frozenset(
    {
        "is_safe",
        "safe",
        "benign",
        "is_benign",
        "allowed",
        "is_allowed",
        "unharmful",
        "is_unharmful",
        "harmless",
        "is_harmless",
        "is_legit",
        "legit",
        "is_clean",
        "clean",
    }
)
"""Columns in which true means that a text is benign."""
PASSED_COLUMNS: Final = frozenset(
    {"valid", "is_valid", "passed", "allowed", "is_allowed", "is_safe", "safe"}
)
"""Columns in which true means that a defense let a text through."""


def read_number(value: object) -> float | None:
    """Read a finite number, from a number or its text; None for anything else, booleans too."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    if not math.isfinite(number):
        return None
    return number


def read_truth(value: object) -> bool | None:
    """Read true or false: a boolean, 1 or 0 in any spelling, or a word for yes or no."""
    if isinstance(value, bool):
        return value
    number = read_number(value)
    if number is not None:
        return {1.0: True, 0.0: False}.get(number)
    if not isinstance(value, str):
        return None
    word = value.strip().lower()
    if word in TRUE_WORDS:
        return True
    if word in FALSE_WORDS:
        return False
    return None


def read_is_attack(value: object, *, column: str = "") -> bool | None:
    """Read whether a label means attack; None where that cannot be told.

    In a column such as `is_safe` true means benign. A word for a label means what it says in
    whatever column it stands.
    """
    if isinstance(value, str):
        word = value.strip().lower()
        if word in ATTACK_WORDS:
            return True
        if word in BENIGN_WORDS:
            return False
    truth = read_truth(value)
    if truth is None:
        return None
    return truth != is_benign_column(column)


def is_benign_column(column: str) -> bool:
    """Tell whether true means benign in a column; the last step of a path counts."""
    return column.rpartition(".")[2].strip().lower() in BENIGN_COLUMNS


def read_is_blocked(value: object, *, column: str = "") -> bool | None:
    """Read whether a defense blocked; in a column such as `passed` true means that it did not."""
    if isinstance(value, str):
        word = value.strip().lower()
        if word in BLOCK_WORDS | ATTACK_WORDS:
            return True
        if word in ALLOW_WORDS | BENIGN_WORDS:
            return False
    truth = read_truth(value)
    if truth is None:
        return None
    return truth != (column.strip().lower() in PASSED_COLUMNS)


_CHANGED: Final = re.compile(
    r"mask|redact|anonymi|pseudonymi|modif|sanit|rewrit|rewrote|replac|scrub|obfuscat|transform",
    re.IGNORECASE,
)


def says_changed(word: str) -> bool:
    """Tell whether a service's word for what it did means that it changed the text."""
    return _CHANGED.search(word) is not None
