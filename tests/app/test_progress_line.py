"""The line that says how far a run is."""

from __future__ import annotations

import pytest

from guardmark.app.run.progress_line import ProgressLine, fitted
from guardmark.core.budget import SpendingMeter
from guardmark.core.record import Stage
from guardmark.engine.run_monitor import OUTCOMES, Progress


def test_time_left_follows_the_slow_defense_that_is_asked_now() -> None:
    """A quick one before it says nothing of how long a slow one takes."""
    progress = Progress()
    quick, slow = (progress.of(name, Stage.DEFENSE) for name in ("quick", "slow"))
    quick.planned = slow.planned = 4_000
    line = ProgressLine(progress)
    line.line(0.0)
    quick.counts[0] = 4_000
    assert "4,000/s" in line.line(1.0)
    for second in range(2, 100):
        slow.counts[0] = second
        told = line.line(float(second))
    assert "1/s" in told
    assert "1 h 05 min left" in told


def test_the_figures_are_those_of_the_defense_that_answers() -> None:
    """Not of the last one of the configuration, which was not asked yet."""
    progress = Progress()
    first = progress.of("first", Stage.DEFENSE)
    last = progress.of("last", Stage.DEFENSE)
    first.planned = last.planned = 10
    line = ProgressLine(progress)
    first.counts[OUTCOMES] += 2
    first.counts[OUTCOMES + 1] += 2
    told = line.line(1.0)
    assert "first: ASR 50.0 % of 4, FPR undefined" in told
    assert "last" not in told
    last.counts[1] += 1
    assert "last: ASR undefined, FPR 100.0 % of 1" in line.line(2.0)
    assert "last: ASR undefined, FPR 100.0 % of 1" in line.line(3.0), "it is still waited for"
    for second in range(4, 8):  # more answers than were told of before, less than all that were
        last.counts[1] += 1
        assert f"last: ASR undefined, FPR 100.0 % of {second - 2}" in line.line(float(second))
    first.counts[OUTCOMES] += 1
    assert "first: ASR" in line.line(8.0)


def test_before_anything_is_planned_no_share_is_told() -> None:
    """While data are read and services looked at there is nothing to take a share of."""
    line = ProgressLine(Progress())
    assert line.line(1.0) == "Preparing  0 s"
    assert line.closing(3.0) == "Nothing was asked."


def test_no_speed_is_told_before_there_is_one() -> None:
    """One look gives no speed."""
    progress = Progress()
    progress.of("one", Stage.DEFENSE).planned = 10
    assert "/s" not in ProgressLine(progress).line(1.0)


def test_a_service_that_makes_us_wait_is_told_with_its_status() -> None:
    """As long as it did so within the last minute, and at the end for the whole run."""
    progress = Progress()
    progress.of("one", Stage.DEFENSE).planned = 10
    failed: dict[str, int] = {}
    progress.failed = lambda: failed
    line = ProgressLine(progress)
    assert "waiting" not in line.line(0.0)
    failed["429"] = 43
    assert line.line(1.0, 40) == "  0 %  0 of 10  waiting: 429, 43 times"
    assert "waiting: 429, 43 times" in line.line(50.0)
    assert "waiting: " not in line.line(120.0), "it has answered for more than a minute"
    assert line.closing(120.0).endswith("; 429 43 times")


def test_who_is_waited_for_is_told_after_ten_seconds_without_an_answer() -> None:
    """Whoever was asked last and is not done."""
    progress = Progress()
    first, second = (progress.of(name, Stage.DEFENSE) for name in ("first", "second"))
    first.planned = second.planned = 10
    first.counts[0], second.counts[0] = 10, 3
    line = ProgressLine(progress)
    line.line(0.0)
    assert "waiting" not in line.line(9.0)
    assert "waiting for second, no answer for 12 s" in line.line(12.0, 80)
    second.counts[0] = 4
    assert "waiting" not in line.line(13.0)


def test_money_is_told_as_it_is_spent() -> None:
    """In the line and at the end; nothing of it where nothing has a price."""
    progress, meter = Progress(), SpendingMeter()
    progress.of("one", Stage.DEFENSE).planned = 10
    line = ProgressLine(progress, meter=meter)
    assert "spent" not in line.line(0.0)
    meter.count(3, 0.25)
    assert "0.25 spent" in line.line(1.0)
    assert line.closing(2.0).endswith("0 errors, 0 malformed, 0.25 spent")


def test_an_attack_may_end_before_all_that_is_planned() -> None:
    """Its figures say so, and name the defense; rates of the run before it say nothing of it."""
    progress = Progress()
    run = progress.of("guard", Stage.DEFENSE)
    run.planned, run.counts[0] = 10, 10
    attack = progress.of("guard", Stage.TRY)
    attack.planned = 1_000
    line = ProgressLine(progress, is_attack=True)
    line.line(0.0)
    attack.counts[0] = 100
    told = line.line(10.0)
    assert "110 of at most 1,010" in told
    assert "at most 1 min 30 s left" in told
    assert "attacking guard" in told
    assert "ASR" not in told
    assert line.closing(10.0) == "Asked 110 in 10 s: 0 errors, 0 malformed"


@pytest.mark.parametrize("width", [1, 20, 40, 80, 200])
def test_a_line_is_never_wider_than_the_terminal(width: int) -> None:
    """Whole parts as far as they fit; the first is cut where even that is too wide."""
    parts = [" 12 %  1,200 of 10,000", "83/s", "1 min 46 s left", "0 errors, 0 malformed"]
    line = fitted(parts, width)
    assert len(line) <= width
    assert "  ".join(parts).startswith(line)
    assert fitted(parts, 200) == "  ".join(parts)


def test_the_last_line_says_what_was_measured() -> None:
    """With the time it took, and how much of it failed."""
    progress = Progress()
    part = progress.of("one", Stage.DEFENSE)
    part.planned, part.counts[0], part.counts[2] = 10, 9, 1
    said = ProgressLine(progress, quiet=True).closing(65.0)
    assert said.startswith("Measured 10 of 10 in 1 min 05 s: ")
    assert "1 malformed" in said
