"""Is "about N would" kept? A run is told a size, and new runs of that size are drawn and looked at.

The new runs have the rate, or the difference, that the first one showed, in groups as large and as
alike as its groups truly are. Where the sentence names more than is drawn here in a minute, another
first run is taken. The short form runs with every test run; `make soak` draws more.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from tests.soak.cells import Floats, Ints, Marks, SoakCell, alike, events_of
from tests.soak.test_decisions import discordant

from guardmark.core.estimate import Difference, Estimate
from guardmark.stats.paired.intervals import clustered_bonett_price
from guardmark.stats.planning import (
    pairs_to_decide,
    pairs_to_tell_apart,
    rows_for_margin,
    rows_to_decide,
)
from guardmark.stats.rates.clustered import exceedance, wilson_default
from guardmark.stats.sequential import beta_mixture_sequence, betting_sequence

Draw = Callable[[np.random.Generator, int], Marks]
OF_EACH = 25
"""New runs that are drawn for what one first run says."""
MOST_ROWS = 8_000
TESTS = 2
"""Tests in the family of a pair of defenses: on attacks, and on benign samples."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Groups of one size and one correlation."""

    groups: int
    size: int = 1
    icc: float = 0.0

    def sizes(self, rows: int | None = None) -> Ints:
        """Sizes of the groups; of so many rows, rounded up to whole groups."""
        return alike(self.groups if rows is None else math.ceil(rows / self.size), self.size)

    @property
    def name(self) -> str:
        """The setting, spelled out."""
        if self.size == 1:
            return f"{self.groups} samples"
        return f"{self.groups} groups of {self.size}, ICC {self.icc:g}"


def by_groups(events: Ints, sizes: Ints) -> Estimate:
    """A rate as reports estimate it."""
    return wilson_default(events, sizes)


def by_sequence(events: Ints, sizes: Ints) -> Estimate:
    """A rate as a run with a stop rule estimates it."""
    total, rows = int(events.sum()), int(sizes.sum())
    if sizes.max() == 1:
        return beta_mixture_sequence(total, rows)
    sums: Floats = events.astype(np.float64)
    found = betting_sequence(sums, sizes.astype(np.float64), largest=int(sizes.max()))
    return Estimate(
        successes=total,
        trials=rows,
        low=found.low,
        high=found.high,
        confidence=0.95,
        method=found.method,
        groups=len(sizes),
    )


def as_narrow(
    setting: Setting, *, rate: float, margin: float, estimate: Callable[[Ints, Ints], Estimate]
) -> Draw:
    """New runs whose interval is as narrow as "±5 points would take about N" says."""

    def marks(rng: np.random.Generator, runs: int) -> Marks:
        done = 0
        while done < runs:
            sizes = setting.sizes()
            first = estimate(events_of(rng, sizes, rate=rate, icc=setting.icc), sizes)
            rows = rows_for_margin(first, margin)
            if rows is None or rows > MOST_ROWS or not first.share:
                continue
            sizes = setting.sizes(rows)
            for _ in range(min(OF_EACH, runs - done)):
                new = estimate(events_of(rng, sizes, rate=first.share, icc=setting.icc), sizes)
                done += 1
                yield (new.high or 1.0) - (new.low or 0.0) <= 2 * margin

    return marks


def decides(setting: Setting, *, rate: float, limit: float) -> Draw:
    """New runs that decide about a limit, as "about N would" says."""

    def marks(rng: np.random.Generator, runs: int) -> Marks:
        done = 0
        while done < runs:
            sizes = setting.sizes()
            first = by_groups(events_of(rng, sizes, rate=rate, icc=setting.icc), sizes)
            rows = rows_to_decide(first, limit)
            if rows is None or rows > MOST_ROWS or not first.share:
                continue
            sizes = setting.sizes(rows)
            for _ in range(min(OF_EACH, runs - done)):
                new = by_groups(events_of(rng, sizes, rate=first.share, icc=setting.icc), sizes)
                done += 1
                if first.share < limit:
                    yield new.high is not None and new.high <= limit
                else:
                    yield (exceedance(new, limit) or 1.0) <= 0.025

    return marks


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked of a pair of defenses: who errs less, or whether a rate rose by a margin."""

    margin: float | None = None

    def needed(self, first: Difference) -> int | None:
        """About how many pairs a report names."""
        if self.margin is None:
            return pairs_to_tell_apart(first, tests=TESTS)
        return pairs_to_decide(first, self.margin, tests=TESTS)

    def is_answered(self, first: Difference, new: Difference) -> bool:
        """Whether a new run answers as the first one leans."""
        value = first.value or 0.0
        if self.margin is not None and value < self.margin:
            return new.high is not None and new.high <= self.margin
        if self.margin is not None and (new.value or 0.0) <= self.margin:
            return False
        nearest = new.low if value > 0 else new.high
        is_found = (new.p_value or 1.0) < 0.05 / TESTS
        return is_found and math.copysign(1.0, value) * (nearest or 0.0) > 0.0


def pair_decides(setting: Setting, question: Question, *, rates: tuple[float, float]) -> Draw:
    """New runs that answer a question about two defenses, as "about N would" says."""

    def pairs(rng: np.random.Generator, sizes: Ints, shares: tuple[float, float]) -> Difference:
        return clustered_bonett_price(
            *discordant(rng, sizes, rates=shares, icc=setting.icc), sizes=sizes
        )

    def marks(rng: np.random.Generator, runs: int) -> Marks:
        done = 0
        while done < runs:
            first = pairs(rng, setting.sizes(), rates)
            rows = question.needed(first)
            if rows is None or rows > MOST_ROWS or not first.first_only or not first.second_only:
                continue
            shares = (first.first_only / first.pairs, first.second_only / first.pairs)
            sizes = setting.sizes(rows)
            for _ in range(min(OF_EACH, runs - done)):
                done += 1
                yield question.is_answered(first, pairs(rng, sizes, shares))

    return marks


ALONE, FIVES = Setting(groups=200), Setting(groups=60, size=5, icc=0.3)
ALIKE = Setting(groups=60, size=5, icc=0.5)
CELLS = (
    *(
        SoakCell(
            figure='"about N would be known to a margin", kept by new runs',
            setting=f"{setting.name}, rate {rate:g}, margin {margin:g}",
            marks=as_narrow(setting, rate=rate, margin=margin, estimate=by_groups),
            runs=600,
        )
        for setting, rate, margin in ((ALONE, 0.2, 0.04), (ALIKE, 0.2, 0.06), (FIVES, 0.1, 0.05))
    ),
    *(
        SoakCell(
            figure='"about N would be known to a margin" under a stop rule, kept by new runs',
            setting=f"{setting.name}, rate {rate:g}, margin {margin:g}",
            marks=as_narrow(setting, rate=rate, margin=margin, estimate=by_sequence),
            runs=200,
        )
        for setting, rate, margin in ((ALONE, 0.2, 0.05), (ALIKE, 0.2, 0.08))
    ),
    *(
        SoakCell(
            figure='"about N would decide about the limit", kept by new runs',
            setting=f"{setting.name}, rate {rate:g}, limit {limit:g}",
            marks=decides(setting, rate=rate, limit=limit),
            at_least=0.78,
            runs=600,
        )
        for setting, rate, limit in ((ALONE, 0.06, 0.1), (ALONE, 0.15, 0.1), (ALIKE, 0.15, 0.3))
    ),
    *(
        SoakCell(
            figure='"about N would tell them apart", kept by new runs',
            setting=f"{setting.name}, discordant {rates[0]:g} and {rates[1]:g}",
            marks=pair_decides(setting, Question(), rates=rates),
            at_least=0.78,
            runs=600,
        )
        for setting, rates in ((ALONE, (0.08, 0.04)), (FIVES, (0.1, 0.05)))
    ),
    *(
        SoakCell(
            figure='"about N would decide about the regression", kept by new runs',
            setting=f"{setting.name}, discordant {rates[0]:g} and {rates[1]:g}, margin {margin:g}",
            marks=pair_decides(setting, Question(margin=margin), rates=rates),
            at_least=0.78,
            runs=600,
        )
        for setting, rates, margin in (
            (ALONE, (0.04, 0.04), 0.05),
            (ALONE, (0.1, 0.03), 0.02),
            (FIVES, (0.04, 0.04), 0.08),
        )
    ),
)


@pytest.mark.parametrize("cell", [CELLS[0], CELLS[5], CELLS[8]], ids=lambda cell: cell.name)
def test_a_size_that_a_sentence_names_is_enough(cell: SoakCell) -> None:
    """A margin in 93 of 100 new runs at least, a decision in 78."""
    assert cell.keeps(cell.draw(50))
