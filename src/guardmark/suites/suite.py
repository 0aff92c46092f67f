"""A suite: tasks, injections and tools over one world, and the protocol that all suites share."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Protocol

from guardmark.core.place import Place
from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.core.case import World
    from guardmark.core.sample import ToolDefinition


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskInfo:
    """What a user wants.

    Attributes:
        id: Unique within its suite.
        prompt: The user's words.
        is_measurable: Whether its known calls are stated, so that the obedient agent can do it.
    """

    id: str
    prompt: str
    is_measurable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectionInfo:
    """What an attacker hides in the data.

    Attributes:
        id: Unique within its suite.
        order: What the agent is told to do.
        place: Where it is hidden: in the result of a tool, or in the description of one.
        is_measurable: Whether its known calls are stated, so that the obedient agent can do it.
    """

    id: str
    order: str
    place: Place = Place.TOOL_RESULT
    is_measurable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseId:
    """One task, alone or with an injection in a wording.

    Attributes:
        suite: Name of the suite.
        task: Id of the task.
        injection: Id of the injection, or an empty text in a benign case.
        wording: How the order is worded, or an empty text in a benign case.
        copy: Which one of several stored runs of the same case it is, or empty.
    """

    suite: str
    task: str
    injection: str = ""
    wording: str = ""
    copy: str = ""

    @property
    def text(self) -> str:
        """The id as it stands in files: suite, task, injection and wording."""
        parts = (self.suite, self.task, self.injection, self.wording, self.copy)
        return "/".join(part for part in parts if part)


class AgentSuite(Protocol):
    """What a suite offers to a run: tasks, injections, tools, worlds that check themselves."""

    @property
    def name(self) -> str:
        """Name of the suite, as reports print it."""
        ...

    @property
    def fingerprint(self) -> str:
        """Hash (hex) of everything that its figures depend on."""
        ...

    @property
    def tasks(self) -> Sequence[TaskInfo]:
        """What users want, in order."""
        ...

    @property
    def injections(self) -> Sequence[InjectionInfo]:
        """What attackers hide, in order."""
        ...

    @property
    def tools(self) -> Sequence[ToolDefinition]:
        """What an agent may call."""
        ...

    @property
    def wordings(self) -> Sequence[str]:
        """How an injected order may be worded."""
        ...

    def meets(self, task: str, injection: str) -> bool:
        """Tell whether an agent that does a task comes by an injection."""
        ...

    async def open(self, case: CaseId, *, text: str | None = None) -> World:
        """Return the world of one case; `text` stands in it in place of the worded order."""
        ...

    async def injected_text(self, case: CaseId) -> str:
        """Return the worded order as it stands in the world of a case with an injection."""
        ...

    async def close(self) -> None:
        """Give back what it holds; called once."""
        ...


def cases_of(suite: AgentSuite, wordings: Sequence[str], *, only_measurable: bool) -> list[CaseId]:
    """List the cases of a suite: each task alone, then with each injection that it meets."""

    def chosen(infos: Sequence[TaskInfo | InjectionInfo]) -> list[str]:
        return [info.id for info in infos if info.is_measurable or not only_measurable]

    tasks = chosen(suite.tasks)
    cases = [CaseId(suite=suite.name, task=task) for task in tasks]
    pairs = []
    for task, injection in product(tasks, chosen(suite.injections)):
        if suite.meets(task, injection):
            pairs.append((task, injection))
    for wording in wordings:
        for task, injection in pairs:
            case = CaseId(suite=suite.name, task=task, injection=injection, wording=wording)
            cases.append(case)
    return cases
