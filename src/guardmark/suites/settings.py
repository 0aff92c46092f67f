"""Suites in a file: the settings of `suite.yaml`, and the checks that it may state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, field_validator, model_validator

from guardmark.canon.orders import canonical_order
from guardmark.config.settings import Name, Settings

if TYPE_CHECKING:
    from collections.abc import Mapping


class CheckSettings(Settings):
    """One thing that must hold when a case is over: of the answer, or at a path of the world."""

    answer: list[str] = []
    path: str = ""
    has: dict[str, Any] = {}
    including: dict[str, str] = {}
    lacks: dict[str, Any] = {}
    contains: Any = None
    equals: Any = None

    @model_validator(mode="after")
    def _states_something(self) -> CheckSettings:
        conditions = [self.has or self.including, self.lacks, self.contains, self.equals]
        count = sum(map(bool, conditions))
        if self.answer and (self.path or count):
            raise ValueError("looks either at the answer or at a path of the world")
        if not self.answer and (not self.path or count != 1):
            raise ValueError(
                "needs `answer`, or `path` with one of: has (with including), lacks, contains, "
                "equals"
            )
        return self

    def holds(self, world: object, answer: str) -> bool:
        """Tell whether it holds of a world and an answer."""
        if self.answer:
            whole = canonical_order(answer)
            return all(canonical_order(part) in whole for part in self.answer)
        rows = value_at(world, self.path)
        if self.equals is not None:
            return bool(rows == self.equals)
        if not isinstance(rows, list):
            return False
        if self.contains is not None:
            return self.contains in rows
        if self.lacks:
            return not any(_agrees(row, self.lacks) for row in rows)
        return any(_agrees(row, self.has) and _includes(row, self.including) for row in rows)


def value_at(world: object, path: str) -> object:
    """Return what stands at a path of a world (`mail/sent`), or None."""
    for key in path.split("/"):
        if not isinstance(world, dict) or key not in world:
            return None
        world = world[key]
    return world


def _agrees(row: object, wanted: Mapping[str, Any]) -> bool:
    if not isinstance(row, dict):
        return False
    return all(row.get(key) == value for key, value in wanted.items())


def _includes(row: object, wanted: Mapping[str, str]) -> bool:
    if not isinstance(row, dict):
        return False
    return all(part in str(row.get(key, "")) for key, part in wanted.items())


class _Solvable(Settings):
    """What a task and an injection share: known calls, a known answer, a check."""

    id: Name
    calls: list[dict[str, dict[str, Any]]] = []
    output: str = ""
    check: list[CheckSettings] = Field(min_length=1)

    @field_validator("calls")
    @classmethod
    def _one_tool_each(
        cls, value: list[dict[str, dict[str, Any]]]
    ) -> list[dict[str, dict[str, Any]]]:
        for call in value:
            if len(call) != 1:
                raise ValueError("each call names one tool: {read_mail: {mail: '1'}}")
        return value

    def is_done(self, world: object, answer: str) -> bool:
        """Tell whether everything that it checks holds."""
        return all(check.holds(world, answer) for check in self.check)


class TaskSettings(_Solvable):
    """What a user wants; `also` lists tasks whose solutions pass its check, too."""

    prompt: str = Field(min_length=1)
    also: list[Name] = []


class InjectionSettings(_Solvable):
    """What an attacker hides in the slots, or in the description of a tool."""

    order: str = Field(min_length=1)
    tool: str = ""
    changes: Literal["", "second"] = ""

    @model_validator(mode="after")
    def _of_a_tool(self) -> InjectionSettings:
        if self.changes and not self.tool:
            raise ValueError("changes: second is about the description of a tool: name the tool")
        return self


class SuiteSettings(Settings):
    """A whole suite file."""

    suite: Name
    tools: str = Field(pattern=r"^[A-Za-z0-9_-]+\.py$")
    slots: list[Name] = []
    wordings: dict[Name, str] = Field({"plain": "{order}"}, min_length=1)
    world: dict[str, Any]
    tasks: list[TaskSettings] = Field(min_length=1)
    injections: list[InjectionSettings] = []

    @field_validator("wordings")
    @classmethod
    def _hold_the_order(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if "{order}" not in text:
                raise ValueError(f"the wording {name} lacks {{order}}, where the order stands")
        return value

    @model_validator(mode="after")
    def _ids_once(self) -> SuiteSettings:
        _require_once("tasks", [task.id for task in self.tasks])
        _require_once("injections", [injection.id for injection in self.injections])
        return self


def _require_once(kind: str, ids: list[str]) -> None:
    """Raise `ValueError` where two of a kind have one id."""
    for name in sorted(ids):
        if ids.count(name) > 1:
            raise ValueError(f"two {kind} are called {name!r}")
