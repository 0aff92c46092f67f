"""Resampling whole groups on counts."""

from __future__ import annotations

import numpy as np
import pytest

from guardmark.stats.rates.bootstrap import count_patterns, resample_totals, stratify


def generator() -> np.random.Generator:
    """A generator of its own for each draw."""
    return np.random.default_rng(7)


def test_equal_groups_become_one_pattern() -> None:
    """Thousands of groups of up to five rows have a few dozen patterns."""
    stratum = count_patterns([[1, 0], [0, 2], [1, 0], [1, 0]])
    found = dict(
        zip(map(tuple, stratum.patterns.tolist()), stratum.multiplicities.tolist(), strict=True)
    )
    assert found == {(1, 0): 3, (0, 2): 1}
    assert stratum.groups == 4
    assert stratum.totals.tolist() == [3, 2]


def test_patterns_of_huge_counts_are_found_all_the_same() -> None:
    """Where a mixed-radix key would overflow."""
    big = 2**40
    stratum = count_patterns([[big, 1], [1, big], [big, 1]])
    assert sorted(stratum.multiplicities.tolist()) == [1, 2]
    assert stratum.totals.tolist() == [2 * big + 1, big + 2]


def test_strata_keep_their_numbers_of_groups() -> None:
    """Attacks are never exchanged for benign samples."""
    strata = stratify([[1, 0], [2, 0], [3, 0]], [5, 0, 5])
    assert [stratum.groups for stratum in strata] == [1, 2]


@pytest.mark.parametrize("spread", [3, 10**6], ids=["by pattern", "by index"])
def test_totals_have_the_mean_and_variance_of_resampling(spread: int) -> None:
    """Both ways of drawing draw from the same distribution."""
    columns = np.random.default_rng(1).integers(0, spread, (400, 3))
    totals = resample_totals(count_patterns(columns), generator(), replicates=4000)
    expected, error = columns.sum(axis=0), columns.std(axis=0) * np.sqrt(400)
    assert totals.shape == (4000, 3)
    assert np.abs((totals.mean(axis=0) - expected) / error).max() < 4 / np.sqrt(4000)
    assert np.abs(totals.std(axis=0) / error - 1).max() < 0.06


def test_totals_by_index_keep_columns_together() -> None:
    """A group's counts travel together, also when packed into words."""
    first = np.arange(300)
    columns = np.stack([first, 2 * first, first * 2**30, 5 + 0 * first], axis=1)
    totals = resample_totals(count_patterns(columns), generator(), replicates=50)
    assert (totals[:, 1] == 2 * totals[:, 0]).all()
    assert (totals[:, 2] == 2**30 * totals[:, 0]).all()
    assert (totals[:, 3] == 1500).all()


def test_a_seed_gives_the_same_draws() -> None:
    """The same inputs give the same bytes."""
    stratum = count_patterns([[1, 0], [0, 2], [3, 3]])
    one = resample_totals(stratum, generator(), replicates=10)
    assert (one == resample_totals(stratum, generator(), replicates=10)).all()


def test_nothing_cannot_be_resampled() -> None:
    """An empty stratum is the caller's to leave out."""
    empty = count_patterns(np.zeros((0, 2), dtype=int))
    assert empty.groups == 0
    with pytest.raises(ValueError, match="without groups"):
        resample_totals(empty, generator(), replicates=10)


def test_what_is_no_table_of_counts_is_refused() -> None:
    """A line, a fraction, a stratum short."""
    with pytest.raises(ValueError, match="shape"):
        count_patterns([1, 2])
    with pytest.raises(ValueError, match="whole"):
        count_patterns([[0.5, 1.0]])
    with pytest.raises(ValueError, match="columns 2, strata 1"):
        stratify([[1], [2]], [0])
