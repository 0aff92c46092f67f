"""Tests of two defenses on the same samples, from the pairs that differ.

Only discordant pairs speak: those in which the first alone, or the second alone, had the property.
McNemar's mid-p is the default for samples without groups, the sign-flip mid-p for grouped ones;
both agree where every group has one sample. A bad count raises `ValueError`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from guardmark.core.values import dataclass
from guardmark.stats.arguments import require_count, require_counts, require_equal_lengths
from guardmark.stats.distributions import as_p_value, chi_square_upper_tail, log_binomial

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from guardmark.stats.arguments import Floats, Ints

_NO_DISCORDANT = "no discordant pair"
_ALL_CANCEL = "in every group the discordant pairs cancel"


@dataclass(frozen=True, slots=True, kw_only=True)
class McNemar:
    """McNemar's test in its four forms; `p_midp` is the one to report.

    Attributes:
        first_only: Pairs where only the first had the property.
        second_only: Pairs where only the second had it.
        p_exact: Two-sided exact conditional p.
        p_midp: The same with half the probability of the observed split.
        p_chi2: Asymptotic p.
        p_chi2_corrected: Asymptotic p with continuity correction; conservative, for reference.
        reason: Why every p is 1 by convention, or empty.
    """

    first_only: int
    second_only: int
    p_exact: float = 1.0
    p_midp: float = 1.0
    p_chi2: float = 1.0
    p_chi2_corrected: float = 1.0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignFlip:
    """The cluster sign-flip test; `p_midp` is the one to report.

    Attributes:
        statistic: Sum over groups of first-only minus second-only pairs.
        groups: Groups whose difference is not zero: the ones that are flipped.
        p_exact: Two-sided p over all sign assignments.
        p_midp: The same with half the probability of the observed sum.
        reason: Why p is 1 by convention, or empty.
    """

    statistic: int
    groups: int
    p_exact: float
    p_midp: float
    reason: str = ""


def mcnemar(first_only: int, second_only: int) -> McNemar:
    """Test whether two defenses differ on the same, ungrouped samples.

    Without discordant pairs each p is 1 by convention, with the reason.
    Source: Fagerland, Lydersen & Laake (2013), doi:10.1186/1471-2288-13-91, who find the mid-p
    close to nominal and advise against the continuity correction.
    """
    first = require_count("first_only", first_only)
    second = require_count("second_only", second_only)
    pairs, fewer = first + second, min(first, second)
    if pairs == 0:
        return McNemar(first_only=0, second_only=0, reason=_NO_DISCORDANT)
    at = math.exp(log_binomial(pairs, fewer) - pairs * math.log(2.0))
    exact = 1.0 if first == second else 2.0 * _lower_tail_of_half(pairs, fewer, at)
    gap = abs(first - second)
    return McNemar(
        first_only=first,
        second_only=second,
        p_exact=as_p_value(exact),
        p_midp=as_p_value(1.0 - at / 2.0 if first == second else exact - at),
        p_chi2=as_p_value(chi_square_upper_tail(gap**2 / pairs, 1)),
        p_chi2_corrected=as_p_value(chi_square_upper_tail(max(0, gap - 1) ** 2 / pairs, 1)),
    )


def sign_flip(first_only: ArrayLike, second_only: ArrayLike) -> SignFlip:
    """Test whether two defenses differ on the same, grouped samples.

    If the defenses are alike, exchanging them in any group changes nothing, so each group's
    difference might as well have the other sign. The differences are integers, hence the
    distribution of their signed sum is a convolution, exact for any number of groups.

    Both counts have one entry a group. Where no group's difference is non-zero each p is 1 by
    convention, with the reason.
    Source: Fisher (1935), The Design of Experiments, section 21; the mid-p as Lancaster (1961),
    doi:10.1080/01621459.1961.10482105.
    """
    first = require_counts("first_only", first_only)
    second = require_counts("second_only", second_only)
    require_equal_lengths(first_only=len(first), second_only=len(second))
    differences = first - second
    differences = differences[differences != 0]
    if not differences.size:
        reason = _ALL_CANCEL if first.any() else _NO_DISCORDANT
        return SignFlip(statistic=0, groups=0, p_exact=1.0, p_midp=1.0, reason=reason)
    statistic = int(differences.sum())
    sizes, counts = np.unique(np.abs(differences), return_counts=True)
    total = int((sizes * counts).sum())
    beyond, at = _flipped_tail(sizes, counts, (total + abs(statistic)) // 2)
    sides = 2.0 if statistic else 1.0
    exact = 1.0 if statistic == 0 else sides * (beyond + at)
    midp = 1.0 - at / 2.0 if statistic == 0 else sides * beyond + at
    return SignFlip(
        statistic=statistic,
        groups=int(differences.size),
        p_exact=as_p_value(exact),
        p_midp=as_p_value(midp),
    )


def _lower_tail_of_half(trials: int, successes: int, at: float) -> float:
    """Return P(X <= successes) for a fair coin by summing downwards from P(X = successes)."""
    total, term = at, at
    for k in range(successes, 0, -1):
        term *= k / (trials - k + 1)
        total += term
        if term < total * 1e-18:
            break
    return total


def _flipped_tail(sizes: Ints, counts: Ints, observed: int) -> tuple[float, float]:
    """Return P(T > observed) and P(T = observed) for T, the sum of the sizes that fell upwards.

    Each size counts with a fair coin. The convolution is taken through its transform after tilting
    the coins until the observed sum is the expected one; the tilt is undone exactly. So the tail
    keeps its relative precision however small it is, and the transform needs only the width of the
    tilted distribution, not the length of the whole.
    """
    total = int((sizes * counts).sum())
    if observed == total:
        return 0.0, math.exp(-math.log(2.0) * int(counts.sum()))
    weights = sizes.astype(float)
    tilt = _tilt(weights, counts, observed)
    share = 1.0 / (1.0 + np.exp(-tilt * weights))
    width = float(np.sqrt((counts * weights**2 * share * (1.0 - share)).sum()))
    # 14 standard deviations and 64 largest steps to either side leave out less than rounding does.
    length = min(total + 1, int(28 * width) + 128 * int(sizes[-1]) + 128)
    transform = _shifted_transform(sizes, counts, share, length=length, place=observed)
    # The tail follows place 0, where the observed sum lies; what wraps round lies below it.
    density = np.clip(np.fft.irfft(transform, n=length), 0.0, None)
    reach = min(total - observed + 1, length // 2 + 1)
    untilted = density[:reach] * np.exp(-tilt * np.arange(reach))
    log_mass = float((counts * (np.logaddexp(0.0, tilt * weights) - math.log(2.0))).sum())
    scale = math.exp(log_mass - tilt * observed)
    return scale * float(untilted[1:].sum()), scale * float(untilted[0])


def _shifted_transform(
    sizes: Ints, counts: Ints, share: Floats, *, length: int, place: int
) -> NDArray[np.complex128]:
    """Return the half spectrum of the tilted sum, shifted so that `place` lies at 0."""
    frequency = np.arange(length // 2 + 1)
    values = np.exp(2j * np.pi * frequency * (place % length) / length)
    for size, count, up in zip(sizes.tolist(), counts.tolist(), share.tolist(), strict=True):
        turn = np.exp(-2j * np.pi * ((frequency * size) % length) / length)
        values *= (1.0 - up + up * turn) ** count
        # Most frequencies die out after a few factors; what is left is quick to go through.
        alive = np.abs(values) > 1e-25
        frequency, values = frequency[alive], values[alive]
    transform = np.zeros(length // 2 + 1, dtype=np.complex128)
    transform[frequency] = values
    return transform


def _tilt(weights: Floats, counts: Ints, observed: int) -> float:
    """Return the tilt, at least 0, under which the expected sum is the observed one."""
    low, high = 0.0, 1.0

    def expected(tilt: float) -> float:
        return float((counts * weights / (1.0 + np.exp(-tilt * weights))).sum())

    while expected(high) < observed and high < 50.0:
        low, high = high, 2.0 * high
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if expected(middle) < observed else (low, middle)
    return low
