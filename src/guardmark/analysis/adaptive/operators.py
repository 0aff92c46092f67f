"""What operators, borrowed winners and repairs do, on attacks and on benign texts."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Final

from guardmark.analysis.adaptive.rows import FULL
from guardmark.stats.quantiles import estimate_quantile
from guardmark.store.layers import ADAPTIVE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from guardmark.analysis.adaptive.rows import AdaptiveRecords, Try
    from guardmark.analysis.defense.counts import SampleRates
    from guardmark.core.estimate import Estimate, Quantile

    _Sides = Mapping[str, list[tuple[int, bool]]]

HELD: Final = "repair, held"
"""Round of attacks that are blocked as they are."""
JOINT: Final = "+"
"""Between the steps of a repair of several."""
FEWEST_GROUPS: Final = 5
"""Groups of bypasses each half needs, so that choosing there means something."""
_SIDES: Final = ("closed", "cost", "opened")
_MOST: Final = 0.5


class OperatorClass(StrEnum):
    """How a defense treats a form of text, attacks and benign texts side by side."""

    HOLDS = "holds"
    BLANKET = "blanket block"
    BLIND = "blind"
    INVERTED = "inverted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorCard:
    """What one chain does."""

    chain: str  # Operators and settings.
    tier: str  # Tier of its variants, the weakest seen.
    bypassed: Estimate  # Share of the attacks blocked at first that get through with it.
    benign_blocked: Estimate  # Share of benign texts that are blocked with it.
    # Holds, blanket block, blind or inverted; above half counts as blocked.
    standing: OperatorClass
    unique: int  # Attacks that nothing else on the fixed list brought through.
    expansion: Quantile  # Median length of its variants over that of the original, in characters.
    # Share of its variants whose words the shipped decoders read, or None for a chain that a reader
    # needs not decode. No statement on what a target model understands.
    decoded: Estimate | None = None
    # Share of neutral plain sentences that are blocked in its wrapper, of those that pass without;
    # None for a chain without a wrapper.
    wrapper_blocked: Estimate | None = None

    @property
    def is_blocked_by_wrapper(self) -> bool:
        """Whether most neutral sentences are blocked for the wrapper's sake."""
        blocked = self.wrapper_blocked
        return blocked is not None and blocked.value is not None and blocked.value > _MOST

    @property
    def separation(self) -> float | None:
        """Block rate on attacks minus that on benign texts, or None when undefined."""
        if self.bypassed.value is None or self.benign_blocked.value is None:
            return None
        return 1 - self.bypassed.value - self.benign_blocked.value


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferCard:
    """What won elsewhere, tried here once each."""

    source: str  # The defense it won against.
    passed: Estimate  # Share that passes here too, of attacks blocked here at first.


def read_operators(
    battle: AdaptiveRecords, rates: SampleRates, *, lengths: NDArray[np.int64]
) -> tuple[OperatorCard, ...]:
    """Count each chain of the battery, and each frequent winner, on both sides."""
    tried: defaultdict[str, list[tuple[Try, bool]]] = defaultdict(list)
    breakers: defaultdict[int, set[str]] = defaultdict(set)
    seen: set[tuple[int, str, str]] = set()
    for stories in (battle.battery, battle.stories[ADAPTIVE]):
        for place, story in stories.items():
            for each in story.tries:
                if (text := (place, each.chain, each.text)) in seen:
                    continue  # the search begins with what got through before: no second try
                seen.add(text)
                holds = story.holds(each, FULL | {"V4"})
                tried[each.chain].append((each, holds))
                if holds and stories is battle.battery:
                    breakers[place].add(each.chain)
    unique = Counter(next(iter(chains)) for chains in breakers.values() if len(chains) == 1)
    benign, wrapped = (_by_chain(battle.rest.get(account, ())) for account in ("twin", "wrapper"))
    plain = {each.sample for each in wrapped.pop("", ()) if each.passed}
    fixed = dict.fromkeys(t.chain for story in battle.battery.values() for t in story.tries)
    cards = []
    for chain in dict.fromkeys((*fixed, *benign)):
        twins, sentences = benign.get(chain, []), wrapped.get(chain, ())
        tries = [each for each, _ in tried[chain]]
        bypassed = rates.of((each.sample, holds) for each, holds in tried[chain])
        blocked = rates.of(map(_block, twins))
        looked = [(each.sample, each.decoded) for each in tries if each.decoded is not None]
        sizes = [(each.size, int(lengths[each.sample])) for each in tries]
        expansion = [size / length for size, length in sizes if size is not None and length]
        neutral = rates.of(_block(each) for each in sentences if each.sample in plain)
        cards.append(
            OperatorCard(
                chain=chain,
                tier=max((each.tier for each in (*tries, *twins)), default=""),
                bypassed=bypassed,
                benign_blocked=blocked,
                standing=standing_of(bypassed, blocked),
                unique=unique[chain],
                expansion=estimate_quantile(expansion, 0.5, confidence=rates.confidence),
                decoded=rates.of(looked) if looked else None,
                wrapper_blocked=neutral if sentences else None,
            )
        )
    return tuple(cards)


def _by_chain(tries: Iterable[Try]) -> dict[str, list[Try]]:
    chains: dict[str, list[Try]] = {}
    for each in tries:
        chains.setdefault(each.chain, []).append(each)
    return chains


def _block(each: Try) -> tuple[int, bool]:
    return each.sample, not each.passed


def standing_of(bypassed: Estimate, benign_blocked: Estimate) -> OperatorClass:
    """Say how a defense treats a form of text; above half counts as blocked."""
    benign = benign_blocked.value
    if benign is None:
        return OperatorClass.UNKNOWN
    if bypassed.value is None:
        return OperatorClass.BLANKET if benign > _MOST else OperatorClass.UNKNOWN
    if bypassed.value < _MOST:
        return OperatorClass.BLANKET if benign > _MOST else OperatorClass.HOLDS
    return OperatorClass.INVERTED if benign > _MOST else OperatorClass.BLIND


def read_transfers(battle: AdaptiveRecords, rates: SampleRates) -> tuple[TransferCard, ...]:
    """Count what borrowed winners do here."""
    by_source: defaultdict[str, list[tuple[int, bool]]] = defaultdict(list)
    for each in battle.rest.get("transfer", ()):
        by_source[each.round.removeprefix("from ")].append((each.sample, bool(each.passed)))
    return tuple(
        TransferCard(source=source, passed=rates.of(marks)) for source, marks in by_source.items()
    )


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
    repairs = _by_repair(battle.rest.get("repair", ()), attack)
    return tuple(RepairCard(name=name, **_rates(each, rates)) for name, each in repairs.items())


def _by_repair(tries: Iterable[Try], attack: NDArray[np.bool_]) -> dict[str, _Sides]:
    """Sort answers by repair and by what they are about: the sample, and whether it was so."""
    repairs: dict[str, _Sides] = {}
    for each in tries:
        side = "opened" if each.round == HELD else "closed" if attack[each.sample] else "cost"
        sides = repairs.setdefault(each.chain, {name: [] for name in _SIDES})
        sides[side].append((each.sample, bool(each.passed) is (side == "opened")))
    return repairs


def _rates(sides: _Sides, rates: SampleRates) -> dict[str, Estimate]:
    return {side: rates.of(sides.get(side, ())) for side in _SIDES}


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
        reason = (
            f"bypasses of {few[0]} and {few[1]} groups on the two halves: choosing on one and "
            f"counting on the other takes {FEWEST_GROUPS} on each"
        )
        return RepairFit(chosen=(), reason=reason, **_rates({}, rates))
    order = list(dict.fromkeys(each.chain for each in tries))
    chosen = tuple(_choose(half, order, rates) for half in halves)
    # What was chosen on one half is counted on the other.
    one, other = map(_marks_of, halves, reversed(chosen))
    both = {side: [*one[side], *other[side]] for side in _SIDES}
    return RepairFit(chosen=chosen, reason="", **_rates(both, rates))


def _marks_of(half: Mapping[str, _Sides], name: str | None) -> _Sides:
    """Return what a repair did on a half; without one nothing happens to any text."""
    if name is not None:
        return half.get(name) or {side: [] for side in _SIDES}
    return {
        side: [(place, False) for place in {p for sides in half.values() for p, _ in sides[side]}]
        for side in _SIDES
    }


def _choose(half: Mapping[str, _Sides], order: Sequence[str], rates: SampleRates) -> str | None:
    cards = [RepairCard(name=name, **_rates(_marks_of(half, name), rates)) for name in order]
    useful = {card.name for card in cards if JOINT not in card.name and card.net > 0}
    best = best_of(tuple(c for c in cards if JOINT not in c.name or set(c.steps) == useful))
    return None if best is None else best.name
