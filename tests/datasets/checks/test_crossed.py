"""Rows that share a second origin are named, with the factor that should be the group."""

from __future__ import annotations

import pytest

from guardmark.core.sample import Label, Message, Prompt, Role, Sample
from guardmark.datasets.checks.crossed import find_crossed, note_crossed
from guardmark.datasets.checks.issues import Criteria, Status, check_samples
from guardmark.datasets.formats.turns import by_turn

CRITERIA = Criteria(taxonomy={}, half_width=lambda _trials: 0.1)


def crossed(tasks: int, injections: int, *, group: str = "task") -> list[Sample]:
    """Every task with every injection; one of both is the group, both stand in the metadata."""
    return [
        Sample(
            id=f"s{task}-{injection}",
            prompt=Prompt.of_text(f"case {task} of {injection} with words of its own {task * 97}"),
            label=Label.ATTACK,
            group=f"task {task}" if group == "task" else f"injection {injection}",
            metadata={"task": task, "injection": f"i{injection}", "row": f"{task}/{injection}"},
        )
        for task in range(tasks)
        for injection in range(injections)
    ]


def test_the_factor_with_fewer_values_is_proposed_as_the_group() -> None:
    """Forty tasks with eight injections each: intervals by task cover less than half."""
    (column,) = find_crossed(crossed(40, 8))
    assert (column.name, column.values, column.groups, column.filled) == ("injection", 8, 40, 1.0)
    (note,) = note_crossed(crossed(40, 8))
    assert "metadata.injection: 8 values" in note
    assert "map: {group: [GROUP, injection]}" in note
    assert "injection alone: it has fewer values" in note
    issue = next(
        e for e in check_samples(crossed(40, 8), CRITERIA).findings if e.aspect == "diverse"
    )
    assert issue.status is Status.WARNING
    assert "Take injection as the group" in issue.message
    assert issue.numbers["crossed_columns"] == 1


def test_groups_with_fewer_values_are_left_as_they_are() -> None:
    """The rows are crossed all the same, and the note says why nothing is to be done."""
    (note,) = note_crossed(crossed(40, 8, group="injection"))
    assert "metadata.task: 40 values" in note
    assert "the groups as they are: they have fewer values" in note


@pytest.mark.parametrize(("tasks", "injections"), [(40, 2), (2, 40), (1, 8), (40, 1)])
def test_two_values_are_a_condition_and_not_a_draw(tasks: int, injections: int) -> None:
    """With and without an image, in two languages: nothing was drawn from more of its kind."""
    assert find_crossed(crossed(tasks, injections)) == ()


def test_what_is_nested_or_unique_crosses_nothing() -> None:
    """A column that is told by the group, or by the row, adds no factor."""
    samples = [
        Sample(
            id=f"s{n}",
            prompt=Prompt.of_text(f"text {n}"),
            label=Label.ATTACK,
            group=f"g{n // 5}",
            metadata={"origin": f"g{n // 5}", "row": n, "part": f"p{n % 50 // 10}"},
        )
        for n in range(50)
    ]
    assert find_crossed(samples) == ()


def test_the_number_of_a_turn_is_no_factor() -> None:
    """Each conversation has a first turn: that is no origin which rows share."""
    messages = tuple(Message(role=Role.USER, content=str(n)) for n in range(3))
    turns = [
        turn
        for name in "abcd"
        for turn in by_turn(Sample(id=name, prompt=Prompt(messages=messages), label=Label.BENIGN))
    ]
    assert find_crossed(turns) == ()
