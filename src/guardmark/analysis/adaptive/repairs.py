"""What cleaning texts before a defense would close, cost and open, also cross-fitted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from guardmark.analysis.adaptive.rows import AdaptiveRecords, Try
    from guardmark.analysis.defense.counts import SampleRates
    from guardmark.core.estimate import Estimate

    _Sides = dict[str, list[tuple[int, bool]]]


HELD: Final = "repair, held"
"""Round of attacks that are blocked as they are."""
JOINT: Final = "+"
"""Between the steps of a repair of several."""
FEWEST_GROUPS: Final = 5
"""Groups of bypasses each half needs, so that choosing there means something."""
_SIDES: Final = ("closed", "cost", "opened")


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairCard:
    """What cleaning texts before the defense would do."""

    DERIVED: ClassVar = ("steps",)

    name: str  # The step, `canon` for the whole canonical form, or several steps joined by `+`.
    closed: Estimate  # Share of the bypasses that are blocked once cleaned.
    cost: Estimate  # Share of benign texts let through that are blocked once cleaned.
    opened: Estimate  # Share of attacks blocked as they are that pass once cleaned.

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
    sides = _by_repair(battle.rest.get("repair", ()), attack)
    return tuple(_card(name, marks, rates) for name, marks in sides.items())


def _by_repair(tries: Iterable[Try], attack: NDArray[np.bool_]) -> dict[str, _Sides]:
    """Sort answers by repair and by what they are about: the sample, and whether it was so."""
    repairs: dict[str, _Sides] = {}
    for each in tries:
        side = "opened" if each.round == HELD else "closed" if attack[each.sample] else "cost"
        sides = repairs.setdefault(each.chain, {name: [] for name in _SIDES})
        sides[side].append((each.sample, bool(each.passed) is (side == "opened")))
    return repairs


def _card(name: str, sides: _Sides, rates: SampleRates) -> RepairCard:
    closed, cost, opened = (rates.of(sides[side]) for side in _SIDES)
    return RepairCard(name=name, closed=closed, cost=cost, opened=opened)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairFit:
    """What the best repair does to texts it was not chosen on."""

    # The repair chosen on each half, None where none helps there; empty where it is undefined.
    chosen: tuple[str | None, ...]
    closed: Estimate  # Share of the bypasses that are blocked once cleaned.
    cost: Estimate  # Share of benign texts let through that are blocked once cleaned.
    opened: Estimate  # Share of attacks blocked as they are that pass once cleaned.
    reason: str = ""  # Why it is undefined, or empty.


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
    halves = [
        _by_repair((each for each in tries if side[each.sample] == is_second), attack)
        for is_second in (False, True)
    ]
    few = [
        len({int(rates.groups[place]) for sides in half.values() for place, _ in sides["closed"]})
        for half in halves
    ]
    if min(few) < FEWEST_GROUPS:
        none = rates.of(())
        reason = (
            f"bypasses of {few[0]} and {few[1]} groups on the two halves: choosing on one and "
            f"counting on the other takes {FEWEST_GROUPS} on each"
        )
        return RepairFit(chosen=(), closed=none, cost=none, opened=none, reason=reason)
    order = list(dict.fromkeys(each.chain for each in tries))
    chosen = tuple(_choose(half, order, rates) for half in halves)
    # What was chosen on one half is counted on the other.
    crossed = (_marks_of(halves[1], chosen[0]), _marks_of(halves[0], chosen[1]))
    both = _card("", {name: [*crossed[0][name], *crossed[1][name]] for name in _SIDES}, rates)
    return RepairFit(chosen=chosen, closed=both.closed, cost=both.cost, opened=both.opened)


def _marks_of(half: Mapping[str, _Sides], name: str | None) -> _Sides:
    """Return what a repair did on a half; without one nothing happens to any text."""
    if name is not None:
        return half.get(name) or {side: [] for side in _SIDES}
    return {
        side: [(place, False) for place in {p for sides in half.values() for p, _ in sides[side]}]
        for side in _SIDES
    }


def _choose(half: Mapping[str, _Sides], order: Sequence[str], rates: SampleRates) -> str | None:
    cards = [_card(name, _marks_of(half, name), rates) for name in order]
    useful = {card.name for card in cards if JOINT not in card.name and card.net > 0}
    may_choose = [c for c in cards if JOINT not in c.name or set(c.steps) == useful]
    best = best_of(tuple(may_choose))
    return None if best is None else best.name
