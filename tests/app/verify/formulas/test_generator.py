"""The plain generator draws what numpy draws."""

from __future__ import annotations

import numpy as np
import pytest

from guardmark.app.verify.formulas.generator import Generator

SEEDS = (0, 7, 2**32, 12_345_678_901_234_567_890_123, 2**140 + 5)


@pytest.mark.parametrize("seed", SEEDS)
def test_bits_and_shares_are_those_of_numpy(seed: int) -> None:
    """Seeds of one word, of several, and of more than the pool holds."""
    theirs, ours = np.random.default_rng(seed), Generator(seed)
    bits = theirs.integers(0, 2**64, size=40, dtype=np.uint64)
    assert [ours.long() for _ in range(40)] == [int(each) for each in bits]
    assert [ours.share() for _ in range(40)] == theirs.random(40).tolist()


@pytest.mark.parametrize("count", [1, 2, 3, 280, 2**31 + 7])
def test_whole_numbers_are_those_of_numpy(count: int) -> None:
    """Odd numbers of them, so that half of a long number is kept for the next."""
    theirs, ours = np.random.default_rng(7), Generator(7)
    for size in (31, 32, 1):
        drawn = theirs.integers(0, count, size=size, dtype=np.int64).tolist()
        assert [ours.below(count) for _ in range(size)] == drawn


@pytest.mark.parametrize(
    ("trials", "chance"),
    [
        (0, 0.5),
        (5, 0.3),
        (100, 0.9),
        (61, 0.5),  # just past where a walk gives way to rejection
        (3_000, 0.02),
        (1_000, 0.5),
        (10**7, 0.47),  # Stirling's series decides
    ],
)
def test_binomial_counts_are_those_of_numpy(trials: int, chance: float) -> None:
    """By walking up where few are expected, by rejection where many are."""
    theirs, ours = np.random.default_rng(3), Generator(3)
    drawn = theirs.binomial(trials, chance, size=1_000).tolist()
    assert [ours.binomial(trials, chance) for _ in range(1_000)] == drawn


@pytest.mark.parametrize("weights", [[1] * 280, [3, 5, 100, 1, 7], [1], [90, 9, 1], [1, 1]])
def test_multinomial_counts_are_those_of_numpy(weights: list[int]) -> None:
    """Equal shares, as groups are drawn, and unequal ones, as patterns are."""
    theirs, ours = np.random.default_rng(11), Generator(11)
    total = sum(weights)
    shares = np.array(weights) / total
    drawn = theirs.multinomial(total, shares, size=100).tolist()
    assert [ours.multinomial(total, shares.tolist()) for _ in range(100)] == drawn
