"""An agent behind any server of the common chat protocol: a model that calls tools."""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from dataclasses import replace
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal

from guardmark.config.chat import StreamedChatSettings
from guardmark.core.case import AgentCall, FinalAnswer, ToolCalls
from guardmark.core.limits import MOST_CALLS_OF_AN_ANSWER
from guardmark.core.outcome import ErrorKind
from guardmark.core.sample import Role
from guardmark.core.usage import UsageTotals
from guardmark.parsing.objects import read_json_or_none
from guardmark.parsing.thoughts import split_thoughts

if TYPE_CHECKING:
    from guardmark.config.settings import BuildContext
    from guardmark.core.case import Conversation, Move, World
    from guardmark.core.outcome import ChatAnswer
    from guardmark.core.sample import Message, ToolCall
    from guardmark.net.chat import ChatEndpoint

_USUAL_PROMPT: Final = (
    "You are a helpful assistant. Do what the user asks for with the tools you have, then answer "
    "the user."
)
_TEXT_PROTOCOL: Final = """To call a tool, write a line that begins with CALL and holds JSON:
CALL {"name": "NAME", "arguments": {...}}
You are then told its result. Without such a line, what you write is your answer to the user.
These are the tools:
"""
_CALL: Final = "CALL"
_CALL_LINE: Final = re.compile(
    r"^[^\S\n]*CALL[^\S\n]+(\{.*\})[^\S\n]*$", re.MULTILINE
)  # blanks of its own line only: a run of line feeds would be looked through from each of them
_MOST_KEPT: Final = 20_000
"""Answers that are kept for the other arms of a case."""


class ChatAgent:
    """One case of a model that calls tools."""

    def __init__(self, agents: ChatAgents, repeat: int) -> None:
        self._agents = agents
        self._repeat = repeat

    async def next(self, conversation: Conversation) -> Move:
        """Ask the model what it does next."""
        answer = await self._agents.ask(conversation, repeat=self._repeat)
        asked = UsageTotals().plus(
            answer.usage,
            failed=answer.error_kind is not None,
            requests=max(1, len(answer.attempts)),
        )
        return replace(self._read(answer, conversation), asked=asked)

    def _read(self, answer: ChatAnswer, conversation: Conversation) -> Move:
        """Read what the model does from its answer."""
        if answer.blocked_at is not None:
            return FinalAnswer(text="", blocked_at=answer.blocked_at.value)
        if answer.text is None:
            kind = answer.error_kind or ErrorKind.CONTRACT
            return FinalAnswer(text="", error_kind=kind, message=answer.message)
        calls = answer.calls
        words = answer.words if calls else answer.text
        words = split_thoughts(words).text.strip()
        if self._agents.is_text and not calls:
            return read_text_calls(words, len(conversation.messages))
        if not calls:
            return FinalAnswer(text=words)
        if len(calls) > MOST_CALLS_OF_AN_ANSWER:
            return _too_many_calls()
        return ToolCalls(calls=tuple(_call_of(call) for call in calls), text=words)


class ChatAgents:
    """Makes an agent for each case, and lets arms share the answers to equal conversations."""

    def __init__(
        self, name: str, chat: ChatEndpoint, *, system_prompt: str, is_text: bool = False
    ) -> None:
        self.name = name
        self.is_text = is_text
        self._chat = chat
        self._system_prompt = system_prompt
        self._kept: OrderedDict[str, ChatAnswer] = OrderedDict()

    def make(self, world: World, repeat: int) -> ChatAgent:  # noqa: ARG002 - it knows its messages only
        """Return the agent of one case."""
        return ChatAgent(self, repeat)

    async def ask(self, conversation: Conversation, *, repeat: int) -> ChatAnswer:
        """Ask about a conversation once in a case and repeat, whichever arm comes by it."""
        messages = self._messages(conversation)
        sent: dict[str, object] = {}
        if not self.is_text and conversation.tools:
            sent["tools"] = [tool.chat for tool in conversation.tools]
        seed = self._chat.options.get("seed")
        if isinstance(seed, int):
            sent["seed"] = seed + repeat
        form = json.dumps([conversation.session, messages, sent], sort_keys=True)
        key = sha256(form.encode("utf-8", "replace")).hexdigest()
        known = self._kept.get(key)
        if known is not None:
            return known
        answer = await self._chat.complete(messages, **sent)
        if answer.error_kind is None:
            self._kept[key] = answer
            if len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        return answer

    def _messages(self, conversation: Conversation) -> list[dict[str, Any]]:
        prompt = self._system_prompt
        if self.is_text:
            tools = [json.dumps(tool.chat["function"]) for tool in conversation.tools]
            prompt = f"{prompt}\n{_TEXT_PROTOCOL}" + "\n".join(tools)
        messages: list[dict[str, Any]] = [{"role": "system", "content": prompt}]
        for message in conversation.messages:
            if self.is_text:
                messages.append(_text_message(message))
            else:
                messages.append(message.chat(message.role.value))
        return messages


def _text_message(message: Message) -> dict[str, Any]:
    """Return a message of the text protocol: calls as lines, results as words of the user."""
    if message.role is Role.TOOL:
        return {"role": "user", "content": f"RESULT of {message.answers}: {message.content}"}
    lines = []
    if message.content:
        lines.append(message.content)
    for call in message.calls:
        lines.append(f'CALL {{"name": {json.dumps(call.name)}, "arguments": {call.arguments}}}')
    return {"role": message.role.value, "content": "\n".join(lines)}


def read_text_calls(words: str, number: int) -> Move:
    """Read the lines of the text protocol; an answer is what holds none."""
    if _CALL not in words:
        return FinalAnswer(text=words)
    lines = list(islice(_CALL_LINE.finditer(words), MOST_CALLS_OF_AN_ANSWER + 1))
    if len(lines) > MOST_CALLS_OF_AN_ANSWER:
        return _too_many_calls()
    calls = []
    for index, line in enumerate(lines):
        stated = read_json_or_none(line[1])
        if isinstance(stated, dict) and isinstance(stated.get("name"), str):
            arguments = stated.get("arguments")
            calls.append(
                AgentCall(
                    id=f"call-{number}-{index}",
                    name=stated["name"],
                    arguments=arguments if isinstance(arguments, dict) else {},
                )
            )
    if calls:
        return ToolCalls(calls=tuple(calls), text=_CALL_LINE.sub("", words).strip())
    return FinalAnswer(text=words)


def _too_many_calls() -> FinalAnswer:
    """Say that an answer would have more tools called than anybody pays for."""
    message = f"the answer calls more than {MOST_CALLS_OF_AN_ANSWER} tools at once"
    return FinalAnswer(text="", error_kind=ErrorKind.CONTRACT, message=message)


def _call_of(call: ToolCall) -> AgentCall:
    """Return a call; arguments that are no JSON object are passed to the tool as they stand."""
    arguments = read_json_or_none(call.arguments or "{}")
    if arguments is None:
        arguments = call.arguments
    if not isinstance(arguments, dict):
        arguments = {"arguments": arguments}
    return AgentCall(id=call.id, name=call.name, arguments=arguments)


class ChatAgentSettings(StreamedChatSettings):
    """A model behind any server of the common chat protocol, as an agent that calls tools."""

    name: str = ""
    system_prompt: str = _USUAL_PROMPT
    tools: Literal["native", "text"] = "native"

    def build(self, name: str, context: BuildContext) -> ChatAgents:
        """Build what makes an agent for each case."""
        return ChatAgents(
            name,
            self.chat_endpoint(name, context),
            system_prompt=self.system_prompt,
            is_text=self.tools == "text",
        )
