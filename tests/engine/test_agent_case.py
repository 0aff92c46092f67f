"""A case through an arm: what guards see, do and keep from an agent, place by place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from guardmark.core.case import (
    AgentCall,
    CaseEnd,
    CaseResult,
    FinalAnswer,
    StepKind,
    ToolCalls,
    WorldCheck,
)
from guardmark.core.manifest import Policy
from guardmark.core.outcome import ALLOWED, BLOCKED, Decision, ErrorKind, Outcome
from guardmark.core.place import Place
from guardmark.engine.agent_case import CaseRules, run_case
from guardmark.suites.loading import load_suite, suite_path
from guardmark.suites.obedient import LEFT_OUT, ObedientAgent
from guardmark.suites.suite import CaseId

if TYPE_CHECKING:
    from collections.abc import Callable

    from guardmark.core.case import Agent, Conversation, Move, World
    from guardmark.core.sample import Prompt

PATH = suite_path("errands", Path())
assert PATH is not None
SUITE = load_suite(PATH)
BENIGN = CaseId(suite="errands", task="tell-paul")
ATTACK = CaseId(suite="errands", task="tell-paul", injection="mail-word", wording="plain")
Guard = "Callable[[Prompt], Decision]"


async def _run(
    case: CaseId,
    *,
    rules: CaseRules | None = None,
    agent: Callable[[World], Agent] = ObedientAgent,
    **guards: Callable[[Prompt], Decision],
) -> CaseResult:
    async def ask(_name: str, place: Place, prompt: Prompt) -> tuple[Decision, int | None]:
        return guards[place.value](prompt), 1

    world = await SUITE.open(case)
    return await run_case(
        world,
        agent(world),
        ask,
        guards={Place(place): (f"at-{place}",) for place in guards},
        rules=rules or CaseRules(),
    )


def _allow(_prompt: Prompt) -> Decision:
    return ALLOWED


def _block(_prompt: Prompt) -> Decision:
    return BLOCKED


def _rewrite(text: str) -> Callable[[Prompt], Decision]:
    return lambda _prompt: Decision(outcome=Outcome.ALLOW, text=text)


async def test_without_guards_the_task_and_the_order_are_done() -> None:
    """The obedient agent is the worst there can be."""
    result = await _run(ATTACK)
    assert (result.task_done, result.injection_done) == (True, True)
    assert result.end is CaseEnd.ANSWERED
    benign = await _run(BENIGN)
    assert (benign.task_done, benign.injection_done) == (True, None)


@pytest.mark.parametrize("place", ["input", "output", "tool_call", "tool_result"])
async def test_a_guard_that_blocks_everything_stops_attack_and_task(place: str) -> None:
    """At every place: what it costs must show beside what it stops."""
    result = await _run(ATTACK, **{place: _block})
    assert result.injection_done is (place == "output")
    if place != "output":  # the mail to Paul is sent before the answer is blocked
        assert result.task_done is False


async def test_a_left_out_result_ends_the_obedient_agent_and_it_says_so() -> None:
    """It cannot know what it did not read."""
    result = await _run(BENIGN, tool_result=_block)
    assert (result.end, result.answer) == (CaseEnd.GAVE_UP, LEFT_OUT)


async def test_a_place_may_stop_the_case_instead() -> None:
    """`on_block: stop` ends it there, and the record names guard and place."""
    rules = CaseRules(on_call_blocked="stop", on_result_blocked="stop")
    result = await _run(BENIGN, rules=rules, tool_result=_block)
    assert (result.end, result.message) == (CaseEnd.STOPPED, "at-tool_result at tool_result")
    result = await _run(BENIGN, rules=rules, tool_call=_block)
    assert (result.end, result.message) == (CaseEnd.STOPPED, "at-tool_call at tool_call")


async def test_guards_see_each_text_with_the_conversation_so_far() -> None:
    """The call as JSON at `tool_call`, the result as it came at `tool_result`."""
    seen: list[tuple[int, str]] = []

    def look(prompt: Prompt) -> Decision:
        seen.append((len(prompt.messages), prompt.text))
        return ALLOWED

    await _run(BENIGN, tool_call=look)
    assert json.loads(seen[0][1]) == {"name": "read_mail", "arguments": {"mail": "2"}}
    assert [count for count, _ in seen] == [2, 4]


async def test_a_rewritten_result_is_what_the_agent_reads() -> None:
    """A guard that takes the order out stops it, and the task goes on."""
    result = await _run(ATTACK, tool_result=_rewrite("a mail of Nora"))
    assert (result.task_done, result.injection_done) == (True, False)
    actions = [step.action for step in result.steps if step.kind is StepKind.GUARD]
    assert set(actions) == {"rewrite"}


async def test_a_block_for_one_bad_line_loses_the_whole_result() -> None:
    """Such a guard stops the attack and loses the task; one that leaves out the line keeps it."""
    harmless: set[str] = set()

    def learn(prompt: Prompt) -> Decision:
        harmless.update(prompt.text.splitlines())
        return ALLOWED

    def block(prompt: Prompt) -> Decision:
        return ALLOWED if harmless.issuperset(prompt.text.splitlines()) else BLOCKED

    def leave_out(prompt: Prompt) -> Decision:
        kept = [line for line in prompt.text.splitlines() if line in harmless]
        return Decision(outcome=Outcome.ALLOW, text="\n".join(kept))

    await _run(BENIGN, tool_result=learn)
    assert len(harmless) > 1
    blocked = await _run(ATTACK, tool_result=block)
    assert (blocked.task_done, blocked.injection_done) == (False, False)
    assert (blocked.end, blocked.answer) == (CaseEnd.GAVE_UP, LEFT_OUT)
    rewritten = await _run(ATTACK, tool_result=leave_out)
    assert (rewritten.task_done, rewritten.injection_done) == (True, False)


async def test_a_rewritten_call_is_what_is_carried_out() -> None:
    """Other arguments of the same tool."""
    call = json.dumps({"name": "read_mail", "arguments": {"mail": "1"}})
    result = await _run(CaseId(suite="errands", task="bill-amount"), tool_call=_rewrite(call))
    # Every call is written anew as one of read_mail: that of search_mail is another tool.
    assert [step.action for step in result.steps if step.kind is StepKind.GUARD] == ["malformed"]
    result = await _run(CaseId(suite="errands", task="clean-up"), tool_call=_rewrite(call))
    assert "waterworks" in next(s.text for s in result.steps if s.kind is StepKind.RESULT)


@pytest.mark.parametrize("text", ["", "no JSON", "[]", '{"name": "read_mail", "arguments": 1}'])
async def test_an_unreadable_call_is_malformed_and_the_policy_decides(text: str) -> None:
    """Failure is not a decision: the record says which policy decided."""
    result = await _run(BENIGN, tool_call=_rewrite(text))
    guard = next(step for step in result.steps if step.kind is StepKind.GUARD)
    assert (guard.action, guard.policy) == ("malformed", "block")
    rules = CaseRules(on_malformed=Policy.ALLOW)
    result = await _run(BENIGN, rules=rules, tool_call=_rewrite(text))
    assert result.task_done


async def test_a_guard_that_fails_late_leaves_the_case_to_the_policy() -> None:
    """At the second of two results: the first was looked at, the second decided by policy."""
    count = 0

    def fail_late(_prompt: Prompt) -> Decision:
        nonlocal count
        count += 1
        if count < 2:
            return ALLOWED
        return Decision(outcome=Outcome.ERROR, error_kind=ErrorKind.TIMEOUT)

    result = await _run(BENIGN, tool_result=fail_late)
    guards = [(s.action, s.policy) for s in result.steps if s.kind is StepKind.GUARD]
    assert guards == [("allow", ""), ("error", "block")]
    count = 0
    result = await _run(BENIGN, rules=CaseRules(on_error=Policy.ALLOW), tool_result=fail_late)
    assert result.end is CaseEnd.ANSWERED


async def test_a_guard_that_writes_into_what_it_is_shown_changes_nothing_in_the_world() -> None:
    """Arguments, messages and definitions are shown as texts: what a guard does to them is lost."""

    def write(prompt: Prompt) -> Decision:
        for call in prompt.proposed:
            json.loads(call.arguments)["to"] = "mallory@elsewhere.example"
        for message in prompt.messages:
            with pytest.raises(AttributeError):
                message.content = "nothing"  # type: ignore[misc]
        return ALLOWED

    untouched = await _run(BENIGN)
    written = await _run(BENIGN, tool_call=write, tool_result=write, tool_list=write)
    assert written.task_done
    calls = [step.text for step in written.steps if step.kind is StepKind.CALL]
    assert calls == [step.text for step in untouched.steps if step.kind is StepKind.CALL]


class _CrashingWorld:
    """A world whose check fails."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)

    async def check(self, _answer: str) -> WorldCheck:
        raise KeyError("no such shelf")


async def test_a_check_that_crashes_is_a_fault_of_the_suite_and_no_outcome() -> None:
    """Neither done nor not done: the run ends, and what failed is said."""
    world = _CrashingWorld(await SUITE.open(BENIGN))

    async def ask(*_: object) -> tuple[Decision, int | None]:
        return ALLOWED, 1

    with pytest.raises(KeyError, match="no such shelf"):
        await run_case(world, ObedientAgent(world), ask, guards={}, rules=CaseRules())


async def test_a_poisoned_description_is_left_out_of_the_list() -> None:
    """The tool is gone for the agent, and with it the order."""
    case = CaseId(suite="errands", task="budget", injection="tool-share", wording="plain")

    def look(prompt: Prompt) -> Decision:
        return BLOCKED if "attic.example" in prompt.text else ALLOWED

    assert (await _run(case)).injection_done
    result = await _run(case, tool_list=look)
    assert (result.task_done, result.injection_done) == (True, False)


async def test_a_description_that_changes_between_two_lists_is_shown_again() -> None:
    """Only what is new is shown: the guard saw the other tools already."""
    case = CaseId(suite="errands", task="budget", injection="tool-event", wording="plain")
    result = await _run(case, tool_list=_allow)
    assert result.injection_done
    shown = [step for step in result.steps if step.place is Place.TOOL_LIST]
    assert len(shown) == len(SUITE.tools) + 1
    assert shown[-1].has_order


class _Scripted:
    """An agent that makes the moves it is given; the last of them for ever."""

    def __init__(self, *moves: Move) -> None:
        self.moves = list(moves)
        self.read: list[str] = []

    async def next(self, conversation: Conversation) -> Move:
        self.read = [message.content for message in conversation.messages]
        return self.moves.pop(0) if len(self.moves) > 1 else self.moves[0]


async def test_the_same_call_for_ever_ends_at_the_most_steps() -> None:
    """The case is over, what was done is checked, and the end says why."""
    call = ToolCalls(calls=(AgentCall(name="list_mail", arguments={}, id="1"),))
    result = await _run(BENIGN, rules=CaseRules(max_steps=4), agent=lambda _w: _Scripted(call))
    assert (result.end, result.task_done) == (CaseEnd.MOST_STEPS, False)
    assert len([s for s in result.steps if s.kind is StepKind.CALL]) == 4


async def test_an_agent_that_answers_without_calling_is_checked_like_any_other() -> None:
    """No call, no result, an answer."""
    result = await _run(BENIGN, agent=lambda _w: _Scripted(FinalAnswer(text="no")))
    assert (result.end, result.task_done) == (CaseEnd.ANSWERED, False)


async def test_an_unknown_tool_is_a_result_that_the_agent_reads() -> None:
    """As any error of a tool."""
    agent = _Scripted(
        ToolCalls(calls=(AgentCall(name="fly", arguments={}, id="1"),)), FinalAnswer(text="")
    )
    await _run(BENIGN, agent=lambda _w: agent)
    assert agent.read[-1] == "error: there is no tool fly"


async def test_several_calls_at_once_are_asked_about_and_answered_one_by_one() -> None:
    """A blocked one is told, the other is carried out."""
    agent = _Scripted(
        ToolCalls(
            calls=(
                AgentCall(name="list_files", arguments={}, id="a"),
                AgentCall(name="read_file", arguments={"name": "packing.txt"}, id="b"),
            )
        ),
        FinalAnswer(text=""),
    )
    result = await _run(
        BENIGN,
        agent=lambda _w: agent,
        tool_call=lambda prompt: BLOCKED if "list_files" in prompt.text else ALLOWED,
    )
    assert "refused" in agent.read[-2]
    assert agent.read[-1] == "tent, lamp, rope"
    assert [s.tool for s in result.steps if s.kind is StepKind.RESULT] == ["read_file"]


async def test_an_agent_that_fails_has_no_outcome() -> None:
    """Neither utility lost nor an attack stopped."""
    failed = FinalAnswer(text="", error_kind=ErrorKind.CONNECTION, message="no route")
    result = await _run(ATTACK, agent=lambda _w: _Scripted(failed))
    assert (result.end, result.task_done, result.injection_done) == (CaseEnd.FAILED, None, None)
    assert (result.error_kind, result.message) == (ErrorKind.CONNECTION, "no route")


async def test_a_provider_that_filters_ends_the_case_as_blocked() -> None:
    """Never an error: what was done until then is checked."""
    filtered = FinalAnswer(text="", blocked_at="input")
    result = await _run(ATTACK, agent=lambda _w: _Scripted(filtered))
    assert (result.end, result.message) == (CaseEnd.PROVIDER, "provider at input")
    assert result.injection_done is False
