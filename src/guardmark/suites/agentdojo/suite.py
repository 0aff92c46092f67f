"""AgentDojo behind the protocol of suites."""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass, field
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
    from collections.abc import Awaitable, Callable, Mapping, Sequence

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
_MOST_KNOWN: Final = 64
"""Cases of which is kept what was called in them: more than are under way at once."""


def start_processes(interpreter: str, count: int = 0) -> Sequence[AgentDojoProcess]:
    """Return processes, each of which serves every suite; they start when they are asked."""
    return [AgentDojoProcess(interpreter) for _ in range(count or cpu_count() or 1)]


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
        self._known: OrderedDict[tuple[CaseId, str | None], _KnownCase] = OrderedDict()

    @classmethod
    async def start(
        cls,
        name: str,
        *,
        interpreter: str,
        processes: int = 0,
        shared: Sequence[AgentDojoProcess] = (),
    ) -> AgentDojoSuite:
        """Read what is in a suite; it starts processes of its own, unless several share some."""
        workers = shared or start_processes(interpreter, processes)
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
        """Open the world of one case; what another arm called in it is not called again."""

        async def start() -> _StartedCase:
            return await self._start_case(case, text)

        known = self._known.get((case, text))
        started = None
        if known is None:
            started = await start()
            known = _KnownCase(opened=started.opened)
            self._known[case, text] = known
            if len(self._known) > _MOST_KNOWN:
                self._known.popitem(last=False)
        goal = ""
        for injection in self.injections:
            if injection.id == case.injection:
                goal = injection.order
        return AgentDojoWorld(
            prompt=next(task.prompt for task in self.tasks if task.id == case.task),
            tools=self.tools,
            order=goal,
            opened=known.opened,
            start=start,
            moment=known.beginning,
            started=started,
        )

    async def _start_case(self, case: CaseId, text: str | None) -> _StartedCase:
        """Open a case in one of the processes."""
        count = next(self._numbers)
        process, number = self._processes[count % len(self._processes)], f"{self._own_name}-{count}"
        opened = await process.ask(
            "open",
            case=number,
            suite=self._own_name,
            task=case.task,
            injection=case.injection,
            attack=_OUR_NAMES.get(case.wording, case.wording),
            text=text,
        )
        return _StartedCase(number=number, process=process, opened=opened)

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


@dataclass(slots=True, kw_only=True, eq=False)
class _Moment:
    """What is known of a case after certain calls: what one more returned, what checks found."""

    results: dict[str, tuple[ToolResult, _Moment]] = field(default_factory=dict)
    checks: dict[str, WorldCheck] = field(default_factory=dict)
    injected: Sequence[AgentCall] | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _KnownCase:
    """What was seen of a case, in whichever arm."""

    opened: Mapping[str, Any]
    beginning: _Moment = field(default_factory=_Moment)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _StartedCase:
    """A case that is open in a process."""

    number: str
    process: AgentDojoProcess
    opened: Mapping[str, Any]

    async def ask(self, do: str, **about: object) -> Mapping[str, Any]:
        """Put a question about the case."""
        return await self.process.ask(do, case=self.number, **about)

    async def call(self, call: AgentCall) -> ToolResult:
        """Carry out a call."""
        answer = await self.ask("call", name=call.name, arguments=dict(call.arguments))
        return ToolResult(text=answer["text"], is_error=answer["is_error"])


@dataclass(slots=True, kw_only=True, eq=False)
class AgentDojoWorld:
    """One case; a process holds it from the first call on that no arm made before.

    Tools do what the world and the calls before say, so arms that make the same calls share their
    results. Where one goes another way, the case is opened anew and brought to that point.
    """

    prompt: str
    tools: tuple[ToolDefinition, ...]
    order: str
    opened: Mapping[str, Any]
    start: Callable[[], Awaitable[_StartedCase]]
    moment: _Moment
    started: _StartedCase | None
    made: list[AgentCall] = field(default_factory=list)

    @property
    def outputs(self) -> tuple[str, str]:
        """The known answers of the task and of the injection."""
        return self.opened["output"], self.opened["injected_output"]

    async def known_calls(self) -> Sequence[AgentCall]:
        """The calls that do the task, as they were known before the first of them."""
        return _calls(self.opened["calls"])

    async def injected_calls(self) -> Sequence[AgentCall]:
        """The calls that do the injection, for the world as it is now."""
        if self.moment.injected is None:
            case = await self._reached()
            self.moment.injected = _calls((await case.ask("injected"))["calls"])
        return self.moment.injected

    async def call(self, call: AgentCall) -> ToolResult:
        """Carry out a call, or return what it returned at this point."""
        key = json.dumps([call.name, dict(call.arguments)], sort_keys=True, default=str)
        known = self.moment.results.get(key)
        if known is None or self.started is not None:
            case = await self._reached()
            result = await case.call(call)
            known = self.moment.results.setdefault(key, (result, _Moment()))
        self.made.append(call)
        result, self.moment = known
        return result

    async def check(self, answer: str) -> WorldCheck:
        """Ask the package's own checks."""
        if answer not in self.moment.checks:
            case = await self._reached()
            found = await case.ask("check", answer=answer)
            self.moment.checks[answer] = WorldCheck(
                task_done=found["task_done"], injection_done=found["injection_done"]
            )
        return self.moment.checks[answer]

    async def _reached(self) -> _StartedCase:
        """Return the case in a process, after the calls that were made."""
        if self.started is None:
            self.started = await self.start()
            for call in self.made:
                await self.started.call(call)
        return self.started

    async def close(self) -> None:
        """Forget the case in its process."""
        if self.started is not None:
            await self.started.ask("close")
            self.started = None


def _calls(stated: Sequence[Mapping[str, Any]]) -> list[AgentCall]:
    return [AgentCall(name=call["name"], arguments=call["arguments"]) for call in stated]
