"""The limits of crossed rows against the recipe by plain loops, and scipy's Student t."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student

from guardmark.stats.rates.crossed import crossed_rate

Row = tuple[int, int, int]  # suite, task, injection


def limits_by_loops(rows: Sequence[Row], hits: Sequence[int]) -> tuple[float, float, float, float]:
    """Low, high, effective rows and degrees of freedom, step by step."""
    total, rate = len(rows), sum(hits) / len(rows)
    spread = rate * (1 - rate) or 1.0
    variance, above, below, fewest = 0.0, 0.0, 0.0, math.inf
    for suite in sorted({row[0] for row in rows}):
        own = [at for at, row in enumerate(rows) if row[0] == suite]
        size, mean = len(own), sum(hits[at] for at in own) / len(own)
        share, parts, levels = size / total, [], []
        for factor in (1, 2):
            sums: defaultdict[int, float] = defaultdict(float)
            held: defaultdict[int, list[int]] = defaultdict(list)
            for at in own:
                sums[rows[at][factor]] += hits[at] - mean
                held[rows[at][factor]].append(hits[at])
            levels.append(len(sums))
            seen = sum(each**2 for each in sums.values()) / size**2
            seen *= len(sums) / (len(sums) - 1)
            speak = min(
                sum(1 in each for each in held.values()), sum(0 in each for each in held.values())
            )
            safe = mean * (1 - mean) * sum(len(each) ** 2 for each in held.values()) / size**2
            parts.append((seen, speak, safe))
        doubt = 2 if max(levels) > 40 or min(levels) > 14 else 1
        a, b = (
            seen * speak / (speak + doubt) + safe * doubt / (speak + doubt)
            for seen, speak, safe in parts
        )
        fewest = min(fewest, *levels)
        if mean in (0, 1):
            own_variance = spread / min(levels)
            above += share**2 * own_variance
            below += share**4 * own_variance**2 / (min(levels) - 1)
        else:
            cell = mean * (1 - mean) / (size - 1)
            own_variance = max(a + b - cell, a, b, mean * (1 - mean) / size)
            ea, eb = max(a - cell, 0), max(b - cell, 0)
            above += share**2 * (ea + eb + cell)
            below += share**4 * (ea**2 / (levels[0] - 1) + eb**2 / (levels[1] - 1) + cell**2 / size)
        variance += share**2 * own_variance
    worth = min(total, spread / variance)
    freedom = max(above**2 / below, fewest - 1)
    q2 = float(student.ppf(0.975, freedom)) ** 2
    centre = (rate + q2 / (2 * worth)) / (1 + q2 / worth)
    half = math.sqrt(q2 * (rate * (1 - rate) / worth + q2 / (4 * worth**2))) / (1 + q2 / worth)
    return centre - half, centre + half, worth, freedom


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[Row], list[int]]:
    """One to three suites, each with crossings that lack, but two levels of each factor."""
    rows: list[Row] = []
    for suite in range(draw(st.integers(1, 3))):
        size = draw(st.tuples(st.integers(2, 9), st.integers(2, 6)))
        cells = [(task, injection) for task in range(size[0]) for injection in range(size[1])]
        kept = draw(st.lists(st.sampled_from(cells), unique=True))
        kept = sorted({(0, 0), (1, 1), *kept})
        rows += [(suite, *cell) for cell in kept]
    hits = draw(st.lists(st.integers(0, 1), min_size=len(rows), max_size=len(rows)))
    return rows, hits


@given(tables())
def test_the_limits_are_those_of_the_recipe(table: tuple[list[Row], list[int]]) -> None:
    """Every step is written a second time, without arrays."""
    rows, hits = table
    suites, tasks, injections = (np.array(column) for column in zip(*rows, strict=True))
    estimate = crossed_rate(hits, first=tasks, second=injections, strata=suites)
    low, high, worth, freedom = limits_by_loops(rows, hits)
    assert estimate.effective_n == pytest.approx(worth)
    assert estimate.degrees_of_freedom == pytest.approx(freedom)
    assert estimate.low == pytest.approx(max(0.0, low), abs=1e-9)
    assert estimate.high == pytest.approx(min(1.0, high), abs=1e-9)


@pytest.mark.parametrize("size", [(41, 6), (20, 15), (15, 20)])
def test_large_crossings_trust_few_speaking_levels_less(size: tuple[int, int]) -> None:
    """With many levels the few that speak count for less."""
    rng = np.random.default_rng(7)
    tasks, injections = np.nonzero(np.ones(size))
    hits = (rng.random(len(tasks)) < 0.05).astype(int)
    estimate = crossed_rate(hits, first=tasks, second=injections)
    rows = [(0, int(task), int(each)) for task, each in zip(tasks, injections, strict=True)]
    low, high, _, _ = limits_by_loops(rows, hits.tolist())
    assert (estimate.low, estimate.high) == pytest.approx((low, high))
