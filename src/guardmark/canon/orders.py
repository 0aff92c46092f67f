"""Finding an injected order in what an agent reads, however it was folded or escaped."""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from typing import Final

from guardmark.canon.steps import skeleton

_ESCAPES: Final = re.compile(r"\\[nrtx]")
_LEFT_OUT: Final = re.compile(r"[^a-z0-9]")
_CODES: Final = re.compile(
    r"(?:\\u[0-9a-fA-F]{4})+|\\U[0-9a-fA-F]{8}|\\x[0-9a-fA-F]{2}|\\[abefnrtvLNP_]"
)
"""Escapes of JSON and YAML: of letters by their number, and of white space by a letter."""


@lru_cache(maxsize=512)  # every case of a suite reads the same definitions and documents
def canonical_order(text: str) -> str:
    """Return a text without case, white space, punctuation and the escapes of YAML and JSON."""
    return _LEFT_OUT.sub("", _ESCAPES.sub("", text).lower())


def holds_order(text: str, canonical: str) -> bool:
    """Tell whether a text holds an order that is given in canonical form."""
    return bool(canonical) and canonical in canonical_order(text)


def keeps_order(text: str, order: str) -> bool:
    """Tell whether an order stands in a text that an attacker rewrote, by the folded form of both.

    Letters that look alike, invisible ones and accents are folded as well as case, white space and
    punctuation. A text that spells letters by their numbers does not keep them.
    """
    folded = skeleton(order)
    return bool(folded) and folded in skeleton(text)


@lru_cache(maxsize=1024)
def folded_order(text: str) -> str:
    """Return the folded form of what a tool returned: escapes of YAML and JSON are read."""
    return skeleton(_CODES.sub(_read_code, text))


def _read_code(code: re.Match[str]) -> str:
    written = code[0]
    if written[1] == "u":
        units = bytes.fromhex(written.replace("\\u", ""))
        return units.decode("utf-16-be", "replace")
    if written[1] in "Ux":
        number = int.from_bytes(bytes.fromhex(written[2:]))
        if number > sys.maxunicode:
            return ""
        return chr(number)
    return " "
