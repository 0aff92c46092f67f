"""What a sample costs in function calls, which no noise hides: it must not grow unnoticed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

from calls import GROWTH, WORKS, count_calls, read_kept

TRIES = 3


@pytest.mark.slow
@pytest.mark.parametrize("name", WORKS)
def test_a_sample_costs_no_more_calls_than_were_committed(name: str) -> None:
    """Who makes it dearer runs `python bench/calls.py --write`, and says why in the commit.

    A busy machine wakes the loop more often, which only adds calls: the least of three counts.
    """
    most, counts = GROWTH * read_kept()[name], [count_calls(name)]
    while min(counts) > most and len(counts) < TRIES:
        counts.append(count_calls(name))
    assert min(counts) <= most, counts


def test_every_kind_of_work_has_a_committed_count() -> None:
    """A kind of work without a count would never fail."""
    assert read_kept().keys() == WORKS.keys()
