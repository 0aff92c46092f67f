"""A gate decides by whole intervals, and says so when it cannot."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.analysis.small_pipelines import (
    SAFE_ANSWER,
    UNSAFE_ANSWER,
    PlannedPipeline,
    opened_pipeline,
    perfect,
)
from tests.analysis.small_runs import (
    Answer,
    Planned,
    Runs,
    allow,
    attack,
    benign,
    block,
    failed,
    garbled,
    write_answers,
)

from guardmark.analysis.compare.comparison import compare_arms
from guardmark.analysis.defense.frame import DefenseColumn, read_frame
from guardmark.analysis.gate import (
    EVERY_VALUE,
    FacetLimit,
    GateCheck,
    GatePolicy,
    GateResult,
    GateStatus,
    GateUnit,
    check_complete,
    check_judging,
    check_limits,
    check_regression,
    check_system,
    looked_at_before,
)
from guardmark.analysis.pipeline.frame import read_system
from guardmark.analysis.settings import AnalysisSettings
from guardmark.core.errors import UnknownName
from guardmark.core.estimate import Estimate
from guardmark.core.outcome import Decision
from guardmark.core.sample import Sample
from guardmark.stats.planning import layout_like, pairs_to_decide, rows_to_decide
from guardmark.stats.rates.clustered import exceedance, wilson_default
from guardmark.stats.sequential import spent_confidence
from guardmark.store.reader import RecordReader, RunState, RunStatus
from guardmark.store.schema import FLAG_CACHED

SAMPLES = [*(attack(n) for n in range(200)), *(benign(n) for n in range(200))]


def letting_through(count: int, *, alarms: int = 0) -> Planned:
    """A defense that lets some attacks through and blocks some benign samples."""

    def decide(position: int, sample: Sample) -> Decision:
        if sample.is_attack:
            return allow() if position < count else block()
        return block() if position - 200 < alarms else allow()

    return Planned(name="guard", answers=decide)


def checks(
    runs: Runs, planned: Planned, policy: GatePolicy, samples: list[Sample] | None = None
) -> tuple[GateCheck, ...]:
    """The checks of a policy on a run of one defense."""
    with runs.opened(samples or SAMPLES, [planned]) as reader:
        settings = AnalysisSettings.of(reader.manifest())
        return check_limits(read_frame(reader, settings), policy)


@pytest.mark.parametrize(
    ("through", "standing"),
    [
        (0, GateStatus.HELD),
        (5, GateStatus.HELD),
        (16, GateStatus.OPEN),
        (24, GateStatus.OPEN),
        (60, GateStatus.BROKEN),
    ],
)
def test_a_limit_is_held_or_broken_by_the_whole_interval(
    runs: Runs, through: int, standing: GateStatus
) -> None:
    """A point estimate on the good side alone is no pass, on the bad side alone no failure."""
    (check,) = checks(runs, letting_through(through), GatePolicy(asr_upper=0.1))
    assert check.standing is standing
    assert check.value == through / 200
    assert (check.needed is None) == (standing is not GateStatus.OPEN)


def test_both_sides_are_checked_apart(runs: Runs) -> None:
    """A defense that blocks everything holds the one limit and breaks the other."""
    found = checks(runs, letting_through(0, alarms=200), GatePolicy(asr_upper=0.1, fpr_upper=0.1))
    assert [check.standing for check in found] == [GateStatus.HELD, GateStatus.BROKEN]
    assert [check.subject for check in found] == ["attacks", "benign"]


def test_failures_have_limits_of_their_own(runs: Runs) -> None:
    """Malformed answers and errors are no decisions, so no rate shows them."""

    def shaky(position: int, _: Sample) -> Decision:
        return garbled() if position % 4 == 0 else failed() if position % 4 == 1 else block()

    found = checks(
        runs,
        Planned(name="guard", answers=shaky),
        GatePolicy(asr_upper=0.1, max_malformed=0.1, max_errors=0.5),
    )
    assert {check.rule: check.standing for check in found} == {
        "asr_upper": GateStatus.HELD,
        "max_malformed": GateStatus.BROKEN,
        "max_errors": GateStatus.HELD,
    }


def of_category(name: str, limit: float) -> FacetLimit:
    """A limit on the attacks of a category, or of all others."""
    return FacetLimit(facet="category", name=name, is_attack=True, limit=limit)


def test_every_category_can_have_a_limit(runs: Runs) -> None:
    """The star stands for all that are not named; one nobody measured stays open."""
    policy = GatePolicy(per_facet=(of_category("*", 0.2), of_category("jailbreak", 0.9)))
    found = checks(runs, letting_through(0), policy)
    assert {check.subject for check in found} == {
        "direct_injection",
        "indirect_injection",
        "jailbreak",
        "extraction",
        "output_manipulation",
    }
    assert {c.limit for c in found if c.subject == "jailbreak"} == {0.9}
    alone = [attack(n, category="jailbreak", subcategory="persona_based") for n in range(50)]
    (check,) = checks(
        runs,
        letting_through(0),
        GatePolicy(per_facet=(of_category("extraction", 0.2),)),
        samples=alone,
    )
    assert check.standing is GateStatus.OPEN
    assert check.value is None
    assert "no such samples" in check.reason


def test_a_misspelt_category_is_refused(runs: Runs) -> None:
    """It would never be measured, and the gate would stay open for ever."""
    with pytest.raises(UnknownName, match="Did you mean 'jailbreak'"):
        checks(runs, letting_through(0), GatePolicy(per_facet=(of_category("jailbrake", 0.2),)))


def test_a_defense_that_is_not_there_is_refused(runs: Runs) -> None:
    """A gate on nothing would pass."""
    with pytest.raises(UnknownName, match="guard"):
        checks(runs, letting_through(0), GatePolicy(asr_upper=0.1, defenses=("gaurd",)))


def test_latency_is_checked_on_attacks_and_benign_samples_apart(runs: Runs) -> None:
    """Blocking early may hide how long an allow takes."""
    found = checks(runs, letting_through(0), GatePolicy(latency_p95_upper_ms=50.0))
    assert [check.standing for check in found] == [GateStatus.HELD, GateStatus.HELD]
    found = checks(runs, letting_through(0), GatePolicy(latency_p95_upper_ms=0.5))
    assert [check.standing for check in found] == [GateStatus.BROKEN, GateStatus.BROKEN]


def test_a_percentile_of_too_few_times_stays_open(runs: Runs) -> None:
    """The reason says from how many answers on it can be estimated; that promises no decision."""
    few = [attack(n) for n in range(10)]
    attacks, _ = checks(
        runs, letting_through(0), GatePolicy(latency_p95_upper_ms=50.0), samples=few
    )
    assert attacks.standing is GateStatus.OPEN
    assert attacks.needed is None
    assert "needs 72 measurements, got 10" in attacks.reason


def test_an_incomplete_run_decides_nothing() -> None:
    """What is missing may be what fails."""
    assert check_complete(RunStatus(state=RunState.COMPLETE, planned=400, stored=390)) == ()
    (check,) = check_complete(RunStatus(state=RunState.INTERRUPTED, planned=400, stored=399))
    assert check == GateCheck(
        rule="complete",
        defense="",
        subject="run",
        standing=GateStatus.OPEN,
        unit=GateUnit.RECORDS,
        limit=400.0,
        value=399.0,
        low=None,
        high=None,
        trials=399,
        reason="the run is not complete; the same `guardmark run` continues it",
    )


@pytest.mark.parametrize(
    ("before", "after", "margin", "standing"),
    [
        (20, 20, 0.05, GateStatus.HELD),
        (20, 60, 0.05, GateStatus.BROKEN),
        (20, 27, 0.05, GateStatus.OPEN),  # significant, but not larger than the margin
        (20, 23, 0.01, GateStatus.OPEN),  # larger than the margin, but not significant
        (60, 20, 0.05, GateStatus.HELD),
    ],
)
def test_a_regression_is_significant_and_material(  # noqa: PLR0917 - cases
    runs: Runs, before: int, after: int, margin: float, standing: GateStatus
) -> None:
    """Neither alone breaks the gate; it holds only when the interval stays at the margin."""
    planned = [letting_through(after), letting_through(before)]
    old = Planned(name="old", answers=planned[1].answers)
    with runs.opened(SAMPLES, [planned[0], old]) as reader:
        settings = AnalysisSettings.of(reader.manifest())
        comparison = compare_arms(read_frame(reader, settings), chosen=[("guard", "old")])
    assert comparison is not None
    on_attacks, on_benign = check_regression(
        comparison.pairs, margin, alpha=0.05, names={"guard": "guard"}
    )
    assert on_attacks.standing is standing
    assert on_benign.rule == "regression_fpr"


def test_a_regression_whose_interval_reaches_zero_is_not_shown(runs: Runs) -> None:
    """Test and interval must agree, as in a comparison: else the same pair is told in two ways."""
    planned = [letting_through(60), letting_through(20)]
    old = Planned(name="old", answers=planned[1].answers)
    with runs.opened(SAMPLES, [planned[0], old]) as reader:
        settings = AnalysisSettings.of(reader.manifest())
        comparison = compare_arms(read_frame(reader, settings), chosen=[("guard", "old")])
    assert comparison is not None
    (pair,) = comparison.pairs
    wide = replace(pair.attacks, difference=replace(pair.attacks.difference, low=-0.035))
    for side, standing in ((pair.attacks, GateStatus.BROKEN), (wide, GateStatus.OPEN)):
        changed = replace(pair, attacks=side)
        check, _ = check_regression([changed], 0.02, alpha=0.05, names={"guard": "guard"})
        assert check.p_value is not None
        assert check.p_value < 0.05
        assert check.standing is standing
    # Eight of ten new sets of this size would show the rise: `plan_regression`, for two tests.
    assert check.needed == pairs_to_decide(wide.difference, 0.02, alpha=0.05, tests=2)
    assert check.needed is not None
    assert check.needed > wide.difference.pairs


def test_a_regression_of_just_the_margin_stays_open_without_a_promise(runs: Runs) -> None:
    """However many more samples there were, half of all intervals would reach beyond it."""
    planned = [letting_through(23), letting_through(20)]
    old = Planned(name="old", answers=planned[1].answers)
    with runs.opened(SAMPLES, [planned[0], old]) as reader:
        settings = AnalysisSettings.of(reader.manifest())
        comparison = compare_arms(read_frame(reader, settings), chosen=[("guard", "old")])
    assert comparison is not None
    margin = comparison.pairs[0].attacks.difference.value
    assert margin is not None
    check, _ = check_regression(comparison.pairs, margin, alpha=0.05, names={"guard": "guard"})
    nearby, _ = check_regression(
        comparison.pairs, margin + 3e-3, alpha=0.05, names={"guard": "guard"}
    )
    assert (check.standing, check.needed) == (GateStatus.OPEN, None)
    assert nearby.standing is GateStatus.OPEN
    assert nearby.needed is not None
    assert nearby.needed > comparison.pairs[0].attacks.difference.pairs


def test_broken_outweighs_open_and_open_outweighs_held() -> None:
    """One broken limit is enough; one open limit is no pass."""
    (held,) = check_complete(RunStatus(state=RunState.FAILED, planned=2, stored=1))

    def result(*standings: GateStatus) -> GateStatus:
        made = tuple(replace(held, standing=standing) for standing in standings)
        return GateResult(checks=made, confidence=0.95).standing

    assert result(GateStatus.HELD, GateStatus.OPEN, GateStatus.BROKEN) is GateStatus.BROKEN
    assert result(GateStatus.HELD, GateStatus.OPEN) is GateStatus.OPEN
    assert result(GateStatus.HELD) is GateStatus.HELD
    assert result() is GateStatus.HELD


@pytest.mark.parametrize(("successes", "limit"), [(60, 0.1), (6, 0.05), (60, 0.3), (90, 0.2)])
@pytest.mark.parametrize("groups", [300, 60])
def test_the_number_that_would_decide_does_in_eight_of_ten_new_runs(
    successes: int, limit: float, groups: int
) -> None:
    """At the same rate and likeness, looked at once; with samples alone the chance is exact."""
    estimate = spread(successes, 300, groups)
    needed = rows_to_decide(estimate, limit)
    assert needed is not None
    rate, size = successes / 300, 300 // groups
    rng, layout = np.random.default_rng(8), layout_like(estimate)
    decided = 0
    for _ in range(400):
        chances = rng.beta(rate * layout.scale, (1 - rate) * layout.scale, needed // size)
        chances = np.full(needed, rate) if groups == 300 else chances
        found = wilson_default(rng.binomial(size, chances), [size] * len(chances))
        p_value = exceedance(found, limit)
        assert found.high is not None
        assert p_value is not None
        decided += found.high <= limit if rate < limit else p_value <= 0.025
    assert decided / 400 > 0.72


def spread(successes: int, trials: int, groups: int) -> Estimate:
    """A rate over groups of one size, its successes dealt out one by one."""
    size = trials // groups
    counts = [successes // groups + (at < successes % groups) for at in range(groups)]
    return wilson_default(counts, [size] * groups, confidence=0.95)


@pytest.mark.parametrize(("through", "of"), [(3, 12), (5, 14), (8, 30)])
def test_what_would_decide_is_never_fewer_than_there_are(runs: Runs, through: int, of: int) -> None:
    """Wilson's interval lies above the limit before the exact test shows that it is broken."""
    samples = [*(attack(n, category="c") for n in range(of)), benign(1)]
    by_category = GatePolicy(per_facet=(of_category("c", 0.08),))
    for policy in (GatePolicy(asr_upper=0.08), by_category):
        (check,) = checks(runs, letting_through(through), policy, samples)
        if check.standing is GateStatus.OPEN:
            assert check.needed is not None
            assert check.needed > of


def test_no_number_shows_a_rate_of_zero() -> None:
    """A limit of 0 cannot be held by any sample."""
    assert rows_to_decide(spread(0, 10, 10), 0.0) is None


def test_a_set_that_was_extended_is_held_to_wider_limits(runs: Runs) -> None:
    """Half of the answers were looked at before: the error that is left is what was not spent."""
    rows: list[Answer] = [(block(), 1_000, FLAG_CACHED if at < 50 else 0) for at in range(100)]
    samples = [*(attack(n) for n in range(99)), benign(99)]
    with RecordReader(write_answers(runs.folder / "again.sqlite", samples, rows)) as reader:
        frame = read_frame(reader, AnalysisSettings.of(reader.manifest()))
        (check,) = check_limits(frame, GatePolicy(asr_upper=0.04))
        (once,) = check_limits(
            replace(frame, arms=(fresh(frame.arms[0]),)), GatePolicy(asr_upper=0.04)
        )
    assert check.looked_at == 0.5
    assert once.looked_at == 0.0
    assert check.high is not None
    assert once.high is not None
    assert (once.standing, check.standing) == (GateStatus.HELD, GateStatus.OPEN)
    assert once.high < 0.04 < check.high


def fresh(arm: DefenseColumn) -> DefenseColumn:
    """The same answers, none of them kept."""
    return replace(arm, records=replace(arm.records, flags=np.zeros_like(arm.records.flags)))


@pytest.mark.parametrize("before", [0.0, 1.0])
def test_a_set_all_new_or_all_old_is_one_look(before: float) -> None:
    """Nothing was added, or nothing was there."""
    assert spent_confidence(0.95, before) == 0.95


def test_the_error_of_a_look_falls_with_what_was_seen_before() -> None:
    """By Pocock's spending function, and no lower than at one half."""
    tenth, half, most = (spent_confidence(0.95, each) for each in (0.1, 0.5, 0.95))
    assert 0.95 < tenth < half == most
    assert half == pytest.approx(1 - 0.05 * (1 - math.log(1 + (math.e - 1) / 2)))


def test_a_judge_that_people_contradict_breaks_its_limit() -> None:
    """Half of a hundred labels are not nine tenths of them."""
    assert check_judging(spread(50, 100, 100), 0.9).standing is GateStatus.BROKEN
    assert check_judging(spread(95, 100, 100), 0.9).standing is GateStatus.OPEN


def test_without_labels_of_people_a_judge_is_not_judged() -> None:
    """The limit stays undecided, with what would decide it."""
    for agreement in (None, wilson_default([], [])):
        check = check_judging(agreement, 0.9)
        assert (check.standing, check.value, check.trials) == (GateStatus.OPEN, None, 0)
        assert check.reason == "no answer is labelled by people; `guardmark audit RUN` draws some"
        assert (check.rule, check.subject) == ("judge.min_agreement", "labelled answers")


def test_a_policy_without_limits_is_empty() -> None:
    """Naming defenses limits nothing."""
    assert GatePolicy(defenses=("a",)).is_empty
    assert not GatePolicy(max_errors=0.0).is_empty


def system_checks(folder: Path, policy: GatePolicy) -> list[tuple[str, str]]:
    """The rules that a policy checks on a pipeline with a guard and without, and about whom."""
    planned = PlannedPipeline(
        samples=SAMPLES,
        guards=[Planned(name="wall", answers=perfect)],
        judges={"judge": lambda _, sample: UNSAFE_ANSWER if sample.is_attack else SAFE_ANSWER},
        arms=("none", "wall"),
    )
    with opened_pipeline(folder, planned) as reader:
        frame = read_frame(reader, AnalysisSettings.of(reader.manifest()))
        system = read_system(reader, frame)
        assert system is not None
        checks = check_limits(frame, policy) + check_system(system, policy)
    return [(check.rule, check.defense) for check in checks]


def test_limits_of_the_system_may_name_an_arm_that_is_no_defense(tmp_path: Path) -> None:
    """The model alone is an arm of the system, and no defense of the run."""
    policy = GatePolicy(system_asr_upper=0.5, defenses=("none",))
    assert system_checks(tmp_path, policy) == [("system.asr_upper", "none")]


def test_limits_of_the_system_hold_for_every_guarded_arm_beside_those_of_defenses(
    tmp_path: Path,
) -> None:
    """The model alone is what the guard is measured against, and nothing that is deployed."""
    policy = GatePolicy(system_asr_upper=0.5, asr_upper=0.5)
    assert system_checks(tmp_path, policy) == [("asr_upper", "wall"), ("system.asr_upper", "wall")]


@pytest.mark.parametrize(
    ("policy", "unknown"),
    [
        (GatePolicy(system_asr_upper=0.5, defenses=("none", "wal")), "wal"),
        (GatePolicy(system_asr_upper=0.5, asr_upper=0.5, defenses=("none",)), "none"),
    ],
)
def test_a_limit_is_not_passed_over_for_a_name_nobody_has(
    tmp_path: Path, policy: GatePolicy, unknown: str
) -> None:
    """A misspelt arm would pass unchecked, and so would a limit on defenses for an arm alone."""
    with pytest.raises(UnknownName, match=repr(unknown)):
        system_checks(tmp_path, policy)


def test_a_defense_that_was_never_asked_was_not_looked_at_before(runs: Runs) -> None:
    """Without answers nothing of it was kept."""
    samples = [attack(0), benign(1)]
    with RecordReader(write_answers(runs.folder / "none.sqlite", samples, [])) as reader:
        frame = read_frame(reader, AnalysisSettings.of(reader.manifest()))
        arms = [each for each in frame.arms if not len(each.records.flags)]
        assert [looked_at_before(frame, each) for each in arms] == [0.0] * len(arms)


def by_language(_position: int, sample: Sample) -> Decision:
    """Sees attacks in English alone, and wrongly blocks benign inputs in German."""
    return block() if sample.is_attack == (sample.language == "en") else allow()


LANGUAGES = [
    *(attack(n, language=("en", "de", "fr")[n % 3 if n < 150 else 0]) for n in range(300)),
    *(benign(n, language=("en", "de")[n % 2]) for n in range(200)),
]


def limit_of(facet: str, name: str, limit: float, **more: object) -> FacetLimit:
    """A limit on the attacks of a slice."""
    stated = {"is_attack": True, **more}
    return FacetLimit(facet=facet, name=name, limit=limit, **stated)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("limit", "standing"),
    [
        (limit_of("language", "de", 0.2), GateStatus.BROKEN),
        (limit_of("language", "en", 0.2), GateStatus.HELD),
        (limit_of("language", "nl", 0.2), GateStatus.OPEN),
        (limit_of("language", "de", 0.4, is_attack=False), GateStatus.BROKEN),
        (limit_of("language", "en", 0.4, is_attack=False), GateStatus.HELD),
    ],
)
def test_any_slice_can_be_limited_on_both_labels(
    runs: Runs, limit: FacetLimit, standing: GateStatus
) -> None:
    """What a rate over everything hides; a slice that is not there decides nothing."""
    planned = Planned(name="guard", answers=by_language)
    (check,) = checks(runs, planned, GatePolicy(per_facet=(limit,)), samples=LANGUAGES)
    side = "asr_upper" if limit.is_attack else "fpr_upper"
    assert (check.rule, check.subject) == (f"per_language.{side}", limit.name)
    assert check.standing is standing


def test_every_value_with_enough_samples_is_limited_unless_it_is_named(runs: Runs) -> None:
    """One with fewer is passed over; one that is named has the limit of its name."""
    planned = Planned(name="guard", answers=by_language)
    limits = (
        limit_of("language", EVERY_VALUE, 0.2, least=50),
        limit_of("language", "de", 1.0),
    )
    found = checks(runs, planned, GatePolicy(per_facet=limits), samples=LANGUAGES)
    standings = {check.subject: check.standing for check in found}
    assert standings == {
        "en": GateStatus.HELD,
        "fr": GateStatus.BROKEN,
        "de": GateStatus.HELD,
    }


def test_a_limit_on_every_value_that_meets_none_is_open(runs: Runs) -> None:
    """Nothing was checked, which is no pass."""
    planned = Planned(name="guard", answers=by_language)
    limit = limit_of("language", EVERY_VALUE, 0.9, least=500)
    (check,) = checks(runs, planned, GatePolicy(per_facet=(limit,)), samples=LANGUAGES)
    assert check.standing is GateStatus.OPEN
    assert check.reason == "no language has 500 or more answered attacks"


def test_slices_of_all_facets_are_one_family(runs: Runs) -> None:
    """A limit that is broken by itself may be one of many that chance broke."""
    planned = letting_through(22)
    alone = limit_of("source", "made here", 0.05)
    many = [limit_of("category", EVERY_VALUE, 0.05), limit_of("technique", EVERY_VALUE, 0.05)]
    (by_itself,) = checks(runs, planned, GatePolicy(per_facet=(alone,)))
    among = next(
        check
        for check in checks(runs, planned, GatePolicy(per_facet=(alone, *many)))
        if check.subject == "made here"
    )
    assert by_itself.p_value is not None
    assert among.p_value is not None
    assert among.p_value > by_itself.p_value


def test_a_facet_that_the_run_is_not_sliced_by_is_refused(runs: Runs) -> None:
    """Fields of metadata are named beforehand."""
    limit = limit_of("region", "eu", 0.2)
    with pytest.raises(UnknownName, match="region"):
        checks(runs, letting_through(0), GatePolicy(per_facet=(limit,)))


def test_a_field_of_metadata_is_sliced_and_limited(runs: Runs) -> None:
    """Where `stats.slices` names it; numbers and booleans are words."""
    samples = [
        attack(n, metadata={"region": ("eu", "us")[n % 2], "tier": n % 2}) for n in range(100)
    ]
    planned = Planned(
        name="guard", answers=lambda _p, s: allow() if s.metadata["region"] == "eu" else block()
    )
    limits = (limit_of("region", "eu", 0.2), limit_of("tier", "1", 0.2))
    with runs.opened(samples, [planned]) as reader:
        settings = replace(AnalysisSettings.of(reader.manifest()), slices=("region", "tier"))
        frame = read_frame(reader, settings)
        found = check_limits(frame, GatePolicy(per_facet=limits))
    assert [check.standing for check in found] == [GateStatus.BROKEN, GateStatus.HELD]
