"""Parts that share nothing."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from guardmark.core.errors import ConfigError
from guardmark.datasets.checks.duplicates import assign_parts

if TYPE_CHECKING:
    from collections.abc import Callable

    from guardmark.core.sample import Sample

    Make = Callable[..., Sample]

HALVES = {"train": 0.5, "test": 0.5}


def test_a_group_goes_to_one_part(sample: Make) -> None:
    """Variants on both sides would let a defense be measured on what it has seen."""
    samples = [sample(f"text {n}", group=f"g{n % 20}", attack=n % 2 == 0) for n in range(100)]
    parts = assign_parts(samples, HALVES)
    homes = {(s.group, part) for s, part in zip(samples, parts, strict=True)}
    assert len(homes) == 20


def test_near_duplicates_go_to_one_part_unless_told(sample: Make) -> None:
    """Whatever group they claim."""
    text = "one two three four five six seven eight nine ten"
    samples = [sample(f"{text} {n}") for n in range(40)]
    assert len(set(assign_parts(samples, HALVES))) == 1
    assert len(set(assign_parts(samples, HALVES, threshold=None))) == 2


def test_shares_are_met_on_the_average(sample: Make) -> None:
    """Seven tenths of two thousand groups, give or take."""
    samples = [sample(f"text number {n}") for n in range(2_000)]
    parts = Counter(assign_parts(samples, {"train": 0.7, "test": 0.2, "rest": 0.1}))
    assert abs(parts["train"] - 1_400) < 80
    assert abs(parts["test"] - 400) < 70
    assert abs(parts["rest"] - 200) < 50


def test_a_group_keeps_its_part_when_samples_are_added(sample: Make) -> None:
    """A test set that changes with its neighbours is none."""
    samples = [sample(f"text {n}") for n in range(200)]
    few, many = assign_parts(samples[:50], HALVES), assign_parts(samples, HALVES)
    assert few == many[:50]


def test_the_seed_decides(sample: Make) -> None:
    """The same seed the same parts, another seed others."""
    samples = [sample(f"text {n}") for n in range(100)]
    assert assign_parts(samples, HALVES, seed=1) == assign_parts(samples, HALVES, seed=1)
    assert assign_parts(samples, HALVES, seed=1) != assign_parts(samples, HALVES, seed=2)


def test_shares_that_add_to_a_hair_below_one_leave_nobody_out(sample: Make) -> None:
    """Ten tenths of floating point."""
    samples = [sample(f"text {n}") for n in range(50)]
    shares = {f"p{n}": 0.1 for n in range(10)}
    assert set(assign_parts(samples, shares)) <= set(shares)


@pytest.mark.parametrize(
    "shares", [{}, {"a": 0.5}, {"a": 1.5, "b": -0.5}, {"a": 1.0, "b": 0.0}, {"a": 0.7, "b": 0.7}]
)
def test_shares_that_do_not_add_to_one_are_refused(shares: dict[str, float]) -> None:
    """Half of the data must not vanish in silence."""
    with pytest.raises(ConfigError, match="must be above 0 and add to 1"):
        assign_parts([], shares)
