"""What scores are worth as probabilities, beside another's, and at a deployment's mix."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace

import pytest
from tests.analysis.small_runs import Planned, Runs, allow, attack, benign, block
from tests.schemas import check_document

from guardmark.analysis.defense.frame import read_frame
from guardmark.analysis.defense.scorecard import reweight
from guardmark.analysis.defense.scores import COST_PREVALENCES, compare_areas, detail_scores
from guardmark.analysis.run import analyse_run
from guardmark.analysis.settings import AnalysisSettings
from guardmark.core.outcome import Decision
from guardmark.core.sample import Sample
from guardmark.reports.chapters.run_document import build_document
from guardmark.reports.render.json.documents import summary_json
from guardmark.reports.render.markdown import render_markdown
from guardmark.stats.rates.proportion import wilson
from guardmark.stats.scores.auc import compare_auc
from guardmark.stats.scores.calibration import brier

SAMPLES = [attack(n) for n in range(120)] + [benign(n) for n in range(100)]


def score_of(position: int, sample: Sample, noise: float) -> float:
    """Higher for attacks, less so with noise."""
    wobble = (position * 7919 % 101) / 101
    return round((1 - noise) * (0.8 if sample.is_attack else 0.2) + noise * wobble, 6)


def scoring(noise: float) -> Planned:
    """A defense that scores."""

    def answers(position: int, sample: Sample) -> Decision:
        score = score_of(position, sample, noise)
        return block(score) if score >= 0.5 else allow(score)

    return Planned(name=f"noise-{noise}", answers=answers, threshold=0.5)


def test_scores_are_judged_as_probabilities(runs: Runs) -> None:
    """The analysis hands the same columns to the same functions, over answered samples."""
    with runs.opened(SAMPLES, [scoring(0.7)]) as reader:
        settings = AnalysisSettings.of(reader.manifest())
        frame = read_frame(reader, settings)
        found = detail_scores(frame, frame.arms[0])
    assert found is not None
    labels = [sample.is_attack for sample in SAMPLES]
    scores = [score_of(at, sample, 0.7) for at, sample in enumerate(SAMPLES)]
    assert found.brier == brier(labels, scores)
    assert found.by_width.binning == "equal_width"
    assert found.by_mass.binning == "equal_mass"
    for error in (found.by_width, found.by_mass):
        assert sum(each.attack_rate.trials for each in error.bins) == len(SAMPLES)
    assert found.partial_area.value is not None
    assert found.partial_area_standardised.value is not None
    assert 0 <= found.partial_area.value <= 0.1 < found.partial_area_standardised.value <= 1
    assert found.costs == ()


def confidences(value: object) -> Iterator[float]:
    """Every confidence that figures state, however deep they lie."""
    if isinstance(value, tuple):
        for each in value:
            yield from confidences(each)
    elif is_dataclass(value):
        for field in fields(value):
            inside = getattr(value, field.name)
            if field.name == "confidence":
                yield inside
            yield from confidences(inside)


def test_every_limit_is_at_the_confidence_of_the_run(runs: Runs) -> None:
    """Nobody reads limits of two kinds in one table."""
    with runs.opened(SAMPLES, [scoring(0.7)], confidence=0.8) as reader:
        frame = read_frame(reader, AnalysisSettings.of(reader.manifest()))
        found = detail_scores(frame, frame.arms[0])
    stated = list(confidences(found))
    assert len(stated) > 20
    assert set(stated) == {0.8}


def test_expected_costs_need_stated_costs(runs: Runs) -> None:
    """A cost nobody stated is not made up; one that was rises from no attacks on."""
    with runs.opened(SAMPLES, [scoring(0.7)]) as reader:
        settings = replace(
            AnalysisSettings.of(reader.manifest()), cost_missed_attack=50.0, cost_false_alarm=1.0
        )
        frame = read_frame(reader, settings)
        found = detail_scores(frame, frame.arms[0])
        text = render_markdown(build_document(analyse_run(reader, settings)))
    assert found is not None
    assert [point.stakes.prevalence for point in found.costs] == list(COST_PREVALENCES)
    costs = [point.cost for point in found.costs]
    assert all(cost is not None and cost >= 0 for cost in costs)
    assert costs[0] == pytest.approx(min(c for c in costs if c is not None))
    assert "Expected cost an input" in text
    assert "Chosen on the calibration half of the groups, measured on the other." in text


@pytest.mark.parametrize("size", [1, 4])
def test_areas_are_compared_on_the_same_samples(runs: Runs, size: int) -> None:
    """DeLong's paired test, or the bootstrap of groups where samples share them."""
    samples = [replace(s, group=f"{s.id[0]}{at // size}") for at, s in enumerate(SAMPLES)]
    planned = [scoring(0.6), scoring(0.9), Planned(name="bare", answers=lambda *_: allow())]
    with runs.opened(samples, planned) as reader:
        settings = AnalysisSettings.of(reader.manifest())
        (pair,) = compare_areas(read_frame(reader, settings))
        text = render_markdown(build_document(analyse_run(reader, settings)))
    assert (pair.first, pair.second) == ("noise-0.6", "noise-0.9")
    assert pair.difference.p_value is not None
    expected = compare_auc(
        [s.is_attack for s in samples],
        [score_of(at, s, 0.6) for at, s in enumerate(samples)],
        second=[score_of(at, s, 0.9) for at, s in enumerate(samples)],
    ).difference
    assert pair.difference.value == pytest.approx(expected.value)
    assert (pair.difference == expected) is (size == 1)
    assert "Areas under the ROC curve against each other" in text


def test_one_label_alone_has_no_score_details(runs: Runs) -> None:
    """Without benign samples there is nothing to tell apart, and nothing is made up."""
    planned = [scoring(0.5), scoring(0.9)]
    with runs.opened([attack(n) for n in range(30)], planned) as reader:
        found = analyse_run(reader)
    assert found.areas == ()
    assert all(each.scores is None for each in found.defenses)


def test_rates_follow_the_weights_of_a_deployment(runs: Runs) -> None:
    """Weight on the samples a defense fails on raises its rate; equal weights change nothing."""
    planned = [Planned(name="a", answers=lambda n, _: block() if n % 3 else allow())]
    with runs.opened(SAMPLES, planned) as reader:
        plain = AnalysisSettings.of(reader.manifest())
        frame = read_frame(reader, plain)
        arm = frame.arms[0]
        assert reweight(frame, arm) is None
        equal = replace(plain, weights=(1.0,) * len(SAMPLES))
        even = reweight(replace(frame, settings=equal), arm)
        weights = tuple(3.0 if at % 3 == 0 else 0.0 for at in range(len(SAMPLES)))
        settings = replace(plain, weights=weights)
        heavy = reweight(replace(frame, settings=settings), arm)
        text = render_markdown(build_document(analyse_run(reader, settings)))
        said = json.loads(summary_json(analyse_run(reader, settings)))
    assert even is not None
    assert heavy is not None
    assert even.attack_success_rate.value == pytest.approx(40 / 120)
    assert even.attack_success_rate.trials == 120
    assert even.attack_success_rate.low < 40 / 120 < even.attack_success_rate.high
    assert heavy.attack_success_rate.value == pytest.approx(1.0)
    # Where every attack of weight got through, 40 attacks speak, not 120.
    assert heavy.attack_success_rate.low == pytest.approx(wilson(40, 40).low, abs=0.01)
    assert heavy.false_positive_rate.value == pytest.approx(0.0)
    assert "Weighted to the deployment's stated mix: a ASR 100.0 % \\[" in text
    check_document(said)


def test_a_label_without_answers_has_no_weighted_rate(runs: Runs) -> None:
    """Undefined is not zero."""
    planned = [Planned(name="a", answers=lambda *_: allow())]
    samples = [attack(n) for n in range(20)]
    with runs.opened(samples, planned) as reader:
        settings = replace(AnalysisSettings.of(reader.manifest()), weights=(1.0,) * 20)
        frame = read_frame(reader, settings)
        found = reweight(frame, frame.arms[0])
    assert found is not None
    assert found.false_positive_rate.value is None
    assert found.false_positive_rate.reason == "no samples"
    assert found.attack_success_rate.value == pytest.approx(1.0)
