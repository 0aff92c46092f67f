"""Words by which services say what they did with a text."""

from __future__ import annotations

import re
from typing import Final

_CHANGED: Final = re.compile(
    r"mask|redact|anonymi|pseudonymi|modif|sanit|rewrit|rewrote|replac|scrub|obfuscat|transform",
    re.IGNORECASE,
)


def says_changed(word: str) -> bool:
    """Tell whether a service's word for what it did means that it changed the text."""
    return _CHANGED.search(word) is not None
