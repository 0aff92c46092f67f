"""Stored runs of agents as a suite: their calls and results stand still, guards look at them."""

from __future__ import annotations

from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING

from guardmark.canon.orders import canonical_order, holds_order
from guardmark.core.case import AgentCall, FinalAnswer, ToolCalls, ToolResult, WorldCheck
from guardmark.core.values import dataclass
from guardmark.suites.suite import InjectionInfo, TaskInfo

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guardmark.core.case import Conversation, Move, World
    from guardmark.core.sample import ToolDefinition
    from guardmark.suites.suite import CaseId

NOT_STORED = "[No result of this call is stored.]"
"""What stands in place of a result that a stored run does not hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCall:
    """A call of a stored run, with what it returned.

    Attributes:
        name: Tool that was called.
        arguments: What it was called with.
        result: What it returned; None where that is not stored.
        is_error: Whether the tool failed.
        is_injected: Whether the run says that the call follows an injected order.
    """

    name: str
    arguments: Mapping[str, object]
    result: str | None = None
    is_error: bool = False
    is_injected: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMove:
    """What a stored agent did at once: the calls, and what it said beside.

    Attributes:
        calls: The tools that the agent called.
        text: What it said beside.
    """

    calls: tuple[StoredCall, ...]
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class StoredCase:
    """One stored run of an agent.

    Attributes:
        id: Which case it is; an attack has an injection.
        prompt: What the user wanted.
        moves: What the agent did, in order.
        answer: What it told the user in the end.
        orders: Texts that were planted, as far as the run states them; in a benign case none.
        names_injection: Whether the run says which injection it holds; else each is its own.
        injection_done: Whether the run says that the injection was done; None where it does not.
        task_done: Whether the run says that the task was done; None where it does not.
        later_words: How often the user spoke again; guards are not shown those words.
    """

    id: CaseId
    prompt: str
    moves: tuple[StoredMove, ...]
    answer: str = ""
    orders: tuple[str, ...] = ()
    names_injection: bool = True
    injection_done: bool | None = None
    task_done: bool | None = None
    later_words: int = 0

    @cached_property
    def order(self) -> str:
        """The planted text that a result shows first; the first stated one where none does."""
        canonical = {text: canonical_order(text) for text in self.orders}
        for move in self.moves:
            for call in move.calls:
                for text, form in canonical.items():
                    if holds_order(call.result or "", form):
                        return text
        return next(iter(self.orders), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRuns:
    """What a folder of stored runs holds.

    Attributes:
        cases: Every run that can be put before guards.
        notes: What was left out and what cannot be known, in sentences.
        fingerprint: Hash (hex) of the files that were read.
    """

    cases: tuple[StoredCase, ...]
    notes: tuple[str, ...]
    fingerprint: str


@dataclass(kw_only=True, eq=False)
class StoredSuite:
    """The stored runs of one suite, as runs of agents open their cases."""

    name: str
    fingerprint: str
    cases: Mapping[CaseId, StoredCase]
    notes: tuple[str, ...] = ()
    tools: tuple[ToolDefinition, ...] = field(default=())

    @cached_property
    def tasks(self) -> Sequence[TaskInfo]:
        """What users wanted, in order."""
        prompts = {case.id.task: case.prompt for case in self.cases.values()}
        return [TaskInfo(id=task, prompt=prompt) for task, prompt in prompts.items()]

    @cached_property
    def injections(self) -> Sequence[InjectionInfo]:
        """What attackers hid, in order."""
        orders = {case.id.injection: case.order for case in self.cases.values()}
        return [InjectionInfo(id=name, order=text) for name, text in orders.items() if name]

    @cached_property
    def wordings(self) -> Sequence[str]:
        """How the orders were worded."""
        return list(dict.fromkeys(case.id.wording for case in self.cases.values()))

    def meets(self, task: str, injection: str) -> bool:
        """Tell whether a task and an injection stand in one stored run."""
        return any((case.task, case.injection) == (task, injection) for case in self.cases)

    async def open(self, case: CaseId, *, text: str | None = None) -> StoredWorld:
        """Return the stored run of a case; another text cannot be put into it."""
        if text is not None:
            raise ValueError("a stored run holds the order that it holds")
        return StoredWorld(case=self.cases[case])

    async def injected_text(self, case: CaseId) -> str:
        """Return the planted text that a result shows first."""
        return self.cases[case].order

    async def close(self) -> None:
        """Nothing is held."""


@dataclass(eq=False)
class StoredWorld:
    """A stored run in the place of a world: calls return what they returned.

    Attributes:
        case: What is stored of the case.
    """

    case: StoredCase

    @property
    def prompt(self) -> str:
        """What the user wanted."""
        return self.case.prompt

    @property
    def tools(self) -> tuple[ToolDefinition, ...]:
        """No definitions of tools are stored."""
        return ()

    @property
    def order(self) -> str:
        """The planted text, or an empty text."""
        return self.case.order

    @property
    def outputs(self) -> tuple[str, str]:
        """What the agent answered."""
        return self.case.answer, ""

    @cached_property
    def moves(self) -> tuple[ToolCalls, ...]:
        """What the agent did, each call under a number of its own."""
        moves: list[ToolCalls] = []
        number = 0
        for move in self.case.moves:
            calls = []
            for call in move.calls:
                calls.append(
                    AgentCall(
                        name=call.name,
                        arguments=call.arguments,
                        id=f"call-{number}",
                        is_injected=call.is_injected,
                    )
                )
                number += 1
            moves.append(ToolCalls(calls=tuple(calls), text=move.text))
        return tuple(moves)

    @cached_property
    def _results(self) -> tuple[StoredCall, ...]:
        return tuple(call for move in self.case.moves for call in move.calls)

    async def known_calls(self) -> Sequence[AgentCall]:
        """Every call of the run."""
        return [call for move in self.moves for call in move.calls]

    async def injected_calls(self) -> Sequence[AgentCall]:
        """Nothing: the stored calls hold those that follow an order."""
        return ()

    async def call(self, call: AgentCall) -> ToolResult:
        """Return what is stored of a call."""
        stored = self._results[int(call.id.removeprefix("call-"))]
        if stored.result is None:
            return ToolResult(text=NOT_STORED, is_kept_back=True)
        return ToolResult(text=stored.result, is_error=stored.is_error)

    async def check(self, answer: str) -> WorldCheck:  # noqa: ARG002 - nobody knows
        """What would have been done behind a guard stands in no stored run."""
        return WorldCheck(task_done=None, injection_done=None)

    async def close(self) -> None:
        """Nothing is held."""


class StoredAgent:
    """Does again what is stored of an agent, whatever guards do."""

    def __init__(self, world: StoredWorld) -> None:
        self._moves = iter(world.moves)
        self._answer = world.case.answer

    async def next(self, conversation: Conversation) -> Move:  # noqa: ARG002 - nobody reads it
        """Return the next stored move, and the stored answer behind the last."""
        move = next(self._moves, None)
        return FinalAnswer(text=self._answer) if move is None else move


class StoredAgents:
    """Makes the stored agent of each case."""

    def __init__(self, name: str) -> None:
        self.name = name

    def make(self, world: World, repeat: int) -> StoredAgent:  # noqa: ARG002 - it draws nothing
        """Return the agent of one case."""
        if not isinstance(world, StoredWorld):
            raise TypeError("a stored agent needs a stored run")
        return StoredAgent(world)
