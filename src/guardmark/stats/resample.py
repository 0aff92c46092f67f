"""Seeded resampling of whole groups, on counts instead of rows.

A figure that is a function of counts needs no rows: groups with the same counts are one pattern,
and a resample is a multinomial draw of how often each pattern comes up. With too many patterns
for that, groups are drawn by index and their counts summed several columns to a machine word.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from guardmark.stats.arguments import require_counts, require_equal_lengths

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import ArrayLike, NDArray

_DRAWS_AT_ONCE = 1 << 20
_DRAW_COST = 25  # a multinomial draw of one pattern costs about as much as 25 draws by index
_FEW_PATTERNS = 64
_WORD_BITS = 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Stratum:
    """Groups that are resampled among themselves, as patterns of counts.

    Attributes:
        patterns: Distinct rows of counts, shape (patterns, columns).
        multiplicities: How many groups show each pattern, shape (patterns,).
    """

    patterns: NDArray[np.int64]
    multiplicities: NDArray[np.int64]

    @property
    def groups(self) -> int:
        """How many groups the stratum holds."""
        return int(self.multiplicities.sum())

    @property
    def totals(self) -> NDArray[np.int64]:
        """Sum of each column over the groups."""
        totals: NDArray[np.int64] = self.multiplicities @ self.patterns
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
    """Reduce groups to their distinct patterns of counts.

    Args:
        columns: Counts, shape (groups, columns).

    Raises:
        ValueError: On a bad count or a bad shape.
    """
    table = _require_table(columns)
    if not len(table):
        return Stratum(patterns=table, multiplicities=np.zeros(0, dtype=np.int64))
    radix = table.max(axis=0) + 1
    if float(np.prod(radix.astype(float))) < 2.0**_WORD_BITS:
        return _patterns_by_key(table, radix)
    patterns, counts = np.unique(table, axis=0, return_counts=True)
    return Stratum(patterns=patterns, multiplicities=counts.astype(np.int64))


def resample_totals(
    stratum: Stratum, generator: np.random.Generator, *, replicates: int
) -> NDArray[np.float64]:
    """Draw as many groups as there are, with replacement, and sum their counts.

    Args:
        stratum: The groups; at least one.
        generator: Source of randomness, owned by the caller.
        replicates: How many resamples to draw.

    Returns:
        Column sums of each resample, shape (replicates, columns); whole numbers.

    Raises:
        ValueError: If the stratum is empty.
    """
    groups, patterns = stratum.groups, len(stratum.patterns)
    if not groups:
        raise ValueError("a stratum without groups cannot be resampled")
    if patterns <= max(_FEW_PATTERNS, groups // _DRAW_COST):
        return _totals_by_pattern(stratum, generator, replicates)
    return _totals_by_index(stratum, generator, replicates)


def _require_table(columns: ArrayLike) -> NDArray[np.int64]:
    table = np.asarray(columns)
    if table.ndim != 2 or not table.shape[1]:
        raise ValueError(f"columns must have shape (groups, columns), got {table.shape}")
    return require_counts("columns", table.ravel()).reshape(table.shape)


def _patterns_by_key(table: NDArray[np.int64], radix: NDArray[np.int64]) -> Stratum:
    """Number each pattern in mixed radix, so that equal rows are equal integers."""
    keys = np.zeros(len(table), dtype=np.int64)
    for column, base in zip(table.T, radix.tolist(), strict=True):
        keys = keys * base + column
    span = int(np.prod(radix))
    if span <= 4 * len(table) + 1024:
        tally = np.bincount(keys, minlength=span)
        distinct = np.flatnonzero(tally)
        counts = tally[distinct]
    else:
        distinct, counts = np.unique(keys, return_counts=True)
    patterns = np.empty((len(distinct), len(radix)), dtype=np.int64)
    rest = distinct
    for place in range(len(radix) - 1, -1, -1):
        rest, patterns[:, place] = np.divmod(rest, int(radix[place]))
    return Stratum(patterns=patterns, multiplicities=counts.astype(np.int64))


def _totals_by_pattern(
    stratum: Stratum, generator: np.random.Generator, replicates: int
) -> NDArray[np.float64]:
    shares = stratum.multiplicities / stratum.groups
    patterns = stratum.patterns.astype(float)
    at_once = max(1, _DRAWS_AT_ONCE // len(shares))
    blocks = [
        generator.multinomial(stratum.groups, shares, size=min(at_once, replicates - start))
        @ patterns
        for start in range(0, replicates, at_once)
    ]
    return np.concatenate(blocks)


def _totals_by_index(
    stratum: Stratum, generator: np.random.Generator, replicates: int
) -> NDArray[np.float64]:
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

    values: NDArray[np.int64]
    fields: list[tuple[int, int, int]]


def _pack(columns: NDArray[np.int64]) -> Iterator[_Word]:
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
