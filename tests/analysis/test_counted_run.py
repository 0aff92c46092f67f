"""A run too large to hold is counted: the same figures, from groups that cannot be told apart."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.analysis.small_runs import (
    Answer,
    Planned,
    Runs,
    allow,
    attack,
    benign,
    block,
    write_answers,
)

from guardmark.analysis.defense import latency
from guardmark.analysis.defense.counted_run import read_for_report
from guardmark.analysis.run import RunAnalysis, analyse_run
from guardmark.analysis.settings import AnalysisSettings
from guardmark.core.outcome import Decision, ErrorKind, Outcome
from guardmark.core.sample import Sample
from guardmark.reports.render.json.documents import summary_json
from guardmark.stats import time_series
from guardmark.store.reader import RecordReader
from guardmark.store.schema import FLAG_CACHED, FLAG_COLD, FLAG_TRUNCATED

ANSWERS = st.sampled_from(
    [
        *[Decision(outcome=Outcome.ALLOW), Decision(outcome=Outcome.BLOCK)] * 3,
        Decision(outcome=Outcome.MALFORMED),
        Decision(outcome=Outcome.ERROR, error_kind=ErrorKind.TIMEOUT),
        Decision(outcome=Outcome.ERROR, error_kind=ErrorKind.HTTP),
    ]
)
# Each example writes a run, so what fails is not made smaller for minutes.
DRAWN = settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
TIMES = st.one_of(st.none(), st.integers(1, 999).map(lambda n: n * 1_000))
FLAGS = st.sampled_from([0, 0, 0, FLAG_COLD, FLAG_CACHED, FLAG_TRUNCATED])


@st.composite
def written_rows(draw: st.DrawFn) -> tuple[list[Sample], list[Answer]]:
    """Samples, some of them variants of others or of an origin that is no sample, and answers."""
    samples: list[Sample] = []
    for number in range(draw(st.integers(1, 40))):
        make = attack if draw(st.booleans()) else benign
        known = [each.id for each in samples] + ["elsewhere"]
        group = draw(st.one_of(st.just(""), st.sampled_from(known)))
        kind = {"category": draw(st.sampled_from(["jailbreak", "cooking", ""])), "subcategory": ""}
        samples.append(make(number, group=group, **kind))
    some = st.tuples(ANSWERS, TIMES, FLAGS)
    return samples, [draw(some) for _ in samples]


def told(analysis: RunAnalysis) -> Any:
    """The summary as values, without times."""
    summary = json.loads(summary_json(analysis))
    del summary["timing"]
    return summary


def timing(analysis: RunAnalysis) -> Any:
    """What the summary says of times; the order of first calls is not kept."""
    times = json.loads(summary_json(analysis))["timing"]
    for each in times["defenses"].values():
        each["cold_ms"] = sorted(each["cold_ms"])
    return times


def same(one: Any, two: Any) -> bool:
    """Equal, numbers to twelve digits: sums are added up in another order."""
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(same(one[key], two[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(two) and all(map(same, one, two))
    if isinstance(one, float):
        return bool(one == pytest.approx(two, rel=1e-12, abs=1e-12))
    return bool(one == two)


@contextmanager
def read(samples: Sequence[Sample], answers: Sequence[Answer]) -> Iterator[RecordReader]:
    """A run of these answers, opened."""
    with tempfile.TemporaryDirectory() as folder:
        path = write_answers(Path(folder, "records.sqlite"), samples, answers)
        with RecordReader(path) as reader:
            yield reader


@DRAWN
@given(written_rows())
def test_counted_figures_are_those_of_reading_one_by_one(
    drawn: tuple[list[Sample], list[Answer]],
) -> None:
    """Rates, slices, counts, lists of samples: whatever the groups, gaps and failures are."""
    with read(*drawn) as reader:
        held, counted = analyse_run(reader), analyse_run(reader, most=0)
        assert counted.frame.weights is not None
        assert same(told(counted), told(held))
        assert counted.worst == held.worst


@DRAWN
@given(written_rows())
def test_counted_times_are_those_of_samples_that_stand_alone(
    drawn: tuple[list[Sample], list[Answer]],
) -> None:
    """Quantiles, limits, timeouts, histograms, medians of slices; a counted run has no call order."""
    samples, answers = drawn
    alone = [replace(each, group="") for each in samples]
    with read(alone, answers) as reader, pytest.MonkeyPatch.context() as patch:
        patch.setattr(time_series, "_time_and_reach", lambda _series: (1.0, 0))
        patch.setattr(latency, "_drift", lambda *_: None)
        held, counted = (timing(analyse_run(reader, most=most)) for most in (100, 0))
    assert same(counted, held)


def test_limits_of_counted_times_are_no_narrower_where_samples_share_groups() -> None:
    """Groups are taken to be alike within: the value is the same, its limits are safe."""
    samples = [attack(n, group=f"g{n // 4}") for n in range(400)]
    answers: list[Answer] = [(block(), (1 + n * 37 % 800) * 1_000, 0) for n in range(400)]
    with read(samples, answers) as reader:
        held, counted = (
            analyse_run(reader, most=most).defenses[0].latency.attacks.quantiles[0]
            for most in (400, 0)
        )
    assert counted.value == held.value
    assert counted.low is not None
    assert held.low is not None
    assert counted.high is not None
    assert held.high is not None
    assert counted.low <= held.low < held.high <= counted.high


def test_times_are_counted_to_three_digits() -> None:
    """A median of 123,456 ns is told as 123 us, half a percent off at most."""
    answers: list[Answer] = [(block(), 123_456, 0)] * 50
    with read([attack(n) for n in range(50)], answers) as reader:
        counted = analyse_run(reader, most=0).defenses[0].latency.attacks.quantiles[0]
    assert counted.value == pytest.approx(0.123456, rel=0.005)
    assert counted.value == 0.123


def planned(name: str, decision: Decision) -> Planned:
    """A defense that always says the same."""
    return Planned(name=name, answers=lambda _p, _s: decision)


@pytest.mark.parametrize(
    ("defenses", "changes", "chosen"),
    [
        ([planned("one", block(0.5))], {}, {}),
        ([planned("one", block()), planned("two", allow())], {}, {}),
        ([planned("one", block())], {"repeats": 2}, {}),
        ([planned("one", block())], {}, {"weights": (1.0,) * 20}),
    ],
    ids=["scores", "several defenses", "repeats", "a stated mix"],
)
def test_what_is_not_counted_is_read_one_by_one(
    runs: Runs, defenses: list[Planned], changes: dict[str, Any], chosen: dict[str, Any]
) -> None:
    """Figures that stand on each sample are never guessed from counts."""
    samples = [*(attack(n) for n in range(10)), *(benign(n) for n in range(10))]
    with runs.opened(samples, defenses, **changes) as reader:
        settled = replace(AnalysisSettings.of(reader.manifest()), **chosen)
        frame = read_for_report(reader, settled, most=0)
    assert (frame.weights, frame.sample_count) == (None, 20)


def test_a_run_that_can_be_held_is_read_one_by_one(runs: Runs) -> None:
    """Only more samples than the limit are counted."""
    samples = [attack(n) for n in range(10)]
    with runs.opened(samples, [planned("one", block())]) as reader:
        settled = AnalysisSettings.of(reader.manifest())
        assert read_for_report(reader, settled, most=10).weights is None
        assert read_for_report(reader, settled, most=9).weights is not None


def test_no_more_samples_are_kept_to_show_than_a_report_can_list() -> None:
    """Of 300 bypasses of one kind the first 100 are kept where nothing is listed; all are counted."""
    samples = [attack(0, id=f"a-{n:03d}") for n in range(300)]
    answers: list[Answer] = [(allow(), 1_000, 0)] * 300
    with read(samples, answers) as reader:
        settled = replace(AnalysisSettings.of(reader.manifest()), listed_samples=0)
        counted = analyse_run(reader, settled, most=0)
    assert counted.frame.examples is not None
    assert counted.frame.examples.sample_count == 100
    assert [each.total for each in counted.worst.counts] == [300]
