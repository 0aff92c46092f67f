"""Do decisions keep what they promise? Verdicts, margins, gates, early stops, guarantees, simulated.

The short form runs with every test run; `make soak` draws all cells (`tests/soak/table.py`).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from functools import cache, partial

import numpy as np
import pytest
from tests.soak.cells import Ints, Marks, SoakCell, alike, events_of, giant, holds, skewed

from guardmark.analysis.settings import RelianceLimits
from guardmark.core.estimate import Difference
from guardmark.stats.multiplicity import holm
from guardmark.stats.paired.intervals import clustered_bonett_price
from guardmark.stats.paired.noninferiority import noninferiority_clustered
from guardmark.stats.planning import rows_to_decide, smallest_detectable
from guardmark.stats.rates.clustered import (
    EffectiveCounts,
    exceedance,
    wilson_default,
    wilson_default_rows,
    wilson_default_slices,
)
from guardmark.stats.rates.selection import rate_of_chosen
from guardmark.stats.scores.guarantee import ErrorLimits, guarantee_threshold
from guardmark.stats.scores.thresholds import tpr_at_fpr
from guardmark.stats.sequential import (
    beta_mixture_sequence,
    betting_sequence,
    spent_confidence,
)
from guardmark.stats.stopped_value import LookBounds, median_unbiased

Draw = Callable[[np.random.Generator, int], Marks]
SHORT, LONG = 300, 2_000
MOST_THROUGH = RelianceLimits().attacks


def unlike_errors(groups: int, size: int, *, rate: float) -> Draw:
    """Runs in which two defenses of one rate are told apart, by test and interval.

    One loses whole families, the other scattered rows.
    """

    def marks(rng: np.random.Generator, runs: int) -> Marks:
        for _ in range(runs):
            lost = rng.random(groups) < rate
            scattered = rng.binomial(size, rate, groups)
            both = np.where(lost, scattered, 0)
            gap = clustered_bonett_price(
                np.where(lost, size, 0) - both, scattered - both, sizes=alike(groups, size)
            )
            yield (gap.p_value or 0.0) < 0.05 and not holds(gap.low, 0.0, gap.high)

    return marks


NULLS = [
    SoakCell(
        figure="verdict on equal rates, errors unlike",
        setting=f"{groups} groups of {size}, rate {rate:g}",
        marks=unlike_errors(groups, size, rate=rate),
        at_most=0.07,
        runs=LONG,
    )
    for groups, size in ((50, 10), (20, 20), (100, 10))
    for rate in (0.02, 0.05, 0.1, 0.2)
]


def discordant(
    rng: np.random.Generator, sizes: Ints, *, rates: tuple[float, float], icc: float
) -> tuple[Ints, Ints]:
    """Draw pairs on which only the first, or only the second, erred, with a latent share a group."""
    shares = np.array([*rates, 1 - sum(rates)])
    if icc:
        drawn = rng.dirichlet((1 - icc) / icc * shares, len(sizes))
    else:
        drawn = np.broadcast_to(shares, (len(sizes), 3))
    counts = rng.multinomial(sizes, drawn)
    return counts[:, 0], counts[:, 1]


def found_again(sizes: Ints, *, share: float, icc: float) -> Draw:
    """Runs in which test and interval find the difference that a comparison says they would."""

    def gap(rng: np.random.Generator, apart: float) -> Difference:
        rates = ((share + apart) / 2, (share - apart) / 2)
        return clustered_bonett_price(*discordant(rng, sizes, rates=rates, icc=icc), sizes=sizes)

    def marks(rng: np.random.Generator, runs: int) -> Marks:
        said = (
            smallest_detectable(gap(rng, 0.0), largest_group=1 / len(sizes)) for _ in range(101)
        )
        apart = float(np.median([each for each in said if each is not None]))
        for _ in range(runs):
            told = gap(rng, apart)
            yield (told.p_value or 0.0) < 0.05 and (told.low or 0.0) > 0.0

    return marks


FOUND = [
    SoakCell(
        figure="difference that would have been found",
        setting=f"{groups} groups of {size}, ICC {icc:g}, discordant {share:g}",
        marks=found_again(alike(groups, size), share=share, icc=icc),
        at_least=0.8,
        runs=600,
    )
    for groups, size, icc, share in (
        (400, 1, 0.0, 0.1),
        (1_000, 1, 0.0, 0.05),
        (60, 5, 0.3, 0.2),
        (20, 10, 0.3, 0.5),
        (12, 10, 0.1, 0.6),
    )
]


def differences(sizes: Ints, *, rates: tuple[float, float], icc: float) -> Draw:
    """Runs in which the interval of a paired difference holds it."""

    def marks(rng: np.random.Generator, runs: int) -> Marks:
        for _ in range(runs):
            told = clustered_bonett_price(
                *discordant(rng, sizes, rates=rates, icc=icc), sizes=sizes
            )
            yield holds(told.low, rates[0] - rates[1], told.high)

    return marks


DIFFERENCES = [
    SoakCell(
        figure="paired difference" + ", giant group" * (sizes is giants),
        setting=f"{len(sizes)} groups, {first:.0%} against {second:.0%}, ICC {icc:g}",
        marks=differences(sizes, rates=(first, second), icc=icc),
        runs=1_000,
    )
    for groups in (20, 50)
    for giants in [giant(groups, 0.5)]
    for sizes in (alike(groups, 10), giants)
    for first, second in ((0.1, 0.1), (0.15, 0.05))
    for icc in (0.3, 0.8)
]


def not_worse(sizes: Ints, *, icc: float, margin: float = 0.05) -> Draw:
    """Runs in which a rate that is worse by the whole margin is called not worse."""

    def marks(rng: np.random.Generator, runs: int) -> Marks:
        for _ in range(runs):
            first, second = discordant(rng, sizes, rates=(0.03 + margin, 0.03), icc=icc)
            yield noninferiority_clustered(first, second, sizes=sizes, margin=margin).is_noninferior

    return marks


MARGINS = [
    SoakCell(
        figure="not worse, at the margin",
        setting=setting,
        marks=not_worse(sizes, icc=icc),
        at_most=0.06,
        runs=LONG,
    )
    for setting, sizes, icc in (
        ("400 samples", alike(400, 1), 0.0),
        ("100 groups of 5, ICC 0.5", alike(100, 5), 0.5),
        ("40 groups of 10, ICC 0.3", alike(40, 10), 0.3),
        ("50 groups, one with half the rows, ICC 0.5", giant(50, 0.5), 0.5),
    )
]


def broken_gates(categories: int, size: int, *, variants: int, limit: float) -> Draw:
    """Runs in which a gate whose categories all stand at their limit is called broken."""
    groups = size // variants

    def marks(rng: np.random.Generator, runs: int) -> Marks:
        sizes = np.full((runs * categories, groups), variants)
        rates = wilson_default_slices(
            events_of(rng, sizes, rate=limit, icc=0.5 if variants > 1 else 0.0).ravel(),
            sizes.ravel(),
            slices=np.repeat(np.arange(len(sizes)), groups),
            slice_count=len(sizes),
        )
        p_values = [exceedance(rate, limit) for rate in rates]
        families = (p_values[at : at + categories] for at in range(0, len(p_values), categories))
        return (any(p is not None and p <= 0.025 for p in holm(each)) for each in families)

    return marks


GATES = [
    SoakCell(
        figure="gate broken, all categories at the limit",
        setting=f"{categories} categories of {size} in groups of {variants}, limit {limit:g}",
        marks=broken_gates(categories, size, variants=variants, limit=limit),
        at_most=0.05,
        runs=LONG,
    )
    for categories, size, variants, limit in (
        (16, 48, 1, 0.1),
        (40, 25, 1, 0.1),
        (16, 48, 1, 0.02),
        (40, 25, 5, 0.1),
        (16, 48, 4, 0.3),
    )
]


def lost_rates(groups: int) -> Draw:
    """Runs in which a sequence loses the rate of rows, where large families fall more."""
    # Nine families of one row fall in a tenth of cases; one of twenty rows in nine tenths.
    true = (0.9 * 0.1 + 0.1 * 20 * 0.9) / (0.9 + 0.1 * 20)

    def marks(rng: np.random.Generator, runs: int) -> Marks:
        for _ in range(runs):
            large = rng.random(groups) < 0.1
            sizes = np.where(large, 20, 1)
            events = sizes * (rng.random(groups) < np.where(large, 0.9, 0.1))
            found = betting_sequence(events, sizes, largest=20)
            yield not holds(found.low, true, found.high)

    return marks


def lost_alone(samples: int, *, rate: float) -> Draw:
    """Runs in which a sequence of samples that stand alone loses their rate at any look."""

    def marks(rng: np.random.Generator, runs: int) -> Marks:
        for _ in range(runs):
            hits = np.cumsum(rng.random(samples) < rate)[9::10]
            looks = (beta_mixture_sequence(int(x), 10 * (at + 1)) for at, x in enumerate(hits))
            yield not all(holds(each.low, rate, each.high) for each in looks)

    return marks


STOPS = [
    *(
        SoakCell(
            figure="early stop, rate tied to family size",
            setting=f"{groups} families, all looks at once",
            marks=lost_rates(groups),
            at_most=0.05,
            runs=LONG,
        )
        for groups in (300, 100, 1_000)
    ),
    *(
        SoakCell(
            figure="early stop, samples alone",
            setting=f"1000 samples, rate {rate:g}, all looks at once",
            marks=lost_alone(1_000, rate=rate),
            at_most=0.05,
            runs=500,
        )
        for rate in (0.02, 0.3)
    ),
]


@cache
def looks_at(samples: int, limit: float) -> tuple[LookBounds, ...]:
    """With how many events each look decides whether a rate is below a limit."""
    looks = []
    for trials in range(10, samples + 1, 10):
        of = partial(beta_mixture_sequence, trials=trials)
        counts = range(trials + 1)
        low = bisect_left(counts, x=True, key=lambda x, of=of: (of(x).high or 0.0) >= limit) - 1
        high = bisect_left(counts, x=True, key=lambda x, of=of: (of(x).low or 0.0) >= limit)
        looks.append(LookBounds(trials, low, high))
    return tuple(looks)


@cache
def value_at(samples: int, limit: float, last: int, seen: int) -> float:
    """The value of a run that ended at a look with so many events."""
    looks = looks_at(samples, limit)[: last + 1]
    limits = beta_mixture_sequence(seen, looks[-1].trials)
    between = (limits.low or 0.0, 1.0 if limits.high is None else limits.high)
    return median_unbiased(looks, seen, between=between)


def leaning(samples: int, *, rate: float, limit: float, is_above: bool) -> Draw:
    """Runs ended by "rate < limit" whose value lies on one side of the truth."""

    def marks(rng: np.random.Generator, runs: int) -> Marks:
        looks = looks_at(samples, limit)
        for _ in range(runs):
            hits = np.cumsum(rng.binomial(10, rate, len(looks)))
            ended = [
                at for at, look in enumerate(looks) if hits[at] <= look.low or hits[at] >= look.high
            ]
            last = min(ended, default=len(looks) - 1)
            value = value_at(samples, limit, last, int(hits[last]))
            yield value > rate if is_above else value < rate

    return marks


VALUES = [
    SoakCell(
        figure=f"value of an early stop lies {'above' if is_above else 'below'} the truth",
        setting=f"{samples} samples, rate {rate:g}, stopped by rate < {limit:g}",
        marks=leaning(samples, rate=rate, limit=limit, is_above=is_above),
        at_most=0.52,
        runs=LONG,
    )
    for samples, rate, limit in (
        (600, 0.2, 0.1),
        (600, 0.5, 0.3),
        (600, 0.05, 0.1),
        (300, 0.12, 0.1),
    )
    for is_above in (True, False)
]


def asked_again(first: int, *, variants: int, limit: float, looks: int) -> Draw:
    """Runs in which a rate at its limit is falsely called held, the set extended as advised.

    Each look adds what is said to decide to what is there, which the earlier looks have seen.
    """

    def marks(rng: np.random.Generator, runs: int) -> Marks:
        for _ in range(runs):
            yield _is_falsely_held(rng, first, variants=variants, limit=limit, looks=looks)

    return marks


def _is_falsely_held(
    rng: np.random.Generator, first: int, *, variants: int, limit: float, looks: int
) -> bool:
    events, seen = np.zeros(0, dtype=np.int64), 0
    groups = first // variants
    for _ in range(looks):
        new = alike(groups - seen, variants)
        drawn = events_of(rng, new, rate=limit, icc=0.5 if variants > 1 else 0.0)
        events = np.concatenate([events, drawn])
        confidence = spent_confidence(0.95, seen / groups)
        rate = wilson_default(events, alike(groups, variants), confidence=confidence)
        if rate.high is not None and rate.high <= limit:
            return True
        needed: int | None = 2 * groups * variants  # planning for groups would take an hour here
        if variants == 1:
            needed = rows_to_decide(rate, limit, level=(1 - confidence) / 2)
        p_value = exceedance(rate, limit)
        if needed is None or needed > 20_000 or (p_value or 1.0) <= (1 - confidence) / 2:
            return False
        seen, groups = groups, max(groups + 1, needed // variants)
    return False


AGAIN = [
    SoakCell(
        figure="gate asked again, falsely held",
        setting=f"{first} attacks in groups of {variants}, limit {limit:g}, up to {looks} looks",
        marks=asked_again(first, variants=variants, limit=limit, looks=looks),
        at_most=0.07,
        runs=1_000,
    )
    for first, variants, limit in ((200, 1, 0.1), (200, 5, 0.1), (400, 1, 0.05))
    for looks in (3, 6)
]


def traded(samples: int, *, present: float, margin: float) -> Draw:
    """Runs in which a threshold is advised that raises more alarms than the margin allows.

    Normal scores; thresholds for FPR 1 % and 5 % are chosen on one half, compared on the other.
    """

    def tail(cut: float) -> float:
        return math.erfc(cut / math.sqrt(2)) / 2

    def marks(rng: np.random.Generator, runs: int) -> Marks:
        half, error = samples // 2, 0.05 / 3
        labels = np.repeat([True, False], half)
        for _ in range(runs):
            attacks, benign = (
                rng.standard_normal((2, 2, half)) + np.array([1.5, 0.0])[:, None, None]
            )
            is_wrong = False
            for limit in (0.01, 0.05):
                scores = np.concatenate([attacks[0], benign[0]])
                cut = tpr_at_fpr(labels, scores, max_fpr=limit).threshold
                if cut is None or tail(cut) - tail(present) <= margin:
                    continue
                ones = alike(half, 1)
                gains = (attacks[1] >= cut) & (attacks[1] < present)
                losses = (attacks[1] < cut) & (attacks[1] >= present)
                passes = clustered_bonett_price(
                    losses.astype(int), gains.astype(int), sizes=ones, confidence=1 - error
                )
                more = (benign[1] >= cut) & (benign[1] < present)
                fewer = (benign[1] < cut) & (benign[1] >= present)
                alarms = noninferiority_clustered(
                    more.astype(int), fewer.astype(int), sizes=ones, margin=margin, alpha=error
                )
                is_wrong |= (passes.high or 0.0) < 0 and alarms.is_noninferior
            yield is_wrong

    return marks


TRADES = [
    SoakCell(
        figure="threshold advised that raises more alarms than the margin",
        setting=f"{samples} a side, present threshold at FPR 0.0125, margin 0.02",
        marks=traded(samples, present=2.2414, margin=0.02),
        at_most=0.07,
        runs=LONG,
    )
    for samples in (200, 400, 1_000)
]


def relied_on(defenses: int, *, shared: float) -> Draw:
    """Runs in which some one of alike defenses at the limit of 10 % attacks is called reliable."""

    def marks(rng: np.random.Generator, runs: int) -> Marks:
        for _ in range(runs):
            common = rng.random(400) < 0.1
            own = rng.random((defenses, 400)) < 0.1
            passed = np.where(rng.random((defenses, 400)) < shared, common, own).sum(axis=1)
            rates = [wilson_default_rows(int(hits), 400) for hits in passed]
            counts = [EffectiveCounts.of(rate) for rate in rates]
            # What makes no claim by itself makes none after the choice, so these alone are asked.
            bold = [at for at, rate in enumerate(rates) if (rate.high or 1.0) <= MOST_THROUGH]
            after = (
                rate_of_chosen(counts, at=at, is_lowest=True, shares_samples=True) for at in bold
            )
            yield any(
                each is not None and (each.rate.high or 1.0) <= MOST_THROUGH for each in after
            )

    return marks


def addressed(categories: int, size: int) -> Draw:
    """Runs in which some category is called addressed though half of its attacks pass."""

    def marks(rng: np.random.Generator, runs: int) -> Marks:
        for _ in range(runs):
            rates = [wilson_default_rows(int(x), size) for x in rng.binomial(size, 0.5, categories)]
            p_values = holm([exceedance(rate, 0.5) for rate in rates])
            yield any(p is not None and p <= 0.025 for p in p_values)

    return marks


CHOSEN = [
    *(
        SoakCell(
            figure="some one of alike defenses at the limit is relied on",
            setting=f"{defenses} defenses, 400 attacks, {shared:.0%} agreed on",
            marks=relied_on(defenses, shared=shared),
            at_most=0.07,
            runs=150,
        )
        for defenses in (6, 10, 30)
        for shared in (0.0, 0.5)
    ),
    *(
        SoakCell(
            figure="some category is falsely addressed",
            setting=f"{categories} categories of {size}",
            marks=addressed(categories, size),
            at_most=0.07,
            runs=LONG,
        )
        for categories, size in ((5, 40), (20, 40), (40, 25))
    ),
]


def exceeded(sizes: Ints, *, icc: float, limit: float) -> Draw:
    """Runs in which a threshold with a guarantee exceeds the limit on samples at large."""

    def marks(rng: np.random.Generator, runs: int) -> Marks:
        codes = np.repeat(np.arange(2 * len(sizes)), np.tile(sizes, 2))
        attack = codes < len(sizes)
        for _ in range(runs):
            score = math.sqrt(icc) * rng.standard_normal(2 * len(sizes))[codes] + 3.0 * attack
            score += math.sqrt(1 - icc) * rng.standard_normal(len(codes))
            found = guarantee_threshold(
                attack, score, limits=ErrorLimits(fpr=limit), groups=codes
            ).threshold
            yield found is not None and math.erfc(found / math.sqrt(2)) / 2 > limit

    return marks


GUARANTEES = [
    SoakCell(
        figure="guaranteed limit exceeded",
        setting=f"{setting}, FPR at most {limit:g}",
        marks=exceeded(sizes, icc=icc, limit=limit),
        at_most=0.06,
        runs=600,
    )
    for setting, sizes, icc, limit in (
        ("400 benign", alike(400, 1), 0.0, 0.02),
        ("100 groups of 10, ICC 0.7", alike(100, 10), 0.7, 0.1),
        ("70 groups, one in seven of ten, ICC 0.5", skewed(70), 0.5, 0.1),
    )
]

CELLS = (
    *NULLS,
    *FOUND,
    *DIFFERENCES,
    *MARGINS,
    *GATES,
    *STOPS,
    *VALUES,
    *AGAIN,
    *TRADES,
    *CHOSEN,
    *GUARANTEES,
)


@pytest.mark.parametrize(
    "cell", [NULLS[5], NULLS[8], *GATES[:2], STOPS[0]], ids=lambda cell: cell.name
)
def test_a_wrong_decision_is_rare(cell: SoakCell) -> None:
    """The cells in which the test alone, interval by interval, or a fixed look were wrong most."""
    assert cell.keeps(cell.draw(SHORT))
