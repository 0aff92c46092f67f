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


IN_CONTEXT: Final = "@context"
"""Decisions of a guard about documents are stored under its name, this, and which document."""
ALL_DOCUMENTS: Final = " all"
"""Which document it is where a guard is shown all of a sample as one text."""


def stored_name(guard: str, place: Place) -> str:
    """Return the name under which the decisions of a guard at a place of a pipeline are stored."""
    if place is Place.OUTPUT:
        return f"{guard}{BEHIND}"
    if place is Place.CONTEXT:
        return f"{guard}{IN_CONTEXT}"
    return guard


NO_GUARD: Final = "none"
"""Name of the arm without a guard, under which what all arms share is stored: model and judges."""

AFTER: Final = " after "
"""Calls about what a guard wrote are stored under the name of the part, this, and the guard's."""


def split_stored(stored: str) -> tuple[str, str]:
    """Split the name of stored calls: the part, and which text of a sample they are about.

    The second is empty for the text as it is, and else one that guards wrote (` after G`), a
    document (` 2`, ` all`), or what guards made of a document (` 2 after G`).
    """
    part = stored.partition(AFTER)[0]
    guard, is_document, _ = part.partition(f"{IN_CONTEXT} ")
    if is_document:
        part = f"{guard}{IN_CONTEXT}"
    return part, stored[len(part) :]


def part_of(stored: str) -> str:
    """Return the name of the part that stored calls are of, without the text they are about."""
    return split_stored(stored)[0]


def guard_of(stored: str) -> str:
    """Return the name in the configuration of the guard whose calls are stored under a name."""
    return part_of(stored).removesuffix(BEHIND).removesuffix(IN_CONTEXT)
