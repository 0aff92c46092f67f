"""How much of the spread comes from asking again, and how much from the samples."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from guardmark.stats.arguments import require_count, require_counts

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatVariance:
    """Variance within and between samples that were each asked equally often.

    Attributes:
        mean: Mean rate, or None without samples.
        standard_error: Of the mean; it covers both parts. None with fewer than two samples.
        within: Variance of one answer around its sample's own rate, or None with one repeat.
        between: Variance of the samples' true rates, floored at 0, or None when undefined.
        icc: Share of `between` in the total, or None when undefined or when nothing varies.
        flip_rate: Share of samples whose answers were not all alike, or None with one repeat.
        disagreement: Chance that two answers to one sample differ, or None with one repeat.
        samples: Samples.
        repeats: Answers per sample.
        reason: Why something is undefined, or empty.
    """

    mean: float | None
    standard_error: float | None
    within: float | None
    between: float | None
    icc: float | None
    flip_rate: float | None
    disagreement: float | None
    samples: int
    repeats: int
    reason: str = ""


def decompose_repeats(successes: ArrayLike, *, repeats: int) -> RepeatVariance:
    """Split the variance of repeated answers into its two parts.

    Args:
        successes: Answers with the property, per sample, shape (k,), each in 0..`repeats`.
        repeats: Answers per sample, at least 1, the same for all.

    Returns:
        The parts of a one-way random effects model. Within and flips need two repeats, between
        needs two samples too; what is undefined is None, with the reason.

    Raises:
        ValueError: If a count is out of range.

    References:
        Miller (2024), arXiv:2411.00640.
    """
    counts = require_counts("successes", successes)
    times = require_count("repeats", repeats)
    if times < 1:
        raise ValueError(f"repeats must be at least 1, got {times}")
    if counts.size and counts.max() > times:
        raise ValueError(f"successes must be in 0..{times}, got {counts.max()}")
    samples = len(counts)
    rates = counts / times
    spread = float(np.var(rates, ddof=1)) if samples >= 2 else None
    within = between = icc = flips = disagreement = None
    if samples and times >= 2:
        within = float(np.mean(rates * (1 - rates))) * times / (times - 1)
        flips = float(np.mean((counts > 0) & (counts < times)))
        disagreement = 2 * within
    if within is not None and spread is not None:
        between = max(0.0, spread - within / times)
        icc = between / (between + within) if between + within else None
    return RepeatVariance(
        mean=float(rates.mean()) if samples else None,
        standard_error=None if spread is None else math.sqrt(spread / samples),
        within=within,
        between=between,
        icc=icc,
        flip_rate=flips,
        disagreement=disagreement,
        samples=samples,
        repeats=times,
        reason=_reason(samples, times),
    )


def best_repeats(variance: RepeatVariance, *, sample_cost: float = 0.0) -> int | None:
    """Find how often to ask each sample for the smallest error.

    Args:
        variance: The two parts, from a pilot; the total cost is held fixed.
        sample_cost: What a new sample costs beside its answers, in answers; not negative.
            At 0 more samples always beat more repeats.

    Returns:
        Answers per sample, at least 1; None where the parts are undefined, or where samples do
        not differ at all, so that a repeat is worth as much as a new sample.

    Raises:
        ValueError: If `sample_cost` is negative.

    References:
        Cochran (1977), Sampling Techniques, section 10.6: the root of cost times within over
        between.
    """
    if not (math.isfinite(sample_cost) and sample_cost >= 0):
        raise ValueError(f"sample_cost must be finite and not negative, got {sample_cost}")
    if variance.within is None or not variance.between:
        return None
    return max(1, round(math.sqrt(sample_cost * variance.within / variance.between)))


def _reason(samples: int, repeats: int) -> str:
    if not samples:
        return "no samples"
    if repeats < 2:
        return "one answer per sample shows no spread within samples"
    return "one sample shows no spread between samples" if samples < 2 else ""
