"""Finding an injected order in what an agent reads, however it was folded or escaped."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

_ESCAPES: Final = re.compile(r"\\[nrtx]")
_LEFT_OUT: Final = re.compile(r"[^a-z0-9]")


@lru_cache(maxsize=512)  # every case of a suite reads the same definitions and documents
def canonical_order(text: str) -> str:
    """Return a text without case, white space, punctuation and the escapes of YAML and JSON."""
    return _LEFT_OUT.sub("", _ESCAPES.sub("", text).lower())


def holds_order(text: str, canonical: str) -> bool:
    """Tell whether a text holds an order that is given in canonical form."""
    return bool(canonical) and canonical in canonical_order(text)
