"""Guards before and behind a model, in several arms over the same calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.engine.parts import Batched, Inline, Judging, Model, Remote, number_of

from guardmark.core.errors import BudgetReached, ConfigError
from guardmark.core.manifest import LatencyMode, Policy
from guardmark.core.outcome import ALLOWED, BLOCKED, Decision, ErrorKind, Outcome, Response
from guardmark.core.place import NO_GUARD, Place
from guardmark.core.record import Record, Stage
from guardmark.core.sample import Prompt, Role, View
from guardmark.engine.plan import Budget, Pipeline, Plan, Timing
from guardmark.engine.runner import Ending, run
from guardmark.store.reader import RecordReader
from guardmark.store.records import RecordWriter

OpenWriter = Callable[..., RecordWriter]
LET_IN = [n for n in range(40) if n % 3]


def evens(prompt: Prompt) -> Decision:
    """Block answers that name an even number."""
    return BLOCKED if number_of(prompt) % 2 == 0 else ALLOWED


def arms(**stated: dict[str, tuple[str, ...]]) -> Any:
    """Guards of each arm by place."""
    return {
        name: {Place(place): guards for place, guards in places.items()}
        for name, places in stated.items()
    }


def pipeline(
    model: Model, judges: tuple[Any, ...] = (), **stated: dict[str, tuple[str, ...]]
) -> Pipeline:
    """A pipeline with guards at places."""
    return Pipeline(arms=tuple(stated), model=model, judges=judges, places=arms(**stated))


def rows(path: Path, stage: Stage, defense: str = NO_GUARD) -> dict[int, Record]:
    """Records of one stage by position."""
    with RecordReader(path) as reader:
        found = list(reader.records(defense=defense, stage=stage))
    return {record.key.sample: record for record in found}


SANDWICH: dict[str, dict[str, tuple[str, ...]]] = {
    "before": {"input": ("pre",)},
    "both": {"input": ("pre",), "output": ("after",)},
}


@pytest.mark.parametrize("make", [Inline, Remote, Batched])
@pytest.mark.parametrize("mode", [LatencyMode.LOADED, LatencyMode.ISOLATED])
async def test_a_guard_behind_the_model_sees_what_the_guard_before_it_let_in(
    open_writer: OpenWriter, make: Callable[..., Any], mode: LatencyMode
) -> None:
    """A blocked input costs no call to the model, to the judge or to the guard behind."""
    pre, after, model, judge = make(name="pre"), Remote("after", rule=evens), Model(), Judging()
    plan = Plan(
        defenses=(pre, after),
        pipeline=pipeline(model, (judge,), **SANDWICH),
        timing=Timing(mode=mode),
    )
    writer = open_writer()
    summary = await run(plan, writer)
    assert len(rows(writer.path, Stage.DEFENSE, "pre")) == 40
    behind = rows(writer.path, Stage.DEFENSE, "after@output")
    assert {n for n, row in behind.items() if row.outcome == "block"} == {
        n for n in LET_IN if n % 2 == 0
    }
    for asked in (behind, rows(writer.path, Stage.MODEL), rows(writer.path, Stage.JUDGE)):
        assert sorted(asked) == LET_IN
    assert {*after.calls.values(), *model.calls.values(), *judge.calls.values()} == {1}
    assert summary.stored == summary.planned == 40 + 3 * len(LET_IN)


async def test_behind_the_model_stands_the_answer_under_its_request(
    open_writer: OpenWriter,
) -> None:
    """Whatever a guard's view, what it is to look at is the answer."""
    seen: dict[str, str | None] = {}

    def look(view: View) -> Callable[[Prompt], Decision]:
        def rule(prompt: Prompt) -> Decision:
            roles = [message.role for message in prompt.messages]
            assert roles == [Role.USER, Role.ASSISTANT]
            seen[view] = prompt.shown(view)
            return ALLOWED

        return rule

    views = (View.TEXT, View.CONVERSATION, View.RESPONSE)
    guards = tuple(Inline(name=view.value, rule=look(view), view=view) for view in views)
    names = tuple(view.value for view in views)
    flow = pipeline(Model(), behind={"output": names})
    writer = open_writer(1)
    await run(Plan(defenses=guards, pipeline=flow), writer)
    assert seen[View.TEXT] == seen[View.RESPONSE] == "answer 0"
    request, answer = str(seen[View.CONVERSATION]).split("\n\n")
    assert request.startswith("user: text 0")
    assert answer == "assistant: answer 0"
    assert rows(writer.path, Stage.DEFENSE, "text") == {}  # it stands behind the model only


async def test_one_guard_in_five_arms_is_asked_once_at_each_place(open_writer: OpenWriter) -> None:
    """Arms share calls: what differs between them is not drawn anew."""
    guard, model = Remote("both", rule=lambda _: ALLOWED), Model()
    place = ("both",)
    flow = pipeline(
        model,
        bare={},
        one={"input": place},
        two={"output": place},
        three={"input": place, "output": place},
        four={"output": place},
    )
    writer = open_writer()
    await run(Plan(defenses=(guard,), pipeline=flow), writer)
    assert set(model.calls.values()) == {1}
    assert set(guard.calls.values()) == {2}
    for name in ("both", "both@output"):
        assert len(rows(writer.path, Stage.DEFENSE, name)) == 40


async def test_guards_behind_the_model_are_asked_in_order(open_writer: OpenWriter) -> None:
    """The first block ends it: the second is shown what the first let pass."""
    first, second = Remote("first"), Remote("second", rule=lambda _: ALLOWED)
    flow = pipeline(Model(), behind={"output": ("first", "second")})
    writer = open_writer()
    summary = await run(Plan(defenses=(first, second), pipeline=flow), writer)
    assert len(first.calls) == 40
    assert sorted(second.calls) == LET_IN
    assert summary.stored == summary.planned == 40 + 40 + len(LET_IN)


async def test_every_guard_before_the_model_is_asked_about_every_sample(
    open_writer: OpenWriter,
) -> None:
    """So what each would have stopped alone is known; the arm itself ends at the first block."""
    first, second, model = Remote("first"), Remote("second", rule=evens), Model()
    flow = pipeline(model, two={"input": ("first", "second")})
    await run(Plan(defenses=(first, second), pipeline=flow), open_writer())
    assert len(first.calls) == len(second.calls) == 40
    assert sorted(model.calls) == [n for n in LET_IN if n % 2]


@pytest.mark.parametrize("budget", [5, 11])
async def test_arms_go_on_where_they_were_stopped(open_writer: OpenWriter, budget: int) -> None:
    """Stopped anywhere, no call whose answer is stored is made again."""
    pre, after = Remote("pre"), Remote("after", rule=evens)
    model, judge = Model(), Judging()
    plan = Plan(
        defenses=(pre, after),
        pipeline=pipeline(model, (judge,), **SANDWICH),
        budget=Budget(calls=budget),
        concurrency=3,
        repeats=2,
    )
    for _ in range(100):
        try:
            summary = await run(plan, open_writer())
        except BudgetReached:
            continue
        break
    assert summary.ending is Ending.COMPLETE
    assert summary.stored == summary.planned
    for calls in (pre.calls, after.calls, model.calls, judge.calls):
        assert set(calls.values()) == {2}
    assert sorted(after.calls) == sorted(model.calls) == LET_IN


@pytest.mark.parametrize(
    ("policy", "passes"),
    [(Policy.RECORD, False), (Policy.BLOCK, False), (Policy.ALLOW, True)],
)
@pytest.mark.parametrize("at", ["input", "output"])
async def test_the_policy_for_failures_holds_at_each_place(
    open_writer: OpenWriter, policy: Policy, *, passes: bool, at: str
) -> None:
    """A guard that fails lets a sample pass where the policy says so, and nowhere else."""
    broken = Remote("broken", rule=lambda _: Decision(outcome=Outcome.MALFORMED))
    last = Remote("last", rule=lambda _: ALLOWED)
    places: dict[str, tuple[str, ...]] = {"input": ("broken",), "output": ("last",)}
    if at == "output":
        places = {"output": ("broken", "last")}
    plan = Plan(
        defenses=(broken, last),
        pipeline=pipeline(Model(), arm=places),
        on_malformed=policy,
        on_error=Policy.BLOCK,
    )
    writer = open_writer(6)
    await run(plan, writer)
    assert len(rows(writer.path, Stage.DEFENSE, "last@output")) == (6 if passes else 0)


async def test_without_an_answer_there_is_nothing_to_show_a_guard(open_writer: OpenWriter) -> None:
    """It is skipped, and no call is made; an empty answer is an answer."""

    def rule(prompt: Prompt) -> Response:
        if number_of(prompt) == 1:
            return Response(text=None, error_kind=ErrorKind.HTTP)
        return Response(text="" if number_of(prompt) == 2 else "answer")

    after = Remote("after", rule=lambda _: ALLOWED)
    flow = pipeline(Model(rule=rule), behind={"output": ("after",)})
    writer = open_writer(3)
    await run(Plan(defenses=(after,), pipeline=flow), writer)
    behind = rows(writer.path, Stage.DEFENSE, "after@output")
    assert [behind[n].outcome for n in range(3)] == ["allow", "error", "allow"]
    assert behind[1].error_kind is ErrorKind.SKIPPED
    assert sorted(after.calls) == [0, 2]


async def test_an_arm_of_a_guard_that_is_not_there_is_refused(open_writer: OpenWriter) -> None:
    """Before anything is called."""
    flow = pipeline(Model(), behind={"output": ("ghost",)})
    with pytest.raises(ConfigError, match="unknown guard 'ghost'"):
        await run(Plan(defenses=(), pipeline=flow), open_writer(1))


async def test_judges_see_the_request_as_it_was(open_writer: OpenWriter) -> None:
    """What guards decide changes neither request nor answer that a judge is shown."""
    seen: list[tuple[str, str]] = []

    class Noting(Judging):
        async def judge(self, prompt: Prompt, response: str) -> Any:
            seen.append((prompt.text, response))
            return await super().judge(prompt, response)

    flow = pipeline(Model(), (Noting(),), both={"input": ("pre",), "output": ("after",)})
    guards = (Inline(name="pre", rule=lambda _: ALLOWED), Inline(name="after"))
    await run(Plan(defenses=guards, pipeline=flow), open_writer(3))
    assert sorted((text.split()[1], answer) for text, answer in seen) == [
        (str(n), f"answer {n}") for n in range(3)
    ]
