"""Whether a score of 0.8 means that four in five such samples are attacks.

`labels` are true for an attack, `scores` read as probabilities, both of shape (n,). Unequal
lengths, another label, a NaN or a bad option raise `ValueError`; without samples, or with scores
outside [0, 1], figures are undefined.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from guardmark.core.values import dataclass
from guardmark.stats.arguments import group_column, require_fraction, scored_samples
from guardmark.stats.distributions import two_sided_t, two_sided_z
from guardmark.stats.rates.clustered import EffectiveCounts, group_freedom, wilson_default
from guardmark.stats.rates.means import share_limits
from guardmark.stats.rates.proportion import Limits, wilson

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from guardmark.core.estimate import Estimate
    from guardmark.stats.arguments import Flags, Floats, Ints

Binning = Literal["equal_width", "equal_mass"]
_NO_SAMPLES = "no samples"
_NO_PROBABILITY = "calibration needs scores in [0, 1], read as probabilities"
_NORMAL_FROM_VARIANCE = 25.0
_FREQUENCIES = 128
_MOST_CELLS = 2_000_000
_CELLS_AT_ONCE = 100_000
_LIMIT_DRAWS = 2000
_CLEAR = 3.0  # standard errors from which the sign of a gap is taken for known


@dataclass(frozen=True, slots=True, kw_only=True)
class Brier:
    """Brier score with Murphy's decomposition over bins.

    value = reliability - resolution + uncertainty + within_bins, to rounding.

    Attributes:
        value: Mean squared distance of score and label, in [0, 1]; None when undefined.
        low: Lower limit of the value, or None without an interval.
        high: Upper limit, or None without an interval.
        confidence: Nominal coverage of the interval, in (0, 1).
        method: Name of the interval.
        reliability: Distance of the bins' mean scores from their attack rates; 0 is best.
        resolution: Spread of the bins' attack rates; higher is better.
        uncertainty: Variance of the labels; a property of the data alone.
        within_bins: What the bins hide: spread of scores inside a bin less twice their covariance
            with the labels. 0 when every bin holds one score.
        trials: Samples behind it.
        bins: Bins with samples.
        reason: Why the value or its interval is undefined, or empty.
    """

    value: float | None = None
    low: float | None = None
    high: float | None = None
    confidence: float
    method: str
    reliability: float | None = None
    resolution: float | None = None
    uncertainty: float | None = None
    within_bins: float | None = None
    trials: int
    bins: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationBin:
    """The samples whose scores fall together.

    Attributes:
        low: Lowest score in the bin.
        high: Highest score in the bin.
        mean_score: What the defense claims.
        attack_rate: Share of attacks in the bin, with its Wilson interval and counts.
    """

    low: float
    high: float
    mean_score: float
    attack_rate: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationError:
    """Expected calibration error, beside what chance alone would show.

    Attributes:
        value: Mean gap of claimed and true attack rate over bins, weighted by samples, in [0, 1];
            None when undefined.
        low: Lower limit of the value, or None without an interval.
        high: Upper limit, or None without an interval.
        confidence: Nominal coverage of the interval, in (0, 1).
        method: Name of the interval.
        reference: What a perfectly calibrated defense with these scores would show on average at
            this number of samples; None when undefined.
        corrected: Value less reference, floored at 0; None when undefined.
        largest_gap: Largest gap of any bin, or None when undefined.
        bins: Bins that hold samples, by rising score.
        binning: How the bins were cut.
        trials: Samples behind it.
        reason: Why the value or its interval is undefined, or empty.
    """

    value: float | None = None
    low: float | None = None
    high: float | None = None
    confidence: float
    method: str = "bins drawn by their variance between groups"
    reference: float | None = None
    corrected: float | None = None
    largest_gap: float | None = None
    bins: tuple[CalibrationBin, ...] = ()
    binning: Binning
    trials: int
    reason: str = ""


def brier(
    labels: ArrayLike,
    scores: ArrayLike,
    *,
    bins: int | None = 10,
    groups: ArrayLike | None = None,
    confidence: float = 0.95,
) -> Brier:
    """Measure the mean squared error of scores read as probabilities.

    The decomposition is over `bins` of equal width; None takes each distinct score as a bin, which
    suits scores with few values. The limits are those of a mean of figures in [0, 1] by group
    (`share_limits`); `groups` None: every sample alone.
    Source: Brier (1950); Murphy (1973); Stephenson, Coelho & Jolliffe (2008), Weather and
    Forecasting 23:752, for what bins hide.
    """
    attack, score = scored_samples(labels, scores)
    reason = _refusal(score)
    if bins is not None:
        _require_bins(bins)
    codes, method = group_column(groups, len(attack)), "wilson at effective rows"
    if reason:
        return Brier(trials=len(attack), confidence=confidence, method=method, reason=reason)
    of_row = _by_width(score, bins) if bins else np.unique(score, return_inverse=True)[1]
    sizes = np.bincount(of_row)
    used = np.flatnonzero(sizes)
    sizes = sizes[used]
    claimed = np.bincount(of_row, weights=score)[used] / sizes
    actual = np.bincount(of_row, weights=attack)[used] / sizes
    base = float(attack.mean())
    squared = (score - attack) ** 2
    value, limits = float(squared.mean()), share_limits(squared, codes, confidence=confidence)
    reliability = float(sizes @ (claimed - actual) ** 2) / len(score)
    resolution = float(sizes @ (actual - base) ** 2) / len(score)
    return Brier(
        value=value,
        low=limits.low,
        high=limits.high,
        confidence=require_fraction("confidence", confidence),
        method=method,
        reliability=reliability,
        resolution=resolution,
        uncertainty=base * (1 - base),
        within_bins=value - reliability + resolution - base * (1 - base),
        trials=len(score),
        bins=len(used),
        reason=limits.reason,
    )


def calibration_error(
    labels: ArrayLike,
    scores: ArrayLike,
    *,
    bins: int = 10,
    binning: Binning = "equal_width",
    groups: ArrayLike | None = None,
    confidence: float = 0.95,
) -> CalibrationError:
    """Measure the expected calibration error over bins.

    The error is biased upwards: even a perfectly calibrated defense shows one, the larger the fewer
    samples a bin holds. The reference says how large.

    Args:
        labels: True for an attack, shape (n,).
        scores: Probability of being an attack, shape (n,), each in [0, 1].
        bins: How many bins, at least 1.
        binning: `equal_width`: a score p falls into bin min(floor(p * bins), bins - 1).
            `equal_mass`: bins of nearly equal size; equal scores stay together.
        groups: Group of each sample, shape (n,); None: every sample alone. Bins then have the
            default interval of grouped rows, and chance draws the label once for all rows of a
            group that share it.
        confidence: Nominal coverage of the intervals, in (0, 1).

    Returns:
        The error and its bins. The upper limit is Student's t on the gaps with the signs that were
        seen, which overstate the error on average; the lower one allows for that: it is drawn as if
        every gap that could be none (below `_CLEAR` standard errors) were none. No limits with
        fewer than two groups.

    Source: Naeini, Cooper & Hauskrecht (2015); Kumar, Liang & Ma (2019) and Roelofs et al. (2022)
    for the bias. The reference value of samples that stand alone is exact: each bin's count of
    attacks is a sum of independent labels with the claimed probabilities. In a group one uniform
    number decides, a row being an attack where it lies below its score. The lower limit selects
    gaps as Andrews & Soares (2010), doi:10.3982/ECTA7502, do moments.
    """
    require_fraction("confidence", confidence)
    _require_bins(bins)
    attack, score = scored_samples(labels, scores)
    reason = _refusal(score)
    if binning not in {"equal_width", "equal_mass"}:
        raise ValueError(f"binning must be equal_width or equal_mass, got {binning}")
    if reason:
        return CalibrationError(
            binning=binning, trials=len(attack), confidence=confidence, reason=reason
        )
    codes = None if groups is None else group_column(groups, len(attack))
    # Variants share a label: rows of one group with another label are drawn apart.
    shared = None if codes is None else 2 * codes + attack
    parts = _parts(_by_width(score, bins) if binning == "equal_width" else _by_mass(score, bins))
    filled, gaps, chance = list[CalibrationBin](), list[float](), 0.0
    of_row = np.empty(len(score), dtype=np.int64)
    for at, part in enumerate(parts):
        of_row[part] = at
        labelled, claimed = attack[part], score[part]
        own = None if codes is None else codes[part]
        filled.append(_bin(labelled, claimed, own, confidence))
        gaps.append(abs(float(claimed.mean() - labelled.mean())))
        chance += _chance_gap(claimed, None if shared is None else shared[part])
    value = sum(len(part) * gap for part, gap in zip(parts, gaps, strict=True)) / len(score)
    reference = chance / len(score)
    table = _by_group(score - attack, of_row, group_column(codes, len(score)))
    limits = _error_limits(value, table, filled, confidence)
    return CalibrationError(
        value=value,
        low=limits and limits.low,
        high=limits and limits.high,
        confidence=confidence,
        reference=reference,
        corrected=max(0.0, value - reference),
        largest_gap=max(gaps),
        bins=tuple(filled),
        binning=binning,
        trials=len(score),
        reason="" if limits else "an interval needs two groups",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gaps:
    """The mean gap of each bin over all samples, its covariance, and Student's t."""

    means: Floats
    covariance: Floats
    freedom: float | None


def _by_group(gaps: Floats, of_row: Ints, codes: Ints) -> _Gaps | None:
    """Return the covariance between groups (CR1) of what each bin adds; None with one group."""
    sizes = np.bincount(codes)
    groups, bins, rows = len(sizes), int(of_row.max()) + 1, len(codes)
    if groups < 2:
        return None
    means = np.bincount(of_row, weights=gaps) / rows
    if groups == rows:  # each sample alone: bins never meet in one
        squares = np.bincount(of_row, weights=gaps**2) / rows
        covariance = (np.diag(squares) - np.outer(means, means)) / (rows - 1)
        return _Gaps(means=means, covariance=covariance, freedom=None)
    table = np.bincount(codes * bins + of_row, weights=gaps, minlength=groups * bins)
    around = table.reshape(groups, bins) - np.outer(sizes, means)
    covariance = around.T @ around / rows**2 * groups / (groups - 1)
    return _Gaps(means=means, covariance=covariance, freedom=group_freedom(sizes))


def _error_limits(
    value: float, gaps: _Gaps | None, bins: list[CalibrationBin], confidence: float
) -> Limits | None:
    """Return limits of the weighted sum of the bins' gaps; see `calibration_error`."""
    if gaps is None:
        return None
    rows, floors = sum(each.attack_rate.trials for each in bins), []
    for each in bins:
        # A bin whose labels agree shows no variance: half an event on each side stands in for it.
        counts = EffectiveCounts.of(each.attack_rate)
        worth, events = counts.n_eff or 1.0, counts.rate * (counts.n_eff or 1.0)
        rate = (events + 0.5) / (worth + 1.0)
        floors.append(rate * (1 - rate) / (worth + 1.0) * (counts.trials / rows) ** 2)
    spread = np.sqrt(np.maximum(np.diag(gaps.covariance), floors))
    covariance = gaps.covariance + np.diag(spread**2 - np.diag(gaps.covariance))
    t = two_sided_z(confidence)
    scale = 1.0 if gaps.freedom is None else two_sided_t(confidence, gaps.freedom) / t
    signs = np.where(gaps.means < 0, -1.0, 1.0)
    upper = value + scale * t * float(np.sqrt(signs @ covariance @ signs))
    drawn = np.random.default_rng(0).multivariate_normal(
        np.zeros(len(spread)), covariance, _LIMIT_DRAWS, method="eigh"
    )
    is_clear = np.abs(gaps.means) > _CLEAR * spread
    errors = scale * np.where(is_clear, signs * drawn, np.abs(drawn)).sum(axis=1)
    lower = value - float(np.quantile(errors, (1 + confidence) / 2))
    return Limits(max(0.0, lower), min(1.0, upper))


def _refusal(score: Floats) -> str:
    if not score.size:
        return _NO_SAMPLES
    return _NO_PROBABILITY if score.min() < 0 or score.max() > 1 else ""


def _require_bins(bins: int) -> None:
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins}")


def _by_width(score: Floats, bins: int) -> Ints:
    return np.minimum(np.floor(score * bins), bins - 1).astype(np.int64)


def _by_mass(score: Floats, bins: int) -> Ints:
    # By the middle rank of each distinct score, so that neither the order of the rows nor a tie
    # decides where a sample falls.
    _, of_row, sizes = np.unique(score, return_inverse=True, return_counts=True)
    middle = (np.cumsum(sizes) - sizes / 2) / len(score)
    of_distinct = np.minimum(np.floor(middle * bins), bins - 1).astype(np.int64)
    return of_distinct[of_row]


def _parts(of_row: Ints) -> list[Ints]:
    """Return the rows of each bin that has any, in order."""
    sizes = np.bincount(of_row)
    return np.split(np.argsort(of_row, kind="stable"), np.cumsum(sizes[sizes > 0])[:-1])


def _bin(attack: Flags, score: Floats, codes: Ints | None, confidence: float) -> CalibrationBin:
    rate = wilson(int(attack.sum()), len(attack), confidence=confidence)
    if codes is not None:
        rate = wilson_default(
            np.bincount(codes[attack], minlength=codes.max() + 1),
            np.bincount(codes),
            confidence=confidence,
        )
    return CalibrationBin(
        low=float(score.min()),
        high=float(score.max()),
        mean_score=float(score.mean()),
        attack_rate=rate,
    )


def _chance_gap(score: Floats, shared: Ints | None) -> float:
    """Return E|S - E S| of the attacks in a bin, were each score a true probability."""
    if shared is not None and len(np.unique(shared)) < len(shared):
        return _group_gap(score, shared)
    variance = float(score @ (1 - score))
    if variance > _NORMAL_FROM_VARIANCE:
        return float(np.sqrt(2 * variance / np.pi))
    values, sizes = np.unique(score, return_counts=True)
    mean = float(values @ sizes)
    # The distribution of S modulo 128, from its characteristic function: at a variance of at
    # most 25 a window of 128 counts around the mean holds all of it but 1e-30.
    turn = np.exp(2j * np.pi * np.arange(_FREQUENCIES) / _FREQUENCIES)
    spectrum = np.ones(_FREQUENCIES, dtype=np.complex128)
    for start in range(0, len(values), 4096):
        block = slice(start, start + 4096)
        factors = 1 + values[block, None] * (turn - 1)
        spectrum *= np.prod(factors ** sizes[block, None], axis=0)
    mass = np.fft.fft(spectrum).real / _FREQUENCIES
    first = int(np.floor(mean)) - _FREQUENCIES // 2
    counts = first + np.arange(_FREQUENCIES)
    return float(np.abs(counts - mean) @ np.clip(mass[counts % _FREQUENCIES], 0.0, None))


def _group_gap(score: Floats, shared: Ints) -> float:
    """Return the same where rows of one group share the uniform number that decides.

    Where many groups make up the variance it is that of a normal sum; else it is drawn, seeded.
    """
    order = np.lexsort((score, shared))
    score, codes = score[order], np.unique(shared[order], return_inverse=True)[1]
    sizes = np.bincount(codes)
    after = np.repeat(np.cumsum(sizes), sizes) - np.arange(len(score)) - 1
    # Cov(1[u < a], 1[u < b]) = min(a, b) - a b, and the lower of two is the earlier.
    sums = np.bincount(codes, weights=score)
    variance = float(score @ (2 * after + 1) - sums @ sums)
    if variance > _NORMAL_FROM_VARIANCE * float(sizes.max()) ** 2:
        return float(np.sqrt(2 * variance / np.pi))
    rng = np.random.default_rng(0)
    draws = max(50, min(2000, _MOST_CELLS // len(score)))
    at_once, counts = max(1, _CELLS_AT_ONCE // len(score)), []
    for start in range(0, draws, at_once):
        deciding = rng.random((min(at_once, draws - start), len(sizes)))
        counts.append((deciding[:, codes] < score).sum(axis=1))
    return float(np.abs(np.concatenate(counts) - score.sum()).mean())
