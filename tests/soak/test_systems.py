"""Do the intervals of systems keep what they promise: guards at places, streams, conversations?

Each cell draws runs of which the truth is known, in groups of 1, 5 and 30, and puts the rows through
the functions that the reports call. `make soak` draws all cells (`tests/soak/table.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.soak.cells import Floats, Ints, Marks, SoakCell, alike, holds

from guardmark.analysis.defense.counts import grouped_difference, grouped_rate
from guardmark.stats.quantiles import estimate_quantiles
from guardmark.stats.rates.clustered import wilson_default_slices

Draw = Callable[[np.random.Generator, int], Marks]
Flags = NDArray[np.bool_]

CONFIDENCE: Final = 0.95
GROUPS: Final = (
    ("150 samples alone", 150, 1),
    ("40 groups of 5", 40, 5),
    ("20 groups of 30", 20, 30),
)
"""Name, number and size of groups: few where they are large, as in data of few origins."""
MANY_GROUPS: Final = (
    ("400 samples alone", 400, 1),
    ("150 groups of 5", 150, 5),
    ("120 groups of 30", 120, 30),
)
RATES: Final = (0.02, 0.1, 0.5)
ALIKE: Final = 0.4
"""Correlation within a group, and within a sample of several documents or places."""


def shares(rng: np.random.Generator, mean: float | Floats, count: int, *, icc: float) -> Floats:
    """The own rates of so many groups (or samples) about a mean."""
    if not icc:
        return np.broadcast_to(np.asarray(mean, dtype=float), (count,)).copy()
    scale = (1 - icc) / icc
    centre = np.clip(mean, 1e-9, 1 - 1e-9)
    return rng.beta(centre * scale, (1 - centre) * scale, count)


def own_rates(rng: np.random.Generator, sizes: Ints, rate: float) -> tuple[Floats, Ints]:
    """The rate of each row, by its group, and the group of each row."""
    groups = np.repeat(np.arange(len(sizes)), sizes)
    icc = ALIKE if sizes.max() > 1 else 0.0
    return shares(rng, rate, len(sizes), icc=icc)[groups], groups


def stopped(sizes: Ints, *, rate: float) -> Draw:
    """Runs of conversations stopped in time, of which one in twenty has a turn that failed."""

    def marks(rng: np.random.Generator, count: int) -> Marks:
        for _ in range(count):
            odds, groups = own_rates(rng, sizes, rate)
            known = rng.random(len(odds)) > 0.05
            hits = rng.random(len(odds)) < odds
            told = grouped_rate(hits[known], groups[known], confidence=CONFIDENCE)
            yield holds(told.low, rate, told.high)

    return marks


def left_out(sizes: Ints, *, rate: float) -> Draw:
    """Runs of documents of a kind that are left out, one to four with each sample."""

    def marks(rng: np.random.Generator, count: int) -> Marks:
        for _ in range(count):
            odds, groups = own_rates(rng, sizes, rate)
            own = shares(rng, odds, len(odds), icc=ALIKE)
            documents = rng.integers(1, 5, len(odds))
            hits = rng.random(documents.sum()) < np.repeat(own, documents)
            told = grouped_rate(hits, np.repeat(groups, documents), confidence=CONFIDENCE)
            yield holds(told.low, rate, told.high)

    return marks


def gone_out(sizes: Ints, *, rate: float) -> Draw:
    """Runs of unsafe answers of which the unsafe part had gone out; three in ten are unsafe."""

    def marks(rng: np.random.Generator, count: int) -> Marks:
        for _ in range(count):
            odds, groups = own_rates(rng, sizes, rate)
            unsafe = rng.random(len(odds)) < shares(rng, 0.3, len(sizes), icc=0.2)[groups]
            hits = rng.random(len(odds)) < odds
            told = grouped_rate(hits[unsafe], groups[unsafe], confidence=CONFIDENCE)
            yield holds(told.low, rate, told.high)

    return marks


def leaks(sizes: Ints, *, rate: float) -> Draw:
    """Runs of marked places whose text went on, one to five in each sample."""

    def marks(rng: np.random.Generator, count: int) -> Marks:
        for _ in range(count):
            odds, groups = own_rates(rng, sizes, rate)
            places = rng.integers(1, 6, len(odds))
            leaked = rng.binomial(places, shares(rng, odds, len(odds), icc=ALIKE))
            (told,) = wilson_default_slices(
                np.bincount(groups, leaked).astype(np.int64),
                np.bincount(groups, places).astype(np.int64),
                slices=np.zeros(len(sizes), dtype=np.int64),
                slice_count=1,
                confidence=CONFIDENCE,
            )
            yield holds(told.low, rate, told.high)

    return marks


def without_guard(sizes: Ints, *, rate: float) -> Draw:
    """Runs of what more gets through without a guard: each attack that did still does."""

    def marks(rng: np.random.Generator, count: int) -> Marks:
        for _ in range(count):
            odds, groups = own_rates(rng, sizes, rate)
            drawn = rng.random(len(odds))
            through = drawn > 0.8
            without = through | (drawn < 0.8 * odds)
            told = grouped_difference(without, through, groups=groups, confidence=CONFIDENCE)
            yield holds(told.low, 0.8 * rate, told.high)

    return marks


def split(sizes: Ints, *, rate: float, gain: float) -> Draw:
    """Runs of attacks over turns against one message, blocked `gain` less often over turns."""

    def marks(rng: np.random.Generator, count: int) -> Marks:
        for _ in range(count):
            odds, groups = own_rates(rng, sizes, rate)
            is_alike = rng.random(len(odds)) < 0.7  # both ways meet the same words
            drawn, own = rng.random(len(odds)), rng.random(len(odds))
            whole = drawn < odds
            over_turns = np.where(is_alike, drawn, own) < odds * (1 - gain)
            told = grouped_difference(over_turns, whole, groups=groups, confidence=CONFIDENCE)
            yield holds(told.low, -gain * rate, told.high)

    return marks


def characters(sizes: Ints, *, quantile: float, rate: float, every: int) -> Draw:
    """Runs of characters gone out before the block, in steps of so many, of the blocked attacks.

    Where there are no limits nothing is promised, and nothing is marked.
    """
    rng = np.random.default_rng(1)
    between = ALIKE if sizes.max() > 1 else 0.0
    truth = float(np.quantile(_steps(rng, np.zeros(400_000), between=0.0, every=every), quantile))

    def marks(rng: np.random.Generator, count: int) -> Marks:
        for _ in range(count):
            odds, groups = own_rates(rng, sizes, rate)
            blocked = rng.random(len(odds)) < odds
            gone = _steps(
                rng, rng.standard_normal(len(sizes))[groups], between=between, every=every
            )
            if not blocked.any():
                continue
            told = estimate_quantiles(
                gone[blocked], [quantile], groups=groups[blocked], confidence=CONFIDENCE
            )[0]
            if told.low is not None and told.high is not None:
                yield holds(told.low, truth, told.high)

    return marks


def _steps(rng: np.random.Generator, own: Floats, *, between: float, every: int) -> Floats:
    """Characters up to a block, log-normal, as a guard that is asked in steps sees them."""
    drawn = np.sqrt(between) * own + np.sqrt(1 - between) * rng.standard_normal(len(own))
    return np.floor(150 * np.exp(0.8 * drawn) / every) * every


def _of_rates(figure: str, draw: Callable[..., Draw], **more: float) -> tuple[SoakCell, ...]:
    """A figure at each rate and each kind of groups."""
    return tuple(
        SoakCell(
            figure=figure,
            setting=f"{setting}, rate {rate:g}",
            marks=draw(alike(groups, size), rate=rate, **more),
        )
        for setting, groups, size in GROUPS
        for rate in RATES
    )


CELLS: Final = (
    *_of_rates("conversations stopped in time", stopped),
    *_of_rates("documents left out", left_out),
    *_of_rates("unsafe part gone out", gone_out),
    *_of_rates("marked places that leak", leaks),
    *_of_rates("more attacks without a guard", without_guard),
    *_of_rates("split over turns against one message, alike", split, gain=0.0),
    *_of_rates("split over turns against one message, half as often", split, gain=0.5),
    *(
        SoakCell(
            figure=f"characters before the block, p{100 * quantile:g}",
            setting=f"{setting}, {rate:.0%} blocked, every {every}",
            marks=characters(alike(groups, size), quantile=quantile, rate=rate, every=every),
        )
        for quantile, settings, blocked in (
            (0.5, GROUPS, (0.1, 0.5)),
            (0.95, MANY_GROUPS, (0.3, 0.5)),  # fewer blocked attacks have no limits of a p95
        )
        for setting, groups, size in settings
        for rate in blocked
        for every in (1, 100)
    ),
)


SHORT: Final = [
    next(each for each in CELLS if each.name.startswith(name))
    for name in ("conversations stopped", "documents left out, 20", "more attacks", "split over")
]


@pytest.mark.parametrize("cell", SHORT, ids=lambda cell: cell.name)
def test_an_interval_of_a_system_holds_what_it_promises(cell: SoakCell) -> None:
    """A few cells; `make soak` draws them all."""
    assert cell.keeps(cell.draw(100))
