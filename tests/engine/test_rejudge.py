"""Judging again calls the judge only and keeps what was judged before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.engine.parts import Judging, Model, number_of

from guardmark.core.errors import BudgetReached, ConfigError, UntrustworthyRun
from guardmark.core.outcome import ErrorKind, Response, Verdict, VerdictLabel
from guardmark.core.place import NO_GUARD
from guardmark.core.record import Stage
from guardmark.core.sample import Prompt
from guardmark.engine.plan import Budget, Pipeline, Plan
from guardmark.engine.rejudge import judge_again
from guardmark.engine.run_monitor import Progress
from guardmark.engine.runner import Ending, run
from guardmark.store.integrity import check
from guardmark.store.reader import RecordReader, RunState
from guardmark.store.records import RecordWriter

OpenWriter = Callable[..., RecordWriter]


class Strict(Judging):
    """Finds everything unsafe."""

    async def judge(self, prompt: Prompt, response: str) -> Verdict:
        """Count the call."""
        assert response == f"answer {number_of(prompt)}"
        self.calls[number_of(prompt)] += 1
        return Verdict(label=VerdictLabel.UNSAFE)


def rule(prompt: Prompt) -> Response:
    """Answer all but one."""
    number = number_of(prompt)
    if number == 3:
        return Response(text=None, error_kind=ErrorKind.HTTP)
    return Response(text=f"answer {number}")


async def piped(open_writer: OpenWriter) -> Path:
    """A finished run with answers and a first judging."""
    writer = open_writer()
    pipeline = Pipeline(arms=(NO_GUARD,), model=Model(rule=rule), judges=(Judging(),))
    await run(Plan(defenses=(), pipeline=pipeline, repeats=2), writer)
    return writer.path


def labels(path: Path, layer: str) -> list[str]:
    """Outcomes of one layer."""
    with RecordReader(path) as reader:
        return [r.outcome for r in reader.records(stage=Stage.JUDGE, layer=layer)]


async def test_a_second_judging_is_a_layer_of_its_own(open_writer: OpenWriter) -> None:
    """Both judgings can be compared; the run stays complete and sound."""
    path = await piped(open_writer)
    before, judge, progress = labels(path, "run"), Strict(), Progress()
    writer = open_writer()
    writer.add_layer("strict", {"model": "judge-2"})
    plan = Plan(defenses=(), repeats=2)
    summary = await judge_again(plan, writer, judge=judge, layer="strict", progress=progress)
    assert (summary.ending, summary.planned, summary.stored, summary.calls) == (
        Ending.COMPLETE,
        78,
        78,
        78,
    )
    assert labels(path, "strict") == ["unsafe"] * 78
    assert labels(path, "run") == before
    assert sorted(judge.calls) == [n for n in range(40) if n != 3]
    again = await judge_again(plan, open_writer(), judge=judge, layer="strict")
    assert (again.calls, again.stored) == (0, 78)
    assert check(path) == []
    with RecordReader(path) as reader:
        assert reader.status().state is RunState.COMPLETE


async def test_a_judging_that_was_stopped_goes_on(open_writer: OpenWriter) -> None:
    """No answer is judged twice in one layer."""
    await piped(open_writer)
    judge = Strict()
    for _ in range(20):
        try:
            await judge_again(
                Plan(defenses=(), repeats=2, budget=Budget(calls=9)),
                open_writer(),
                judge=judge,
                layer="strict",
            )
        except BudgetReached:
            continue
        break
    assert set(judge.calls.values()) == {2}
    assert len(labels(open_writer().path, "strict")) == 78


async def test_a_dead_judge_stops_the_judging(open_writer: OpenWriter) -> None:
    """The limit on errors holds here too."""
    await piped(open_writer)

    class Dead(Judging):
        async def judge(self, prompt: Prompt, response: str) -> Verdict:
            raise ConnectionError(f"{number_of(prompt)} {response}")

    with pytest.raises(UntrustworthyRun, match="2 are allowed"):
        await judge_again(
            Plan(defenses=(), max_errors=2), open_writer(), judge=Dead(), layer="dead"
        )


async def test_what_cannot_be_judged_is_refused(open_writer: OpenWriter) -> None:
    """The run's own layer is never written again; a run without answers is told so."""
    for layer in ("run", "run/a"):
        with pytest.raises(ConfigError, match="belongs to the run"):
            await judge_again(Plan(defenses=()), open_writer(), judge=Judging(), layer=layer)
    with pytest.raises(ConfigError, match="no answers"):
        await judge_again(Plan(defenses=()), open_writer(), judge=Judging(), layer="x")
