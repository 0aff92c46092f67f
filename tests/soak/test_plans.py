"""Is what `plan` promises kept by the tool's own analysis of runs that `plan` never saw?

The short form runs with every test run; `make soak` draws more (`tests/soak/table.py`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tests.soak.cells import Ints, Marks, SoakCell

from guardmark.stats.paired.intervals import clustered_bonett_price
from guardmark.stats.paired.noninferiority import noninferiority_clustered
from guardmark.stats.planning import (
    Layout,
    Promise,
    plan_difference,
    plan_margin,
    plan_noninferiority,
    plan_zero_events,
)
from guardmark.stats.rates.clustered import wilson_default

Kept = Callable[[np.random.Generator, Promise], bool]


def events(rng: np.random.Generator, plan: Promise, rows: Ints, rate: float) -> Ints:
    """Events of each group, drawn with a latent share of each."""
    icc = plan.layout.icc
    scale = (1 - icc) / icc
    return rng.binomial(rows, rng.beta(rate * scale, (1 - rate) * scale, plan.groups))


def sizes(rng: np.random.Generator, plan: Promise) -> Ints:
    """Rows of each group."""
    return rng.choice(plan.layout.known_sizes, plan.groups)


def pairs(
    rng: np.random.Generator, plan: Promise, rows: Ints, sides: tuple[float, float]
) -> tuple[Ints, Ints]:
    """Discordant pairs of each group, either way: three shares of one Dirichlet draw."""
    large, small = sides
    icc = 0.5 if plan.layout.is_alone else plan.layout.icc
    scale = (1 - icc) / icc
    shares = rng.dirichlet(scale * np.array([large, small, 1 - large - small]), plan.groups)
    drawn = rng.multinomial(rows, np.nan_to_num(shares))
    return drawn[:, 0], drawn[:, 1]


def narrow(rate: float, margin: float) -> Kept:
    """The interval of a run is as narrow as planned."""

    def kept(rng: np.random.Generator, plan: Promise) -> bool:
        rows = sizes(rng, plan)
        told = wilson_default(events(rng, plan, rows, rate), rows)
        return (told.high or 1.0) - (told.low or 0.0) <= 2 * margin

    return kept


def below(limit: float) -> Kept:
    """A run without an event keeps its interval below the limit."""

    def kept(rng: np.random.Generator, plan: Promise) -> bool:
        rows = sizes(rng, plan)
        return (wilson_default(0 * rows, rows).high or 1.0) <= limit

    return kept


def found(large: float, small: float, least_p: float) -> Kept:
    """The verdict of a report: test and interval."""

    def kept(rng: np.random.Generator, plan: Promise) -> bool:
        rows = sizes(rng, plan)
        told = clustered_bonett_price(*pairs(rng, plan, rows, (large, small)), sizes=rows)
        return (told.p_value or 1.0) < least_p and (told.low or 0.0) > 0

    return kept


def not_worse(discordance: float, margin: float) -> Kept:
    """The non-inferiority test of a report."""

    def kept(rng: np.random.Generator, plan: Promise) -> bool:
        rows = sizes(rng, plan)
        first, second = pairs(rng, plan, rows, (discordance / 2, discordance / 2))
        told = noninferiority_clustered(first, second, sizes=rows, margin=margin)
        return told.is_noninferior

    return kept


def fresh(plan: Callable[[], Promise], kept: Kept) -> Callable[[np.random.Generator, int], Marks]:
    """Runs of a plan in which its promise is kept."""

    def marks(rng: np.random.Generator, runs: int) -> Marks:
        made = plan()
        return (kept(rng, made) for _ in range(runs))

    return marks


FIVE, TEN = Layout(rows_per_group=5, icc=0.5), Layout(rows_per_group=10, icc=0.3)
UP_TO_NINE, ONE_OR_NINE = Layout(sizes=tuple(range(1, 10))), Layout(sizes=(1, 9))
PLANS: list[tuple[str, float, Callable[[], Promise], Kept]] = [
    (
        "margin 5, worst case, 5 a group, ICC 0.5",
        0.95,
        lambda: plan_margin(0.05, layout=FIVE),
        narrow(0.5, 0.05),
    ),
    (
        "margin 5 at a rate of 10 %, 5 a group, ICC 0.5",
        0.95,
        lambda: plan_margin(0.05, rate=0.1, layout=FIVE),
        narrow(0.1, 0.05),
    ),
    (
        "margin 3 at a rate of 5 %, 10 a group, ICC 0.3",
        0.95,
        lambda: plan_margin(0.03, rate=0.05, layout=TEN),
        narrow(0.05, 0.03),
    ),
    (
        "no event shows 1 %, 5 a group, ICC 0.5",
        0.95,
        lambda: plan_zero_events(0.01, layout=FIVE),
        below(0.01),
    ),
    (
        "difference of 5 points, discordance 10 %, 5 a group, ICC 0.5",
        0.8,
        lambda: plan_difference(0.05, 0.1, layout=FIVE, tests=2),
        found(0.075, 0.025, 0.025),
    ),
    (
        "difference of 5 points, discordance 10 %, samples alone",
        0.8,
        lambda: plan_difference(0.05, 0.1, tests=2),
        found(0.075, 0.025, 0.025),
    ),
    (
        "not worse by 2 points, discordance 2 %, samples alone",
        0.8,
        lambda: plan_noninferiority(0.02, 0.02),
        not_worse(0.02, 0.02),
    ),
    (
        "not worse by 3 points, discordance 5 %, 10 a group, ICC 0.3",
        0.8,
        lambda: plan_noninferiority(0.03, 0.05, layout=TEN),
        not_worse(0.05, 0.03),
    ),
    (
        "margin 5, worst case, 1 to 9 a group, ICC 0.5",
        0.95,
        lambda: plan_margin(0.05, layout=UP_TO_NINE),
        narrow(0.5, 0.05),
    ),
    (
        "margin 5, worst case, half alone and half nine a group, ICC 0.5",
        0.95,
        lambda: plan_margin(0.05, layout=ONE_OR_NINE),
        narrow(0.5, 0.05),
    ),
    (
        "no event shows 1 %, 1 to 9 a group, ICC 0.5",
        0.95,
        lambda: plan_zero_events(0.01, layout=UP_TO_NINE),
        below(0.01),
    ),
    (
        "difference of 5 points, discordance 10 %, 1 to 9 a group, ICC 0.5",
        0.8,
        lambda: plan_difference(0.05, 0.1, layout=UP_TO_NINE, tests=2),
        found(0.075, 0.025, 0.025),
    ),
    (
        "not worse by 3 points, discordance 5 %, half alone and half nine a group, ICC 0.5",
        0.8,
        lambda: plan_noninferiority(0.03, 0.05, layout=ONE_OR_NINE),
        not_worse(0.05, 0.03),
    ),
]
# Two points at most below what was promised.
CELLS = [
    SoakCell(
        figure="promise of plan, kept in fresh runs",
        setting=setting,
        marks=fresh(plan, kept),
        at_least=promised - 0.02,
        runs=2_000,
    )
    for setting, promised, plan, kept in PLANS
]


@pytest.mark.parametrize("cell", [CELLS[0], CELLS[3]], ids=lambda cell: cell.name)
def test_a_size_is_enough(cell: SoakCell) -> None:
    """At least 93 % where 95 % is promised."""
    assert cell.keeps(cell.draw(300))
