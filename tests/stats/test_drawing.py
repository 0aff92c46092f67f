"""Choosing whole groups by a seed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guardmark.stats.drawing import order_groups, split_by_group

names = st.lists(st.text(max_size=5), max_size=30)


@given(names, st.integers(0, 99))
def test_a_group_is_never_torn_apart(groups: list[str], seed: int) -> None:
    """Variants of one idea stand on one side of the split."""
    side = dict(zip(groups, split_by_group(groups, seed=seed), strict=True))
    assert [side[name] for name in groups] == list(split_by_group(groups, seed=seed))
    alone = [bool(split_by_group([name], seed=seed)[0]) for name in groups]
    assert alone == [bool(side[name]) for name in groups]


def test_the_share_is_met_on_average() -> None:
    """Of ten thousand groups about three in ten calibrate."""
    chosen = split_by_group([f"g{i}" for i in range(10_000)], share=0.3, seed=7)
    assert abs(chosen.mean() - 0.3) < 0.02
    with pytest.raises(ValueError, match="share"):
        split_by_group(["a"], share=1.0, seed=7)


@given(names, st.integers(0, 99))
def test_the_order_of_groups_depends_on_names_and_seed_alone(groups: list[str], seed: int) -> None:
    """However the samples come, an early stop sees the same groups first."""
    order = order_groups(groups, seed=seed)
    assert order == order_groups(reversed(groups), seed=seed)
    assert sorted(order) == sorted(set(groups))


def test_another_seed_gives_another_order() -> None:
    """The order is a draw, not the alphabet."""
    groups = [f"g{i}" for i in range(50)]
    assert order_groups(groups, seed=1) != order_groups(groups, seed=2) != sorted(groups)
