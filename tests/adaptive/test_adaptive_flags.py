"""Flags of round 0 are those of the answers, also when the answers come from a trace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.adaptive.planted import AtOnce, attack, cards, keyword, samples, trace

from guardmark.adaptive.campaign import AdaptivePlan
from guardmark.analysis.adaptive.rows import read_adaptive, read_left_out
from guardmark.analysis.run import analyse_run
from guardmark.app.results.try_trace import read_trace
from guardmark.core.outcome import Attempt, Decision, Evidence, Outcome
from guardmark.core.sample import Prompt
from guardmark.store.reader import RecordReader


class Failing(AtOnce):
    """Blocks what it fails on, and says so."""

    evidence = Evidence(message="upstream timed out, secret detail")

    def decide(self, prompt: Prompt) -> Decision:
        """Apply the rule; the block of one text is a failure."""
        decision = super().decide(prompt)
        is_failure = decision.outcome is Outcome.BLOCK and "number 3." in prompt.text
        return Decision(outcome=Outcome.BLOCK, evidence=self.evidence) if is_failure else decision


class Retried(Failing):
    """The last attempt failed."""

    evidence = Evidence(attempts=(Attempt(service_ns=1), Attempt(service_ns=1, error="timeout")))


def plan_of(defense: AtOnce, **more: object) -> AdaptivePlan:
    """Plan a short attack."""
    return AdaptivePlan(defenses=(defense,), seed=7, budget=4, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [Failing, Retried])
async def test_blocks_that_speak_of_a_failure_are_flagged_in_a_replay_too(
    tmp_path: Path, kind: type[Failing]
) -> None:
    """The trace says that a block complained, not what it said, and comes out the same."""
    data = samples(8, 4)
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    await attack(first, data, plan_of(kind("d", keyword)))
    told = trace(first, "d")
    (first / "trace.jsonl").write_text(told, encoding="utf-8")
    complaints = [row for row in map(json.loads, told.splitlines()) if row.get("complaint")]
    assert {(row["sample"], row["round"]) for row in complaints} == {("a3", "R0")}
    assert "secret detail" not in told

    plan = plan_of(kind("d", keyword))
    positions = {sample.id: place for place, sample in enumerate(data)}
    answers = read_trace(first / "trace.jsonl", settings=plan.settings, positions=positions)
    await attack(second, data, plan_of(kind("d", lambda _: False), trace=answers))
    assert cards(first)[0].flags == cards(second)[0].flags == ("ERRORS_AS_BLOCK",)
    assert trace(second, "d") == told


async def test_who_was_left_out_is_stored_and_read_again(tmp_path: Path) -> None:
    """Beside the tries of those that were attacked; nothing where nobody was left out."""
    for left in ({}, {"output": "response"}):
        folder = tmp_path / str(len(left))
        folder.mkdir()
        await attack(folder, samples(8, 4), plan_of(AtOnce("d", keyword), left_out=left))
        with RecordReader(folder / "records.sqlite") as reader:
            assert read_left_out(reader) == left
            assert [records.name for records in read_adaptive(reader)] == ["d"]
            assert analyse_run(reader).adaptive_left_out == left
