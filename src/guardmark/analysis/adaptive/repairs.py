"""What cleaning texts before a defense would close, cost and open, also cross-fitted."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from guardmark.analysis.adaptive.operators import rate_of_tries

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from guardmark.analysis.adaptive.rows import AdaptiveRecords, Try
    from guardmark.analysis.defense.counts import SampleRates
    from guardmark.core.estimate import Estimate

    _Sides = Mapping[str, list[tuple[Try, bool]]]


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
    battle: AdaptiveRecords, attack: NDArray[np.bool_], rates: SampleRates
) -> tuple[RepairCard, ...]:
    """Count what each way of cleaning closes, costs and opens."""
    said: defaultdict[str, list[Try]] = defaultdict(list)
    for each in battle.rest.get("repair", ()):
        said[each.chain].append(each)

    def rate(rows: list[tuple[Try, bool]]) -> Estimate:
        return rate_of_tries(rows, rates)

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


FEWEST_GROUPS: Final = 5
"""Groups of bypasses each half needs, so that choosing there means something."""

_SIDES: Final = ("closed", "cost", "opened")


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairFit:
    """What the best repair does to texts it was not chosen on.

    Attributes:
        chosen: The repair chosen on each half, None where none helps there; empty where it is
            undefined.
        closed: Share of the bypasses that are blocked once cleaned.
        cost: Share of benign texts let through that are blocked once cleaned.
        opened: Share of attacks blocked as they are that pass once cleaned.
        reason: Why it is undefined, or empty.
    """

    chosen: tuple[str | None, ...]
    closed: Estimate
    cost: Estimate
    opened: Estimate
    reason: str = ""


class _Half:
    """The answers about texts of one half, by repair."""

    def __init__(self) -> None:
        self.rows: dict[str, defaultdict[str, list[tuple[Try, bool]]]] = {}
        self.texts: dict[str, dict[int, Try]] = {side: {} for side in _SIDES}

    def take(self, each: Try, *, is_attack: bool) -> None:
        """Sort an answer in: what it is about, and whether the repair did it."""
        side = "closed" if is_attack else "cost"
        if each.round == HELD:
            side = "opened"
        hit = bool(each.passed) is (side == "opened")
        self.rows.setdefault(each.chain, defaultdict(list))[side].append((each, hit))
        self.texts[side].setdefault(each.sample, each)

    def of(self, name: str | None) -> _Sides:
        """Return what a repair did; without one nothing happens to any text."""
        if name is not None:
            return self.rows.get(name, {})
        return {
            side: [(each, False) for each in texts.values()] for side, texts in self.texts.items()
        }


def cross_fit_repairs(
    battle: AdaptiveRecords,
    attack: NDArray[np.bool_],
    *,
    side: NDArray[np.bool_],
    rates: SampleRates,
) -> RepairFit | None:
    """Choose the best repair on each half of the groups and count it on the other.

    Steps together were asked about as all the data chose them: a half may choose them only where
    its own texts would have put the same steps together.
    """
    tries = battle.rest.get("repair", ())
    if not tries:
        return None
    halves = (_Half(), _Half())
    for each in tries:
        halves[int(side[each.sample])].take(each, is_attack=bool(attack[each.sample]))

    def rate(rows: list[tuple[Try, bool]]) -> Estimate:
        return rate_of_tries(rows, rates)

    few = [_groups_of(half, rates.groups) for half in halves]
    if min(few) < FEWEST_GROUPS:
        none = rate([])
        reason = (
            f"bypasses of {few[0]} and {few[1]} groups on the two halves: choosing on one and "
            f"counting on the other takes {FEWEST_GROUPS} on each"
        )
        return RepairFit(chosen=(), closed=none, cost=none, opened=none, reason=reason)
    order = list(dict.fromkeys(each.chain for each in tries))
    chosen = tuple(_choose(half, order, rates) for half in halves)
    # What was chosen on one half is counted on the other.
    crossed = (halves[1].of(chosen[0]), halves[0].of(chosen[1]))
    found = {name: rate([row for told in crossed for row in told.get(name, ())]) for name in _SIDES}
    return RepairFit(
        chosen=chosen, closed=found["closed"], cost=found["cost"], opened=found["opened"]
    )


def _groups_of(half: _Half, groups: NDArray[np.int32]) -> int:
    return len({int(groups[place]) for place in half.texts["closed"]})


def _choose(half: _Half, order: Sequence[str], rates: SampleRates) -> str | None:
    cards = []
    for name in order:
        told = half.of(name)
        closed, cost, opened = (rate_of_tries(told.get(side, []), rates) for side in _SIDES)
        cards.append(RepairCard(name=name, closed=closed, cost=cost, opened=opened))
    useful = {card.name for card in cards if JOINT not in card.name and card.net > 0}
    may_choose = [c for c in cards if JOINT not in c.name or set(c.steps) == useful]
    best = best_of(tuple(may_choose))
    return None if best is None else best.name
