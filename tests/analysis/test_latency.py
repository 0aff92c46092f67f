"""How long a defense takes: only warm, uncached, ended calls, attacks and benign apart."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.analysis.small_runs import (
    Answer,
    Planned,
    Runs,
    attack,
    benign,
    block,
    failed,
    write_answers,
)

from guardmark.analysis.defense.latency import Latency
from guardmark.analysis.run import analyse_run
from guardmark.core.asking_order import order_samples
from guardmark.core.outcome import Decision, ErrorKind, Outcome
from guardmark.store.reader import RecordReader
from guardmark.store.schema import FLAG_CACHED, FLAG_COLD, FLAG_PLANNED

SAMPLES = [*(attack(n) for n in range(100)), *(benign(n) for n in range(100))]


def written(folder: Path, rows: list[Answer]) -> Latency:
    """The latency of a run whose rows are given one by one."""
    with RecordReader(write_answers(folder / "records.sqlite", SAMPLES, rows)) as reader:
        return analyse_run(reader).defenses[0].latency


def test_medians_with_order_statistic_limits(tmp_path: Path) -> None:
    """p50 of 1 to 100 ms; p99 needs 368 measurements for an interval, and is told without."""
    found = written(tmp_path, [(block(), (n + 1) * 1_000_000, 0) for n in range(100)])
    p50, p95, p99 = found.attacks.quantiles
    assert (p50.value, p50.low, p50.high) == (50.5, 40.0, 61.0)
    assert p95.value is not None
    assert (p99.value, p99.low, p99.high) == (pytest.approx(99.01), None, None)
    assert "368" in p99.reason
    assert (found.attacks.timed, found.benign.timed) == (100, 0)
    assert all(quantile.value is None for quantile in found.benign.quantiles)


def test_cold_and_cached_calls_are_left_out_and_told_apart(tmp_path: Path) -> None:
    """The first call of a process and answers from the cache say nothing of service."""
    rows: list[Answer] = [(block(), 9_000_000_000, FLAG_COLD), (block(), 5, FLAG_CACHED)]
    rows += [(block(), 2_000_000, 0)] * 50
    found = written(tmp_path, rows)
    assert found.cold_ms == (9000.0,)
    assert (found.cached, found.attacks.timed) == (1, 50)
    assert found.attacks.quantiles[0].value == 2.0


def test_timeouts_count_as_at_least_that_long(tmp_path: Path) -> None:
    """A call that ran into the limit is censored, not dropped."""
    rows: list[Answer] = [(block(), 1_000_000, 0)] * 40
    rows += [(failed(ErrorKind.TIMEOUT), 60_000_000, 0)] * 60
    found = written(tmp_path, rows)
    p50 = found.attacks.quantiles[0]
    assert (p50.at_least, p50.value, p50.high) == (True, 60.0, None)
    assert found.attacks.timeouts == 60


def test_a_point_from_few_times_says_whether_a_timeout_hides_it(tmp_path: Path) -> None:
    """Of ten times the last two ran into the limit: p50 is known, p95 is at least the limit."""
    rows: list[Answer] = [(block(), (n + 1) * 1_000_000, 0) for n in range(8)]
    rows += [(failed(ErrorKind.TIMEOUT), 60_000_000, 0)] * 2
    p50, p95, _ = written(tmp_path, rows).attacks.quantiles
    assert (p50.value, p50.at_least) == (5.5, False)
    assert (p95.value, p95.at_least, p95.high) == (60.0, True, None)


def test_other_errors_have_no_service_time(tmp_path: Path) -> None:
    """A refused connection answers fast and says nothing."""
    rows: list[Answer] = [(failed(ErrorKind.CONNECTION), 1_000, 0)] * 50
    rows += [(Decision(outcome=Outcome.MALFORMED), 3_000_000, 0)] * 50
    found = written(tmp_path, rows)
    assert found.attacks.timed == 50
    assert found.attacks.quantiles[0].value == 3.0


def test_untimed_answers_give_no_latency(tmp_path: Path) -> None:
    """Decisions from a file carry no times."""
    found = written(tmp_path, [(block(), None, 0)] * 100)
    assert (found.attacks.timed, found.histogram) == (0, None)


def test_shares_of_batches_and_planned_times_are_named(tmp_path: Path) -> None:
    """What a time means belongs to it."""
    share = Decision(outcome=Outcome.BLOCK, latency_ns=1_000_000, amortised=True)
    found = written(tmp_path, [(share, None, 0)] * 100)
    assert found.is_amortised
    assert not found.is_from_plan
    (tmp_path / "open").mkdir()
    planned = written(tmp_path / "open", [(block(), 1_000_000, FLAG_PLANNED)] * 100)
    assert planned.is_from_plan


def test_the_histogram_holds_every_timed_answer(runs: Runs) -> None:
    """Nothing falls off its ends, equal times included."""
    with runs.opened(SAMPLES, [Planned(name="one", answers=lambda _p, _s: block())]) as reader:
        histogram = analyse_run(reader).defenses[0].latency.histogram
    assert histogram is not None
    assert (sum(histogram.attacks), sum(histogram.benign)) == (100, 100)
    assert len(histogram.edges_ms) == len(histogram.attacks) + 1


def test_equal_times_have_a_histogram_too(tmp_path: Path) -> None:
    """A clock may tick coarsely."""
    found = written(tmp_path, [(block(), 1_000_000, 0)] * 100)
    assert found.histogram is not None
    assert sum(found.histogram.attacks) == 100


def test_times_that_rise_while_the_run_goes_on_are_told(tmp_path: Path) -> None:
    """In the order of asking, the last third is three times as slow, whatever the data's order."""
    order = order_samples([each.id for each in SAMPLES], len(SAMPLES), seed=7)
    took = dict.fromkeys(range(200), 10_000_000) | dict.fromkeys(order[130:], 30000000)
    rows: list[Answer] = [(block(), took[at] + 1_000 * (at * 37 % 101), 0) for at in range(200)]
    drift = written(tmp_path, rows).drift
    assert drift is not None
    assert drift.quantile == 0.5
    assert drift.first_ms == pytest.approx(10, rel=0.02)
    assert drift.last_ms == pytest.approx(30, rel=0.02)


def test_steady_times_are_no_drift(tmp_path: Path) -> None:
    """The same times in an order that has nothing to do with that of asking."""
    rows: list[Answer] = [(block(), (10 + n * 37 % 101) * 1_000_000, 0) for n in range(200)]
    assert written(tmp_path, rows).drift is None
