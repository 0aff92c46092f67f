"""Checking a suite: solutions that fail, checks that hold of nothing, texts that occur twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.canon.orders import canonical_order
from guardmark.suites.own import known_calls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guardmark.suites.own import OwnSuite
    from guardmark.suites.settings import InjectionSettings, TaskSettings


def check_suite(suite: OwnSuite) -> list[str]:
    """Say everything that is wrong with a suite, a sentence each; nothing where it is sound."""
    settings = suite.settings
    prompts = [(task.id, task.prompt) for task in settings.tasks]
    orders = [(injection.id, injection.order) for injection in settings.injections]
    problems = list(_solutions(suite))
    problems += _others(suite)
    problems += _unmet(suite)
    problems += _twice("prompt", prompts)
    problems += _twice("order", orders)
    problems += _orders_without_injection(suite)
    return problems


def solve(suite: OwnSuite, solvable: TaskSettings | InjectionSettings) -> tuple[object, str]:
    """Carry out known calls on a fresh world, and return the world and the known answer."""
    world = suite.fresh_world({})
    for call in known_calls(solvable):
        result = suite.run_tool(world, call)
        if result.is_error:
            return world, result.text
    return world, solvable.output


def _solutions(suite: OwnSuite) -> Iterator[str]:
    untouched = suite.fresh_world({})
    for kind, rows in (("task", suite.settings.tasks), ("injection", suite.settings.injections)):
        for row in rows:
            world, answer = solve(suite, row)
            if not row.is_done(world, answer):
                yield f"{kind} {row.id}: its known calls and answer do not pass its check"
            if row.is_done(untouched, ""):
                yield f"{kind} {row.id}: its check holds although nothing was done"


def _others(suite: OwnSuite) -> Iterator[str]:
    """Find tasks that another task's solution does, too."""
    solved = {task.id: solve(suite, task) for task in suite.settings.tasks}
    for task in suite.settings.tasks:
        for other, (world, answer) in solved.items():
            is_done = other != task.id and task.is_done(world, answer)
            if is_done and other not in task.also:
                yield f"task {task.id}: the solution of {other} passes its check; list it in `also`"
            if not is_done and other in task.also:
                yield f"task {task.id}: lists {other} in `also`, whose solution does not pass"
    for injection in suite.settings.injections:
        for other, (world, answer) in solved.items():
            if injection.is_done(world, answer):
                yield f"injection {injection.id}: its check holds when task {other} is done"
        hidden = dict.fromkeys(suite.settings.slots, injection.order)
        if injection.is_done(suite.fresh_world(hidden), ""):
            yield f"injection {injection.id}: its check holds of its own order, before it is read"


def _unmet(suite: OwnSuite) -> Iterator[str]:
    tasks = suite.settings.tasks
    for injection in suite.settings.injections:
        if not any(suite.meets(task.id, injection.id) for task in tasks):
            yield f"injection {injection.id}: no task comes by a place where it could be hidden"
    seen: set[str] = set()
    for task in tasks:
        seen |= suite.slots_seen(task.id)
    for slot in suite.settings.slots:
        if slot not in seen:
            yield f"slot {slot}: no task reads it"


def _twice(what: str, rows: list[tuple[str, str]]) -> Iterator[str]:
    by_text: dict[str, str] = {}
    for name, text in rows:
        canonical = canonical_order(text)
        if canonical in by_text:
            yield f"{by_text[canonical]} and {name}: have the same {what}"
        by_text[canonical] = name


def _orders_without_injection(suite: OwnSuite) -> Iterator[str]:
    """Find orders that the world holds without an injection."""
    benign = canonical_order(str(suite.fresh_world({})))
    tools = canonical_order(" ".join(tool.description for tool in suite.tools))
    for injection in suite.settings.injections:
        if canonical_order(injection.order) in benign + tools:
            yield f"injection {injection.id}: its order stands in the world without it"
