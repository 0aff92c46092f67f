"""The line that says how far a run is."""

from __future__ import annotations

from guardmark.cli.progress import ProgressLine
from guardmark.core.record import Stage
from guardmark.engine.progress import OUTCOMES, Progress


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
    assert "ASR" not in line.line(3.0)
