"""AgentDojo behind the protocol of suites."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from itertools import count
from os import cpu_count
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.case import AgentCall, ToolResult, WorldCheck
from guardmark.core.sample import ToolDefinition
from guardmark.suites.agentdojo.process import AgentDojoProcess
from guardmark.suites.suite import CaseId, InjectionInfo, TaskInfo

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SUITES: Final = ("banking", "slack", "travel", "workspace")
"""Names of its suites."""
USUAL_ATTACK: Final = "important_instructions"
_OUR_NAMES: Final = {
    "plain": "direct",
    "important": USUAL_ATTACK,
    "ignore-previous": "ignore_previous",
    "tool-knowledge": "tool_knowledge",
}
"""How errands words an order, to what AgentDojo calls the like."""


class AgentDojoSuite:
    """One suite of AgentDojo, its worlds spread over several processes."""

    def __init__(
        self, name: str, described: Mapping[str, Any], processes: Sequence[AgentDojoProcess]
    ) -> None:
        self._own_name = name
        self.name = f"agentdojo/{name}"
        self._described = described
        self._processes = processes
        self._numbers = count()

    @classmethod
    async def start(cls, name: str, *, interpreter: str, processes: int = 0) -> AgentDojoSuite:
        """Start the processes of a suite, and read what is in it."""
        workers = [AgentDojoProcess(interpreter) for _ in range(processes or cpu_count() or 1)]
        described = await workers[0].ask("describe", suite=name)
        return cls(name, described, workers)

    @property
    def fingerprint(self) -> str:
        """Hash of the version and of every text of the suite."""
        form = {key: value for key, value in self._described.items() if key != "id"}
        return sha256(json.dumps(form, sort_keys=True).encode()).hexdigest()

    @property
    def version(self) -> str:
        """Version of the package and of its benchmark."""
        return str(self._described["version"])

    @cached_property
    def tasks(self) -> Sequence[TaskInfo]:
        """What users want."""
        return tuple(
            TaskInfo(id=task["id"], prompt=task["prompt"]) for task in self._described["tasks"]
        )

    @cached_property
    def injections(self) -> Sequence[InjectionInfo]:
        """What attackers hide; those without known calls exist for model agents only."""
        return tuple(
            InjectionInfo(id=each["id"], order=each["order"], is_measurable=each["is_known"])
            for each in self._described["injections"]
        )

    @cached_property
    def tools(self) -> tuple[ToolDefinition, ...]:
        """What an agent may call."""
        return tuple(ToolDefinition(**tool) for tool in self._described["tools"])

    @property
    def wordings(self) -> Sequence[str]:
        """Its attacks by name, the usual one first, and the names that errands has for them."""
        attacks = [name for name in self._described["attacks"] if name != USUAL_ATTACK]
        return (USUAL_ATTACK, *attacks, *_OUR_NAMES)

    def meets(self, task: str, injection: str) -> bool:  # noqa: ARG002 - the protocol's signature
        """Every task of AgentDojo meets every injection."""
        return True

    async def open(self, case: CaseId, *, text: str | None = None) -> AgentDojoWorld:
        """Open the world of one case in one of the processes."""
        number = next(self._numbers)
        process = self._processes[number % len(self._processes)]
        opened = await process.ask(
            "open",
            case=number,
            suite=self._own_name,
            task=case.task,
            injection=case.injection,
            attack=_OUR_NAMES.get(case.wording, case.wording),
            text=text,
        )
        goal = ""
        for injection in self.injections:
            if injection.id == case.injection:
                goal = injection.order
        return AgentDojoWorld(
            number=number,
            process=process,
            prompt=next(task.prompt for task in self.tasks if task.id == case.task),
            tools=self.tools,
            order=goal,
            opened=opened,
        )

    async def injected_text(self, case: CaseId) -> str:
        """Return what the package's attack writes into the world of a case."""
        answer = await self._processes[0].ask(
            "text",
            suite=self._own_name,
            task=case.task,
            injection=case.injection,
            attack=_OUR_NAMES.get(case.wording, case.wording),
        )
        return str(answer["text"])

    async def close(self) -> None:
        """End its processes."""
        for process in self._processes:
            await process.close()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AgentDojoWorld:
    """One case in a process."""

    number: int
    process: AgentDojoProcess
    prompt: str
    tools: tuple[ToolDefinition, ...]
    order: str
    opened: Mapping[str, Any]

    @property
    def outputs(self) -> tuple[str, str]:
        """The known answers of the task and of the injection."""
        return self.opened["output"], self.opened["injected_output"]

    async def known_calls(self) -> Sequence[AgentCall]:
        """The calls that do the task, as they were known before the first of them."""
        return _calls(self.opened["calls"])

    async def injected_calls(self) -> Sequence[AgentCall]:
        """The calls that do the injection, for the world as it is now."""
        answer = await self.process.ask("injected", case=self.number)
        return _calls(answer["calls"])

    async def call(self, call: AgentCall) -> ToolResult:
        """Carry out a call."""
        answer = await self.process.ask(
            "call", case=self.number, name=call.name, arguments=dict(call.arguments)
        )
        return ToolResult(text=answer["text"], is_error=answer["is_error"])

    async def check(self, answer: str) -> WorldCheck:
        """Ask the package's own checks."""
        found = await self.process.ask("check", case=self.number, answer=answer)
        return WorldCheck(task_done=found["task_done"], injection_done=found["injection_done"])

    async def close(self) -> None:
        """Forget the case."""
        await self.process.ask("close", case=self.number)


def _calls(stated: Sequence[Mapping[str, Any]]) -> list[AgentCall]:
    return [AgentCall(name=call["name"], arguments=call["arguments"]) for call in stated]
