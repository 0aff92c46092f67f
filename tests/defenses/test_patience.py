"""Calls in this process that do not end: how long somebody waits before nothing more is asked."""

from __future__ import annotations

import pytest

from guardmark.config.deadline import Patience
from guardmark.core.errors import UntrustworthyRun
from guardmark.core.outcome import ErrorKind

S = 1_000_000_000
LATE = ErrorKind.TIMEOUT


def test_three_overruns_in_a_row_of_ones_own_are_the_last() -> None:
    """An answer in between, or a failure of another kind, begins the count anew."""
    patience = Patience()
    for error in (LATE, LATE, None, LATE, LATE, ErrorKind.CRASH, LATE, LATE):
        patience.note("words", 10 * S, error)
    with pytest.raises(UntrustworthyRun, match=r"words is asked no more: 30 s went to slow calls"):
        patience.note("words", 10 * S, LATE)


def test_one_overrun_of_a_patient_part_is_not_the_last() -> None:
    """A function that may take a minute is given three, and a hasty pattern twenty seconds."""
    patience, hasty = Patience(), Patience()
    for _ in range(2):
        patience.note("code", 60 * S, LATE)
    for _ in range(199):
        hasty.note("words", S // 10, LATE)
    for each, took in ((patience, 60 * S), (hasty, 2 * S)):
        with pytest.raises(UntrustworthyRun):
            each.note("part", took, LATE)


def test_what_only_a_folder_names_is_given_a_few_slow_calls_in_all() -> None:
    """Quick answers between them change nothing, however the slow ones ended."""
    patience = Patience(is_foreign=True)
    for took in (S, 1, S, 1, S // 2, 1):
        patience.note("words", took)
    with pytest.raises(UntrustworthyRun, match="slow"):
        patience.note("words", S)
