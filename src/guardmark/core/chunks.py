"""A guard behind a model that is asked again and again while the answer grows."""

from __future__ import annotations

from typing import Final

from guardmark.core.place import AFTER
from guardmark.core.values import dataclass

WHOLE: Final = "all"
"""What stands for a number of characters where a guard is asked once, about the whole answer."""
MOST_CALLS: Final = 10_000
"""Calls about one answer, above which an arm does not ask."""
_UNIT: Final = " characters"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkRule:
    """After how many characters of an answer a guard is asked again.

    What is not checked yet is held back: at the second call one chunk has gone out.

    Attributes:
        every: Characters of a chunk; None where the guard is asked about the whole answer only.
        most_calls: Calls about one answer; longer answers are not asked about.
    """

    every: int | None
    most_calls: int = MOST_CALLS

    def calls(self, characters: int) -> int:
        """Return how many calls an answer of this length takes, if none of them blocks."""
        if self.every is None or characters <= self.every:
            return 1
        return -(-characters // self.every)

    def shown(self, number: int, characters: int) -> int | None:
        """Return how much of an answer a call shows, counted from 0; None for all of it."""
        if self.every is None or number + 1 >= self.calls(characters):
            return None
        return (number + 1) * self.every

    def gone_out(self, number: int) -> int:
        """Return how many characters have gone out when this call, counted from 0, is made."""
        return 0 if self.every is None else number * self.every


def after_prefix(after: str, characters: int | None) -> str:
    """Return what stands behind the name of a part that is shown a prefix of an answer.

    `after` is what stands there for the whole answer.
    """
    return after if characters is None else f"{after}{AFTER}{characters}{_UNIT}"


def split_prefix(after: str) -> tuple[str, int | None]:
    """Return what stands there for the whole answer, and how many characters are shown."""
    if not after.endswith(_UNIT):
        return after, None
    whole, _, shown = after.rpartition(AFTER)
    number = shown.removesuffix(_UNIT)
    return (whole, int(number)) if number.isdecimal() else (after, None)
