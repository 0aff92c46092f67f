"""What cleaning texts before a defense would close, cost and open."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from guardmark.analysis.adaptive.operators import rate_of_tries

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from guardmark.analysis.adaptive.rows import AdaptiveRecords, Try
    from guardmark.core.estimate import Estimate

HELD: Final = "repair, held"
"""Round of attacks that are blocked as they are."""
JOINT: Final = "+"
"""Between the steps of a repair of several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairCard:
    """What cleaning texts before the defense would do.

    Attributes:
        name: The step, `canon` for the whole canonical form, or several steps joined by `+`.
        closed: Share of the bypasses that are blocked once cleaned.
        cost: Share of benign texts let through that are blocked once cleaned.
        opened: Share of attacks blocked as they are that pass once cleaned.
    """

    DERIVED: ClassVar = ("steps",)

    name: str
    closed: Estimate
    cost: Estimate
    opened: Estimate

    @property
    def steps(self) -> tuple[str, ...]:
        """The steps as a configuration names them."""
        return tuple(self.name.split(JOINT))

    @property
    def net(self) -> float:
        """Share closed, less the shares of benign texts lost and of attacks let in."""
        return (self.closed.value or 0.0) - (self.cost.value or 0.0) - (self.opened.value or 0.0)


def best_of(repairs: tuple[RepairCard, ...]) -> RepairCard | None:
    """Return the cleaning that closes most, net of what it costs and opens."""
    useful = [each for each in repairs if each.closed.successes and each.net > 0]
    return max(useful, key=lambda each: each.net, default=None)


def read_repairs(
    battle: AdaptiveRecords,
    attack: NDArray[np.bool_],
    *,
    groups: NDArray[np.int32],
    confidence: float,
) -> tuple[RepairCard, ...]:
    """Count what each way of cleaning closes, costs and opens."""
    said: defaultdict[str, list[Try]] = defaultdict(list)
    for each in battle.rest.get("repair", ()):
        said[each.chain].append(each)

    def rate(rows: list[tuple[Try, bool]]) -> Estimate:
        return rate_of_tries(rows, groups, confidence)

    return tuple(
        RepairCard(
            name=name,
            closed=rate([(t, not t.passed) for t in rows if t.round != HELD and attack[t.sample]]),
            cost=rate(
                [(t, not t.passed) for t in rows if t.round != HELD and not attack[t.sample]]
            ),
            opened=rate([(t, bool(t.passed)) for t in rows if t.round == HELD]),
        )
        for name, rows in said.items()
    )
