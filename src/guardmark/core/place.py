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


PROXIED: Final = (Place.TOOL_LIST, Place.TOOL_CALL, Place.TOOL_RESULT)
"""Where a guard that is a proxy before the tools looks."""

BARE_ARMS: Final = ("none", "bare")
"""What an arm without a guard may be called; no other arm is called so."""
BEHIND: Final = "@output"
"""Decisions of a guard about answers are stored under its name and this."""


def stored_name(guard: str, place: Place) -> str:
    """Return the name under which the decisions of a guard at a place of a pipeline are stored."""
    if place is Place.OUTPUT:
        return f"{guard}{BEHIND}"
    return guard


AFTER: Final = " after "
"""Calls about what a guard wrote are stored under the name of the part, this, and the guard's."""


def part_of(stored: str) -> str:
    """Return the name under which the calls of a part about unaltered texts are stored."""
    return stored.partition(AFTER)[0]
