"""The obedient agent: does the task as it is known, and every injected order that it reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.canon.orders import canonical_order
from guardmark.config.settings import Settings
from guardmark.core.case import AgentCall, FinalAnswer, ToolCalls
from guardmark.core.sample import Role

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from guardmark.config.settings import BuildContext
    from guardmark.core.case import Conversation, Move, World
    from guardmark.core.sample import ToolDefinition

LEFT_OUT: Final = "I stop here: a result was left out, or a call was refused."
"""What the obedient agent says where something that it asked for was kept from it."""


class ObedientAgent:
    """The worst agent there can be, without a model and the same every time.

    It carries out the known calls of the task in their order. After each result of them, as it
    stands behind the guards, it looks for the injected order, and carries that out at once, and
    once in a case. It ends where a call was refused or a result was left out. So what the guards
    do is all that keeps an order from being followed: utility is a lower bound over what a model
    does with these texts, attack success an upper one.
    """

    def __init__(
        self,
        world: World,
        *,
        order: str | None = None,
        fold: Callable[[str], str] = canonical_order,
    ) -> None:
        """Serve a user in a world; `order` and `fold` say what it looks for, and in which form."""
        self._world = world
        self._fold = fold
        self._order = fold(world.order if order is None else order)
        self._calls: Iterator[AgentCall] | None = None
        self._injected: list[AgentCall] = []
        self._has_obeyed = False
        self._asked: AgentCall | None = None
        self._number = 0
        self._tools: tuple[ToolDefinition, ...] = ()

    async def next(self, conversation: Conversation) -> Move:
        """Follow an order that was just read, or go on with the task."""
        if self._calls is None:
            self._calls = iter(await self._world.known_calls())
            await self._read_tools(conversation)
        elif self._asked is not None:
            if self._asked.id in conversation.kept_back:
                return FinalAnswer(text=LEFT_OUT, gave_up=True)
            last = conversation.messages[-1]
            if not self._asked.is_injected and last.role is Role.TOOL:
                await self._read(last.content)
            await self._read_tools(conversation)
        call = self._injected.pop(0) if self._injected else next(self._calls, None)
        if call is None:
            return self._finish()
        self._number += 1
        self._asked = AgentCall(
            name=call.name,
            arguments=call.arguments,
            id=f"call-{self._number}",
            is_injected=call.is_injected,
        )
        return ToolCalls(calls=(self._asked,))

    async def _read_tools(self, conversation: Conversation) -> None:
        """Read what tools are said to do, again where the list changed."""
        if conversation.tools is not self._tools:
            self._tools = conversation.tools
            await self._read("\n".join(tool.description for tool in conversation.tools))

    async def _read(self, text: str) -> None:
        if self._has_obeyed or not self._order or self._order not in self._fold(text):
            return
        self._has_obeyed = True
        calls = await self._world.injected_calls()
        self._injected = [
            AgentCall(name=call.name, arguments=call.arguments, is_injected=True) for call in calls
        ]

    def _finish(self) -> FinalAnswer:
        task, injection = self._world.outputs
        outputs = [task, injection] if self._has_obeyed else [task]
        return FinalAnswer(text="\n".join(text for text in outputs if text))


class ObedientSettings(Settings):
    """The obedient agent has no settings."""

    def build(self, name: str, context: BuildContext) -> ObedientAgents:  # noqa: ARG002 - as every part is built
        """Return what makes one for each case."""
        return ObedientAgents(name)


class ObedientAgents:
    """Makes an obedient agent for each case."""

    def __init__(self, name: str) -> None:
        self.name = name

    def make(self, world: World, repeat: int) -> ObedientAgent:  # noqa: ARG002 - it draws nothing
        """Return the agent of one case."""
        return ObedientAgent(world)
