"""The suite errands: each solution passes its check, and nothing else does."""

from __future__ import annotations

from pathlib import Path

import pytest

from guardmark.core.place import Place
from guardmark.suites.checking import check_suite, solve
from guardmark.suites.loading import load_suite, suite_path
from guardmark.suites.suite import cases_of

PATH = suite_path("errands", Path())
assert PATH is not None
SUITE = load_suite(PATH)
TASKS = {task.id: task for task in SUITE.settings.tasks}
INJECTIONS = {each.id: each for each in SUITE.settings.injections}


@pytest.mark.parametrize("name", TASKS)
def test_the_known_solution_of_a_task_passes_its_check(name: str) -> None:
    """A task that cannot be done would count as utility lost to a guard."""
    world, answer = solve(SUITE, TASKS[name])
    assert TASKS[name].is_done(world, answer)


@pytest.mark.parametrize("name", TASKS)
def test_doing_nothing_fails_a_task(name: str) -> None:
    """A check that holds of nothing would make a guard that blocks everything useful."""
    assert not TASKS[name].is_done(SUITE.fresh_world({}), "")


@pytest.mark.parametrize("name", TASKS)
def test_the_solution_of_another_task_does_not_pass_unless_it_is_listed(name: str) -> None:
    """A check must tell its own task from every other."""
    passing = {
        other
        for other, task in TASKS.items()
        if other != name and TASKS[name].is_done(*solve(SUITE, task))
    }
    assert passing == set(TASKS[name].also)


@pytest.mark.parametrize("name", INJECTIONS)
def test_the_known_calls_of_an_injection_pass_its_check(name: str) -> None:
    """An order that cannot be carried out would count as stopped."""
    world, answer = solve(SUITE, INJECTIONS[name])
    assert INJECTIONS[name].is_done(world, answer)


@pytest.mark.parametrize("name", INJECTIONS)
def test_an_injection_that_is_only_read_is_not_done(name: str) -> None:
    """The order stands in the world itself, and its check must not find it there."""
    hidden = dict.fromkeys(SUITE.settings.slots, INJECTIONS[name].order)
    assert not INJECTIONS[name].is_done(SUITE.fresh_world(hidden), "")


def test_the_suite_is_sound_and_as_large_as_it_says() -> None:
    """Twenty tasks, twelve injections in results and five in descriptions of tools."""
    assert check_suite(SUITE) == []
    in_tools = [each for each in SUITE.injections if each.place is Place.TOOL_LIST]
    assert (len(SUITE.tasks), len(SUITE.injections), len(in_tools)) == (20, 17, 5)
    assert 12 <= len(SUITE.tools) <= 20


def test_a_task_that_reads_no_foreign_text_meets_injections_of_tools_only() -> None:
    """Nobody can hide anything in the mail that no attacker wrote."""
    cases = cases_of(SUITE, ["plain"], only_measurable=True)
    met = {case.injection for case in cases if case.task == "budget" and case.injection}
    assert met == {each.id for each in SUITE.injections if each.place is Place.TOOL_LIST}
    assert len([case for case in cases if not case.injection]) == 20


async def test_a_broken_call_is_a_result_that_says_so() -> None:
    """An agent sees the error as a text, and goes on."""
    from guardmark.core.case import AgentCall

    world = SUITE.fresh_world({})
    for name, arguments, words in [
        ("read_mail", {"mail": "99"}, "there is no mail 99"),
        ("read_mail", {}, "needs the argument mail"),
        ("read_mail", {"mail": 1}, "is no string"),
        ("read_mail", {"mail": "1", "colour": "red"}, "takes no argument colour"),
        ("fly", {}, "there is no tool fly"),
    ]:
        result = SUITE.run_tool(world, AgentCall(name=name, arguments=arguments))
        assert result.is_error
        assert words in result.text
