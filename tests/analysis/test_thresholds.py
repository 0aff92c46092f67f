"""What other thresholds would do, from stored scores alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.analysis.small_runs import Planned, Runs, allow, attack, benign, block, failed

from guardmark.analysis.defense.frame import read_frame
from guardmark.analysis.defense.scores import choose_guaranteed
from guardmark.analysis.run import RunAnalysis, analyse_run
from guardmark.analysis.settings import AnalysisSettings
from guardmark.core.errors import ConfigError, UnknownName
from guardmark.core.outcome import Decision
from guardmark.core.sample import Sample
from guardmark.stats.drawing import split_by_group
from guardmark.stats.rates.clustered import wilson_default
from guardmark.stats.rates.proportion import wilson
from guardmark.stats.scores.auc import auc
from guardmark.stats.scores.guarantee import ErrorLimits, guarantee_threshold

SAMPLES = [*(attack(n) for n in range(300)), *(benign(n) for n in range(300))]


def score_of(sample: Sample) -> float:
    """Attacks from 0.3 to 0.9, benign samples from 0.1 to 0.7, spread evenly."""
    number = (int(sample.id[2:]) * 37) % 300
    return (0.3 if sample.is_attack else 0.1) + 0.6 * number / 300


def scored(_: int, sample: Sample) -> Decision:
    """Blocks from 0.5 on."""
    score = score_of(sample)
    return block(score) if score >= 0.5 else allow(score)


def analysed(
    runs: Runs, answers: object = scored, samples: list[Sample] = SAMPLES, **changes: object
) -> RunAnalysis:
    """The analysis of one scored defense."""
    planned = [Planned(name="one", answers=answers, threshold=0.5)]  # type: ignore[arg-type]
    with runs.opened(samples, planned) as reader:
        settings = replace(AnalysisSettings.of(reader.manifest()), **changes)  # type: ignore[arg-type]
        return analyse_run(reader, settings)


def test_the_area_is_that_of_the_scores(runs: Runs) -> None:
    """DeLong without groups."""
    found = analysed(runs).defenses[0].thresholds
    assert found is not None
    expected = auc([s.is_attack for s in SAMPLES], [score_of(s) for s in SAMPLES]).ratio
    assert found.area == expected
    assert (found.scored_attacks, found.scored_benign) == (300, 300)
    assert found.precision_area.prevalence == 0.5


def test_variants_of_one_idea_widen_the_interval_of_the_area(runs: Runs) -> None:
    """Ten variants of a group that score alike are one piece of evidence."""
    grouped = [attack(n, group=f"g{n // 10}") for n in range(300)]
    found = analysed(runs, samples=[*grouped, *SAMPLES[300:]]).defenses[0].thresholds
    assert found is not None
    assert (found.area.groups, found.area.method) == (330, "delong by group, logit")


def test_limits_are_chosen_on_one_half_and_measured_on_the_other(runs: Runs) -> None:
    """The two halves share no group, and 0.1 % cannot be shown by 150 benign samples."""
    found = analysed(runs).defenses[0].thresholds
    assert found is not None
    strict, one_percent, five = found.limited
    assert not strict.is_resolvable
    assert "not resolvable" in strict.reason
    assert one_percent.is_resolvable
    assert five.rates is not None
    measured = five.rates.false_positive_rate
    assert 0 < measured.trials < 300
    assert (measured.value or 1) < 0.12


def test_curves_end_where_everything_is_blocked(runs: Runs) -> None:
    """Thinned, but never cut."""
    found = analysed(runs).defenses[0].thresholds
    assert found is not None
    assert len(found.points) <= 120
    last = found.points[-1]
    assert (last.true_positive_rate, last.false_positive_rate, last.precision) == (1.0, 1.0, 0.5)
    assert sum(found.histogram.attacks) == 300
    assert found.histogram.edges[0] == 0.0
    assert found.histogram.edges[-1] == 1.0


def test_curves_carry_the_default_interval_at_each_threshold(runs: Runs) -> None:
    """Wilson without groups; wider where variants pass a threshold together."""
    found = analysed(runs).defenses[0].thresholds
    grouped = [attack(n, group=f"g{(n * 37) % 300 // 10}") for n in range(300)]
    wider = analysed(runs, samples=[*grouped, *SAMPLES[300:]]).defenses[0].thresholds
    assert found is not None
    assert wider is not None
    for point in found.points:
        low, high = point.true_positive_limits
        expected = wilson(round(300 * point.true_positive_rate), 300)
        assert (low, high) == pytest.approx((expected.low, expected.high))
        assert point.precision_limits[0] <= point.precision <= point.precision_limits[1]
    middle = len(found.points) // 2
    narrow, wide = (
        each.points[middle].true_positive_limits[1] - each.points[middle].true_positive_limits[0]
        for each in (found, wider)
    )
    assert wide > 1.5 * narrow


def test_costs_choose_a_threshold_for_each_prevalence(runs: Runs) -> None:
    """Only where costs were stated."""
    assert analysed(runs).defenses[0].thresholds.chosen == ()  # type: ignore[union-attr]
    found = analysed(runs, cost_missed_attack=100.0, cost_false_alarm=1.0, prevalences=(0.001, 0.1))
    chosen = found.defenses[0].thresholds.chosen  # type: ignore[union-attr]
    assert [point.stakes.prevalence for point in chosen] == [0.001, 0.1]


def test_where_blocking_nothing_is_cheapest_nothing_is_blocked(runs: Runs) -> None:
    """Scores that say nothing, rare attacks and dear false alarms: every attack gets through."""
    found = analysed(
        runs,
        lambda position, _: allow(position % 7 / 10),
        cost_missed_attack=1.0,
        cost_false_alarm=100.0,
        prevalences=(0.001,),
    )
    (point,) = found.defenses[0].thresholds.chosen  # type: ignore[union-attr]
    assert point.threshold is None
    assert (point.rates.attack_success_rate.value, point.rates.false_positive_rate.value) == (1, 0)
    assert point.rates.attack_success_rate.trials > 0


def test_without_scores_there_is_nothing_to_choose(runs: Runs) -> None:
    """A score is never invented."""
    assert analysed(runs, lambda _p, _s: block()).defenses[0].thresholds is None


def test_scores_on_one_side_alone_choose_nothing(runs: Runs) -> None:
    """Both sides are needed."""
    found = analysed(runs, lambda _p, s: block(0.9) if s.is_attack else allow())
    assert found.defenses[0].thresholds is None


def test_a_new_threshold_decides_anew_without_a_call(runs: Runs) -> None:
    """`guardmark report RUN --threshold one=0.6`."""
    found = analysed(runs, thresholds=(("one", 0.6),)).defenses[0]
    expected = sum(score_of(s) < 0.6 for s in SAMPLES if s.is_attack)
    assert found.card.attack_success_rate.successes == expected
    assert (found.threshold, found.is_redecided) == (0.6, True)


def test_errors_stay_errors_under_a_new_threshold(runs: Runs) -> None:
    """What was not answered cannot be decided."""
    found = analysed(
        runs, lambda p, s: failed() if p < 10 else scored(p, s), thresholds=(("one", 0.6),)
    ).defenses[0]
    assert found.card.confusion.errors == 10


def test_a_threshold_needs_scores(runs: Runs) -> None:
    """The message says what is missing."""
    with pytest.raises(ConfigError, match="carry no score"):
        analysed(runs, lambda _p, _s: block(), thresholds=(("one", 0.6),))


def test_a_threshold_needs_a_defense_of_the_run(runs: Runs) -> None:
    """With a hint for typing mistakes."""
    with pytest.raises(UnknownName, match="Did you mean 'one'"):
        analysed(runs, thresholds=(("onee", 0.6),))


def test_every_defense_has_the_same_halves(runs: Runs) -> None:
    """Drawn once by the names of the groups; limits are measured on what is left."""
    samples = [attack(n, group=f"g{n // 3}") for n in range(90)] + SAMPLES[300:]
    planned = [Planned(name=name, answers=scored, threshold=0.5) for name in ("one", "two")]
    with runs.opened(samples, planned) as reader:
        frame = read_frame(reader, AnalysisSettings.of(reader.manifest()))
        both = [each.thresholds for each in analyse_run(reader).defenses]
    expected = split_by_group([each.group or each.id for each in samples], seed=7)
    assert frame.is_calibration.tolist() == expected.tolist()
    assert frame.is_calibration is frame.is_calibration
    assert both[0] == both[1]
    assert both[0] is not None
    for point in both[0].limited:
        trials = point.rates and point.rates.false_positive_rate.trials
        assert trials in {None, int((~expected[90:]).sum())}


def test_a_guarantee_is_shown_on_one_half_and_measured_on_the_other(runs: Runs) -> None:
    """By groups where samples share one; without a threshold nothing is measured."""
    samples = [attack(n, group=f"g{n // 2}") for n in range(300)] + SAMPLES[300:]
    with runs.opened(samples, [Planned(name="one", answers=scored)]) as reader:
        frame = read_frame(reader, AnalysisSettings.of(reader.manifest()))
    half, limits = frame.is_calibration, ErrorLimits(fpr=0.5)
    chosen, rates = choose_guaranteed(frame, frame.arm("one"), limits)
    of_half = [(s, score_of(s)) for s, is_in in zip(samples, half, strict=True) if is_in]
    assert chosen == guarantee_threshold(
        [s.is_attack for s, _ in of_half],
        [score for _, score in of_half],
        limits=limits,
        groups=[s.group or s.id for s, _ in of_half],
    )
    assert chosen.threshold is not None
    assert rates is not None
    others = [s for s, is_in in zip(samples, half, strict=True) if not is_in and not s.is_attack]
    assert rates.false_positive_rate.trials == len(others)
    blocked = sum(score_of(s) >= chosen.threshold for s in others)
    assert rates.false_positive_rate.successes == blocked
    nothing, none = choose_guaranteed(frame, frame.arm("one"), ErrorLimits(fpr=0.0001))
    assert (nothing.threshold, none) == (None, None)


def test_the_curve_of_grouped_samples_counts_each_group_once(runs: Runs) -> None:
    """At every point the limits are those of the groups blocked from its threshold on."""
    samples = [attack(n, group=f"g{n // 5}") for n in range(300)] + SAMPLES[300:]
    found = analysed(runs, samples=samples).defenses[0].thresholds
    assert found is not None
    for point in found.points[:: len(found.points) // 6]:
        blocked = [s for s in samples if score_of(s) >= point.threshold]
        names = sorted({s.group or s.id for s in samples})
        rows, hits = (dict.fromkeys(names, 0) for _ in range(2))
        for each in blocked:
            rows[each.group or each.id] += 1
            hits[each.group or each.id] += each.is_attack
        expected = wilson_default([*hits.values()], [*rows.values()])
        assert point.precision_limits == pytest.approx((expected.low, expected.high), abs=1e-12)
        attacks = [sum(s.group == name for s in samples[:300]) for name in names]
        hit = wilson_default([*hits.values()], attacks)
        assert point.true_positive_limits == pytest.approx((hit.low, hit.high), abs=1e-12)
