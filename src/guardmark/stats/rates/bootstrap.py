"""Bias-corrected and accelerated bootstrap intervals of figures that are functions of counts.

Such a figure needs no rows: groups with the same counts are one pattern, and a resample is a
multinomial draw of how often each pattern comes up. With too many patterns for that, groups are
drawn by index and their counts summed several columns to a machine word.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from guardmark.core.estimate import Ratio
from guardmark.stats.arguments import require_counts, require_equal_lengths, require_fraction
from guardmark.stats.distributions import normal_quantile
from guardmark.stats.rates.proportion import Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import ArrayLike

    from guardmark.stats.arguments import Floats, Ints

    Figure = Callable[[Floats], Floats]
    # From column totals, shape (n, columns), to the figure, shape (n,); NaN where undefined.

_DRAWS_AT_ONCE = 1 << 20
_DRAW_COST = 25  # a multinomial draw of one pattern costs about as much as 25 draws by index
_FEW_PATTERNS = 64
_WORD_BITS = 62
LEAST_REPLICATES = 2000
"""Fewer replicates leave the ends of a 95 % interval to chance."""
_MOST_UNDEFINED = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Stratum:
    """Groups that are resampled among themselves, as patterns of counts.

    Attributes:
        patterns: Distinct rows of counts, shape (patterns, columns).
        multiplicities: How many groups show each pattern, shape (patterns,).
    """

    patterns: Ints
    multiplicities: Ints

    @property
    def groups(self) -> int:
        """How many groups the stratum holds."""
        return int(self.multiplicities.sum())

    @property
    def totals(self) -> Ints:
        """Sum of each column over the groups."""
        totals: Ints = self.multiplicities @ self.patterns
        return totals


def stratify(columns: ArrayLike, strata: ArrayLike) -> list[Stratum]:
    """Split groups into strata and reduce each to its patterns.

    Args:
        columns: Counts, shape (groups, columns).
        strata: Number of each group's stratum, at least 0, shape (groups,).

    Returns:
        The strata that hold groups, in the order of their numbers.

    Raises:
        ValueError: On a bad count, a bad shape or unequal lengths.
    """
    table = _require_table(columns)
    labels = require_counts("strata", strata)
    require_equal_lengths(columns=len(table), strata=len(labels))
    return [count_patterns(table[labels == label]) for label in np.unique(labels)]


def count_patterns(columns: ArrayLike) -> Stratum:
    """Reduce groups, shape (groups, columns), to their distinct patterns of counts."""
    table = _require_table(columns)
    if not len(table):
        return Stratum(patterns=table, multiplicities=np.zeros(0, dtype=np.int64))
    radix = table.max(axis=0) + 1
    if float(np.prod(radix.astype(float))) < 2.0**_WORD_BITS:
        return _patterns_by_key(table, radix)
    patterns, counts = np.unique(table, axis=0, return_counts=True)
    return Stratum(patterns=patterns, multiplicities=counts.astype(np.int64))


def resample_totals(stratum: Stratum, generator: np.random.Generator, *, replicates: int) -> Floats:
    """Draw as many groups as there are, with replacement, and sum their counts.

    Args:
        stratum: The groups; at least one, or `ValueError`.
        generator: Source of randomness, owned by the caller.
        replicates: How many resamples to draw.

    Returns:
        Column sums of each resample, shape (replicates, columns); whole numbers.
    """
    groups, patterns = stratum.groups, len(stratum.patterns)
    if not groups:
        raise ValueError("a stratum without groups cannot be resampled")
    if patterns <= max(_FEW_PATTERNS, groups // _DRAW_COST):
        return _totals_by_pattern(stratum, generator, replicates)
    return _totals_by_index(stratum, generator, replicates)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistic:
    """A figure computed from column totals.

    Attributes:
        name: What it is called.
        figure: Computes it for many rows of totals at once; NaN where it is undefined.
        low: Least value it can take.
        high: Greatest value it can take.
    """

    name: str
    figure: Figure
    low: float = 0.0
    high: float = 1.0

    def of(self, totals: Floats) -> Floats:
        """Return the figure of each row of totals, NaN where it is undefined."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.figure(totals)


@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapSettings:
    """How a bootstrap is drawn.

    Attributes:
        replicates: Resamples, at least 2,000.
        confidence: Nominal coverage, strictly between 0 and 1.
        seed: Start of the generator; the same seed gives the same bytes.
    """

    replicates: int = LEAST_REPLICATES
    confidence: float = 0.95
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse settings that give no honest interval."""
        require_fraction("confidence", self.confidence)
        if self.replicates < LEAST_REPLICATES:
            raise ValueError(
                f"replicates must be at least {LEAST_REPLICATES}, got {self.replicates}"
            )


DEFAULT_SETTINGS = BootstrapSettings()


def bootstrap(
    strata: Sequence[Stratum],
    statistics: Sequence[Statistic],
    *,
    settings: BootstrapSettings = DEFAULT_SETTINGS,
) -> list[Ratio]:
    """Estimate figures with a stratified bootstrap of whole groups.

    All figures are read from the same resamples. An interval is refused, with the reason, when the
    figure stands at its bound, when a stratum has one group, when hardly any resample differs, or
    when more than 1 % of the resamples leave the figure undefined: a bootstrap cannot show what the
    data do not hold.

    Args:
        strata: Groups that are resampled among themselves; the same columns in each.
        statistics: The figures wanted.
        settings: Replicates, confidence and seed.

    Returns:
        One ratio a statistic, in order. `trials` is the sum of all counts.

    Source: Efron (1987), doi:10.1080/01621459.1987.10478410; Davison & Hinkley (1997), Bootstrap
    Methods and their Application, 5.3 for several strata; the jackknife is in closed form.
    """
    strata = [stratum for stratum in strata if stratum.groups]
    bare = Ratio(
        value=None,
        low=None,
        high=None,
        confidence=settings.confidence,
        method="cluster_bootstrap_bca",
        trials=int(sum(int(stratum.totals.sum()) for stratum in strata)),
        groups=sum(stratum.groups for stratum in strata),
    )
    if not strata:
        return [replace(bare, reason="no groups") for _ in statistics]
    observed = np.sum([stratum.totals for stratum in strata], axis=0).astype(float)[None, :]
    lone = any(stratum.groups < 2 for stratum in strata)
    totals = None if lone else _draw(strata, settings)
    return [_estimate(strata, each, observed, totals=totals, bare=bare) for each in statistics]


def _require_table(columns: ArrayLike) -> Ints:
    table = np.asarray(columns)
    if table.ndim != 2 or not table.shape[1]:
        raise ValueError(f"columns must have shape (groups, columns), got {table.shape}")
    return require_counts("columns", table.ravel()).reshape(table.shape)


def _patterns_by_key(table: Ints, radix: Ints) -> Stratum:
    """Number each pattern in mixed radix, so that equal rows are equal integers."""
    keys = np.zeros(len(table), dtype=np.int64)
    for column, base in zip(table.T, radix.tolist(), strict=True):
        keys = keys * base + column
    span = int(np.prod(radix))
    if span <= 4 * len(table) + 1024:
        occurrences = np.bincount(keys, minlength=span)
        distinct = np.flatnonzero(occurrences)
        counts = occurrences[distinct]
    else:
        distinct, counts = np.unique(keys, return_counts=True)
    patterns = np.empty((len(distinct), len(radix)), dtype=np.int64)
    rest = distinct
    for place in range(len(radix) - 1, -1, -1):
        rest, patterns[:, place] = np.divmod(rest, int(radix[place]))
    return Stratum(patterns=patterns, multiplicities=counts.astype(np.int64))


def _totals_by_pattern(stratum: Stratum, generator: np.random.Generator, replicates: int) -> Floats:
    shares = stratum.multiplicities / stratum.groups
    patterns = stratum.patterns.astype(float)
    at_once = max(1, _DRAWS_AT_ONCE // len(shares))
    blocks = [
        generator.multinomial(stratum.groups, shares, size=min(at_once, replicates - start))
        @ patterns
        for start in range(0, replicates, at_once)
    ]
    return np.concatenate(blocks)


def _totals_by_index(stratum: Stratum, generator: np.random.Generator, replicates: int) -> Floats:
    groups = stratum.groups
    columns = np.repeat(stratum.patterns, stratum.multiplicities, axis=0)
    words = list(_pack(columns))
    totals = np.empty((replicates, columns.shape[1]))
    at_once = max(1, _DRAWS_AT_ONCE // groups)
    for start in range(0, replicates, at_once):
        stop = min(start + at_once, replicates)
        drawn = generator.integers(0, groups, size=(stop - start, groups), dtype=np.int64)
        for word in words:
            sums = word.values.take(drawn).sum(axis=1)
            for column, shift, bits in word.fields:
                totals[start:stop, column] = (sums >> shift) & ((1 << bits) - 1)
    return totals


class _Word(NamedTuple):
    """Several columns in one integer each group, with room for the sum of a whole resample."""

    values: Ints
    fields: list[tuple[int, int, int]]


def _pack(columns: Ints) -> Iterator[_Word]:
    values, used = np.zeros(len(columns), dtype=np.int64), 0
    fields: list[tuple[int, int, int]] = []
    for place, column in enumerate(columns.T):
        bits = max(1, (len(columns) * int(column.max())).bit_length())
        if fields and used + bits > _WORD_BITS:
            yield _Word(values, fields)
            values, fields, used = np.zeros(len(columns), dtype=np.int64), [], 0
        values = values + (column << used)
        fields.append((place, used, bits))
        used += bits
    yield _Word(values, fields)


def _draw(strata: Sequence[Stratum], settings: BootstrapSettings) -> Floats:
    generator = np.random.default_rng(settings.seed)
    totals = resample_totals(strata[0], generator, replicates=settings.replicates)
    for stratum in strata[1:]:
        totals += resample_totals(stratum, generator, replicates=settings.replicates)
    return totals


def _estimate(
    strata: Sequence[Stratum],
    statistic: Statistic,
    observed: Floats,
    *,
    totals: Floats | None,
    bare: Ratio,
) -> Ratio:
    name, value = statistic.name, float(statistic.of(observed)[0])
    if math.isnan(value):
        return replace(bare, reason=f"{name} has an empty denominator")
    bare = replace(bare, value=value)
    if value <= statistic.low or value >= statistic.high:
        return replace(bare, reason=f"{name} stands at its bound: resampling cannot look past it")
    if totals is None:
        reason = "one group only in a stratum: nothing shows how groups differ"
        return replace(bare, reason=reason)
    drawn = statistic.of(totals)
    drawn = drawn[~np.isnan(drawn)]
    if len(drawn) < (1.0 - _MOST_UNDEFINED) * len(totals):
        return replace(bare, reason=f"{name} is undefined in more than 1 % of the resamples")
    acceleration = _acceleration(strata, statistic, observed)
    limits = None
    if acceleration is not None:
        limits = _bca_limits(drawn, value, acceleration, bare.confidence)
    if limits is None:
        reason = f"{name} hangs on single groups: hardly any resample differs"
        return replace(bare, reason=reason)
    return replace(bare, low=limits.low, high=limits.high, replicates=len(drawn))


def _acceleration(
    strata: Sequence[Stratum], statistic: Statistic, observed: Floats
) -> float | None:
    """Return the acceleration from leaving each group out once; None where that is undefined."""
    cubes = squares = 0.0
    for stratum in strata:
        left_out = statistic.of(observed - stratum.patterns)
        groups, weight = stratum.groups, stratum.multiplicities
        mean = float(weight @ left_out) / groups
        influence = (groups - 1) / groups * (mean - left_out)
        cubes += float(weight @ influence**3)
        squares += float(weight @ influence**2)
    # A group without which the figure is undefined makes the sum NaN, which is not above 0.
    return cubes / (6.0 * squares**1.5) if squares > 0 else None


def _bca_limits(
    drawn: Floats, value: float, acceleration: float, confidence: float
) -> Limits | None:
    """Return the limits, or None when the resamples lie all on one side of the estimate."""
    below = float((drawn < value).mean() + (drawn == value).mean() / 2.0)
    if not 0.0 < below < 1.0:
        return None
    bias, half = normal_quantile(below), normal_quantile(0.5 + confidence / 2.0)
    levels = []
    for z in (-half, half):
        shifted = bias + z
        stretch = max(1e-9, 1.0 - acceleration * shifted)
        levels.append(NormalDist().cdf(bias + shifted / stretch))
    low, high = np.quantile(drawn, levels).tolist()
    return Limits(min(low, value), max(high, value))
