"""The attacker against defenses whose weakness is declared, beside two references."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import cache
from itertools import product

import numpy as np
import pytest
from tests.planted.defenses import PLANTED, Planted, planted
from tests.planted.references import greedy
from tests.planted.table import Row, attacked, measure, share

from guardmark.adaptive import controls
from guardmark.analysis.defense.counts import grouped_difference
from guardmark.core.estimate import Difference
from guardmark.store.layers import ADAPTIVE, BLIND

SCORED = [each for each in PLANTED if each.is_scored and each.is_gated]
pytestmark = pytest.mark.slow


def pooled(first: list[list[bool]], second: list[list[bool]]) -> Difference:
    """Compare marks over several defenses, every attack a group of its own."""
    one, two = np.concatenate(first), np.concatenate(second)
    return grouped_difference(one, two, groups=np.arange(len(one)), confidence=0.95)


def test_there_are_at_least_twenty_and_each_declares_a_weakness() -> None:
    """The table holds what it is said to hold."""
    assert len(PLANTED) >= 20
    assert len({each.name for each in PLANTED}) == len(PLANTED)
    assert all(each.weakness for each in PLANTED)


@cache
def within(each: Planted, k: int, seed: int = 3) -> tuple[list[str], list[bool]]:
    """Attack with a real budget of k calls; name the attacks, and mark those that fell."""
    state, asked, _, _ = attacked(each.data(), each.start(), budget=k, seed=seed)
    names = [f"{each.name.removesuffix(', mute')} {place}" for place in state.blocked]
    return names, [first <= k for first in asked.firsts(ADAPTIVE, state.blocked)]


def worth_of_scores(pairs: Iterable[tuple[Planted, Planted]], k: int, *, seeds: int) -> Difference:
    """Compare what falls with the score to what falls without it, the seeds of an attack a group."""
    shown, kept_back, groups = [], [], []
    for (with_score, without), seed in product(pairs, range(1, seeds + 1)):
        names, marks = within(with_score, k, seed)
        shown += marks
        kept_back += within(without, k, seed)[1]
        groups += names
    _, numbers = np.unique(groups, return_inverse=True)
    return grouped_difference(np.array(shown), np.array(kept_back), groups=numbers, confidence=0.95)


MUTE = [(each, planted(f"{each.name}, mute")) for each in SCORED]


def test_a_score_is_worth_something_at_16_calls() -> None:
    """More falls where the score is shown, over three defenses and three seeds."""
    assert worth_of_scores(MUTE, 16, seeds=3).value > 0


def test_a_score_is_worth_something_at_64_calls() -> None:
    """More falls where the score is shown, over two defenses and two seeds."""
    assert worth_of_scores(MUTE[:2], 64, seeds=2).low > 0


def test_it_does_not_lose_to_a_greedy_search() -> None:
    """At the same real budget it is not more than 3 points below."""
    for each in SCORED[:2]:
        rule, attacks = each.start(), [sample for sample in each.data() if sample.is_attack]
        blocked = [sample for sample in attacks if rule(sample.prompt.text)[0]]
        for k in (16, 64):
            firsts = [greedy(rule, sample, budget=k)[0] for sample in blocked]
            assert share(within(each, k)[1]) >= share([first <= k for first in firsts]) - 0.03


@pytest.mark.parametrize("name", ["words gated", "letters gated", "hardened"])
def test_what_is_asked_again_never_gains(name: str) -> None:
    """The null arm is exactly 0 where the same text gets the same answer."""
    row = measure(planted(name), has_repair=False)
    assert not any(row.within(row.null, 64))
    assert row.gain(row.within(row.adaptive_16, 16), row.within(row.blind, 16)).low > 0


def test_nothing_falls_where_everything_is_blocked() -> None:
    """No arm gains anything from a closed door."""
    row = measure(planted("closed"), budget=16)
    arms = (row.static, row.blind, row.adaptive, row.adaptive_16, row.null)
    for arm in (*arms, row.bandit, row.best_of_n):
        assert not any(row.within(arm, 64))


HEAD = (
    f"{'defense':20} {'weakness':58} {'diagnosis':20} {'static':>6} {'blind 1/16/64':>14} "
    f"{'adaptive 1/16/64':>17} {'gain at 16':>20} {'gain at 64':>20} {'bandit 16/64':>13} "
    f"{'best-of-N':>9} {'greedy 16/64':>13} {'null':>4}  repair: before -> after a second attack"
)


def shown(row: Row) -> str:
    """Write a row of the table, in percent."""

    def percent(marks: list[bool]) -> str:
        return f"{100 * share(marks):.0f}"

    def at(arm: list[int], *ks: int) -> str:
        return "/".join(percent(row.within(arm, k)) for k in ks)

    def gained(difference: Difference) -> str:
        low, high = difference.low, difference.high
        if difference.value is None or low is None or high is None:
            return "undefined"
        return f"{100 * difference.value:+.0f} [{100 * low:.0f}, {100 * high:.0f}]"

    gains = [
        gained(row.gain(row.within(arm, k), row.within(row.blind, k)))
        for arm, k in ((row.adaptive_16, 16), (row.adaptive, 64))
    ]
    bandit, drawn = (
        "/".join(percent(row.within(arm, k + row.prior)) for k in (16, 64))
        for arm in (row.bandit, row.best_of_n)
    )
    adaptive = f"{at(row.adaptive, 1)}/{at(row.adaptive_16, 16)}/{at(row.adaptive, 64)}"
    repair = f"{row.repair}: {at(row.before, 64)} -> {at(row.after, 64)}" if row.repair else "none"
    return (
        f"{row.name:20} {row.weakness:58} {' '.join((row.label, *row.flags)):20.20} "
        f"{at(row.static, 1):>6} {at(row.blind, 1, 16, 64):>14} {adaptive:>17} {gains[0]:>20} "
        f"{gains[1]:>20} {bandit:>13} {drawn:>9} {at(row.greedy, 16, 64):>13} {at(row.null, 64):>4}  {repair}"
    )


@pytest.mark.soak
def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    """Print every row; what is promised of all of them together holds."""
    with capsys.disabled():
        sys.stdout.write(f"\n{HEAD}\n")
        rows = []
        for each in PLANTED:
            rows.append(measure(each))
            sys.stdout.write(f"{shown(rows[-1])}\n")
    steady = [row for row, each in zip(rows, PLANTED, strict=True) if each.is_steady]
    for row in steady:
        assert not any(row.within(row.null, 64)), row.name
        assert row.opened == 0, row.name
    hard = [
        row for row in steady if share(row.within(row.blind, 16)) < 0.9 and row.name != "lottery"
    ]
    for arm, k in ((lambda row: row.adaptive_16, 16), (lambda row: row.adaptive, 64)):
        assert pooled(*compared(hard, arm, lambda row: row.blind, k)).low > 0


PARTLY_OPEN = [
    name + more
    for name in ("ngrams gated", "bag gated", "nearest gated")
    for more in ("", ", mute")
]
"""Those that no attacker opens whole: elsewhere all of them come to 100 %."""


@pytest.mark.soak
@pytest.mark.parametrize("arm", ["bandit", "best_of_n"])
@pytest.mark.parametrize("k", [16, 64])
def test_it_does_not_lose_at_equal_calls(k: int, arm: str) -> None:
    """Over four seeds it is ahead in all, and nowhere shown to be behind.

    The fixed list is paid for: its wins count, and its calls go to the reference.
    """
    found = {name: [against(row, arm, k) for row in four_seeds(name)] for name in PARTLY_OPEN}
    behind = [name for name, each in found.items() if (over_seeds(each).high or 0.0) < 0]
    assert behind == []
    assert (over_seeds([one for each in found.values() for one in each]).low or 0.0) > 0


@cache
def four_seeds(name: str) -> list[Row]:
    """Measure a defense with four seeds of every attacker."""
    return [measure(planted(name), seed=seed, has_repair=False) for seed in range(1, 5)]


Marks = tuple[list[bool], list[bool], list[str]]


def against(row: Row, arm: str, k: int) -> Marks:
    """Mark what fell to the search with a budget of k, and to a reference; name the attacks."""
    own = row.adaptive_16 if k == 16 else row.adaptive
    names = [f"{row.name} {place}" for place in range(len(own))]
    reached = row.within(getattr(row, arm), k + row.prior)
    return row.within(own, k, with_static=True), reached, names


def over_seeds(found: list[Marks]) -> Difference:
    """Compare marks, the seeds of one attack a group."""
    own, reached, names = (np.concatenate(lists) for lists in zip(*found, strict=True))
    _, groups = np.unique(names, return_inverse=True)
    return grouped_difference(own, reached, groups=groups, confidence=0.95)


def compared(
    rows: list[Row], first: Callable[[Row], list[int]], second: Callable[[Row], list[int]], k: int
) -> tuple[list[list[bool]], list[list[bool]]]:
    """Mark what fell to two arms by the k-th call, for each row that has attacks."""
    some = [row for row in rows if row.groups]
    return [row.within(first(row), k) for row in some], [row.within(second(row), k) for row in some]


ALONE = ("words gated", "letters gated", "hardened", "format")
ALONE_SCORED = ("ngrams gated", "bag gated", "nearest gated")


@cache
def alone_against_blind(name: str) -> dict[int, tuple[list[bool], list[bool], list[str]]]:
    """Attack each text by itself with six seeds; mark what fell to the search and to blind draws."""
    each = planted(name)
    marks: dict[int, tuple[list[bool], list[bool], list[str]]] = {
        16: ([], [], []),
        64: ([], [], []),
    }
    for seed in range(1, 7):
        state, asked, _, _ = attacked(
            each.data(), each.start(), budget=64, seed=seed, shares_memory=False
        )
        asked.drive(controls.run_blind(state))
        for k, (searched, blind, attacks) in marks.items():
            searched += [first <= k for first in asked.firsts(ADAPTIVE, state.blocked)]
            blind += [first <= k for first in asked.firsts(BLIND, state.blocked)]
            attacks += [f"{name} {place}" for place in state.blocked]
    return marks


def gain_alone(names: Iterable[str], k: int) -> Difference:
    """Compare search and blind draws; the six seeds of one attack are one group."""
    every = [alone_against_blind(name)[k] for name in names]
    searched, blind, attacks = (np.concatenate(part) for part in zip(*every, strict=True))
    codes = np.unique(attacks, return_inverse=True)[1]
    return grouped_difference(searched, blind, groups=codes, confidence=0.95)


@pytest.mark.parametrize("name", [*ALONE, *ALONE_SCORED])
def test_an_attack_alone_loses_nothing_to_blind_draws(name: str) -> None:
    """What it learns from its own failures never costs it a bypass at 64 tries, nor shown at 16."""
    assert gain_alone([name], 64).value >= 0
    assert gain_alone([name], 16).high >= 0


def test_an_attack_alone_gains_where_there_is_a_score() -> None:
    """And over all defenses together."""
    assert gain_alone(ALONE_SCORED, 64).low > 0
    assert gain_alone((*ALONE, *ALONE_SCORED), 64).low > 0
