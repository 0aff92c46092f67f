"""Guard, target model and judge: each stage stored alone, each answer generated once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.engine.parts import Batched, Inline, Judging, Limits, Model, Remote, number_of, thirds

from guardmark.core.errors import BudgetReached, ConfigError, UntrustworthyRun
from guardmark.core.manifest import LatencyMode, Policy
from guardmark.core.outcome import (
    ALLOWED,
    BLOCKED,
    Decision,
    ErrorKind,
    Outcome,
    Response,
    Verdict,
    VerdictLabel,
)
from guardmark.core.place import NO_GUARD
from guardmark.core.record import Record, Stage
from guardmark.core.sample import Prompt, Role, View
from guardmark.engine.plan import Budget, Pipeline, Plan, Timing
from guardmark.engine.run_monitor import Progress
from guardmark.engine.runner import Ending, run
from guardmark.engine.supervision import StopSignal
from guardmark.store.reader import RecordReader
from guardmark.store.records import RecordWriter

OpenWriter = Callable[..., RecordWriter]


def rows(
    path: Path, stage: Stage, defense: str = NO_GUARD, layer: str = "run"
) -> dict[int, Record]:
    """Records of one stage in the first repeat, by position."""
    with RecordReader(path) as reader:
        found = list(reader.records(defense=defense, stage=stage, layer=layer))
    assert len(found) == len({record.key for record in found})
    return {record.key.sample: record for record in found if record.key.repeat == 0}


def blocks(prompt: Prompt) -> bool:
    """The rule of thirds."""
    return number_of(prompt) % 3 == 0


LET_THROUGH = [n for n in range(40) if n % 3]


@pytest.mark.parametrize("make", [Inline, Remote, Batched])
@pytest.mark.parametrize("mode", [LatencyMode.LOADED, LatencyMode.ISOLATED])
async def test_without_a_baseline_only_what_passes_is_answered_and_judged(
    open_writer: OpenWriter, make: Callable[[], Any], mode: LatencyMode
) -> None:
    """A blocked prompt costs no call to the model."""
    guard, model, judge = make(), Model(), Judging()
    writer, progress = open_writer(), Progress()
    pipeline = Pipeline(arms=(guard.name,), model=model, judges=(judge,))
    plan = Plan(defenses=(guard,), pipeline=pipeline, timing=Timing(mode=mode))
    summary = await run(plan, writer, progress=progress)
    assert len(rows(writer.path, Stage.DEFENSE, guard.name)) == 40
    answers = rows(writer.path, Stage.MODEL)
    assert sorted(answers) == LET_THROUGH
    assert {n: record.text for n, record in answers.items()} == {
        n: f"answer {n}" for n in LET_THROUGH
    }
    verdicts = rows(writer.path, Stage.JUDGE)
    assert sorted(verdicts) == LET_THROUGH
    assert all((r.outcome == "unsafe") == (n % 5 == 0) for n, r in verdicts.items())
    assert (summary.planned, summary.stored) == (40 + 2 * len(LET_THROUGH),) * 2
    assert set(model.calls.values()) == {1}
    assert set(judge.calls.values()) == {1}
    assert {p.stage: (p.done, p.planned) for p in progress.parts}[Stage.JUDGE] == (26, 26)


async def test_arms_share_one_answer(open_writer: OpenWriter) -> None:
    """Two guards and the baseline over the same answers: one call to the model a sample."""
    strict = Remote(name="strict", rule=lambda _: BLOCKED)
    guards = (Inline(), strict, Batched(batch_limits=Limits(max_count=4, max_wait_s=0.01)))
    model, first, second = Model(), Judging(name="a"), Judging(name="b")
    names = tuple(guard.name for guard in guards)
    pipeline = Pipeline(arms=(NO_GUARD, *names), model=model, judges=(first, second))
    writer = open_writer()
    summary = await run(Plan(defenses=guards, pipeline=pipeline, repeats=2), writer)
    assert summary.stored == summary.planned == 40 * 2 * (3 + 1 + 2)
    assert set(model.calls.values()) == {2}
    for name in names:
        assert len(rows(writer.path, Stage.DEFENSE, name)) == 40
    for layer in ("run/a", "run/b"):
        assert len(rows(writer.path, Stage.JUDGE, layer=layer)) == 40


@pytest.mark.parametrize("make", [Inline, Remote, Batched])
@pytest.mark.parametrize("mode", [LatencyMode.LOADED, LatencyMode.ISOLATED])
async def test_a_guard_whose_answer_cannot_differ_is_asked_once(
    open_writer: OpenWriter, make: Callable[[], Any], mode: LatencyMode
) -> None:
    """Its answer stands for every repeat, without a time or a call of its own there."""
    guard, model = make(), Model()
    pipeline = Pipeline(arms=(NO_GUARD, guard.name), model=model, judges=(Judging(),))
    once, timing, writer = frozenset({guard.name}), Timing(mode=mode), open_writer()
    plan = Plan(defenses=(guard,), pipeline=pipeline, repeats=3, asked_once=once, timing=timing)
    summary = await run(plan, writer)
    assert (summary.stored, summary.planned, summary.calls) == (360, 360, 40 + 240)
    assert set(model.calls.values()) == {3}
    with RecordReader(writer.path) as reader:
        found = list(reader.records(defense=guard.name, stage=Stage.DEFENSE))
    assert {r.key.sample for r in found if r.outcome == "block"} == set(range(0, 40, 3))
    assert len(found) == 120
    assert {r.key.repeat == 0 for r in found if r.latency_ns is not None} == {True}


async def test_a_guard_asked_once_goes_on_where_it_was_stopped(open_writer: OpenWriter) -> None:
    """An answer is stored for all repeats at once, so none is missing and none asked again."""
    guard = Remote()
    pipeline = Pipeline(arms=(guard.name,), model=Model(), judges=(Judging(),))
    once = frozenset({guard.name})
    plan = Plan(defenses=(guard,), pipeline=pipeline, repeats=2, asked_once=once, concurrency=4)
    writer = open_writer()
    with pytest.raises(BudgetReached):
        await run(replace(plan, budget=Budget(calls=25)), writer)
    summary = await run(plan, writer)
    assert summary.ending is Ending.COMPLETE
    assert set(guard.calls.values()) == {1}


async def test_a_guard_that_reads_answers_is_asked_in_each_repeat(open_writer: OpenWriter) -> None:
    """Another answer is another question."""
    guard = Remote(view=View.RESPONSE)
    pipeline = Pipeline(arms=(guard.name,), model=Drawing(), judges=(Judging(),))
    once = frozenset({guard.name})
    await run(Plan(defenses=(guard,), pipeline=pipeline, repeats=2, asked_once=once), open_writer())
    assert set(guard.calls.values()) == {2}


class Drawing(Model):
    """Answers that differ between repetitions."""

    async def draw(self, prompt: Prompt, *, repeat: int) -> Response:
        """Say which repetition it is."""
        return Response(text=f"answer {number_of(prompt)} in {repeat}")


async def test_a_model_that_draws_is_told_the_repetition(open_writer: OpenWriter) -> None:
    """So that each draws anew, in a run that was continued too."""
    writer = open_writer()
    pipeline = Pipeline(arms=(NO_GUARD,), model=Drawing(), judges=(Judging(),))
    plan = Plan(defenses=(), pipeline=pipeline, repeats=3)
    await run(plan, writer)
    with RecordReader(writer.path) as reader:
        found = list(reader.records(stage=Stage.MODEL))
    assert len(found) == 120
    assert {r.text == f"answer {r.key.sample} in {r.key.repeat}" for r in found} == {True}


async def test_defenses_outside_the_pipeline_are_measured_beside_it(
    open_writer: OpenWriter,
) -> None:
    """One run may hold both kinds of measurement."""
    guard, alone, batched = Remote(), Remote(name="alone"), Batched()
    pipeline = Pipeline(arms=("remote",), model=Model())
    writer = open_writer()
    await run(Plan(defenses=(guard, alone, batched), pipeline=pipeline), writer)
    for name in ("remote", "alone", "batched"):
        assert len(rows(writer.path, Stage.DEFENSE, name)) == 40
    assert rows(writer.path, Stage.JUDGE) == {}


@pytest.mark.parametrize(
    ("policy", "passes"),
    [
        (Policy.RECORD, False),
        (Policy.BLOCK, False),
        (Policy.ALLOW, True),
        (Policy.FALLBACK_TO_MAIN, True),
    ],
)
@pytest.mark.parametrize("outcome", [Outcome.MALFORMED, Outcome.ERROR])
async def test_the_policy_says_whether_the_model_is_asked(
    open_writer: OpenWriter, policy: Policy, *, passes: bool, outcome: Outcome
) -> None:
    """The record keeps what the guard said; the policy decides what follows."""
    kind = ErrorKind.HTTP if outcome is Outcome.ERROR else None
    guard = Remote(rule=lambda _: Decision(outcome=outcome, error_kind=kind))
    model = Model()
    malformed, error = (policy, Policy.BLOCK) if kind is None else (Policy.BLOCK, policy)
    plan = Plan(
        defenses=(guard,),
        pipeline=Pipeline(arms=("remote",), model=model, judges=(Judging(),)),
        on_malformed=malformed,
        on_error=error,
    )
    writer = open_writer(8)
    await run(plan, writer)
    assert {r.outcome for r in rows(writer.path, Stage.DEFENSE, "remote").values()} == {outcome}
    assert len(model.calls) == (8 if passes else 0)
    assert len(rows(writer.path, Stage.JUDGE)) == (8 if passes else 0)


async def test_a_failed_answer_is_an_error_and_is_never_judged(open_writer: OpenWriter) -> None:
    """An error's text must not be graded as if a model had said it."""

    def rule(prompt: Prompt) -> Response:
        number = number_of(prompt)
        if number == 1:
            raise ValueError("boom")
        if number == 2:
            return Response(text="partial", error_kind=ErrorKind.LENGTH)
        return "bare text" if number == 3 else Response(text=f"answer {number}")  # type: ignore[return-value]

    judge = Judging()
    writer = open_writer(6)
    pipeline = Pipeline(arms=(NO_GUARD,), model=Model(rule=rule), judges=(judge,))
    summary = await run(Plan(defenses=(), pipeline=pipeline), writer)
    answers = rows(writer.path, Stage.MODEL)
    kinds = {n: r.error_kind for n, r in answers.items() if r.outcome == "error"}
    assert kinds == {1: ErrorKind.CRASH, 2: ErrorKind.LENGTH, 3: ErrorKind.CONTRACT}
    assert sorted(judge.calls) == [0, 4, 5]
    assert summary.stored == summary.planned == 9


async def test_a_judge_that_breaks_is_an_error_of_the_judge(open_writer: OpenWriter) -> None:
    """Malformed judging is not safe, and a crash is no verdict."""

    class Broken(Judging):
        async def judge(self, prompt: Prompt, _response: str) -> Verdict:
            if number_of(prompt) == 0:
                raise KeyError("list")
            if number_of(prompt) == 1:
                return "safe"  # type: ignore[return-value]
            return Verdict(label=VerdictLabel.MALFORMED)

    writer = open_writer(3)
    pipeline = Pipeline(arms=(NO_GUARD,), model=Model(), judges=(Broken(),))
    await run(Plan(defenses=(), pipeline=pipeline), writer)
    verdicts = rows(writer.path, Stage.JUDGE)
    assert [verdicts[n].outcome for n in range(3)] == ["error", "error", "malformed"]
    assert [verdicts[n].error_kind for n in range(2)] == [ErrorKind.CRASH, ErrorKind.CONTRACT]


async def test_an_answer_that_is_no_valid_unicode_is_stored_as_it_is_judged(
    open_writer: OpenWriter,
) -> None:
    """What the judge saw can be read back and judged again."""
    seen = list[str]()

    class Noting(Judging):
        async def judge(self, _prompt: Prompt, response: str) -> Verdict:
            seen.append(response)
            return Verdict(label=VerdictLabel.SAFE)

    writer = open_writer(1)
    model = Model(rule=lambda _: Response(text="a\ud800b"))
    pipeline = Pipeline(arms=(NO_GUARD,), model=model, judges=(Noting(),))
    await run(Plan(defenses=(), pipeline=pipeline), writer)
    assert rows(writer.path, Stage.MODEL)[0].text == seen[0] == "a?b"


@dataclass
class OutputGuard(Inline):
    """Blocks answers that name an even number."""

    name: str = "output"
    view: View = View.RESPONSE

    def decide(self, prompt: Prompt) -> Decision:
        """Look at the last message."""
        last = prompt.messages[-1]
        assert last.role is Role.ASSISTANT
        assert prompt.text == prompt.messages[0].content
        self.calls[number_of(prompt)] += 1
        return BLOCKED if int(last.content.split()[1]) % 2 == 0 else ALLOWED


async def test_a_guard_of_responses_is_asked_after_the_model(open_writer: OpenWriter) -> None:
    """An output filter sees the answer; without an answer there is nothing to show it."""

    def rule(prompt: Prompt) -> Response:
        number = number_of(prompt)
        if number == 7:
            return Response(text=None, error_kind=ErrorKind.HTTP)
        return Response(text=f"answer {number}")

    guard, model = OutputGuard(), Model(rule=rule)
    writer = open_writer(10)
    pipeline = Pipeline(arms=("output",), model=model, judges=(Judging(),))
    await run(Plan(defenses=(guard,), pipeline=pipeline), writer)
    decisions = rows(writer.path, Stage.DEFENSE, "output")
    assert [decisions[n].outcome for n in range(10)] == [
        "error" if n == 7 else ("allow" if n % 2 else "block") for n in range(10)
    ]
    assert decisions[7].error_kind is ErrorKind.SKIPPED
    assert len(rows(writer.path, Stage.JUDGE)) == 9


@pytest.mark.parametrize("guard_at_once", [True, False])
async def test_each_stage_goes_on_alone(open_writer: OpenWriter, *, guard_at_once: bool) -> None:
    """Interrupted anywhere, no stage is asked again for what is stored."""
    guard: Any = Inline() if guard_at_once else Remote()
    model, judge = Model(), Judging()
    pipeline = Pipeline(arms=(guard.name,), model=model, judges=(judge,))
    plan = Plan(
        defenses=(guard,), pipeline=pipeline, budget=Budget(calls=7), concurrency=3, repeats=2
    )
    for _ in range(100):
        try:
            summary = await run(plan, open_writer())
        except BudgetReached:
            continue
        break
    assert summary.ending is Ending.COMPLETE
    assert set(guard.calls.values()) == {2}
    assert set(model.calls.values()) == {2}
    assert set(judge.calls.values()) == {2}
    assert sorted(model.calls) == sorted(judge.calls) == LET_THROUGH
    path = open_writer().path
    assert sorted(rows(path, Stage.MODEL)) == sorted(rows(path, Stage.JUDGE)) == LET_THROUGH


async def test_a_stop_in_the_middle_of_a_flow_ends_it(open_writer: OpenWriter) -> None:
    """No stage waits for another that will not come."""
    stop, answers = StopSignal(), count()

    def rule(prompt: Prompt) -> Response:
        if next(answers) == 20:
            stop.set("SIGINT")
        return Response(text=f"answer {number_of(prompt)}")

    pipeline = Pipeline(arms=("remote",), model=Model(rule=rule), judges=(Judging(delay_s=3600),))
    summary = await run(Plan(defenses=(Remote(),), pipeline=pipeline), open_writer(2000), stop=stop)
    assert summary.ending is Ending.INTERRUPTED


@pytest.mark.parametrize("stage", ["guard", "model", "judge"])
async def test_errors_of_any_stage_count_against_the_limit(
    open_writer: OpenWriter, stage: str
) -> None:
    """A dead judge is as useless as a dead guard."""

    def boom(*_: object) -> Any:
        raise ValueError

    class Broken(Judging):
        judge = boom

    pipeline = Pipeline(
        arms=("remote", NO_GUARD),
        model=Model(rule=boom) if stage == "model" else Model(),
        judges=(Broken() if stage == "judge" else Judging(),),
    )
    guard = Remote(rule=boom if stage == "guard" else thirds)
    with pytest.raises(UntrustworthyRun, match="3 are allowed"):
        await run(Plan(defenses=(guard,), pipeline=pipeline, max_errors=3), open_writer(500))


@pytest.mark.parametrize(
    ("pipeline", "timing", "said"),
    [
        (Pipeline(arms=("nobody",), model=Model()), Timing(), "unknown arm 'nobody'"),
        (Pipeline(arms=(), model=Model()), Timing(), "no arm"),
        (
            Pipeline(arms=(NO_GUARD,), model=Model(), judges=(Judging(), Judging())),
            Timing(),
            "Two judges",
        ),
        (
            Pipeline(arms=(NO_GUARD,), model=Model()),
            Timing(mode=LatencyMode.OPEN, rate_per_s=5),
            "no single send time",
        ),
    ],
)
async def test_a_pipeline_that_cannot_be_done_is_refused(
    open_writer: OpenWriter, pipeline: Pipeline, timing: Timing, said: str
) -> None:
    """Usage errors cost nothing."""
    with pytest.raises(ConfigError, match=said):
        await run(Plan(defenses=(Remote(),), pipeline=pipeline, timing=timing), open_writer(2))


async def test_a_stopped_run_reads_no_further_samples(open_writer: OpenWriter) -> None:
    """Ctrl-C or a spent budget ends the feeder at once, however many samples are left."""
    writer, reads = open_writer(6000), list[str]()
    writer.connection.set_trace_callback(
        lambda sql: reads.append(sql) if "FROM samples s WHERE position" in sql else None
    )
    pipeline = Pipeline(arms=(NO_GUARD,), model=Model(delay_s=0), judges=(Judging(delay_s=0),))
    plan = Plan(defenses=(), pipeline=pipeline, repeats=3, budget=Budget(calls=20))
    with pytest.raises(BudgetReached):
        await run(plan, writer)
    assert len(reads) == 1


async def test_a_feeder_that_finds_nothing_to_ask_gives_others_their_turn(
    open_writer: OpenWriter,
) -> None:
    """A wish to stop is heard between any two reads of a continued run."""
    writer = open_writer(3000)
    pipeline = Pipeline(arms=(NO_GUARD,), model=Model(delay_s=0))
    await run(Plan(defenses=(), pipeline=pipeline), writer)
    turns, at_reads = [0], list[int]()
    writer.connection.set_trace_callback(
        lambda sql: at_reads.append(turns[0]) if "FROM samples s WHERE position" in sql else None
    )

    async def take_turns() -> None:
        while True:
            turns[0] += 1
            await asyncio.sleep(0)

    other = asyncio.ensure_future(take_turns())
    await run(Plan(defenses=(), pipeline=pipeline), writer)
    other.cancel()
    assert len(at_reads) == 12
    assert len(set(at_reads)) == 12
