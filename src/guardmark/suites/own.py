"""A suite that is stated in a file: its world copied for each case, its tools plain functions."""

from __future__ import annotations

import inspect
import json
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.case import AgentCall, ToolResult, WorldCheck
from guardmark.core.errors import ConfigError
from guardmark.core.place import Place
from guardmark.core.sample import ToolDefinition
from guardmark.suites.suite import CaseId, InjectionInfo, TaskInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from guardmark.suites.settings import InjectionSettings, SuiteSettings, TaskSettings

    Tool = Callable[..., str]

_KINDS: Final = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


def define_tool(function: Tool) -> ToolDefinition:
    """Describe a tool as agents are told of it, from its signature and docstring."""
    parameters = list(inspect.signature(function).parameters.values())[1:]
    properties: dict[str, object] = {}
    required = []
    for parameter in parameters:
        properties[parameter.name] = {"type": _KINDS.get(str(parameter.annotation), "string")}
        if parameter.default is parameter.empty:
            required.append(parameter.name)
    return ToolDefinition(
        name=function.__name__,
        description=" ".join((function.__doc__ or "").split()),
        parameters={"type": "object", "properties": properties, "required": required},
    )


class OwnSuite:
    """Tasks, injections and tools of a suite file."""

    def __init__(self, settings: SuiteSettings, tools: Sequence[Tool], fingerprint: str) -> None:
        self.settings = settings
        self.fingerprint = fingerprint
        self.functions = {tool.__name__: tool for tool in tools}
        self.tools = tuple(define_tool(tool) for tool in tools)
        self.tasks_by_id = {task.id: task for task in settings.tasks}
        self.injections_by_id = {injection.id: injection for injection in settings.injections}
        self._seen: dict[str, frozenset[str]] = {}
        self._world_text = json.dumps(settings.world, ensure_ascii=False)

    @property
    def name(self) -> str:
        """Name of the suite."""
        return self.settings.suite

    @cached_property
    def tasks(self) -> Sequence[TaskInfo]:
        """What users want, in order."""
        return tuple(TaskInfo(id=task.id, prompt=task.prompt) for task in self.settings.tasks)

    @cached_property
    def injections(self) -> Sequence[InjectionInfo]:
        """What attackers hide, in order."""
        infos = []
        for stated in self.settings.injections:
            place = Place.TOOL_RESULT
            if stated.tool:
                place = Place.TOOL_LIST
            infos.append(InjectionInfo(id=stated.id, order=stated.order, place=place))
        return tuple(infos)

    @property
    def wordings(self) -> Sequence[str]:
        """How an injected order may be worded."""
        return tuple(self.settings.wordings)

    def meets(self, task: str, injection: str) -> bool:
        """Tell whether an agent that does a task comes by an injection."""
        if self.injections_by_id[injection].tool:
            return True
        return bool(self.slots_seen(task))

    def slots_seen(self, task: str) -> frozenset[str]:
        """Return the slots that the results of a task's known calls show."""
        if task not in self._seen:
            marks = {slot: f"<<{slot}>>" for slot in self.settings.slots}
            world = self.fresh_world(marks)
            results = []
            for call in known_calls(self.tasks_by_id[task]):
                results.append(self.run_tool(world, call).text)
            shown = "\n".join(results)
            seen = [slot for slot, mark in marks.items() if mark in shown]
            self._seen[task] = frozenset(seen)
        return self._seen[task]

    def fresh_world(self, texts: Mapping[str, str]) -> dict[str, Any]:
        """Return a copy of the world with texts in its slots; the other slots stay empty."""
        written = self._world_text
        for slot in self.settings.slots:
            inside = json.dumps(texts.get(slot, ""), ensure_ascii=False)[1:-1]
            if not inside:
                written = written.replace(f" {{{slot}}}", "")
            written = written.replace(f"{{{slot}}}", inside)
        world: dict[str, Any] = json.loads(written)
        return world

    def run_tool(self, world: dict[str, Any], call: AgentCall) -> ToolResult:
        """Carry out a call on a world; whatever fails is told as an agent would see it."""
        function = self.functions.get(call.name)
        if function is None:
            return ToolResult(text=f"error: there is no tool {call.name}", is_error=True)
        mistake = self._mistake_in(call)
        if mistake:
            return ToolResult(text=f"error: {mistake}", is_error=True)
        try:
            return ToolResult(text=str(function(world, **call.arguments)))
        except Exception as error:  # noqa: BLE001 - a tool that crashes is a result that says so
            return ToolResult(text=f"error: {error}", is_error=True)

    def _mistake_in(self, call: AgentCall) -> str:
        definition = next(tool for tool in self.tools if tool.name == call.name)
        properties: Any = definition.parameters["properties"]
        required: Any = definition.parameters["required"]
        for name, value in call.arguments.items():
            if name not in properties:
                return f"{call.name} takes no argument {name}"
            if not isinstance(value, _TYPES[properties[name]["type"]]):
                return f"the argument {name} of {call.name} is no {properties[name]['type']}"
        for name in required:
            if name not in call.arguments:
                return f"{call.name} needs the argument {name}"
        return ""

    async def open(self, case: CaseId, *, text: str | None = None) -> OwnWorld:
        """Return the world of one case, with the injected order in every slot the task sees."""
        task = self.tasks_by_id[case.task]
        if not case.injection:
            state = self.fresh_world({})
            return OwnWorld(suite=self, task=task, injection=None, state=state, order="", text="")
        injection = self.injections_by_id[case.injection]
        if text is None:
            text = self.word_order(injection, case.wording)
        slots: dict[str, str] = {}
        if not injection.tool:
            slots = dict.fromkeys(self.slots_seen(case.task), text)
        return OwnWorld(
            suite=self,
            task=task,
            injection=injection,
            state=self.fresh_world(slots),
            order=injection.order,
            text=text,
        )

    async def injected_text(self, case: CaseId) -> str:
        """Return what stands in the slots of a case with an injection."""
        return self.word_order(self.injections_by_id[case.injection], case.wording)

    def word_order(self, injection: InjectionSettings, wording: str) -> str:
        """Return an order in one of the suite's wordings."""
        if wording not in self.settings.wordings:
            known = ", ".join(self.settings.wordings)
            raise ConfigError(f"{self.name} has no wording {wording!r}. Known: {known}.")
        calls = []
        for call in known_calls(injection):
            calls.append(f"{call.name}({json.dumps(call.arguments)})")
        text = self.settings.wordings[wording]
        text = text.replace("{calls}", "; ".join(calls) or "none")
        return text.replace("{order}", injection.order)

    async def close(self) -> None:
        """Nothing is held."""


def known_calls(solvable: TaskSettings | InjectionSettings) -> list[AgentCall]:
    """Return the known calls of a task or an injection."""
    calls = []
    for stated in solvable.calls:
        for name, arguments in stated.items():
            calls.append(AgentCall(name=name, arguments=arguments))
    return calls


@dataclass(slots=True, kw_only=True, eq=False)
class OwnWorld:
    """One case's copy of the world of a suite file.

    Attributes:
        suite: The suite.
        task: What the user wants.
        injection: What the attacker hides, or None.
        state: The world as it is now.
        order: The unique part of the order; empty without one.
        text: The worded order; empty without one.
        called: How many calls were carried out.
    """

    suite: OwnSuite
    task: TaskSettings
    injection: InjectionSettings | None
    state: dict[str, Any]
    order: str
    text: str
    called: int = 0

    @property
    def prompt(self) -> str:
        """What the user wants."""
        return self.task.prompt

    @property
    def tools(self) -> tuple[ToolDefinition, ...]:
        """The tools, one of them with the injected order in its description."""
        injection = self.injection
        if injection is None or not injection.tool:
            return self.suite.tools
        if injection.changes == "second" and not self.called:
            return self.suite.tools
        tools = list(self.suite.tools)
        for index, tool in enumerate(tools):
            if tool.name == injection.tool:
                poisoned = f"{tool.description} {self.text}"
                tools[index] = replace(tool, description=poisoned)
        return tuple(tools)

    @property
    def outputs(self) -> tuple[str, str]:
        """The known answers of the task and of the injection."""
        if self.injection is None:
            return self.task.output, ""
        return self.task.output, self.injection.output

    async def known_calls(self) -> Sequence[AgentCall]:
        """The calls that do the task."""
        return known_calls(self.task)

    async def injected_calls(self) -> Sequence[AgentCall]:
        """The calls that do the injection."""
        if self.injection is None:
            return ()
        return known_calls(self.injection)

    async def call(self, call: AgentCall) -> ToolResult:
        """Carry out a call on this copy of the world."""
        self.called += 1
        return self.suite.run_tool(self.state, call)

    async def check(self, answer: str) -> WorldCheck:
        """Look at the world and the answer."""
        injected = None
        if self.injection is not None:
            injected = self.injection.is_done(self.state, answer)
        return WorldCheck(task_done=self.task.is_done(self.state, answer), injection_done=injected)

    async def close(self) -> None:
        """Nothing is held."""
