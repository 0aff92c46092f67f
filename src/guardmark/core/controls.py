"""Characters that steer a terminal or reorder a line, wherever a text comes from."""

from __future__ import annotations

import re
from typing import Final

_CONTROL: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI sequences: colours, cursor movement
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC sequences: titles, links
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\)?"  # DCS and the like
    r"|\x1b."
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f]"  # control characters but tab and line feed
    r"|[\u202a-\u202e\u2066-\u2069\u200e\u200f]",  # direction marks that reorder a line
    re.DOTALL,
)


def clean(text: str) -> str:
    """Strip everything that could steer a terminal."""
    return _CONTROL.sub("", text)
