"""Scores that contradict the decisions they came with: one of the two was read the wrong way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guardmark.analysis.defense.frame import Frame

_LEAST: Final = 5  # decisions of each kind: fewer may fall so by chance
_MOST: Final = 10_000  # decisions that are compared: more would say the same
_CONTRARY: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreContradiction:
    """A defense whose blocked samples have lower scores than those it allowed.

    Attributes:
        defense: Its name.
        share: Share of pairs in which the blocked sample has the higher score, in [0, 1]; ties
            count half.
        blocked: Decisions to block that were compared.
        allowed: Decisions to allow that were compared.
    """

    defense: str
    share: float
    blocked: int
    allowed: int

    @property
    def sentence(self) -> str:
        """What is to be looked at."""
        return (
            f"{self.defense}: the scores contradict the decisions: of {self.blocked:,} blocked and "
            f"{self.allowed:,} allowed samples, the blocked one has the higher score in "
            f"{100 * self.share:.0f} % of pairs. Either the score means certainty, not risk, or "
            "the decision was read the wrong way; do not use thresholds of it"
        )


def find_contradictions(frame: Frame) -> Iterator[ScoreContradiction]:
    """Find the defenses whose scores rank what they blocked below what they allowed."""
    for column in frame.arms:
        where = np.flatnonzero(column.is_scored)[:_MOST]
        if not len(where):
            continue
        scores, is_blocked = column.records.score[where], column.is_blocked[where]
        high, low = scores[is_blocked], np.sort(scores[~is_blocked])
        if min(len(high), len(low)) < _LEAST:
            continue
        below = np.searchsorted(low, high, side="left")
        up_to = np.searchsorted(low, high, side="right")
        share = float((below + up_to).sum()) / (2 * len(high) * len(low))
        if share < _CONTRARY:
            yield ScoreContradiction(
                defense=column.name, share=share, blocked=len(high), allowed=len(low)
            )
