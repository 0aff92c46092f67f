"""How much slower is one defense than another: the median of paired differences."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from guardmark.core.estimate import Difference
from guardmark.stats.arguments import require_equal_lengths
from guardmark.stats.bootstrap import DEFAULT_SETTINGS, BootstrapSettings

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

_CELLS_AT_ONCE = 1 << 22
_METHOD = "cluster_bootstrap_percentile"


def paired_median_difference(
    first: ArrayLike,
    second: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    settings: BootstrapSettings = DEFAULT_SETTINGS,
) -> Difference:
    """Estimate the median of first minus second over the same samples.

    Args:
        first: A measure of the first defense (latency in ms), one entry a sample.
        second: The same of the second, the same samples in the same order.
        groups: Number of each sample's group; None when each sample is its own.
        settings: Replicates, confidence and seed.

    Returns:
        The median with a percentile interval from resampled groups, in the unit of the data.
        Undefined without samples; no bounds with a single group.

    Raises:
        ValueError: On unequal lengths, or a value that is not finite.

    References:
        Davison & Hinkley (1997), Bootstrap Methods and their Application, 2.4; the jackknife
        fails for medians, so there is no acceleration to correct by.
    """
    gaps = _differences(first, second)
    if not len(gaps):
        return _difference(None, None, pairs=0, groups=0, settings=settings, reason="no pairs")
    labels = np.arange(len(gaps)) if groups is None else np.asarray(groups)
    require_equal_lengths(first=len(gaps), groups=len(labels))
    names, inverse = np.unique(labels, return_inverse=True)
    order = np.argsort(gaps, kind="stable")
    ordered, owner = gaps[order], inverse[order]
    value = float(np.median(gaps))
    if len(names) < 2:
        reason = "one group only: nothing shows how groups differ"
        return _difference(value, None, pairs=len(gaps), groups=1, settings=settings, reason=reason)
    drawn = _medians(ordered, owner, len(names), settings)
    tail = (1.0 - settings.confidence) / 2.0
    limits = np.quantile(drawn, [tail, 1.0 - tail]).tolist()
    return _difference(value, limits, pairs=len(gaps), groups=len(names), settings=settings)


def _differences(first: ArrayLike, second: ArrayLike) -> NDArray[np.float64]:
    one, two = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    require_equal_lengths(first=one.size, second=two.size)
    gaps: NDArray[np.float64] = np.subtract(one, two).ravel()
    if not np.isfinite(gaps).all():
        raise ValueError("first and second must be finite: leave out samples without a measure")
    return gaps


def _medians(
    ordered: NDArray[np.float64],
    owner: NDArray[np.int64],
    groups: int,
    settings: BootstrapSettings,
) -> NDArray[np.float64]:
    """Return the weighted median of each resample; weights are how often a group came up."""
    generator = np.random.default_rng(settings.seed)
    drawn = np.empty(settings.replicates)
    at_once = max(1, _CELLS_AT_ONCE // max(len(ordered), groups))
    for start in range(0, settings.replicates, at_once):
        stop = min(start + at_once, settings.replicates)
        picks = generator.integers(0, groups, size=(stop - start, groups))
        picks += groups * np.arange(stop - start)[:, None]
        weights = np.bincount(picks.ravel(), minlength=groups * (stop - start))
        mass = np.cumsum(weights.reshape(stop - start, groups)[:, owner], axis=1)
        # The middle of an even number of rows lies between two of them.
        lower = (2 * mass >= mass[:, -1:]).argmax(axis=1)
        upper = (2 * mass > mass[:, -1:]).argmax(axis=1)
        drawn[start:stop] = (ordered[lower] + ordered[upper]) / 2.0
    return drawn


def _difference(
    value: float | None,
    limits: list[float] | None,
    *,
    pairs: int,
    groups: int,
    settings: BootstrapSettings,
    reason: str = "",
) -> Difference:
    return Difference(
        value=value,
        low=limits[0] if limits else None,
        high=limits[1] if limits else None,
        confidence=settings.confidence,
        method=_METHOD,
        pairs=pairs,
        groups=groups,
        reason=reason,
    )
