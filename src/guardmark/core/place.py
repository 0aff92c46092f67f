"""Where a guard looks."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Place(StrEnum):
    """Where a guard looks, in the order in which a case comes by."""

    INPUT = "input"
    CONTEXT = "context"
    TOOL_LIST = "tool_list"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    OUTPUT = "output"


PROXIED: Final = (Place.TOOL_CALL, Place.TOOL_RESULT)
"""Where a guard that is a proxy before the tools looks."""
