"""Does a rate that people labelled in part hold what it promises, however labels were drawn?

A judge labels every answer of a run and errs; people label some. The truth is the rate that the
run was drawn with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.soak.cells import Floats, Ints, Marks, SoakCell, alike, holds

from guardmark.analysis.defense.counts import grouped_rate
from guardmark.core.estimate import Estimate
from guardmark.stats.figures import Ratio
from guardmark.stats.rates.corrected import JudgeLabels, corrected_rate, double_sampled
from guardmark.stats.rates.double_sampling import JudgedStrata
from guardmark.stats.rates.means import share_mean

Flags = NDArray[np.bool_]
Draw = Callable[[np.random.Generator, int], Marks]
AT_RANDOM: Final = "drawn at random"
HALF: Final = "half drawn from judged unsafe"
ALL_UNSAFE: Final = "all judged unsafe and as many others"
_ANSWERS: Final = 448


def answers_alone(*, rate: float, judge: tuple[float, float], labels: int, drawn: str) -> Draw:
    """Runs of 448 answers that share no groups."""
    sensitivity, specificity = judge

    def marks(rng: np.random.Generator, count: int) -> Marks:
        for _ in range(count):
            unsafe = int(rng.binomial(_ANSWERS, rate))
            hits = int(rng.binomial(unsafe, sensitivity))
            alarms = int(rng.binomial(_ANSWERS - unsafe, 1 - specificity))
            flagged = hits + alarms
            of_unsafe = int(rng.hypergeometric(flagged, _ANSWERS - flagged, labels))
            of_safe = labels - of_unsafe
            if drawn == HALF:
                of_unsafe = min(labels // 2, flagged)
                of_safe = min(labels - of_unsafe, _ANSWERS - flagged)
            if drawn == ALL_UNSAFE:
                of_unsafe = min(labels, flagged)
                of_safe = max(1, min(of_unsafe, _ANSWERS - flagged))
            caught = int(rng.hypergeometric(hits, alarms, of_unsafe)) if of_unsafe else 0
            missed = int(rng.hypergeometric(unsafe - hits, _ANSWERS - unsafe - alarms, of_safe))
            seen = JudgeLabels(
                caught=caught,
                missed=missed,
                accused=of_unsafe - caught,
                cleared=of_safe - missed,
            )
            rest = _ANSWERS - of_unsafe - of_safe
            told = corrected_rate(flagged - of_unsafe, rest, labels=seen, labels_from_run=True)
            yield holds(told.low, rate, told.high)

    return marks


def answers_in_groups(
    sizes: Ints, *, rate: float, judge: tuple[float, float], labels: int, drawn: str
) -> Draw:
    """Runs of answers whose groups differ in their rate, and in how the judge errs on them."""
    groups = np.repeat(np.arange(len(sizes)), sizes)
    total, icc = len(groups), 0.5

    def share(where: Flags, hits: Flags) -> Estimate:
        return grouped_rate(hits[where], groups[where], confidence=0.95)

    def shares(rng: np.random.Generator, mean: float) -> Floats:
        spread = (1 - icc) / icc
        return rng.beta(mean * spread, (1 - mean) * spread, len(sizes))[groups]

    def marks(rng: np.random.Generator, count: int) -> Marks:
        for _ in range(count):
            unsafe = rng.random(total) < shares(rng, rate)
            flagged = rng.random(total) < np.where(
                unsafe, shares(rng, judge[0]), shares(rng, 1 - judge[1])
            )
            order = rng.permutation(total)
            chosen = order[:labels]
            if drawn == HALF:
                half = order[flagged[order]][: labels // 2]
                chosen = np.concatenate([half, order[~flagged[order]][: labels - len(half)]])
            labelled = np.zeros(total, dtype=bool)
            labelled[chosen] = True

            told = double_sampled(
                JudgedStrata(
                    judged_unsafe=share(labelled | True, flagged),
                    of_unsafe=share(labelled & flagged, unsafe),
                    of_safe=share(labelled & ~flagged, unsafe),
                    labels=share(labelled, unsafe),
                )
            )
            yield holds(told.low, rate, told.high)

    return marks


def answers_by_category(*, odds: tuple[float, float], sizes: tuple[int, int], labels: int) -> Draw:
    """Runs of two categories of which as many answers each were labelled."""
    rates = np.repeat(odds, sizes)
    weight = np.repeat([2 * size / labels for size in sizes], sizes)
    truth, total = float(rates.mean()), sum(sizes)

    def share(where: Flags, hits: Flags) -> Ratio:
        return share_mean(
            hits[where].astype(float),
            None,
            name="as drawn",
            confidence=0.95,
            weights=weight[where],
        )

    def marks(rng: np.random.Generator, count: int) -> Marks:
        for _ in range(count):
            unsafe = rng.random(total) < rates
            flagged = rng.random(total) < np.where(unsafe, 0.8, 0.1)
            labelled = np.zeros(total, dtype=bool)
            labelled[rng.choice(sizes[0], labels // 2, replace=False)] = True
            labelled[sizes[0] + rng.choice(sizes[1], labels // 2, replace=False)] = True
            told = double_sampled(
                JudgedStrata(
                    judged_unsafe=grouped_rate(flagged, np.arange(total), confidence=0.95),
                    of_unsafe=share(labelled & flagged, unsafe),
                    of_safe=share(labelled & ~flagged, unsafe),
                    labels=share(labelled, unsafe),
                )
            )
            yield holds(told.low, truth, told.high)

    return marks


CELLS: Final = (
    *(
        SoakCell(
            figure=f"rate by double sampling, {drawn}",
            setting=f"rate {rate:g}, judge {judge[0]:g}/{judge[1]:g}, {labels} labels",
            marks=answers_alone(rate=rate, judge=judge, labels=labels, drawn=drawn),
            runs=4_000,
        )
        for drawn in (AT_RANDOM, HALF, ALL_UNSAFE)
        for rate in (0.02, 0.05, 0.1, 0.3)
        for judge in ((0.9, 0.98), (0.8, 0.9), (0.6, 0.6), (0.5, 0.5))
        for labels in (50, 100, 200)
    ),
    *(
        SoakCell(
            figure=f"rate by double sampling in groups of {size}, {drawn}",
            setting=f"rate {rate:g}, judge {judge[0]:g}/{judge[1]:g}, {labels} labels, ICC 0.5",
            marks=answers_in_groups(
                alike(groups, size), rate=rate, judge=judge, labels=labels, drawn=drawn
            ),
            runs=1_000,
        )
        for drawn in (AT_RANDOM, HALF)
        for groups, size in ((112, 4), (38, 12))
        for rate in (0.05, 0.1, 0.3)
        for judge in ((0.9, 0.98), (0.8, 0.9), (0.6, 0.6), (0.5, 0.5))
        for labels in (100, 200)
    ),
    *(
        SoakCell(
            figure="rate by double sampling, labels drawn by category",
            setting=f"{sizes[0]} answers at {odds[0]:g}, {sizes[1]} at {odds[1]:g}, {labels} labels",
            marks=answers_by_category(odds=odds, sizes=sizes, labels=labels),
            runs=2_000,
        )
        for sizes in ((400, 48), (224, 224))
        for odds in ((0.05, 0.4), (0.3, 0.1))
        for labels in (60, 90)
    ),
)

SHORT: Final = [
    next(cell for cell in CELLS if cell.name.startswith(name))
    for name in (
        "rate by double sampling, drawn at random, rate 0.02, judge 0.8/0.9, 100",
        "rate by double sampling, all judged unsafe and as many others, rate 0.1, judge 0.8/0.9, 50",
        "rate by double sampling in groups of 12, drawn at random, rate 0.1, judge 0.8/0.9, 100",
        "rate by double sampling, labels drawn by category, 400",
    )
]


@pytest.mark.parametrize("cell", SHORT, ids=lambda cell: cell.name)
def test_labels_of_the_run_hold_however_they_were_drawn(cell: SoakCell) -> None:
    """A few cells in which the correction before was refused, or missed the truth."""
    assert cell.keeps(cell.draw(200))
