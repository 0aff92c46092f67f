"""How many injections a width needs."""

from __future__ import annotations

import pytest

from guardmark.analysis.agents.planning import plan_injections


def test_a_wider_margin_needs_fewer_injections() -> None:
    """And what is promised is at or below what was wanted."""
    narrow, wide = plan_injections(40, 0.12), plan_injections(40, 0.2)
    assert narrow.injections is not None
    assert wide.injections is not None
    assert wide.injections < narrow.injections
    assert wide.half_width <= 0.2


def test_few_tasks_may_never_be_enough() -> None:
    """More injections cannot make up for tasks that are not there."""
    planned = plan_injections(4, 0.05)
    assert planned.injections is None
    assert planned.half_width > 0.05


@pytest.mark.parametrize("rate", [0.1, 0.9])
def test_a_plan_is_the_same_every_time(rate: float) -> None:
    """Its draws are seeded."""
    assert plan_injections(20, 0.2, rate=rate) == plan_injections(20, 0.2, rate=rate)
