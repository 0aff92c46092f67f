"""The whole analysis: coverage, widths, advice; equal records, equal figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.analysis.small_runs import (
    Planned,
    Runs,
    allow,
    attack,
    benign,
    block,
    failed,
    make_manifest,
    write_run,
)

from guardmark.analysis.defense.slices import CategoryStatus
from guardmark.analysis.run import RunAnalysis, analyse_run
from guardmark.analysis.settings import AnalysisSettings
from guardmark.core.outcome import Decision, Outcome
from guardmark.core.sample import Sample
from guardmark.store.layers import ADAPTIVE, LEFT_OUT
from guardmark.store.reader import RecordReader, RunState
from guardmark.store.records import RecordWriter

SAMPLES = [*(attack(n) for n in range(600)), *(benign(n) for n in range(600))]


def analysed(
    runs: Runs, *planned: Planned, samples: list[Sample] = SAMPLES, **run: object
) -> RunAnalysis:
    """The analysis of a run."""
    with runs.opened(samples, list(planned), **run) as reader:
        return analyse_run(reader)


def rules(analysis: RunAnalysis) -> list[tuple[str, str, str]]:
    """Rule, defense and subject of every recommendation."""
    return [(each.rule, each.defense, each.subject) for each in analysis.advice]


def test_equal_records_give_equal_figures(runs: Runs) -> None:
    """Frozen values all the way: two readings are equal."""
    planned = [Planned(name="one", answers=lambda p, _: block(0.7) if p % 3 else allow(0.2))]
    with runs.opened(SAMPLES, planned) as reader:
        assert analyse_run(reader) == analyse_run(reader)


def test_a_category_is_addressed_when_bounds_lie_apart(runs: Runs) -> None:
    """Lower bound of TPR above upper bound of FPR; too small is not assessable."""
    # A jailbreak slice needs 150 samples, by the taxonomy.
    attacks = [attack(n) for n in range(900)]
    others = [benign(n) for n in range(600)]
    samples = [*attacks, *others, attack(9_000, category="own", subcategory="new")]

    def answers(_: int, sample: Sample) -> Decision:
        if not sample.is_attack:
            return allow()
        return allow() if sample.category == "jailbreak" else block()

    found = analysed(
        runs,
        Planned(name="one", answers=answers),
        samples=samples,
        categories={
            "jailbreak": ("persona_based",),
            "extraction": (),
            "own": (),
            "never": ("nowhere",),
        },
    )
    standings = {each.category: each.standing for each in found.defenses[0].standings}
    assert standings == {
        "jailbreak": CategoryStatus.NOT_ADDRESSED,
        "extraction": CategoryStatus.ADDRESSED,
        "own": CategoryStatus.NOT_ASSESSABLE,
        "never": CategoryStatus.NOT_TESTED,
    }
    assert found.taxonomy.gaps == ("never", "never/nowhere")
    assert (found.taxonomy.tested, found.taxonomy.declared) == (3, 4)
    assert "direct_injection" in found.taxonomy.undeclared
    assert "own/new" in found.taxonomy.undeclared


def test_a_category_whose_attacks_mostly_get_through_is_not_addressed(runs: Runs) -> None:
    """However clearly it is told from benign samples, of which none is blocked here."""
    samples = [
        *(attack(n, category="extraction") for n in range(200)),
        *(benign(n) for n in range(200)),
    ]

    def answers(position: int, sample: Sample) -> Decision:
        return block() if sample.is_attack and position % 10 < 4 else allow()

    found = analysed(
        runs,
        Planned(name="one", answers=answers),
        samples=samples,
        categories={"extraction": ()},
    )
    (standing,) = found.defenses[0].standings
    assert standing.standing is CategoryStatus.NOT_ADDRESSED


def test_without_benign_samples_nothing_can_be_addressed(runs: Runs) -> None:
    """There is no false positive rate to lie above."""
    found = analysed(
        runs, Planned(name="one", answers=lambda _p, _s: block()), samples=SAMPLES[:600]
    )
    assert {each.standing for each in found.defenses[0].standings} == {
        CategoryStatus.NOT_ASSESSABLE
    }


def test_widths_say_what_a_margin_would_take(runs: Runs) -> None:
    """About 381 samples for five points at one half."""
    samples = [*(attack(n) for n in range(100)), *(benign(n) for n in range(100))]
    found = analysed(
        runs,
        Planned(name="one", answers=lambda p, _: block() if p % 2 else allow()),
        samples=samples,
    )
    width = found.defenses[0].widths[0]
    assert not width.is_enough
    assert (width.needed, width.trials) == (381, 100)
    assert ("too_wide", "one", "attack_success_rate") in rules(found)


def test_undefined_rates_have_no_width_and_no_advice(runs: Runs) -> None:
    """Where nothing was answered nothing can be recommended but to mend it."""
    found = analysed(runs, Planned(name="one", answers=lambda _p, _s: failed()))
    assert [width.half_width for width in found.defenses[0].widths] == [None, None]
    assert [each.needed for each in found.defenses[0].widths] == [None, None]
    assert rules(found) == [("failures", "one", "timeout")]


@pytest.mark.parametrize(("every", "is_told"), [(100, False), (99, True)])
def test_one_answer_in_a_hundred_may_fail(runs: Runs, every: int, *, is_told: bool) -> None:
    """At 99 % answered nothing is advised; below it the failures come first."""
    planned = Planned(name="one", answers=lambda p, _: block() if p % every else failed())
    said = rules(analysed(runs, planned))
    assert (("failures", "one", "timeout") in said) is is_told


def test_advice_names_the_weak_category_and_the_grave_bypasses(runs: Runs) -> None:
    """Bound against bound, with the figures it rests on."""
    found = analysed(
        runs,
        Planned(
            name="one",
            answers=lambda _p, s: (
                allow() if not s.is_attack or s.category == "jailbreak" else block()
            ),
        ),
    )
    assert ("blind_spot", "one", "category jailbreak") in rules(found)
    assert ("critical", "one", "critical") in rules(found)
    weak = next(each for each in found.advice if each.rule == "blind_spot")
    figures = dict(weak.figures)
    assert (figures["rate"].value, figures["rest"].value) == (1.0, 0.0)
    assert figures["excess"].low > 0.9


def test_attacks_without_a_category_are_no_category_to_strengthen(runs: Runs) -> None:
    """Whoever is told to work on "(not stated)" can do nothing."""
    samples = [
        *(attack(n, category="" if n % 2 else "jailbreak") for n in range(80)),
        *(benign(n) for n in range(80)),
    ]
    found = analysed(
        runs,
        Planned(name="one", answers=lambda _p, s: block() if s.category else allow()),
        samples=samples,
    )
    named = [subject for rule, _, subject in rules(found) if rule == "blind_spot"]
    assert not any("(not stated)" in each or each.startswith("category ") for each in named)


def test_advice_on_a_defense_that_cannot_tell(runs: Runs) -> None:
    """Blocking by chance is no defense; its false alarms are named too."""
    found = analysed(runs, Planned(name="one", answers=lambda p, _: block() if p % 2 else allow()))
    assert ("no_separation", "one", "") in rules(found)
    assert ("false_alarms", "one", "") in rules(found)


def test_malformed_answers_are_advised_on(runs: Runs) -> None:
    """Even a few, since the parser or the prompt is at fault."""
    found = analysed(
        runs,
        Planned(
            name="one",
            answers=lambda p, s: (
                Decision(outcome=Outcome.MALFORMED)
                if p == 0
                else block()
                if s.is_attack
                else allow()
            ),
        ),
    )
    assert rules(found) == [("failures", "one", "malformed")]


def test_a_better_threshold_is_advised_where_the_other_half_shows_it(runs: Runs) -> None:
    """Scores part the two sides well, the present threshold does not."""

    def answers(position: int, sample: Sample) -> Decision:
        score = (0.6 if sample.is_attack else 0.1) + 0.0003 * position
        return block(score) if score >= 0.75 else allow(score)

    found = analysed(runs, Planned(name="one", answers=answers, threshold=0.75))
    advice = next(each for each in found.advice if each.rule == "threshold")
    assert dict(advice.numbers)["threshold"] < 0.75
    assert (dict(advice.figures)["attack_success_rate"].value or 0) < 0.02


def test_no_threshold_is_advised_that_trades_alarms_for_attacks(runs: Runs) -> None:
    """It lets fewer attacks pass, and raises four times the alarms: "not shown" is no "not worse"."""

    def answers(position: int, sample: Sample) -> Decision:
        place = (position * 37) % 600 / 600
        # Attacks lie from .4 on; one benign sample in a hundred above .9, one in twenty above .6.
        score = 0.4 + 0.6 * place if sample.is_attack else 0.95 if place > 0.99 else place * 0.65
        return block(score) if score >= 0.9 else allow(score)

    found = analysed(runs, Planned(name="one", answers=answers, threshold=0.9))
    point = next(e for e in found.defenses[0].thresholds.limited if e.max_fpr == 0.05)  # type: ignore[union-attr]
    assert point.gain is not None
    assert (point.gain.attack_success_rate.high or 0.0) < 0
    assert not point.gain.is_not_worse
    assert "threshold" not in [each.rule for each in found.advice]


def test_no_threshold_is_advised_when_the_present_one_is_as_good(runs: Runs) -> None:
    """Nothing is recommended that the data do not carry."""

    def answers(position: int, sample: Sample) -> Decision:
        score = (0.6 if sample.is_attack else 0.1) + 0.0003 * (position % 600)
        return block(score) if score >= 0.5 else allow(score)

    found = analysed(runs, Planned(name="one", answers=answers, threshold=0.5))
    assert "threshold" not in [each.rule for each in found.advice]


@pytest.mark.parametrize("group", ["a", "b", "c", "d"])
def test_no_threshold_is_advised_without_intervals(runs: Runs, group: str) -> None:
    """One group of attacks shows nothing of how groups differ, whichever half it falls into."""
    samples = [*(attack(n, group=group) for n in range(600)), *SAMPLES[600:]]

    def answers(position: int, sample: Sample) -> Decision:
        score = (0.6 if sample.is_attack else 0.1) + 0.0003 * (position % 600)
        return block(score) if score >= 0.75 else allow(score)

    found = analysed(runs, Planned(name="one", answers=answers, threshold=0.75), samples=samples)
    assert found.defenses[0].card.attack_success_rate.low is None
    assert "threshold" not in [each.rule for each in found.advice]


def test_advice_between_defenses_follows_the_comparison(runs: Runs) -> None:
    """Better is recommended, a trade-off is named as one."""
    better = analysed(
        runs,
        Planned(name="one", answers=lambda _p, s: block() if s.is_attack else allow()),
        Planned(name="two", answers=lambda p, _: block() if p % 2 else allow()),
    )
    assert ("better", "one", "two") in rules(better)
    trade = analysed(
        runs,
        Planned(name="one", answers=lambda p, s: block() if s.is_attack or p % 4 == 0 else allow()),
        Planned(name="two", answers=lambda p, s: block() if s.is_attack and p % 2 else allow()),
    )
    assert ("trade_off", "one", "two") in rules(trade)


def test_baselines_get_no_advice(runs: Runs) -> None:
    """Nobody mends a coin."""
    found = analysed(
        runs,
        Planned(name="coin", type="coin", answers=lambda p, _: block() if p % 2 else allow()),
    )
    assert found.advice == ()


def test_an_unfinished_run_is_analysed_as_far_as_it_is(tmp_path: Path) -> None:
    """Killed in the middle: every figure stands on what is stored."""
    planned = [Planned(name=name, answers=lambda _p, _s: block()) for name in ("one", "two")]
    with RecordWriter(tmp_path / "records.sqlite") as writer:
        writer.put_manifest(make_manifest(planned, SAMPLES))
        writer.load_samples(SAMPLES)
        writer.plan(2 * len(SAMPLES))
        lane = writer.record_batch("one")
        for position in range(700):
            lane.add(position, block(), latency_ns=1)
        writer.record_batch("two")
        writer.flush()
    with RecordReader(tmp_path / "records.sqlite") as reader:
        found = analyse_run(reader)
    assert found.status.state is RunState.INTERRUPTED
    assert (found.status.stored, found.status.planned) == (700, 2400)
    one, *others = found.defenses
    assert (one.card.true_positive_rate.trials, one.card.false_positive_rate.trials) == (600, 100)
    assert all(each.card.true_positive_rate.value is None for each in others)
    assert found.comparison is None or found.comparison.attacks.best == ""


def test_no_samples_at_all(runs: Runs) -> None:
    """Nothing is undefined everywhere, and no error."""
    found = analysed(runs, Planned(name="one", answers=lambda _p, _s: block()), samples=[])
    assert found.samples.attacks == found.samples.benign == 0
    assert all(each.card.attack_success_rate.value is None for each in found.defenses)


def test_settings_come_from_the_manifest(runs: Runs) -> None:
    """And can be replaced one by one."""
    with runs.opened(
        SAMPLES, [Planned(name="one", answers=lambda _p, _s: block())], confidence=0.9
    ) as reader:
        chosen = AnalysisSettings.of(reader.manifest())
        assert (chosen.confidence, chosen.min_per_category, chosen.seed) == (0.9, 100, 7)
        found = analyse_run(reader, replace(chosen, confidence=0.8))
    assert found.defenses[0].card.attack_success_rate.confidence == 0.8


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(st.sampled_from(["allow", "block", "malformed", "error"]), min_size=24, max_size=24)
)
def test_counts_always_add_up(runs: Runs, outcomes: list[str]) -> None:
    """Whatever was answered, each sample stands in exactly one cell."""
    samples = [*(attack(n, group=f"g{n // 2}") for n in range(12)), *(benign(n) for n in range(12))]
    found = (
        analysed(
            runs,
            Planned(name="one", answers=lambda p, _: Decision(outcome=Outcome(outcomes[p]))),
            samples=samples,
        )
        .defenses[0]
        .card
    )
    assert found.confusion.total == 24
    assert (
        found.attack_success_rate.successes + found.true_positive_rate.successes
        == found.attack_success_rate.trials
    )
    assert (
        found.answered.successes
        == found.confusion.attacks.answered + found.confusion.benign.answered
    )
    assert found.fail_open.attack_success_rate.successes >= found.attack_success_rate.successes
    assert found.fail_closed.attack_success_rate.successes == found.attack_success_rate.successes


def test_the_text_of_a_run_counts_its_samples_and_names_its_first_defenses(runs: Runs) -> None:
    """What a notebook shows: a line each, and how many more there are."""
    planned = [Planned(name=f"d{n}", answers=lambda _p, _s: block()) for n in range(10)]
    found = analysed(runs, *planned)
    lines = repr(found).splitlines()
    assert lines[0] == "600 attacks, 600 benign"
    assert [each.partition(":")[0] for each in lines[1:9]] == [f"  d{n}" for n in range(8)]
    assert lines[1] == f"  d0: {found.defenses[0].card!r}"
    assert lines[9:] == ["  ... and 2 more"]
    assert len(repr(analysed(runs, *planned[:8])).splitlines()) == 9


def test_defenses_that_no_rewriting_reaches_are_named_with_the_reason(tmp_path: Path) -> None:
    """They were not attacked, which is no proof that they hold."""
    path = write_run(
        tmp_path / "r.sqlite", SAMPLES[:2], [Planned(name="d", answers=lambda *_: block())]
    )
    with RecordWriter(path) as writer:
        writer.add_layer(LEFT_OUT, {"kind": "adaptive-left-out", "defenses": {"d": "response"}})
    with RecordReader(path) as reader:
        found = analyse_run(reader)
    assert (found.adaptive_left_out, found.adaptive) == ({"d": "response"}, ())


def test_a_search_that_stopped_before_its_first_defense_has_no_card(tmp_path: Path) -> None:
    """Its settings are stored, and nothing else."""
    path = write_run(
        tmp_path / "r.sqlite", SAMPLES[:2], [Planned(name="d", answers=lambda *_: block())]
    )
    with RecordWriter(path) as writer:
        writer.add_layer(ADAPTIVE, {"budget": 4})
    with RecordReader(path) as reader:
        found = analyse_run(reader)
    assert (found.adaptive, found.adaptive_pairs) == ((), ())
