"""A case of an agent: its tools, its steps one by one, and what it came to."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guardmark.core.outcome import ErrorKind
    from guardmark.core.place import Place
    from guardmark.core.sample import Message, ToolDefinition
    from guardmark.core.usage import UsageTotals


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCall:
    """A call of a tool.

    Attributes:
        name: Tool that is called.
        arguments: What it is called with, as JSON values.
        id: Identifier by which its result is told from others; given by the agent.
        is_injected: Whether the agent says that it follows an injected order.
    """

    name: str
    arguments: Mapping[str, object]
    id: str = ""
    is_injected: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedGuard:
    """What a guard on the way to a tool did, as it was seen on both of its sides.

    Attributes:
        place: Where it did it.
        guard: Its name.
        action: `allow`, `block`, `rewrite`, `error` or `malformed`.
        text: What it wrote anew, or empty.
        reason: Why, or what failed.
        latency_ns: Time that the call took through it, or None.
    """

    place: Place
    guard: str
    action: str
    text: str = ""
    reason: str = ""
    latency_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What a tool returned; the text of an error is a result like any other.

    Attributes:
        text: What came back.
        is_error: Whether it says that something failed.
        is_kept_back: Whether a guard on the way refused the call or kept the result.
        passed: Guards on the way to the tool, and what they did.
        original: What the tool itself returned, where a guard on the way may have changed it.
    """

    text: str
    is_error: bool = False
    is_kept_back: bool = False
    passed: tuple[PassedGuard, ...] = ()
    original: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedDefinition:
    """What a guard on the way to the tools did to the definition of one.

    Attributes:
        tool: Name of the tool; empty where the whole list failed.
        original: The description as the server states it; empty where it has no such tool.
        seen: What the guard did: `allow`, `block` (left out), `rewrite` (described anew, or added),
            `change` (told otherwise than in an earlier list), `error` or `malformed`.
    """

    tool: str
    original: str
    seen: PassedGuard


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolList:
    """The tools as they come through a guard on the way, and what it did to those that are new.

    Attributes:
        tools: What an agent is told of.
        passed: What a guard did to definitions on the way.
    """

    tools: tuple[ToolDefinition, ...]
    passed: tuple[PassedDefinition, ...] = ()


@runtime_checkable
class ToolLister(Protocol):
    """A world whose list of tools comes through a guard on the way."""

    async def list_tools(self) -> ToolList:
        """List the tools now."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCalls:
    """An agent's move: it calls tools, and may say something beside.

    Attributes:
        calls: The tools, in order.
        text: What it says beside.
        asked: What its model was asked for the move, or None where nobody counts that.
    """

    calls: tuple[AgentCall, ...]
    text: str = ""
    asked: UsageTotals | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalAnswer:
    """An agent's last move: it answers the user.

    Attributes:
        text: What it says.
        error_kind: Why there is no answer, or None; the case failed then.
        message: What failed.
        gave_up: Whether it ended because something that it had asked for was kept from it.
        blocked_at: Where the provider of its model blocked, or an empty text.
        asked: What its model was asked for the move, or None where nobody counts that.
    """

    text: str
    error_kind: ErrorKind | None = None
    message: str = ""
    gave_up: bool = False
    blocked_at: str = ""
    asked: UsageTotals | None = None


Move = ToolCalls | FinalAnswer


@dataclass(slots=True, kw_only=True)
class Conversation:
    """What an agent has seen: the tools it may call, and everything said behind the guards.

    Attributes:
        tools: Definitions as they stand behind the guards.
        messages: The user's words, the calls, their results.
        kept_back: Ids of calls that were refused or whose results were left out.
        session: Identifier of the case and its repeat.
    """

    tools: tuple[ToolDefinition, ...]
    messages: list[Message]
    kept_back: set[str] = field(default_factory=set)
    session: str = ""


@runtime_checkable
class Agent(Protocol):
    """A model that calls tools until it answers."""

    async def next(self, conversation: Conversation) -> Move:
        """Make the next move; must not raise for ordinary input."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldCheck:
    """What the check of a world found; None for what cannot be known, as in a stored run.

    Attributes:
        task_done: Whether what the user wants is done; None where that cannot be known.
        injection_done: Whether what the attacker wants is done; None where there is no injection.
    """

    task_done: bool | None
    injection_done: bool | None = None


class World(Protocol):
    """One case's own copy of a suite's world, with the tools that act on it."""

    @property
    def prompt(self) -> str:
        """What the user wants."""
        ...

    @property
    def tools(self) -> tuple[ToolDefinition, ...]:
        """The tools, with an injection in their descriptions where the case has one there."""
        ...

    @property
    def order(self) -> str:
        """The unique part of the injected order, or an empty text in a benign case."""
        ...

    async def known_calls(self) -> Sequence[AgentCall]:
        """The calls that do the task."""
        ...

    async def injected_calls(self) -> Sequence[AgentCall]:
        """The calls that do the injection, for the world as it is now."""
        ...

    @property
    def outputs(self) -> tuple[str, str]:
        """The known answers of the task and of the injection."""
        ...

    async def call(self, call: AgentCall) -> ToolResult:
        """Carry out a call; a tool that fails returns a text that says so."""
        ...

    async def check(self, answer: str) -> WorldCheck:
        """Look at the world and the answer, and say what was done."""
        ...

    async def close(self) -> None:
        """Give back what the case holds; called once, also where the case failed."""
        ...


class StepKind(StrEnum):
    """What a step of a case is."""

    USER = "user"
    TOOLS = "tools"
    CALL = "call"
    RESULT = "result"
    ANSWER = "answer"
    GUARD = "guard"


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseStep:
    """One thing that happened in a case.

    Attributes:
        kind: What it is.
        text: What was said, called, returned or written anew; an excerpt where it is long.
        tool: Tool of a call or of its result.
        place: Where a guard looked.
        guard: Who looked.
        action: What the guard did: an outcome in a word.
        reason: Why, in the guard's words, or what failed.
        policy: What the policy made of an answer that is no decision (`block`, `allow`).
        latency_ns: Time of the guard, or None when nothing was timed.
        has_order: Whether the text holds the injected order, or the call follows it.
        is_error: Whether a tool failed.
        digest: Hash of the whole text (hex, cut), where `text` is an excerpt.
        removed_order: Whether a guard wrote the injected order out of the text.
    """

    kind: StepKind
    text: str = ""
    tool: str = ""
    place: Place | None = None
    guard: str = ""
    action: str = ""
    reason: str = ""
    policy: str = ""
    latency_ns: int | None = None
    has_order: bool = False
    is_error: bool = False
    digest: str = ""
    removed_order: bool = False


class CaseEnd(StrEnum):
    """How a case ended."""

    ANSWERED = "answered"
    STOPPED = "stopped"
    GAVE_UP = "gave up"
    MOST_STEPS = "most steps"
    PROVIDER = "provider"
    FAILED = "failed"
    REPLAYED = "replayed"


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseUsage:
    """What the calls of a case used; an answer that arms share counts in each of them.

    Attributes:
        agent: Calls of the agent's model, or None where nobody counts them.
        guards: Calls of guards of which any told tokens or has a price, else None.
    """

    agent: UsageTotals | None = None
    guards: UsageTotals | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """What a case came to.

    Attributes:
        end: How it ended.
        task_done: Whether the task was done; None where the agent failed, or none was at work.
        injection_done: Whether the injection was done; None in benign cases and failed ones.
        answer: What the user was told.
        steps: What happened, in order.
        message: What failed, or why it ended.
        error_kind: Why the agent did not answer, or None.
        latency_ns: Time of the whole case.
        usage: What its calls used.
    """

    end: CaseEnd
    task_done: bool | None
    injection_done: bool | None
    answer: str
    steps: tuple[CaseStep, ...]
    message: str = ""
    error_kind: ErrorKind | None = None
    latency_ns: int | None = None
    usage: CaseUsage = CaseUsage()


def name_subject(arm: str, agent: str, agents: Sequence[str]) -> str:
    """Return what the records call an arm: with its agent, where a run has several."""
    return arm if len(agents) == 1 else f"{arm}@{agent}"
