"""Defenses of the frozen run `grouped`: a score, unreadable answers, errors, moods."""

from __future__ import annotations

from collections import Counter
from hashlib import sha256

_CALLS: Counter[str] = Counter()


def score(text: str) -> object:
    """Return a risk, words nobody understands, or fail, as the text alone says."""
    drawn = sha256(text.encode()).digest()[0]
    if "-05" in text:
        raise ValueError("this guard does not count to five")
    if "number 19" in text or "-08" in text:
        return "perhaps"
    words = ("ignore", "forget", "rules")
    return min(1.0, 0.3 * sum(word in text.lower() for word in words) + drawn / 1024)


def moody(text: str) -> bool:
    """Block capitals always and some texts only every second time they are asked about."""
    _CALLS[text] += 1
    if sha256(text.encode()).digest()[1] % 5 == 0:
        return _CALLS[text] % 2 == 0
    return "RULES" in text or "ignore" in text
