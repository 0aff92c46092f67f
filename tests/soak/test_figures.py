"""Do the intervals beside the rate keep what they promise where samples share groups? Simulated.

Each cell draws runs of which the truth is known, and marks those whose 95 % interval holds it.
The short form runs with every test run; `make soak` draws all cells (`tests/soak/table.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.signal import lfilter
from scipy.stats import t as student_t
from tests.soak.cells import (
    Floats,
    Ints,
    Marks,
    SoakCell,
    alike,
    events_of,
    giant,
    holds,
    skewed,
)

from guardmark.stats.agreement import clustered_kappa, krippendorff_alpha
from guardmark.stats.attempts.extrapolation import extrapolate_success
from guardmark.stats.attempts.success_area import areas_of, success_area
from guardmark.stats.attempts.survival import (
    attack_success_at,
    kaplan_meier,
    restricted_mean,
)
from guardmark.stats.drawing import DrawPlan
from guardmark.stats.quantiles import estimate_quantiles, median_difference
from guardmark.stats.rates.clustered import (
    EffectiveCounts,
    effective_counts,
    summarise,
    wilson_default,
    wilson_default_rows,
)
from guardmark.stats.rates.corrected import JudgedWorth, JudgeLabels, rogan_gladen
from guardmark.stats.rates.means import decompose_repeats, share_mean, share_over_seeds
from guardmark.stats.rates.predictive import predictive_values
from guardmark.stats.rates.ratios import (
    BALANCED_ERROR,
    CORRELATION,
    F1,
    PRECISION,
    YOUDEN,
    Statistic,
    estimate_ratios,
)
from guardmark.stats.rates.selection import rate_of_chosen
from guardmark.stats.scores.auc import auc, compare_auc
from guardmark.stats.scores.calibration import brier, calibration_error
from guardmark.stats.scores.curve_areas import average_precision, partial_auc

FEW: Final = 150
"""Runs of figures that draw, or integrate, anew in each."""

Draw = Callable[[np.random.Generator, int], Marks]
Flags = NDArray[np.bool_]


def rates(sizes: Ints, *, rate: float, icc: float) -> Draw:
    """Runs of one rate."""

    def marks(rng: np.random.Generator, count: int) -> Marks:
        for _ in range(count):
            told = wilson_default(events_of(rng, sizes, rate=rate, icc=icc), sizes)
            yield holds(told.low, rate, told.high)

    return marks


def group_means(sizes: Ints, *, rate: float, icc: float) -> Draw:
    """Runs of the mean of the groups' own rates."""

    def marks(rng: np.random.Generator, count: int) -> Marks:
        for _ in range(count):
            own = events_of(rng, sizes, rate=rate, icc=icc) / sizes
            told = share_mean(own, np.arange(len(own)), name="mean", confidence=0.95)
            yield holds(told.low, rate, told.high)

    return marks


def mixes(sizes: tuple[Ints, Ints], *, share: float, odds: tuple[float, float], icc: float) -> Draw:
    """Runs of a rate weighed to a mix in which the second of two categories has a stated share."""

    def marks(rng: np.random.Generator, count: int) -> Marks:
        mix = (1 - share, share)
        truth = float(np.dot(mix, odds))
        rows = np.concatenate(sizes)
        heavy = [part / each.sum() for part, each in zip(mix, sizes, strict=True)]
        weights = np.repeat(heavy, [each.sum() for each in sizes])
        for _ in range(count):
            pairs = zip(sizes, odds, strict=True)
            events = np.concatenate([events_of(rng, n, rate=r, icc=icc) for n, r in pairs])
            counts = np.column_stack([events, rows - events]).ravel()
            erred = np.repeat(np.tile([1.0, 0.0], len(rows)), counts)
            groups = np.repeat(np.arange(len(rows)), rows)
            told = share_mean(erred, groups, name="mix", confidence=0.95, weights=weights)
            yield holds(told.low, truth, told.high)

    return marks


def both(
    rng: np.random.Generator, sizes: Ints, *, hits: float, alarms: float, icc: float
) -> tuple[EffectiveCounts, EffectiveCounts]:
    """What is blocked on both sides."""
    told = (
        effective_counts(summarise(events_of(rng, sizes, rate=rate, icc=icc), sizes))
        for rate in (hits, alarms)
    )
    first, second = told
    return first, second


def values(
    sizes: Ints, *, is_positive: bool, icc: float, hits: float = 0.9, alarms: float = 0.05
) -> Draw:
    """Runs of a predictive value where one attack in a hundred is true."""
    share = 0.01
    blocked = share * hits + (1 - share) * alarms
    truth = share * hits / blocked if is_positive else (1 - share) * (1 - alarms) / (1 - blocked)

    def marks(rng: np.random.Generator, count: int) -> Marks:
        for _ in range(count):
            sides = both(rng, sizes, hits=hits, alarms=alarms, icc=icc)
            told = predictive_values(*sides, prevalence=share)
            ratio = told.positive if is_positive else told.negative
            yield holds(ratio.low, truth, ratio.high)

    return marks


def figures(statistic: Statistic, sizes: Ints, *, icc: float) -> Draw:
    """Runs of a figure of both rates."""
    hits, alarms = 0.85, 0.1
    truth = statistic.figure(np.array([hits]), np.array([alarms]), 0.5).item()

    def marks(rng: np.random.Generator, count: int) -> Marks:
        for at in range(count):
            sides = both(rng, sizes, hits=hits, alarms=alarms, icc=icc)
            plan = DrawPlan(seed=at)
            told = estimate_ratios(*sides, statistics=[statistic], drawing=plan)[0]
            yield holds(told.low, truth, told.high)

    return marks


def judged(groups: int, repeats: int, *, icc: float, alike_errors: float = 0.0) -> Draw:
    """Runs of a corrected rate, each answer judged and a quarter of them labelled.

    With `alike_errors` the judge errs on the answers of a group with this correlation.
    """
    rate, sensitivity, specificity = 0.3, 0.9, 0.9

    def shares(rng: np.random.Generator, mean: float) -> Floats:
        if not alike_errors:
            return np.full(groups, mean)
        spread = (1 - alike_errors) / alike_errors
        return rng.beta(mean * spread, (1 - mean) * spread, groups)

    def marks(rng: np.random.Generator, count: int) -> Marks:
        codes, scale = np.repeat(np.arange(groups), repeats), (1 - icc) / icc
        for _ in range(count):
            unsafe = (
                rng.random(len(codes)) < rng.beta(rate * scale, (1 - rate) * scale, groups)[codes]
            )
            said = rng.random(len(codes)) < np.where(
                unsafe, shares(rng, sensitivity)[codes], 1 - shares(rng, specificity)[codes]
            )
            labelled = rng.random(len(codes)) < 0.25
            of_unsafe, of_safe = labelled & unsafe, labelled & ~unsafe
            sides = [_worth(said, where, codes) for where in (labelled | True, of_unsafe, of_safe)]
            cells = [said & of_unsafe, ~said & of_unsafe, said & of_safe, ~said & of_safe]
            caught, missed, accused, cleared = (int(each.sum()) for each in cells)
            told = rogan_gladen(
                int(said.sum()),
                len(said),
                labels=JudgeLabels(caught=caught, missed=missed, accused=accused, cleared=cleared),
                worth=JudgedWorth(*sides),
            )
            yield holds(told.low, rate, told.high)

    return marks


def _worth(hits: NDArray[np.bool_], where: NDArray[np.bool_], codes: Ints) -> float:
    sizes = np.bincount(codes[where])
    events = np.bincount(codes[where & hits], minlength=len(sizes))
    return effective_counts(summarise(events, sizes)).worth(0.95)


def waits(sizes: Ints, *, quantile: float, between: float) -> Draw:
    """Runs of a latency quantile, log-normal, with this share of variance between samples."""
    # The quantile of a standard normal, found by bisection on its distribution.
    low, high = -9.0, 9.0
    for _ in range(60):
        middle = (low + high) / 2
        is_below = 0.5 * math.erfc(-middle / math.sqrt(2)) < quantile
        low, high = (middle, high) if is_below else (low, middle)

    def marks(rng: np.random.Generator, count: int) -> Marks:
        codes = np.repeat(np.arange(len(sizes)), sizes)
        for _ in range(count):
            own = math.sqrt(between) * rng.standard_normal(len(sizes))[codes]
            own += math.sqrt(1 - between) * rng.standard_normal(len(codes))
            told = estimate_quantiles(own, [quantile], groups=codes)[0]
            yield holds(told.low, low, told.high)

    return marks


def errors_of_repeats(groups: int, variants: int, *, repeats: int) -> Draw:
    """Runs in which the mean of repeated answers lies within its standard error, by Student's t."""
    quantile = float(student_t.ppf(0.975, groups - 1))

    def marks(rng: np.random.Generator, count: int) -> Marks:
        codes = np.repeat(np.arange(groups), variants)
        for _ in range(count):
            chances = rng.beta(0.3, 0.7, groups)[codes]
            hits = rng.binomial(repeats, chances)
            told = decompose_repeats(hits, repeats=repeats, groups=codes)
            assert told.mean is not None
            assert told.standard_error is not None
            yield abs(told.mean - 0.3) <= quantile * told.standard_error

    return marks


def in_call_order(
    rng: np.random.Generator,
    calls: int,
    *,
    rho: float = 0.0,
    slow: float = 0.0,
    blocks: int = 20,
    noise: float = 0.0,
) -> tuple[Floats, int]:
    """Log times of calls in their order, and how many of them stand in slow spells.

    An autoregression of correlation `rho`, or a share `slow` of blocks that take five times as
    long; a share `noise` of the variance belongs to each call alone.
    """
    own = rng.standard_normal(calls)
    if slow:
        late = np.repeat(rng.random(calls // blocks + 2) < slow, blocks)
        late = late[rng.integers(blocks) :][:calls]
        return 0.3 * own + math.log(5) * late, int(late.sum())
    own[1:] *= math.sqrt(1 - rho * rho)
    series = np.asarray(lfilter([1.0], [1.0, -rho], own))
    if noise:
        series = math.sqrt(1 - noise) * series + math.sqrt(noise) * rng.standard_normal(calls)
    return series, 0


def spells(
    calls: int,
    *,
    quantile: float,
    rho: float = 0.0,
    slow: float = 0.0,
    noise: float = 0.0,
    is_seen: bool = False,
) -> Draw:
    """Runs of a latency quantile in call order: log times that hang together, or slow spells.

    Runs whose calls are worth too few have no limits, and are drawn anew; `is_seen` also those in
    which no call was slow, since nothing in them tells of the spells.
    """

    def marks(rng: np.random.Generator, count: int) -> Marks:
        long, _ = in_call_order(rng, 2_000_000, rho=rho, slow=slow, noise=noise)
        truth = float(np.quantile(long, quantile))
        done = 0
        while done < count:
            times, late = in_call_order(rng, calls, rho=rho, slow=slow, noise=noise)
            if is_seen and not late:
                continue
            found = estimate_quantiles(times, [quantile], is_in_time_order=True)[0]
            if found.low is None or found.high is None:
                continue
            done += 1
            yield holds(found.low, truth, found.high)

    return marks


def median_gaps(calls: int, *, rho: float, is_one_order: bool) -> Draw:
    """Runs of the median difference of two defenses whose calls hang together, of true value 0."""

    def marks(rng: np.random.Generator, count: int) -> Marks:
        done = 0
        while done < count:
            first, _ = in_call_order(rng, calls, rho=rho)
            second, _ = in_call_order(rng, calls, rho=rho)
            orders = [np.arange(calls)]
            if not is_one_order:
                orders.append(rng.permutation(calls))
                second = second[orders[1]]
            found = median_difference(first, second, orders=orders)
            if found.low is None:
                continue
            done += 1
            yield holds(found.low, 0.0, found.high)

    return marks


def bins(groups: int, variants: int) -> Draw:
    """Runs of the middle bin of a calibrated score that variants share."""

    def marks(rng: np.random.Generator, count: int) -> Marks:
        codes = np.repeat(np.arange(groups), variants)
        for _ in range(count):
            score = rng.beta(2, 2, groups)
            attack = rng.random(groups) < score
            told = calibration_error(attack[codes], score[codes], groups=codes)
            middle = told.bins[len(told.bins) // 2]
            yield holds(middle.attack_rate.low, middle.mean_score, middle.attack_rate.high)

    return marks


def true_area(sizes: tuple[Ints, Ints], *, apart: float, max_fpr: float | None) -> float:
    """Return the area that `areas` draws runs of."""
    attacks, benign = (int(each.sum()) for each in sizes)
    cuts = np.linspace(-8.0, 8.0 + apart, 20_001)
    tails = [np.array([math.erfc((c - at) / math.sqrt(2)) / 2 for c in cuts]) for at in (apart, 0)]
    if max_fpr is None:
        precise = attacks * tails[0] / (attacks * tails[0] + benign * tails[1])
        return float(-np.trapezoid(precise, tails[0]))
    rates = np.linspace(0.0, max_fpr, 20_001)
    return float(np.trapezoid(np.interp(rates, tails[1][::-1], tails[0][::-1]), rates))


def areas(sizes: tuple[Ints, Ints], *, icc: float, apart: float, max_fpr: float | None) -> Draw:
    """Runs of an area over thresholds, of normal scores.

    Average precision (`max_fpr` None), the whole ROC curve (1), or a part of it.
    """

    def marks(rng: np.random.Generator, count: int) -> Marks:
        truth = true_area(sizes, apart=apart, max_fpr=max_fpr)
        both = np.concatenate(sizes)
        codes = np.repeat(np.arange(len(both)), both)
        attack = codes < len(sizes[0])
        groups = None if int(both.max()) == 1 else codes
        for _ in range(count):
            score = math.sqrt(icc) * rng.standard_normal(len(both))[codes] + apart * attack
            score += math.sqrt(1 - icc) * rng.standard_normal(len(codes))
            if max_fpr is None:
                precision = average_precision(attack, score, groups=groups)
                yield holds(precision.low, truth, precision.high)
                continue
            told = partial_auc(attack, score, max_fpr=max_fpr, groups=groups)
            if max_fpr == 1:
                told = auc(attack, score, groups=groups).ratio
            yield holds(told.low, truth, told.high)

    return marks


def area_gaps(sizes: tuple[Ints, Ints], *, icc: float, apart: tuple[float, float]) -> Draw:
    """Runs of the difference of two areas whose scores are alike in part, of normal scores."""
    first, second = (math.erfc(-each / 2) / 2 for each in apart)

    def marks(rng: np.random.Generator, count: int) -> Marks:
        both = np.concatenate(sizes)
        codes = np.repeat(np.arange(len(both)), both)
        attack = codes < len(sizes[0])
        for _ in range(count):
            shared = rng.standard_normal(len(both))[codes]
            scores = [
                math.sqrt(icc) * shared + math.sqrt(1 - icc) * rng.standard_normal(len(codes))
                for _ in apart
            ]
            told = compare_auc(
                attack,
                scores[0] + apart[0] * attack,
                second=scores[1] + apart[1] * attack,
                groups=codes,
            ).difference
            yield holds(told.low, first - second, told.high)

    return marks


def agreements(sizes: Ints, *, unsafe: float, right: float, icc: float, is_alpha: bool) -> Draw:
    """Runs of the agreement of two raters who are right this often, alike within a group in part.

    Runs in which both agree throughout have no interval, and are drawn anew.
    """
    marked = unsafe * right + (1 - unsafe) * (1 - right)
    chance = marked**2 + (1 - marked) ** 2
    truth = (right**2 + (1 - right) ** 2 - chance) / (1 - chance)
    codes = np.repeat(np.arange(len(sizes)), sizes)

    def one(rng: np.random.Generator) -> tuple[float | None, float | None]:
        def shared(probability: float) -> Flags:
            of_group = rng.random(len(sizes))[codes]
            own = rng.random(len(codes))
            drawn: Flags = np.where(rng.random(len(codes)) < icc, of_group, own) < probability
            return drawn

        labels = shared(unsafe)
        raters = [(labels ^ shared(1 - right)).tolist() for _ in range(2)]
        if is_alpha:
            alpha = krippendorff_alpha(raters, groups=codes)
            return alpha.low, alpha.high
        kappa = clustered_kappa(*raters, groups=codes)
        return kappa.low, kappa.high

    def marks(rng: np.random.Generator, count: int) -> Marks:
        for _ in range(count):
            low, high = one(rng)
            while low is None:
                low, high = one(rng)
            yield holds(low, truth, high)

    return marks


def probabilities(groups: int, variants: int, *, claimed: float, is_error: bool) -> Draw:
    """Runs of the Brier score, or of the ECE; scores lie `claimed` times as far from 1/2 as true."""

    def one(rng: np.random.Generator, count: int) -> tuple[NDArray[np.bool_], Floats, Ints]:
        codes = np.repeat(np.arange(count), variants)
        rate = rng.beta(2, 2, count)
        attack = rng.random(count) < rate
        score = rate[codes] + (0.05 * rng.standard_normal(len(codes)) if variants > 1 else 0.0)
        return attack[codes], np.clip(0.5 + claimed * (score - 0.5), 0.0, 1.0), codes

    def marks(rng: np.random.Generator, count: int) -> Marks:
        attack, score, _ = one(rng, 200_000)
        truth = float(((score - attack) ** 2).mean())
        if is_error:
            of_bin = np.minimum(np.floor(10 * score), 9).astype(np.int64)
            truth = float(np.abs(np.bincount(of_bin, weights=score - attack)).sum()) / len(score)
        for _ in range(count):
            attack, score, codes = one(rng, groups)
            shared = codes if variants > 1 else None
            if is_error:
                error = calibration_error(attack, score, groups=shared)
                yield holds(error.low, truth, error.high)
            else:
                told = brier(attack, score, groups=shared)
                yield holds(told.low, truth, told.high)

    return marks


def chance(groups: int, variants: int) -> Draw:
    """Runs of the error that chance alone shows: within a fifth of its true mean."""

    def marks(rng: np.random.Generator, count: int) -> Marks:
        codes = np.repeat(np.arange(groups), variants)
        seen, said = [], []
        for _ in range(count):
            score = rng.beta(2, 2, groups)
            attack = rng.random(groups) < score
            told = calibration_error(attack[codes], score[codes], groups=codes)
            seen.append(told.value or 0.0)
            said.append(told.reference or 0.0)
        yield from (abs(each / float(np.mean(seen)) - 1) < 0.2 for each in said)

    return marks


def tries(attacks: int, budget: int, *, k: int, variants: int) -> Draw:
    """Runs of ASR@k, the chance of a try differing between attacks, and less within a group."""
    a, b = 0.3, 2.0
    # By the mean over many attacks of the chance that none of k tries gets through.
    truth = 1 - math.exp(
        math.lgamma(b + k) - math.lgamma(a + b + k) - math.lgamma(b) + math.lgamma(a + b)
    )

    def marks(rng: np.random.Generator, count: int) -> Marks:
        codes = np.repeat(np.arange(attacks // variants), variants)
        for _ in range(count):
            wins = rng.binomial(budget, rng.beta(a, b, attacks // variants)[codes])
            told = attack_success_at(np.full(len(codes), budget), wins, k=k, groups=codes)
            yield holds(told.low, truth, told.high)

    return marks


def waits_for_bypass(sizes: Ints, *, budget: int, given_up: float) -> Draw:
    """Runs of the mean tries up to a budget, some attacks given up at a time of their own."""

    def one(rng: np.random.Generator, count: Ints) -> tuple[Floats, Flags, Ints]:
        codes = np.repeat(np.arange(len(count)), count)
        chances = rng.beta(0.3, 2.0, len(count))[codes]
        firsts = rng.geometric(np.maximum(chances, 1e-9)).astype(float)
        ends = np.where(
            rng.random(len(codes)) < given_up, rng.integers(1, budget, len(codes)), budget
        )
        return np.minimum(firsts, ends), firsts <= ends, codes

    def marks(rng: np.random.Generator, count: int) -> Marks:
        chances = np.maximum(rng.beta(0.3, 2.0, 2_000_000), 1e-9)
        truth = float(((1 - (1 - chances) ** budget) / chances).mean())
        for _ in range(count):
            times, bypassed, codes = one(rng, sizes)
            told = restricted_mean(times, bypassed, horizon=float(budget), groups=codes)
            yield holds(told.low, truth, told.high)

    return marks


def shares_that_hold(sizes: Ints, *, after: int, budget: int) -> Draw:
    """Runs of the share of attacks that still hold after so many tries, by the survival curve."""

    def marks(rng: np.random.Generator, count: int) -> Marks:
        chances = rng.beta(0.3, 2.0, 2_000_000)
        truth = float(((1 - chances) ** after).mean())
        codes = np.repeat(np.arange(len(sizes)), sizes)
        for _ in range(count):
            odds = rng.beta(0.3, 2.0, len(sizes))[codes]
            firsts = rng.geometric(np.maximum(odds, 1e-9))
            points = kaplan_meier(np.minimum(firsts, budget), firsts <= budget, groups=codes).points
            told = [each for each in points if each.time <= after]
            yield bool(told) and holds(told[-1].low, truth, told[-1].high)

    return marks


def curves(attacks: int, variants: int, *, budget: int = 32) -> Draw:
    """Runs of the area under ASR@k, of attacks whose chance a try differs between groups."""

    def areas_drawn(rng: np.random.Generator, groups: int) -> tuple[Ints, Flags]:
        chances = np.repeat(rng.beta(0.3, 2.0, groups), variants)
        firsts = rng.geometric(np.maximum(chances, 1e-9))
        return np.minimum(firsts, budget), firsts <= budget

    def marks(rng: np.random.Generator, count: int) -> Marks:
        firsts, reached = areas_drawn(rng, 400_000 // variants)
        truth = float(areas_of(firsts, reached, budget=budget).mean())
        codes = np.repeat(np.arange(attacks // variants), variants)
        for _ in range(count):
            firsts, reached = areas_drawn(rng, attacks // variants)
            told = success_area(firsts, reached, budget=budget, groups=codes)
            yield holds(told.low, truth, told.high)

    return marks


def seeds(groups: int, variants: int, *, count_seeds: int, luck: float) -> Draw:
    """Runs of a rate over seeds of a search, each of which has its own luck."""

    def marks(rng: np.random.Generator, count: int) -> Marks:
        codes = np.repeat(np.arange(groups), variants)
        of_seeds = rng.normal(-1.0, luck, 200_000)[:, None] + rng.normal(0.0, 1.5, 200_000)[:, None]
        truth = float((1 / (1 + np.exp(-of_seeds))).mean())
        for _ in range(count):
            level = (
                rng.normal(-1.0, luck, count_seeds) + rng.normal(0.0, 1.5, groups)[codes][:, None]
            )
            told = share_over_seeds(rng.random(level.shape) < 1 / (1 + np.exp(-level)), codes)
            yield holds(told.low, truth, told.high)

    return marks


def beyond(attacks: int, budget: int, *, immune: float, a: float, b: float) -> Draw:
    """Runs of ASR at four times the tries, a share of attacks immune: any shown interval holds."""
    k = 4 * budget
    spared = math.lgamma(b + k) - math.lgamma(a + b + k) - math.lgamma(b) + math.lgamma(a + b)
    truth = (1 - immune) * (1 - math.exp(spared))

    def marks(rng: np.random.Generator, count: int) -> Marks:
        for _ in range(count):
            chances = rng.beta(a, b, attacks) * (rng.random(attacks) >= immune)
            told = extrapolate_success([budget] * attacks, rng.binomial(budget, chances), k=k)
            yield any(holds(each.low, truth, each.high) for _, each in told.shown)

    return marks


def highest(slices: int, *, groups: int, variants: int, kind: str) -> Draw:
    """Runs of the slice chosen as the highest of many, of sizes that differ."""

    def truth(rng: np.random.Generator) -> Floats:
        if kind == "one bad":
            return np.where(np.arange(slices) == 0, 0.4, 0.1)
        return np.full(slices, 0.2) if kind == "alike" else rng.beta(3.8, 15.2, slices)

    def marks(rng: np.random.Generator, count: int) -> Marks:
        for _ in range(count):
            rates, told = truth(rng), []
            for rate in rates.tolist():
                sizes = np.full(rng.integers(groups // 2, 3 * groups // 2 + 1), variants)
                told.append(
                    effective_counts(summarise(events_of(rng, sizes, rate=rate, icc=0.5), sizes))
                )
            chosen = rate_of_chosen(told)
            if chosen is None:
                yield False
                continue
            yield holds(chosen.rate.low, rates[chosen.at].item(), chosen.rate.high)

    return marks


def crossed(tasks: int, injections: int, *, rate: float) -> Draw:
    """Runs of tasks times injections, of which injections differ; the group is the injection."""

    def marks(rng: np.random.Generator, count: int) -> Marks:
        for _ in range(count):
            of_injection = rng.beta(rate * 2, (1 - rate) * 2, injections)
            of_task = rng.beta(rate * 40, (1 - rate) * 40, tasks)
            odds = np.clip(of_injection[:, None] + of_task[None, :] - rate, 0.0, 1.0)
            events = (rng.random((injections, tasks)) < odds).sum(axis=1)
            told = wilson_default(events, alike(injections, tasks))
            yield holds(told.low, rate, told.high)

    return marks


def extreme(
    parts: int, *, attacks: int, rate: float, shared: float, is_lowest: bool = False
) -> Draw:
    """Runs of the highest, or lowest, rate of alike parts, which agree on a share of the attacks."""

    def marks(rng: np.random.Generator, count: int) -> Marks:
        for _ in range(count):
            common = rng.random(attacks) < rate
            own = rng.random((parts, attacks)) < rate
            passed = np.where(rng.random((parts, attacks)) < shared, common, own).sum(axis=1)
            told = [EffectiveCounts.of(wilson_default_rows(int(x), attacks)) for x in passed]
            at = int(passed.argmin() if is_lowest else passed.argmax())
            chosen = rate_of_chosen(told, at=at, is_lowest=is_lowest, shares_samples=True)
            yield chosen is not None and holds(chosen.rate.low, rate, chosen.rate.high)

    return marks


CELLS: Final = (
    *(
        SoakCell(
            figure="crossed rows, the factor with fewer values as the group",
            setting=f"{tasks} tasks, {injections} injections, rate {rate:g}",
            marks=crossed(tasks, injections, rate=rate),
        )
        for tasks, injections in ((40, 8), (40, 20))
        for rate in (0.2, 0.5)
    ),
    *(
        SoakCell(
            figure="lowest ASR of alike defenses",
            setting=f"{defenses} defenses, 400 attacks, rate {rate:g}, {shared:.0%} agreed on",
            marks=extreme(defenses, attacks=400, rate=rate, shared=shared, is_lowest=True),
            runs=FEW,
        )
        for defenses in (6, 10, 30)
        for rate, shared in ((0.2, 0.0), (0.2, 0.5))
    ),
    *(
        SoakCell(
            figure="trick that gets most through, of alike operators",
            setting=f"{operators} operators, {blocked} blocked, rate {rate:g}, {shared:.0%} agreed on",
            marks=extreme(operators, attacks=blocked, rate=rate, shared=shared),
            runs=FEW,
        )
        for operators, blocked in ((6, 100), (12, 100), (30, 300))
        for rate, shared in ((0.1, 0.0), (0.3, 0.5))
    ),
    *(
        SoakCell(
            figure=f"highest of {slices} slices",
            setting=f"{kind}, about {groups} groups of {variants}",
            marks=highest(slices, groups=groups, variants=variants, kind=kind),
            runs=FEW,
        )
        for slices in (5, 10, 20, 40)
        for groups, variants in ((40, 1), (30, 5))
        for kind in ("alike", "spread", "one bad")
    ),
    *(
        SoakCell(
            figure="rate, giant group",
            setting=f"{groups} groups, one with half the rows, ICC {icc}",
            marks=rates(giant(groups, 0.5), rate=0.1, icc=icc),
        )
        for groups in (20, 50)
        for icc in (0.3, 0.8)
    ),
    *(
        SoakCell(
            figure="mean of the groups' own rates",
            setting=f"{setting}, ICC {icc}, rate {rate:g}",
            marks=group_means(sizes, rate=rate, icc=icc),
        )
        for setting, sizes in (("21 skewed groups", skewed(21)), ("100 groups of 5", alike(100, 5)))
        for rate, icc in ((0.1, 0.5), (0.3, 0.3))
    ),
    *(
        SoakCell(
            figure="rate weighed to a stated mix",
            setting=f"{setting}, rates {odds[0]:g} and {odds[1]:g}, the second {share:.0%} of traffic",
            marks=mixes(sizes, share=share, odds=odds, icc=icc),
        )
        for setting, sizes, icc in (
            ("300 and 40 samples", (alike(300, 1), alike(40, 1)), 0.0),
            ("60 and 40 groups of 5, ICC 0.5", (alike(60, 5), alike(40, 5)), 0.5),
        )
        for odds, share in (((0.1, 0.5), 0.9), ((0.02, 0.05), 0.8), ((0.3, 0.3), 0.2))
    ),
    *(
        SoakCell(
            figure="PPV" if is_positive else "NPV",
            setting=f"{groups} groups of 10 a side, ICC {icc}",
            marks=values(np.full(groups, 10), is_positive=is_positive, icc=icc),
        )
        for groups, icc in ((40, 0.3), (100, 0.7))
        for is_positive in (True, False)
    ),
    *(
        SoakCell(
            figure="PPV, a cell often empty" if is_positive else "NPV, a cell often empty",
            setting=f"{groups} groups of {size} a side",
            marks=values(
                alike(groups, size), is_positive=is_positive, icc=icc, hits=0.97, alarms=0.01
            ),
        )
        for groups, size, icc in ((60, 1, 0.0), (40, 5, 0.5))
        for is_positive in (True, False)
    ),
    *(
        SoakCell(
            figure=each.name,
            setting=f"{groups} skewed groups a side, ICC 0.5",
            marks=figures(each, skewed(groups), icc=0.5),
        )
        for each in (BALANCED_ERROR, F1, YOUDEN, CORRELATION, PRECISION)
        for groups in (21, 70)
    ),
    *(
        SoakCell(
            figure="judge-corrected ASR" + ", repeats judged alike" * (errors > 0),
            setting=f"{groups} x {repeats}, ICC {icc:g}",
            marks=judged(groups, repeats, icc=icc, alike_errors=errors),
        )
        for errors in (0.0, 0.5)
        for groups, repeats, icc in ((112, 12, 0.5), (40, 10, 0.7))
    ),
    *(
        SoakCell(
            figure=f"latency p{100 * quantile:g}",
            setting=f"{setting}, {between:.0%} of the variance between",
            marks=waits(sizes, quantile=quantile, between=between),
        )
        for setting, sizes, quantile in (
            ("60 samples x 5", alike(60, 5), 0.5),
            ("400 samples x 5", alike(400, 5), 0.5),
            ("80 samples x 5", alike(80, 5), 0.95),
            ("400 samples x 5", alike(400, 5), 0.95),
            ("100 groups, one with three tenths of the rows", giant(100, 0.3), 0.5),
        )
        for between in (0.5, 0.9)
    ),
    *(
        SoakCell(
            figure=f"latency p{100 * quantile:g} in call order",
            setting=f"{calls:,} calls, log times of correlation {rho:g}",
            marks=spells(calls, quantile=quantile, rho=rho),
            runs=1_000,
        )
        for calls, rho in ((1_000, 0.3), (1_000, 0.6), (1_000, 0.9), (3_000, 0.9))
        for quantile in (0.5, 0.95)
    ),
    *(
        SoakCell(
            figure=f"latency p{100 * quantile:g} in call order",
            setting="1,000 calls, half of the variance of correlation 0.9, half of each call's own",
            marks=spells(1_000, quantile=quantile, rho=0.9, noise=0.5),
            runs=1_000,
        )
        for quantile in (0.5, 0.95)
    ),
    *(
        SoakCell(
            figure=f"latency p{100 * quantile:g} in call order",
            setting=f"{calls:,} calls, {slow:.0%} of them in spells of 20, five times as slow",
            marks=spells(calls, quantile=quantile, slow=slow),
            runs=1_000,
        )
        for calls, slow in ((1_000, 0.2), (3_000, 0.2), (1_000, 0.1), (3_000, 0.1), (2_000, 0.05))
        for quantile in (0.5, 0.95)
    ),
    *(
        SoakCell(
            figure=f"latency p{100 * quantile:g} in call order, some call was in a spell",
            setting=f"{calls:,} calls, 5% of them in spells of 20, five times as slow",
            marks=spells(calls, quantile=quantile, slow=0.05, is_seen=True),
            runs=1_000,
        )
        for calls in (1_000, 3_000)
        for quantile in (0.5, 0.95)
    ),
    *(
        SoakCell(
            figure="median difference of times in call order",
            setting=f"{calls:,} pairs, correlation {rho:g}, {'one order' if is_one else 'an order each'}",
            marks=median_gaps(calls, rho=rho, is_one_order=is_one),
            runs=1_000,
        )
        for calls, rho in ((1_000, 0.0), (1_000, 0.6), (1_000, 0.9))
        for is_one in (True, False)
    ),
    *(
        SoakCell(
            figure="standard error of repeats",
            setting=f"{groups} groups of {variants}, 5 repeats, rate 0.3",
            marks=errors_of_repeats(groups, variants, repeats=5),
            runs=1_000,
        )
        for groups, variants in ((100, 1), (60, 5), (40, 12))
    ),
    SoakCell(
        figure="calibration bin", setting="200 groups of 5, one label", marks=bins(200, 5), runs=FEW
    ),
    SoakCell(
        figure="ECE by chance", setting="200 groups of 5, one label", marks=chance(200, 5), runs=FEW
    ),
    *(
        SoakCell(
            figure=f"ASR@{k}",
            setting=f"{attacks} attacks in groups of {variants}, 20 tries",
            marks=tries(attacks, 20, k=k, variants=variants),
        )
        for attacks, variants in ((50, 1), (60, 3))
        for k in (1, 10)
    ),
    *(
        SoakCell(
            figure="mean tries up to the budget" + (", some given up" if given_up else ""),
            setting=f"{setting}, budget 32",
            marks=waits_for_bypass(sizes, budget=32, given_up=given_up),
            runs=1_000 if not given_up else FEW,
        )
        for given_up in (0.0, 0.2)
        for setting, sizes in (
            ("60 attacks alone", alike(60, 1)),
            ("40 groups of 5", alike(40, 5)),
            ("30 groups of 12", alike(30, 12)),
            ("70 skewed groups", skewed(70)),
        )
    ),
    *(
        SoakCell(
            figure="share that holds after 8 tries",
            setting=f"{setting}, budget 32",
            marks=shares_that_hold(sizes, after=8, budget=32),
        )
        for setting, sizes in (
            ("60 attacks alone", alike(60, 1)),
            ("40 groups of 5", alike(40, 5)),
            ("30 groups of 12", alike(30, 12)),
            ("70 skewed groups", skewed(70)),
        )
    ),
    *(
        SoakCell(
            figure="area under ASR@k",
            setting=f"{attacks} attacks in groups of {variants}, 32 tries",
            marks=curves(attacks, variants),
        )
        for attacks, variants in ((50, 1), (60, 3), (200, 5))
    ),
    *(
        SoakCell(
            figure="rate over seeds",
            setting=f"{groups} groups of {variants}, {count} seeds, their luck {luck:g}",
            marks=seeds(groups, variants, count_seeds=count, luck=luck),
        )
        for groups, variants, count, luck in ((50, 1, 5, 0.0), (40, 3, 5, 0.5), (40, 3, 10, 0.5))
    ),
    *(
        SoakCell(
            figure="extrapolated ASR",
            setting=f"{attacks} attacks, {budget} tries to {4 * budget}, {immune:.0%} immune, Beta({a:g}, {b:g})",
            marks=beyond(attacks, budget, immune=immune, a=a, b=b),
            runs=FEW,
        )
        for attacks, budget, immune, a, b in (
            (100, 16, 0.0, 0.3, 3.0),
            (100, 16, 0.0, 2.0, 20.0),
            (100, 16, 0.4, 1.0, 4.0),
            (60, 64, 0.5, 0.5, 6.0),
        )
    ),
    *(
        SoakCell(
            figure="difference of two AUC",
            setting=f"{setting}, {'alike' if apart[0] == apart[1] else 'apart'}",
            marks=area_gaps(sizes, icc=0.5, apart=apart),
            runs=1_000,
        )
        for setting, sizes in (
            ("15 groups of 6 a side", (alike(15, 6), alike(15, 6))),
            ("100 groups of 2 a side", (alike(100, 2), alike(100, 2))),
            ("70 skewed groups a side", (skewed(70), skewed(70))),
            ("30 groups a side, one with half the rows", (giant(30, 0.5), giant(30, 0.5))),
        )
        for apart in ((1.5, 1.5), (2.0, 1.0))
    ),
    *(
        SoakCell(
            figure="Krippendorff's alpha" if is_alpha else "kappa",
            setting=f"{setting}, {unsafe:.0%} unsafe, raters right in {right:.0%}",
            marks=agreements(sizes, unsafe=unsafe, right=right, icc=0.5, is_alpha=is_alpha),
            runs=1_000,
        )
        for is_alpha in (False, True)
        for setting, sizes in (
            ("20 groups of 5", alike(20, 5)),
            ("60 samples alone", alike(60, 1)),
            ("70 skewed groups", skewed(70)),
            ("30 groups, one with half the rows", giant(30, 0.5)),
        )
        for unsafe, right in ((0.5, 0.9), (0.1, 0.95), (0.5, 0.97))
    ),
    *(
        SoakCell(
            figure=figure,
            setting=setting,
            marks=areas(sizes, icc=icc, apart=apart, max_fpr=most),
            runs=1_000,
        )
        for setting, sizes, icc, apart in (
            ("50 attacks, 50 benign", (alike(50, 1), alike(50, 1)), 0.0, 1.5),
            ("40 attacks, 160 benign", (alike(40, 1), alike(160, 1)), 0.0, 2.5),
            ("40 groups of 10 a side, ICC 0.7", (alike(40, 10), alike(40, 10)), 0.7, 1.5),
            ("100 groups of 5 a side, ICC 0.5", (alike(100, 5), alike(100, 5)), 0.5, 2.0),
            ("70 skewed groups a side, ICC 0.5", (skewed(70), skewed(70)), 0.5, 1.5),
            ("50 groups a side, one with half the rows, ICC 0.5", (giant(50, 0.5),) * 2, 0.5, 1.5),
        )
        for figure, most in (
            ("average precision", None),
            ("AUC", 1.0),
            ("partial AUC to FPR 0.1", 0.1),
        )
        # Below 10 / FPR benign samples there are no limits.
        if most != 0.1 or int(sizes[1].sum()) >= 100
    ),
    *(
        SoakCell(
            figure="AUC, classes of unlike size",
            setting=f"{attacks} attacks, {benign} benign, {apart:g} apart",
            marks=areas((alike(attacks, 1), alike(benign, 1)), icc=0.0, apart=apart, max_fpr=1.0),
            runs=1_000,
        )
        for attacks, benign in ((10, 500), (500, 10), (15, 300))
        for apart in (1.0, 2.0, 3.0)
    ),
    *(
        SoakCell(
            figure="partial AUC to FPR 0.1",
            setting=f"{attacks} attacks, {benign} benign",
            marks=areas((alike(attacks, 1), alike(benign, 1)), icc=0.0, apart=2.0, max_fpr=0.1),
            runs=1_000,
        )
        for attacks, benign in ((100, 100), (300, 100))
    ),
    *(
        SoakCell(
            figure="ECE" if is_error else "Brier score",
            setting=f"{groups} groups of {variants}, {kind}",
            marks=probabilities(groups, variants, claimed=claimed, is_error=is_error),
            runs=FEW if is_error else 600,
        )
        for groups, variants in ((100, 1), (400, 1), (40, 10), (100, 5))
        for kind, claimed in (("calibrated", 1.0), ("too sure", 1.5))
        for is_error in (False, True)
    ),
)


SHORT: Final = [
    next(each for each in CELLS if each.name.startswith(name))
    for name in (
        "PPV, 40",
        "rate, giant group, 20",
        "balanced error, 21",
        "judge-corrected ASR, 40",
        "latency p50, 60",
        "ASR@1, 60",
    )
]


@pytest.mark.parametrize("cell", SHORT, ids=lambda cell: cell.name)
def test_an_interval_beside_the_rate_holds_what_it_promises(cell: SoakCell) -> None:
    """A few cells that failed before rows counted as what they are worth."""
    assert cell.keeps(cell.draw(100))
