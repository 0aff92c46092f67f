"""Is what `plan` promises kept by the tool's own analysis of runs that `plan` never saw?

The short form runs with every test run; `make soak` draws more, and prints each share with its
Monte Carlo error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

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

Ints = NDArray[np.int64]
Kept = Callable[[np.random.Generator, Promise], bool]
RUNS = 2_000


def events(rng: np.random.Generator, plan: Promise, rate: float) -> Ints:
    """Events of each group, drawn with a latent share of each."""
    rows, icc = plan.layout.rows_per_group, plan.layout.icc
    scale = (1 - icc) / icc
    return rng.binomial(rows, rng.beta(rate * scale, (1 - rate) * scale, plan.groups))


def sizes(plan: Promise) -> Ints:
    """Rows of each group."""
    return np.full(plan.groups, plan.layout.rows_per_group)


def pairs(rng: np.random.Generator, plan: Promise, large: float, small: float) -> tuple[Ints, Ints]:
    """Discordant pairs of each group, either way: three shares of one Dirichlet draw."""
    icc = plan.layout.icc if plan.layout.rows_per_group > 1 else 0.5
    scale = (1 - icc) / icc
    shares = rng.dirichlet(scale * np.array([large, small, 1 - large - small]), plan.groups)
    drawn = rng.multinomial(plan.layout.rows_per_group, np.nan_to_num(shares))
    return drawn[:, 0], drawn[:, 1]


def narrow(rate: float, margin: float) -> Kept:
    """The interval of a run is as narrow as planned."""

    def kept(rng: np.random.Generator, plan: Promise) -> bool:
        told = wilson_default(events(rng, plan, rate), sizes(plan))
        return (told.high or 1.0) - (told.low or 0.0) <= 2 * margin

    return kept


def below(limit: float) -> Kept:
    """A run without an event keeps its interval below the limit."""

    def kept(_: np.random.Generator, plan: Promise) -> bool:
        return (wilson_default(0 * sizes(plan), sizes(plan)).high or 1.0) <= limit

    return kept


def found(large: float, small: float, least_p: float) -> Kept:
    """The verdict of a report: test and interval."""

    def kept(rng: np.random.Generator, plan: Promise) -> bool:
        told = clustered_bonett_price(*pairs(rng, plan, large, small), sizes=sizes(plan))
        return (told.p_value or 1.0) < least_p and (told.low or 0.0) > 0

    return kept


def not_worse(discordance: float, margin: float) -> Kept:
    """The non-inferiority test of a report."""

    def kept(rng: np.random.Generator, plan: Promise) -> bool:
        first, second = pairs(rng, plan, discordance / 2, discordance / 2)
        told = noninferiority_clustered(first, second, sizes=sizes(plan), margin=margin)
        return told.is_noninferior

    return kept


class PlanCell(NamedTuple):
    """A plan, what was promised, and what keeps it."""

    name: str
    plan: Callable[[], Promise]
    promised: float
    kept: Kept


FIVE, TEN = Layout(rows_per_group=5, icc=0.5), Layout(rows_per_group=10, icc=0.3)
CELLS = [
    PlanCell(
        "margin 5, 5 a group", lambda: plan_margin(0.05, layout=FIVE), 0.95, narrow(0.5, 0.05)
    ),
    PlanCell(
        "margin 5 at 10 %, 5 a group",
        lambda: plan_margin(0.05, rate=0.1, layout=FIVE),
        0.95,
        narrow(0.1, 0.05),
    ),
    PlanCell(
        "margin 3 at 5 %, 10 a group",
        lambda: plan_margin(0.03, rate=0.05, layout=TEN),
        0.95,
        narrow(0.05, 0.03),
    ),
    PlanCell("no event, 1 %", lambda: plan_zero_events(0.01, layout=FIVE), 1.0, below(0.01)),
    PlanCell(
        "difference 5 of 10, 5 a group",
        lambda: plan_difference(0.05, 0.1, layout=FIVE, tests=2),
        0.8,
        found(0.075, 0.025, 0.025),
    ),
    PlanCell(
        "difference 5 of 10, alone",
        lambda: plan_difference(0.05, 0.1, tests=2),
        0.8,
        found(0.075, 0.025, 0.025),
    ),
    PlanCell(
        "not worse by 2 of 2, alone",
        lambda: plan_noninferiority(0.02, 0.02),
        0.8,
        not_worse(0.02, 0.02),
    ),
    PlanCell(
        "not worse by 3 of 5, 10 a group",
        lambda: plan_noninferiority(0.03, 0.05, layout=TEN),
        0.8,
        not_worse(0.05, 0.03),
    ),
]


def share_kept(cell: PlanCell, runs: int) -> float:
    """Return in which share of fresh runs the promise is kept, and print it with its error."""
    plan, rng = cell.plan(), np.random.default_rng([31, CELLS.index(cell)])
    share = sum(cell.kept(rng, plan) for _ in range(runs)) / runs
    error = math.sqrt(max(share * (1 - share), 0.25 / runs) / runs)
    groups, promised = plan.groups, cell.promised
    print(f"{cell.name}: {groups} groups, promised {promised}, kept {share:.3f} +- {error:.3f}")  # noqa: T201 - what a soak is for
    return share


@pytest.mark.parametrize("cell", [CELLS[0], CELLS[3]], ids=lambda cell: cell.name)
def test_a_size_is_enough(cell: PlanCell) -> None:
    """At least 93 % where 95 % is promised."""
    assert share_kept(cell, 300) >= cell.promised - 0.02 - 3 * math.sqrt(0.06 / 300)


@pytest.mark.soak
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_a_promise_is_kept(cell: PlanCell) -> None:
    """Two points at most below what was promised, within the noise of the simulation."""
    wanted = cell.promised - 0.02
    assert share_kept(cell, RUNS) >= wanted - 3 * math.sqrt(wanted * (1 - wanted) / RUNS)
