"""Arms with guards before and behind a model, against counts made by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.analysis.small_pipelines import (
    SAFE_ANSWER,
    UNSAFE_ANSWER,
    PlannedPipeline,
    opened_pipeline,
    write_pipeline,
)
from tests.analysis.small_runs import Planned, allow, attack, benign, block, failed, garbled
from tests.oracles.slow.judged.pipeline import recount_pipeline
from tests.oracles.slow.source import open_source

from guardmark.analysis.pipeline.arms import ArmAnalysis
from guardmark.analysis.run import RunAnalysis, analyse_run
from guardmark.analysis.settings import AnalysisSettings
from guardmark.core.estimate import Estimate
from guardmark.core.manifest import Policy
from guardmark.core.outcome import Decision, Outcome, Verdict
from guardmark.core.place import Place
from guardmark.core.sample import Sample
from guardmark.reports.chapters.pipeline import write

SAMPLES = [*(attack(n) for n in range(10)), *(benign(n) for n in range(10))]
BOTH = {"input": "pre", "output": ["after"]}
ARMS = {
    "bare": {"input": [], "output": []},
    "before": {"input": ["pre"], "output": []},
    "behind": {"input": [], "output": ["after"]},
    "both": BOTH,
}


def blocks(*positions: int) -> Callable[[int, Sample], Decision]:
    """Block some positions and allow the others."""
    return lambda position, _sample: block() if position in positions else allow()


def harmful(_position: int, sample: Sample) -> Verdict:
    """Every attack succeeds, every benign sample is helped."""
    return UNSAFE_ANSWER if sample.is_attack else SAFE_ANSWER


def planned(
    pre: Callable[[int, Sample], Decision], after: Callable[[int, Sample], Decision]
) -> PlannedPipeline:
    """A pipeline with a guard before and one behind the model."""
    return PlannedPipeline(
        samples=SAMPLES,
        guards=[Planned(name="pre", answers=pre)],
        behind=[Planned(name="after", answers=after)],
        places=ARMS,
        judges={"judge": harmful},
        on_malformed=Policy.RECORD,
        on_error=Policy.RECORD,
    )


def analysed(folder: Path, plan: PlannedPipeline) -> RunAnalysis:
    """Write a run and analyse it."""
    with opened_pipeline(folder, plan) as reader:
        return analyse_run(reader, AnalysisSettings())


def arm_of(analysis: RunAnalysis, name: str) -> ArmAnalysis:
    """One arm by name."""
    assert analysis.pipeline is not None
    return next(arm for arm in analysis.pipeline.arms if arm.name == name)


def counts(estimate: Estimate) -> tuple[int, int]:
    """Successes and trials."""
    return estimate.successes, estimate.trials


PLAN = planned(pre=blocks(0, 1, 2, 10), after=blocks(2, 3, 4, 5, 11))


def test_a_block_at_either_place_ends_an_arm(tmp_path: Path) -> None:
    """Attacks 0 to 2 end before the model, 2 to 5 behind it: 4 get through both."""
    analysis = analysed(tmp_path, PLAN)
    wanted = {"bare": (10, 0), "before": (7, 1), "behind": (6, 1), "both": (4, 2)}
    for name, (harm, refused) in wanted.items():
        system = arm_of(analysis, name).system
        assert counts(system.attack_success_rate) == (harm, 10)
        assert counts(system.over_refusal_rate) == (refused, 10)
    assert counts(arm_of(analysis, "both").model.attack_success_rate) == (4, 4)


def test_each_guard_is_counted_on_what_reached_it(tmp_path: Path) -> None:
    """Attack 2 is stopped before the model, so the guard behind it stops three and not four."""
    analysis = analysed(tmp_path, PLAN)
    pre, after = arm_of(analysis, "both").stopped
    assert (pre.place, pre.guard) == (Place.INPUT, "pre")
    assert (after.place, after.guard) == (Place.OUTPUT, "after")
    assert (counts(pre.attacks), counts(pre.benign)) == ((3, 10), (1, 10))
    assert (counts(after.attacks), counts(after.benign)) == ((3, 7), (1, 9))
    (alone,) = arm_of(analysis, "behind").stopped
    assert counts(alone.attacks) == (4, 10)
    assert arm_of(analysis, "bare").stopped == ()
    assert arm_of(analysis, "bare").guard is None


def test_arms_are_compared_with_the_arm_without_guards_whatever_its_name(tmp_path: Path) -> None:
    """In pairs, on the same answers."""
    analysis = analysed(tmp_path, PLAN)
    gain = arm_of(analysis, "both").gain
    assert gain is not None
    assert gain.attack_success_rate.value == pytest.approx(-0.6)
    assert gain.over_refusal_rate.value == pytest.approx(0.2)
    assert arm_of(analysis, "bare").gain is None
    assert {each.name for each in analysis.system} == set(ARMS)


def test_what_a_guard_says_of_answers_is_no_defense_by_itself(tmp_path: Path) -> None:
    """It was shown answers, and of these only those that an arm needed."""
    analysis = analysed(tmp_path, PLAN)
    assert [each.name for each in analysis.defenses] == ["pre"]


def test_failures_are_counted_beside_the_rates_at_their_place(tmp_path: Path) -> None:
    """Attack 0 fails before the model, attack 1 behind it; the bounds hold both."""

    def pre(position: int, _sample: Sample) -> Decision:
        return failed() if position == 0 else allow()

    def after(position: int, _sample: Sample) -> Decision:
        return garbled() if position == 1 else blocks(0, 2, 3)(position, _sample)

    both = arm_of(analysed(tmp_path, planned(pre, after)), "both")
    assert counts(both.system.attack_success_rate) == (6, 8)
    assert counts(both.fail_closed.attack_success_rate) == (6, 10)
    # Let in, attack 0 is blocked behind the model all the same; attack 1 comes out.
    assert counts(both.fail_open.attack_success_rate) == (7, 10)
    before, behind = both.stopped
    assert counts(before.undecided) == (1, 20)
    assert counts(behind.undecided) == (1, 19)


def test_a_rewritten_text_stands_in_no_rate_and_is_said(tmp_path: Path) -> None:
    """The model was not asked with it: what would have come out is unknown."""

    def masks(position: int, _sample: Sample) -> Decision:
        if position in {0, 1}:
            return Decision(outcome=Outcome.ALLOW, text="[hidden]")
        return allow()

    analysis = analysed(tmp_path, planned(masks, blocks(0, 5)))
    both = arm_of(analysis, "both")
    assert counts(both.system.attack_success_rate) == (7, 8)
    assert counts(both.fail_open.attack_success_rate) == (9, 10)
    assert counts(both.fail_closed.attack_success_rate) == (7, 10)
    assert counts(both.stopped[0].rewritten) == (2, 20)
    assert "rewrote 2 of 20 texts at input" in str(write(analysis))


def test_plain_loops_count_the_same(tmp_path: Path) -> None:
    """A second way to the counts, which shares no code with the first."""

    def pre(position: int, sample: Sample) -> Decision:
        return failed() if position == 3 else blocks(0, 1, 12)(position, sample)

    plan = planned(pre, blocks(2, 4, 15))
    analysis = analysed(tmp_path, plan)
    (tmp_path / "again").mkdir()
    with open_source(write_pipeline(tmp_path / "again" / "records.sqlite", plan)) as source:
        counted = recount_pipeline(source)
    assert counted is not None
    for said in counted["arms"]:
        arm = arm_of(analysis, said["name"])
        for rate in ("attack_success_rate", "over_refusal_rate"):
            for scope, card in (("system", arm.system), ("model", arm.model)):
                found = said[scope][rate]
                assert counts(getattr(card, rate)) == (found["successes"], found["trials"])
        for found, stops in zip(said["stopped"], arm.stopped, strict=True):
            for key in ("attacks", "benign", "undecided"):
                rate_found = found[key]
                wanted = (rate_found["successes"], rate_found["trials"])
                assert counts(getattr(stops, key)) == wanted


def test_the_report_draws_each_arm(tmp_path: Path) -> None:
    """As a reader would: guards around the model, in their order."""
    analysis = analysed(tmp_path, PLAN)
    assert [arm_of(analysis, name).drawn for name in ARMS] == [
        "model",
        "pre -> model",
        "model -> after",
        "pre -> model -> after",
    ]
    assert "pre -> model -> after" in str(write(analysis))
