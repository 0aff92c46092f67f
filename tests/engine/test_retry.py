"""Errors are asked about again, and what they were is kept."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from tests.engine.parts import Inline, Judging, Model, Remote, number_of, thirds

from guardmark.core.manifest import Policy
from guardmark.core.outcome import (
    ALLOWED,
    BLOCKED,
    Decision,
    ErrorKind,
    Evidence,
    Outcome,
    Response,
)
from guardmark.core.place import NO_GUARD
from guardmark.core.record import Stage
from guardmark.core.sample import Prompt, View
from guardmark.engine.plan import Pipeline, Plan
from guardmark.engine.runner import run
from guardmark.store.integrity import check
from guardmark.store.reader import RecordReader
from guardmark.store.records import RecordWriter, count_errors, supersede_errors

OpenWriter = Callable[..., RecordWriter]


class Outage:
    """A service that is down for every fifth sample until it is mended."""

    def __init__(self) -> None:
        self.is_over = False

    def decide(self, prompt: Prompt) -> Decision:
        """Fail, or follow the rule of thirds."""
        if self._is_down(prompt):
            message = f"down for {number_of(prompt)}"
            evidence = Evidence(message=message)
            return Decision(outcome=Outcome.ERROR, error_kind=ErrorKind.HTTP, evidence=evidence)
        return thirds(prompt)

    def answer(self, prompt: Prompt) -> Response:
        """Fail, or answer with the number."""
        if self._is_down(prompt):
            return Response(text=None, error_kind=ErrorKind.TIMEOUT)
        return Response(text=f"answer {number_of(prompt)}")

    def _is_down(self, prompt: Prompt) -> bool:
        return number_of(prompt) % 5 == 0 and not self.is_over


def outcomes(path: Path, defense: str, stage: Stage = Stage.DEFENSE) -> dict[int, str]:
    """Outcome by position."""
    with RecordReader(path) as reader:
        return {r.key.sample: r.outcome for r in reader.records(defense=defense, stage=stage)}


async def test_only_what_failed_is_asked_again(open_writer: OpenWriter) -> None:
    """Each other sample keeps the answer it has, and everything is stored exactly once."""
    outage, writer = Outage(), open_writer()
    guard = Remote(rule=outage.decide)
    await run(Plan(defenses=(guard,)), writer)
    before = outcomes(writer.path, "remote")
    outage.is_over = True
    assert count_errors(writer) == 8
    supersede_errors(writer)
    summary = await run(Plan(defenses=(guard,)), writer)
    after = outcomes(writer.path, "remote")
    assert (summary.added, summary.planned, summary.stored) == (8, 40, 40)
    assert {n for n in before if before[n] != after[n]} == set(range(0, 40, 5))
    assert guard.calls == {n: 1 + (n % 5 == 0) for n in range(40)}
    assert check(writer.path) == []
    with RecordReader(writer.path) as reader:
        assert reader.status().retried == 8


async def test_a_second_outage_is_kept_beside_the_first(open_writer: OpenWriter) -> None:
    """Who asks three times in vain has three errors on record, two of them set aside."""
    outage, writer = Outage(), open_writer()
    guard = Inline(rule=outage.decide)
    await run(Plan(defenses=(guard,)), writer)
    for _ in range(2):
        supersede_errors(writer)
        await run(Plan(defenses=(guard,)), writer)
    assert count_errors(writer) == 8
    assert check(writer.path) == []
    with RecordReader(writer.path) as reader:
        assert reader.status().retried == 16
    with closing(sqlite3.connect(writer.path)) as connection:
        said = connection.execute("SELECT DISTINCT evidence FROM superseded WHERE sample = 5")
        assert said.fetchall() == [('{"message":"down for 5"}',)]


async def test_what_is_set_aside_is_covered_by_the_hash_chain(open_writer: OpenWriter) -> None:
    """Nobody can rewrite the errors of the first attempt, or hide a decision among them."""
    writer = open_writer()
    await run(Plan(defenses=(Inline(rule=Outage().decide),)), writer)
    supersede_errors(writer)
    await run(Plan(defenses=(Inline(rule=thirds),)), writer)
    writer.close()
    with closing(sqlite3.connect(writer.path)) as connection:
        connection.execute("UPDATE superseded SET outcome = 1 WHERE sample = 5")
        connection.commit()
    found = " ".join(check(writer.path))
    assert "was changed, exchanged, added or taken away" in found
    assert "1 records were set aside for a second attempt and are not errors" in found


async def test_a_run_stopped_between_the_attempts_goes_on(open_writer: OpenWriter) -> None:
    """What was set aside is missing, so the same command asks for it."""
    outage, writer = Outage(), open_writer()
    await run(Plan(defenses=(Inline(rule=outage.decide),)), writer)
    supersede_errors(writer)
    assert not writer.stored.is_complete
    outage.is_over = True
    writer = open_writer()
    summary = await run(Plan(defenses=(Inline(rule=outage.decide),)), writer)
    assert (summary.added, summary.stored) == (8, 40)


async def test_what_a_part_cannot_be_shown_is_no_error_to_retry(open_writer: OpenWriter) -> None:
    """Asking again would skip it again."""
    writer = open_writer()
    await run(Plan(defenses=(Inline(view=View.DOCUMENT),)), writer)
    assert set(outcomes(writer.path, "inline").values()) == {"error"}
    assert count_errors(writer) == 0


async def test_a_model_that_failed_answers_and_is_judged_and_read(open_writer: OpenWriter) -> None:
    """The guard of responses, which had nothing to read, is asked as well."""
    outage, writer = Outage(), open_writer()
    after, judge = Inline(name="after", view=View.RESPONSE, rule=lambda _: ALLOWED), Judging()
    pipeline = Pipeline(arms=(NO_GUARD, "after"), model=Model(rule=outage.answer), judges=(judge,))
    plan = Plan(defenses=(after,), pipeline=pipeline)
    await run(plan, writer)
    assert len(outcomes(writer.path, NO_GUARD, Stage.JUDGE)) == 32
    assert set(outcomes(writer.path, "after").values()) == {"allow", "error"}
    outage.is_over = True
    assert count_errors(writer) == 8
    supersede_errors(writer)
    summary = await run(plan, writer)
    assert set(outcomes(writer.path, NO_GUARD, Stage.MODEL).values()) == {"answered"}
    assert len(outcomes(writer.path, NO_GUARD, Stage.JUDGE)) == 40
    assert set(outcomes(writer.path, "after").values()) == {"allow"}
    assert set(judge.calls.values()) == {1}
    assert (summary.planned, summary.stored) == (120, 120)
    assert check(writer.path) == []


@pytest.mark.parametrize("policy", [Policy.ALLOW, Policy.BLOCK])
async def test_a_guard_that_failed_may_now_block_what_was_let_through(
    open_writer: OpenWriter, policy: Policy
) -> None:
    """Answers that exist already stay stored and planned, whatever the guard says now."""
    outage, writer = Outage(), open_writer()
    guard = Inline(name="guard", rule=outage.decide)
    pipeline = Pipeline(arms=("guard",), model=Model(), judges=(Judging(),))
    plan = Plan(defenses=(guard,), pipeline=pipeline, on_error=policy)
    await run(plan, writer)
    outage.is_over = True
    supersede_errors(writer)
    summary = await run(plan, writer)
    assert outcomes(writer.path, "guard") == {n: thirds_say(n) for n in range(40)}
    assert summary.planned == summary.stored
    assert check(writer.path) == []


def thirds_say(number: int) -> str:
    """The outcome by the rule of thirds."""
    return (BLOCKED if number % 3 == 0 else ALLOWED).outcome.value
