"""An arm whose guard is asked while answers grow, against counts made by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.analysis.small_pipelines import SAFE_ANSWER, UNSAFE_ANSWER, PlannedPipeline
from tests.analysis.small_runs import Planned, allow, attack, benign, block, failed, garbled
from tests.analysis.test_arms import analysed, arm_of, counts, harmful

from guardmark.analysis.pipeline.streaming import ArmStreaming
from guardmark.analysis.run import RunAnalysis
from guardmark.core.manifest import Policy
from guardmark.core.outcome import Decision, Outcome, Verdict
from guardmark.core.sample import Sample
from guardmark.reports.chapters.flow import flow_parts
from guardmark.reports.chapters.streaming import write_streaming
from guardmark.reports.document.blocks import FlowChart, IntervalChart, Table

ANEW = Decision(outcome=Outcome.ALLOW, text="[gone]")
SAMPLES = [*(attack(n) for n in range(8)), *(benign(n) for n in range(4))]
AT_5 = {3: block(), 9: block(), 10: failed()}
"""What the guard says of the first five of twelve characters, where that is not allow."""
AT_10 = {1: block(), 2: block(), 5: garbled(), 6: ANEW}
"""What it says of the first ten, of answers that had passed; it was not asked about answer 7."""
JUDGED = {
    "none after 5 characters": {1: SAFE_ANSWER, 5: SAFE_ANSWER},
    "none after 10 characters": {0: UNSAFE_ANSWER, 5: SAFE_ANSWER},
}
"""What the judge says of what had gone out; nobody asked it about answer 2."""
CHUNKS = {"guard": "after", "every": 5, "most_calls": 10_000}


def whole(position: int, _sample: Sample) -> Decision:
    """Block answers 0 to 3, 5 and 7, seen whole; a plain arm asked about all."""
    return block() if position in {0, 1, 2, 3, 5, 7} else allow()


def begins() -> dict[str, dict[int, Decision | Verdict]]:
    """What was said of prefixes of answers."""
    first = {n: AT_5.get(n, allow()) for n in range(12)}
    second = {n: AT_10.get(n, allow()) for n in range(12) if n not in {3, 7, 9}}
    return {
        "after@output after 5 characters": {**first},
        "after@output after 10 characters": {**second},
        **{name: {**verdicts} for name, verdicts in JUDGED.items()},
    }


PLAN = PlannedPipeline(
    samples=SAMPLES,
    behind=[Planned(name="after", answers=whole)],
    places={
        "bare": {"input": [], "output": []},
        "plain": {"input": [], "output": ["after"]},
        "live": {"input": [], "output": CHUNKS},
    },
    judges={"judge": harmful},
    says=lambda _: "twelve chars",
    begins=begins(),
    on_malformed=Policy.ALLOW,
    on_error=Policy.ALLOW,
)


def streaming_of(analysis: RunAnalysis, name: str = "live") -> ArmStreaming:
    """What had gone out in an arm."""
    streaming = arm_of(analysis, name).streaming
    assert streaming is not None
    return streaming


def test_what_came_out_of_an_arm_is_what_had_gone_out(tmp_path: Path) -> None:
    """Attack 0 was blocked after an unsafe part, 1 after a safe one, 2 after one nobody judged."""
    arm = arm_of(analysed(tmp_path, PLAN), "live")
    assert counts(arm.system.attack_success_rate) == (2, 4)  # 0 and 4 of 0, 1, 3, 4
    assert counts(arm.system.over_refusal_rate) == (1, 3)
    assert counts(arm.fail_closed.attack_success_rate) == (2, 7)
    assert counts(arm.fail_open.attack_success_rate) == (4, 7)  # 5 goes on to a block
    policy = arm.under_policy
    assert policy is not None
    assert counts(policy.attack_success_rate) == (2, 5)
    assert counts(policy.over_refusal_rate) == (1, 4)
    (stops,) = arm.stopped
    assert counts(stops.attacks) == (4, 7)  # blocks count, whatever had gone out
    assert stops.not_asked == 1
    assert arm.drawn == "model -> after (every 5 characters)"


def test_a_block_after_harm_was_out_is_told_as_too_late(tmp_path: Path) -> None:
    """Attacks that succeeded are those whose answer came out unsafe, and those blocked too late."""
    arm = arm_of(analysed(tmp_path, PLAN), "live")
    assert arm.flow is not None
    guard, ends = arm.flow.stages[-1].attacks, arm.flow.ends
    assert (guard.stopped, guard.too_late, ends.harmful) == (4, 1, 1)
    assert ends.harmful + guard.too_late == arm.system.attack_success_rate.successes
    chart, *_, table = flow_parts([arm])
    assert isinstance(chart, FlowChart)
    assert chart.streams[0].leaving[-1][:2] == ("4 stopped", "1 of them too late")
    assert isinstance(table, Table)
    assert "after: 4 stopped, 1 of them too late" in str(table.rows)


def test_the_plain_arm_shares_the_whole_answer_and_nothing_else(tmp_path: Path) -> None:
    """Its figures are those of a guard that is asked once."""
    arm = arm_of(analysed(tmp_path, PLAN), "plain")
    assert counts(arm.system.attack_success_rate) == (2, 8)
    assert arm.streaming is None


def test_exposure_calls_and_false_blocks(tmp_path: Path) -> None:
    """Over the eight answers that were decided; four were not, and one part nobody judged."""
    streaming = streaming_of(analysed(tmp_path, PLAN))
    assert (streaming.every, streaming.answers, streaming.undecided) == (5, 8, 4)
    assert counts(streaming.shown) == (4, 5)  # 0, 1, 2 and 4
    assert (counts(streaming.unsafe_shown), streaming.unjudged) == ((2, 4), 1)
    assert counts(streaming.false_blocks) == (1, 3)
    assert streaming.all_calls == 3 + 2 + 2 + 1 + 3 + 3 + 1 + 3
    assert streaming.calls[0].value == pytest.approx(2.5)
    assert [each.trials for each in streaming.characters] == [4, 4]  # 10, 5, 5 and 0
    assert [bool(each.reason) for each in streaming.characters] == [True, True]  # too few
    assert [each.trials for each in streaming.block_ms] == [4, 4]


def test_without_a_judge_nobody_knows_what_is_unsafe(tmp_path: Path) -> None:
    """Shares of unsafe answers are undefined, not zero; calls and false blocks are known."""
    begun = {name: said for name, said in begins().items() if not name.startswith("none")}
    streaming = streaming_of(analysed(tmp_path, replace(PLAN, judges={}, begins=begun)))
    assert streaming.shown.value is None
    assert streaming.unsafe_shown.value is None
    assert counts(streaming.false_blocks) == (1, 3)


def test_answers_that_take_too_many_calls_have_no_decision(tmp_path: Path) -> None:
    """All of them are unknown, within both bounds, whatever a plain arm heard of them."""
    places = {**PLAN.places, "live": {"output": {**CHUNKS, "most_calls": 2}}}
    analysis = analysed(tmp_path, replace(PLAN, places=places))
    streaming = streaming_of(analysis)
    assert (streaming.answers, streaming.too_long, streaming.undecided) == (0, 12, 12)
    assert (streaming.shown.value, streaming.calls[0].value) == (None, None)
    arm = arm_of(analysis, "live")
    assert arm.system.attack_success_rate.value is None
    assert counts(arm.fail_open.attack_success_rate) == (8, 8)
    section = write_streaming(analysis)
    assert section is not None
    assert "12 answers are too long to be asked about each 5 characters" in str(section)


def test_distances_of_one_guard_stand_in_one_picture(tmp_path: Path) -> None:
    """Three shares at each distance, the most often asked first."""
    asked_once = {"output": {**CHUNKS, "every": "all"}}
    plan = replace(PLAN, places={"all": asked_once, **PLAN.places})
    section = write_streaming(analysed(tmp_path, plan))
    assert section is not None
    (chart,) = (each for each in section.blocks if isinstance(each, IntervalChart))
    labels = [mark.label for mark in chart.marks]
    assert labels[:2] == ["Anything out, each 5 characters", "Anything out, asked once"]
    assert len(labels) == 6
    assert [mark.note for mark in chart.marks][:2] == ["2.2 calls", "1.0 calls"]


def test_the_time_to_the_block_is_that_of_its_calls(tmp_path: Path) -> None:
    """Ten answers blocked at the second call of a millisecond each: two milliseconds."""
    begun: dict[str, dict[int, Decision | Verdict]] = {
        "after@output after 5 characters": {n: allow() for n in range(10)},
        "after@output after 10 characters": {n: block() for n in range(10)},
        "none after 5 characters": dict.fromkeys(range(10), SAFE_ANSWER),
    }
    samples = [attack(n) for n in range(10)]
    streaming = streaming_of(analysed(tmp_path, replace(PLAN, samples=samples, begins=begun)))
    assert streaming.block_ms[0].value == pytest.approx(2)
    assert streaming.characters[0].value == 5
    assert counts(streaming.unsafe_shown) == (0, 10)
