"""Rows of two origins: limits of rates and differences know both, from the file to the report."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.analysis.small_runs import Answers, Planned, Runs, allow, attack, benign, block

from guardmark.analysis.compare.comparison import compare_arms
from guardmark.analysis.defense.counts import SampleRates
from guardmark.analysis.defense.frame import read_frame
from guardmark.analysis.run import RunAnalysis, analyse_run
from guardmark.analysis.settings import AnalysisSettings
from guardmark.core.outcome import Decision
from guardmark.core.sample import DEFAULT_TAXONOMY, Sample
from guardmark.datasets.formats.writing import write_samples
from guardmark.datasets.loading import load, sample_digest
from guardmark.datasets.settings import DataSettings
from guardmark.datasets.specs import dataset_specs
from guardmark.reports.chapters.run_document import build_document
from guardmark.reports.render.markdown import render_markdown
from guardmark.stats.paired.crossed import crossed_difference
from guardmark.stats.rates.clustered import wilson_default
from guardmark.stats.rates.crossed import crossed_rate

TASKS, INJECTIONS = 12, 5
CROSSED = [
    attack(
        task * INJECTIONS + injection,
        category="jailbreak",
        subcategory="",
        group=f"task {task}",
        crossing=f"injection {injection}",
    )
    for task in range(TASKS)
    for injection in range(INJECTIONS)
]
ALONE = [benign(task, group=f"task {task}") for task in range(TASKS)]
FIRST = np.repeat(np.arange(TASKS), INJECTIONS)
SECOND = np.tile(np.arange(INJECTIONS), TASKS)


def blocks(*injections: int) -> Answers:
    """A defense that blocks these injections, and the last task whatever comes with it."""

    def answer(_position: int, sample: Sample) -> Decision:
        origins = (sample.group, sample.crossing)  # in either order
        known = {"task 11", *(f"injection {each}" for each in injections)}
        return block() if sample.is_attack and known.intersection(origins) else allow()

    return answer


PLANNED = [Planned(name="two", answers=blocks(0, 1)), Planned(name="one", answers=blocks(0))]


def analysed(runs: Runs, samples: list[Sample]) -> RunAnalysis:
    """The analysis of a run of both defenses."""
    with runs.opened(samples, PLANNED) as reader:
        return analyse_run(reader)


@pytest.mark.parametrize("is_turned", [False, True], ids=["task first", "injection first"])
def test_rates_and_differences_are_those_of_crossed_rows(runs: Runs, *, is_turned: bool) -> None:
    """Whichever of both stands in the group, and in slices as in the whole."""
    samples = CROSSED + ALONE
    if is_turned:
        samples = [
            replace(each, group=each.crossing, crossing=each.group) if each.crossing else each
            for each in samples
        ]
    analysis = analysed(runs, samples)
    two = analysis.defenses[0]
    allowed = ~((SECOND <= 1) | (FIRST == 11))
    expected = crossed_rate(allowed, first=FIRST, second=SECOND)
    rate = two.card.attack_success_rate
    assert (rate.successes, rate.trials, rate.method) == (33, 60, "wilson_crossed")
    assert (rate.low, rate.high) == pytest.approx((expected.low, expected.high))
    assert rate.groups == INJECTIONS
    slices = next(each for each in two.slices if each.facet == "category")
    assert slices.rates[0].rate.low == pytest.approx(expected.low)
    only = (SECOND == 1) & (FIRST != 11)
    gap = crossed_difference([0] * 60, only, first=FIRST, second=SECOND)
    assert analysis.comparison is not None
    found = analysis.comparison.pairs[0].attacks.difference
    assert abs(found.value or 0) == pytest.approx(11 / 60)
    assert sorted(map(abs, (found.low or 0, found.high or 0))) == pytest.approx(
        sorted(map(abs, (gap.low or 0, gap.high or 0)))
    )


def test_benign_tasks_keep_their_groups(runs: Runs) -> None:
    """A row without a second origin is crossed by nothing."""
    rate = analysed(runs, CROSSED + ALONE).defenses[0].card.false_positive_rate
    alone = wilson_default([0] * TASKS, [1] * TASKS)
    assert (rate.low, rate.high, rate.groups) == (alone.low, alone.high, TASKS)


def test_what_knows_one_factor_takes_the_one_with_fewer_levels(runs: Runs) -> None:
    """Thresholds, areas and calibration draw whole injections, of which there are five."""
    with runs.opened(CROSSED + ALONE, PLANNED) as reader:
        frame = read_frame(reader, AnalysisSettings.of(reader.manifest()))
    assert len(set(frame.groups[frame.is_attack].tolist())) == INJECTIONS
    assert len(set(frame.groups[~frame.is_attack].tolist())) == TASKS
    assert compare_arms(frame).pairs[0].attacks.difference.groups == INJECTIONS


def test_the_report_says_that_rows_are_crossed(runs: Runs) -> None:
    """And what would make its limits narrower; a run of plain groups says nothing of it."""
    text = render_markdown(build_document(analysed(runs, CROSSED + ALONE)))
    assert "Rows are crossed, 12 by 5" in text
    plain = [replace(each, crossing="") for each in CROSSED]
    assert "Rows are crossed" not in render_markdown(build_document(analysed(runs, plain)))


def test_a_file_names_both_columns(tmp_path: Path) -> None:
    """`map: {group: [task, injection]}` reads both, and neither is left in the metadata."""
    row = {"id": "1", "text": "do it", "label": "attack", "task": "t1", "injection": "i1"}
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row) + "\n", encoding="utf-8")
    settings = DataSettings.model_validate(
        {"path": "rows.jsonl", "map": {"group": ["task", "injection"]}}
    )
    (sample,) = load(dataset_specs(settings, tmp_path), DEFAULT_TAXONOMY).samples()
    assert (sample.group, sample.crossing, sample.metadata) == ("t1", "i1", {})
    assert sample_digest(sample) != sample_digest(replace(sample, crossing=""))


def test_written_samples_are_read_again(tmp_path: Path) -> None:
    """The second origin stands in a column of its own."""
    write_samples(CROSSED[:3], tmp_path / "again.jsonl")
    settings = DataSettings.model_validate({"path": "again.jsonl"})
    read = load(dataset_specs(settings, tmp_path), DEFAULT_TAXONOMY).samples()
    assert [each.crossing for each in read] == [each.crossing for each in CROSSED[:3]]


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        (["task"], "two that cross"),
        (["task", "injection", "suite"], "two that cross"),
        (["task", 3], "two that cross"),
        (["task", "task"], "twice"),
    ],
)
def test_other_lists_of_groups_are_refused(stated: list[object], message: str) -> None:
    """A list names two columns that differ."""
    with pytest.raises(ValueError, match=message):
        DataSettings.model_validate({"path": "rows.jsonl", "map": {"group": stated}})


def test_two_words_for_what_crosses_are_refused() -> None:
    """Either the list or the field, not both."""
    stated = {"group": ["task", "injection"], "crossing": "suite"}
    with pytest.raises(ValueError, match="already says"):
        DataSettings.model_validate({"path": "rows.jsonl", "map": stated})


def test_suites_that_share_no_level_are_strata_of_samples() -> None:
    """Two suites of the same shape, one stopped and one let through: each is sure of itself."""
    first = np.concatenate([FIRST, FIRST + TASKS])
    second = np.concatenate([SECOND, SECOND + INJECTIONS])
    suites = np.repeat([0, 1], len(FIRST))
    hits = (suites == 1) ^ (SECOND[np.arange(len(first)) % len(FIRST)] == 0)
    places = list(range(len(first)))
    told = SampleRates(first, 0.95, crossing=second, strata=suites).at(places, hits)
    assert told == crossed_rate(hits, first=first, second=second, strata=suites)
    pooled = SampleRates(first, 0.95, crossing=second).at(places, hits)
    assert told.effective_n is not None
    assert pooled.effective_n is not None
    assert told.effective_n > pooled.effective_n
    # One injection of the second suite is no stratum of its own.
    some = [place for place in places if place < len(FIRST) or second[place] == INJECTIONS]
    kept = SampleRates(first, 0.95, crossing=second, strata=suites).at(some, hits[some])
    assert kept == crossed_rate(hits[some], first=first[some], second=second[some])


def test_figures_of_one_factor_stand_on_the_one_with_fewer_levels() -> None:
    """Five injections, not twelve tasks; rows that nothing crosses keep their groups."""
    places = list(range(len(FIRST)))
    crossed = SampleRates(FIRST, 0.95, crossing=SECOND)
    assert crossed.clusters_at(places).tolist() == SECOND.tolist()
    turned = SampleRates(SECOND, 0.95, crossing=FIRST)
    assert turned.clusters_at(places).tolist() == SECOND.tolist()
    lone = SampleRates(FIRST, 0.95, crossing=np.arange(len(FIRST)))
    assert lone.clusters_at(places).tolist() == FIRST.tolist()
    assert SampleRates(FIRST, 0.95).clusters_at(places).tolist() == FIRST.tolist()
