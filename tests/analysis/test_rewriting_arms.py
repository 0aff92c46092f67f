"""Arms whose guards write texts anew, against counts made by hand and by plain loops."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.analysis.small_pipelines import (
    REFUSAL,
    SAFE_ANSWER,
    UNSAFE_ANSWER,
    PlannedPipeline,
    write_pipeline,
)
from tests.analysis.small_runs import Planned, allow, attack, benign, block, failed
from tests.analysis.test_arms import arm_of, counts, harmful
from tests.oracles.slow.judged.pipeline import recount_pipeline
from tests.oracles.slow.source import open_source

from guardmark.analysis.run import RunAnalysis, analyse_run
from guardmark.analysis.settings import AnalysisSettings
from guardmark.core.manifest import Policy
from guardmark.core.outcome import (
    BlockedAt,
    Decision,
    ErrorKind,
    Evidence,
    Outcome,
    Response,
    Verdict,
)
from guardmark.core.record import Stage
from guardmark.core.sample import Sample
from guardmark.reports.chapters.pipeline import write
from guardmark.store.reader import RecordReader
from guardmark.store.records import RecordWriter

SAMPLES = [*(attack(n) for n in range(10)), *(benign(n) for n in range(10))]
ARMS = {
    "bare": {"input": [], "output": []},
    "masked": {"input": ["mask"], "output": []},
    "both": {"input": ["mask", "words"], "output": ["wash"]},
}
Say = Callable[[int, Sample], Decision]


def writes(*positions: int, text: str = "[hidden]") -> Say:
    """Write some positions anew and allow the others."""
    anew = Decision(outcome=Outcome.ALLOW, text=text)
    return lambda position, _sample: anew if position in positions else allow()


def plan(mask: Say, words: Say, wash: Say) -> PlannedPipeline:
    """A pipeline with two guards before the model and one behind it."""
    return PlannedPipeline(
        samples=SAMPLES,
        guards=[Planned(name="mask", answers=mask), Planned(name="words", answers=words)],
        behind=[Planned(name="wash", answers=wash)],
        places=ARMS,
        judges={"judge": harmful},
        on_malformed=Policy.RECORD,
        on_error=Policy.RECORD,
    )


class Beside:
    """What is stored beside a plan, about texts that guards wrote."""

    def __init__(self, folder: Path, planned: PlannedPipeline) -> None:
        self.path = write_pipeline(folder / "records.sqlite", planned)
        self._writer = RecordWriter(self.path)

    def guard(self, name: str, said: dict[int, Decision]) -> None:
        """Store what a guard decided."""
        batch = self._writer.record_batch(name)
        for position, decision in said.items():
            batch.add(position, decision, latency_ns=1_000_000)

    def model(self, after: str, said: dict[int, Response]) -> None:
        """Store what the model answered."""
        batch = self._writer.record_batch(f"none{after}", Stage.MODEL)
        for position, answer in said.items():
            batch.add(position, answer, latency_ns=1_000_000)

    def judge(self, after: str, said: dict[int, Verdict]) -> None:
        """Store what the judge said."""
        batch = self._writer.record_batch(f"none{after}", Stage.JUDGE)
        for position, verdict in said.items():
            batch.add(position, verdict, latency_ns=1_000_000)

    def analysed(self) -> RunAnalysis:
        """Close the run and analyse it."""
        self._writer.close()
        with RecordReader(self.path) as reader:
            return analyse_run(reader, AnalysisSettings())


ANSWER = Response(text="answer")


def masked_run(folder: Path) -> Beside:
    """Attacks 0 to 3 and benign samples 10 and 11 are masked; the judge finds one still unsafe."""
    beside = Beside(folder, plan(writes(0, 1, 2, 3, 10, 11), writes(), writes()))
    places = [0, 1, 2, 3, 10, 11]
    beside.model(" after mask", dict.fromkeys(places, ANSWER))
    verdicts = dict.fromkeys(places, SAFE_ANSWER) | {3: UNSAFE_ANSWER, 11: REFUSAL}
    beside.judge(" after mask", verdicts)
    return beside


def test_what_came_of_a_new_text_is_the_outcome_of_its_arm(tmp_path: Path) -> None:
    """Three of four masked attacks fail; the other six succeed; one benign answer was spoiled."""
    masked = arm_of(masked_run(tmp_path).analysed(), "masked")
    assert counts(masked.system.attack_success_rate) == (7, 10)
    assert counts(masked.system.over_refusal_rate) == (1, 10)
    assert counts(masked.fail_open.attack_success_rate) == (7, 10)
    assert counts(masked.fail_closed.attack_success_rate) == (7, 10)
    assert counts(masked.coverage.known) == (20, 20)
    assert counts(masked.coverage.model_answered) == (20, 20)
    (mask,) = masked.stopped
    assert (counts(mask.rewritten), mask.not_asked) == ((6, 20), 0)
    ends = masked.rewritten
    assert ends is not None
    assert (counts(ends.attacks), counts(ends.benign)) == ((4, 10), (2, 10))
    assert counts(ends.attack_success_rate) == (1, 4)
    assert counts(ends.over_refusal_rate) == (1, 2)
    assert ends.saved is not None
    assert counts(ends.saved) == (3, 4)
    assert ends.spoiled is not None
    assert counts(ends.spoiled) == (1, 2)
    assert ends.unknown == 0


def test_the_bare_arm_keeps_its_own_answers(tmp_path: Path) -> None:
    """They are those to the samples as they are; differences between arms stand in pairs."""
    analysis = masked_run(tmp_path).analysed()
    bare, masked = arm_of(analysis, "bare"), arm_of(analysis, "masked")
    assert counts(bare.system.attack_success_rate) == (10, 10)
    assert bare.rewritten is None
    assert masked.gain is not None
    assert masked.gain.attack_success_rate.value == pytest.approx(-0.3)
    assert masked.gain.attack_success_rate.pairs == 10
    said = str(write(analysis))
    assert "Rewritten: what came of what guards wrote" in said


def test_the_next_guard_is_counted_on_the_new_text(tmp_path: Path) -> None:
    """About attack 0 as it is `words` says block, about what the mask left of it allow."""
    beside = Beside(
        tmp_path, plan(writes(0, 1), lambda at, _: block() if at in {0, 5} else allow(), writes())
    )
    beside.guard("words after mask", {0: allow(), 1: block()})
    beside.model(" after mask", {0: ANSWER, 1: ANSWER})  # the arm `masked` asks about both
    beside.judge(" after mask", {0: SAFE_ANSWER, 1: UNSAFE_ANSWER})
    beside.guard("wash@output after mask", {0: allow()})
    both = arm_of(beside.analysed(), "both")
    mask, words, wash = both.stopped
    assert counts(mask.rewritten) == (2, 20)
    assert counts(words.attacks) == (2, 10)  # 1, which was written anew, and 5
    assert counts(wash.attacks) == (0, 8)
    # 0 is safe, 1 and 5 are blocked, 7 others succeed.
    assert counts(both.system.attack_success_rate) == (7, 10)
    assert both.rewritten is not None
    assert counts(both.rewritten.attacks) == (2, 10)
    assert counts(both.rewritten.attack_success_rate) == (0, 2)


def test_what_a_guard_left_of_an_answer_is_what_was_seen(tmp_path: Path) -> None:
    """Washed answers have verdicts of their own; those to masked requests are washed, too."""
    beside = Beside(tmp_path, plan(writes(0, 1), writes(), writes(2, 3, 4, 12, text="clean")))
    beside.guard("words after mask", {0: allow(), 1: allow()})
    beside.model(" after mask", {0: ANSWER, 1: ANSWER})
    beside.judge(" after mask", {0: UNSAFE_ANSWER, 1: UNSAFE_ANSWER})
    anew = Decision(outcome=Outcome.ALLOW, text="clean")
    beside.guard("wash@output after mask", {0: anew, 1: allow()})
    beside.judge(" after mask after wash@output", {0: SAFE_ANSWER})
    beside.judge(
        " after wash@output", {2: SAFE_ANSWER, 3: UNSAFE_ANSWER, 4: SAFE_ANSWER, 12: REFUSAL}
    )
    both = arm_of(beside.analysed(), "both")
    # 0, 2 and 4 end safe; 1, 3 and 5 to 9 do harm.
    assert counts(both.system.attack_success_rate) == (7, 10)
    assert counts(both.system.over_refusal_rate) == (1, 10)
    assert both.rewritten is not None
    assert counts(both.rewritten.attacks) == (5, 10)
    assert counts(both.rewritten.benign) == (1, 10)
    assert counts(both.rewritten.attack_success_rate) == (2, 5)
    assert [counts(each.rewritten) for each in both.stopped] == [(2, 20), (0, 20), (5, 20)]


def test_a_text_nobody_was_asked_about_is_unknown_and_said(tmp_path: Path) -> None:
    """Attack 2 was not asked about, attack 1 failed at the model: both are beside the rates."""
    beside = Beside(tmp_path, plan(writes(0, 1, 2), writes(), writes()))
    beside.model(" after mask", {0: ANSWER, 1: Response(text=None, error_kind=ErrorKind.LENGTH)})
    beside.judge(" after mask", {0: SAFE_ANSWER})
    analysis = beside.analysed()
    masked = arm_of(analysis, "masked")
    assert counts(masked.system.attack_success_rate) == (7, 8)
    assert counts(masked.fail_open.attack_success_rate) == (9, 10)
    assert counts(masked.fail_closed.attack_success_rate) == (7, 10)
    assert masked.stopped[0].not_asked == 1
    assert masked.rewritten is not None
    assert masked.rewritten.unknown == 2
    assert analysis.pipeline is not None
    assert analysis.pipeline.model_errors == 1
    assert "nobody was asked what comes of 1 of them" in str(write(analysis))


def test_a_mask_that_writes_every_benign_text_is_said(tmp_path: Path) -> None:
    """With what that costs: nine of ten benign samples are turned down."""
    everything = range(20)
    beside = Beside(tmp_path, plan(writes(*everything), writes(), writes()))
    beside.model(" after mask", dict.fromkeys(everything, ANSWER))
    beside.judge(" after mask", dict.fromkeys(everything, REFUSAL) | {10: SAFE_ANSWER})
    analysis = beside.analysed()
    masked = arm_of(analysis, "masked")
    assert counts(masked.system.attack_success_rate) == (0, 10)
    assert counts(masked.system.over_refusal_rate) == (9, 10)
    said = str(write(analysis))
    assert "its guards rewrite every benign sample (10 of 10)" in said
    assert "9 of 10 that are helped without a guard are turned down" in said


def test_the_filter_of_a_provider_stops_the_new_text_only(tmp_path: Path) -> None:
    """Attack 0 as it is was answered; what the mask made of it was filtered at the input."""
    beside = Beside(tmp_path, plan(writes(0), writes(), writes()))
    filtered = Response(
        text=None,
        blocked_at=BlockedAt.INPUT,
        evidence=Evidence(native_action="provider-input"),
    )
    beside.model(" after mask", {0: filtered})
    analysis = beside.analysed()
    bare, masked = arm_of(analysis, "bare"), arm_of(analysis, "masked")
    assert (bare.provider.at_input, bare.provider.at_output) == (0, 0)
    assert (masked.provider.at_input, masked.provider.at_output) == (1, 0)
    assert counts(masked.system.attack_success_rate) == (9, 10)


def test_plain_loops_count_the_same(tmp_path: Path) -> None:
    """A second way to the counts, which shares no code with the first."""

    def mask(position: int, sample: Sample) -> Decision:
        return failed() if position == 6 else writes(0, 1, 2, 3, 10, 11)(position, sample)

    beside = Beside(
        tmp_path, plan(mask, lambda at, _: block() if at in {5, 13} else allow(), writes(4, 12))
    )
    places = [0, 1, 2, 3, 10, 11]
    beside.guard("words after mask", dict.fromkeys(places, allow()) | {1: block(), 2: failed()})
    beside.model(" after mask", dict.fromkeys(places, ANSWER))
    verdicts = dict.fromkeys(places, SAFE_ANSWER) | {0: UNSAFE_ANSWER, 11: REFUSAL}
    beside.judge(" after mask", verdicts)
    beside.guard("wash@output after mask", dict.fromkeys([0, 3, 10, 11], allow()))
    beside.judge(" after wash@output", {4: SAFE_ANSWER})
    analysis = beside.analysed()
    with open_source(beside.path) as source:
        counted = recount_pipeline(source)
    assert counted is not None
    for said in counted["arms"]:
        arm = arm_of(analysis, said["name"])
        for rate in ("attack_success_rate", "over_refusal_rate"):
            for scope, card in (("system", arm.system), ("model", arm.model)):
                found = said[scope][rate]
                assert counts(getattr(card, rate)) == (found["successes"], found["trials"])
            for bound, pair in (("fail_open", arm.fail_open), ("fail_closed", arm.fail_closed)):
                found = said["bounds"][bound][rate]
                assert counts(getattr(pair, rate)) == (found["successes"], found["trials"])
        for found, stops in zip(said["stopped"], arm.stopped, strict=True):
            for key in ("attacks", "benign", "undecided", "rewritten"):
                wanted = (found[key]["successes"], found[key]["trials"])
                assert counts(getattr(stops, key)) == wanted
