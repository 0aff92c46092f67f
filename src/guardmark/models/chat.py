"""A target model behind any server of the common chat protocol."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field

from guardmark.config.chat import StreamedChatSettings
from guardmark.config.settings import Settings
from guardmark.config.source import read_text
from guardmark.core.errors import ConfigError, UnknownName
from guardmark.core.outcome import (
    NATIVE_REFUSAL,
    PROVIDER_ACTIONS,
    ErrorKind,
    Evidence,
    Response,
    StreamTrace,
)
from guardmark.core.sample import Role
from guardmark.net.chat import json_form, refuses_options
from guardmark.parsing.thoughts import split_thoughts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guardmark.config.settings import BuildContext
    from guardmark.core.outcome import ChatAnswer, TextChunk
    from guardmark.core.sample import Prompt
    from guardmark.net.chat import ChatEndpoint

USUAL_ROLES = {
    Role.SYSTEM: "system",
    Role.USER: "user",
    Role.ASSISTANT: "assistant",
    # Servers refuse tool messages without a call they answer, and know no documents.
    Role.TOOL: "user",
    Role.DOCUMENT: "user",
}
"""Role of a message to the word the server knows."""

_NAMED_PROMPTS: Final = "datasets/builtin/tutor-1/system_prompts.yaml"
"""System prompts that ship with guardmark, by name."""

_FORM, _SEED = "response_format", "seed"
_RUNGS: Final = ((_FORM, _SEED), (_FORM,), (_SEED,), ())
"""Fields that not every server takes; from the first refusal on, fewer are sent."""


class ChatTarget:
    """A model that answers a whole conversation."""

    def __init__(
        self,
        name: str,
        chat: ChatEndpoint,
        *,
        system_prompt: str = "",
        roles: Mapping[Role, str] | None = None,
    ) -> None:
        self.name = name
        self._chat = chat
        self._before: list[dict[str, Any]] = []
        if system_prompt:
            self._before.append({"role": "system", "content": system_prompt})
        self._roles = {**USUAL_ROLES, **(roles or {})}
        self._rung = 0
        self._is_settled = False

    async def answer(self, prompt: Prompt) -> Response:
        """Answer one prompt, as the first repetition does."""
        return await self.draw(prompt, repeat=0)

    async def draw(self, prompt: Prompt, *, repeat: int) -> Response:
        """Answer one prompt."""
        sent: dict[str, Any] = {}
        seed = self._chat.options.get(_SEED)
        if isinstance(seed, int):
            sent[_SEED] = seed + repeat
        if prompt.tools:
            sent["tools"] = [tool.chat for tool in prompt.tools]
        return response_of(await self._chat.complete(self._messages(prompt), **sent))

    async def answer_in(self, prompt: Prompt, *, form: Mapping[str, object], seed: int) -> Response:
        """Answer with JSON of a schema and a seed, without what the server refused at first."""
        fields = {_FORM: json_form(form, name="answer"), _SEED: seed}
        while True:
            rung = self._rung
            sent = {name: fields[name] for name in _RUNGS[rung] if name not in self._chat.options}
            answer = await self._chat.complete(self._messages(prompt), **sent)
            if self._is_settled or rung + 1 == len(_RUNGS) or not refuses_options(answer):
                break
            self._rung = max(self._rung, rung + 1)
        self._is_settled = self._is_settled or answer.text is not None
        return response_of(answer)

    def _messages(self, prompt: Prompt) -> list[dict[str, Any]]:
        messages = [message.chat(self._roles[message.role]) for message in prompt.messages]
        return self._before + messages


_MOST_OF_THOUGHTS: Final = 4_000
_ONLY_THOUGHTS: Final = (
    "the model only thought and never answered (finish reason {}): raise max_tokens, or lower its "
    "reasoning effort (reasoning_effort)"
)


def response_of(answer: ChatAnswer) -> Response:
    """Return the response that an answer of a chat model is.

    What the model thought is no answer to anybody: it is kept as evidence.
    """
    if answer.blocked_at is not None:
        return Response(
            text=None,
            blocked_at=answer.blocked_at,
            latency_ns=answer.service_ns,
            evidence=Evidence(
                message=answer.message,
                native_action=PROVIDER_ACTIONS[answer.blocked_at],
                finish_reason=answer.finish_reason,
                usage=answer.usage,
                attempts=answer.attempts,
            ),
        )
    split = split_thoughts(answer.text or "")
    thoughts = "\n".join(filter(None, (answer.thoughts, split.thoughts)))
    text, error_kind, message = answer.text, answer.error_kind, answer.message
    before = 0
    if text is not None and not split.is_finished:
        text, error_kind = None, ErrorKind.LENGTH
        message = _ONLY_THOUGHTS.format(answer.finish_reason or "not stated")
    elif text is not None and split.thoughts:
        text = split.text.lstrip()
        before = len(split.thoughts) + len(split.text) - len(text)
    return Response(
        text=text,
        error_kind=error_kind,
        latency_ns=answer.service_ns,
        evidence=Evidence(
            raw=thoughts[:_MOST_OF_THOUGHTS],
            message=message,
            native_action=NATIVE_REFUSAL if answer.is_refusal else "",
            finish_reason=answer.finish_reason,
            usage=answer.usage,
            attempts=answer.attempts,
            stream=() if text is None else _trace(answer.chunks, before=before),
        ),
    )


def _trace(chunks: tuple[TextChunk, ...] | None, *, before: int) -> tuple[StreamTrace, ...]:
    """Return how an answer streamed, without its thoughts, which are the first characters."""
    if chunks is None:
        return ()
    shown = [chunk for chunk in chunks if chunk.end > before]
    if not shown:
        return (StreamTrace(characters=0, chunks=0),)
    trace = StreamTrace(
        characters=shown[-1].end - before,
        chunks=len(shown),
        first_ns=shown[0].arrival_ns,
        last_ns=shown[-1].arrival_ns,
    )
    return (trace,)


class SystemPromptSettings(Settings):
    """What a target model is told before every conversation; judges are told it too."""

    system_prompt: str = ""
    system_prompt_file: str | None = None
    system_prompt_name: str | None = None

    def before(self, folder: Path) -> str:
        """Return what the model is told before every conversation, named in one of three ways."""
        if self.system_prompt_name is None and self.system_prompt_file is None:
            return self.system_prompt
        path = Path(__file__).parents[1] / _NAMED_PROMPTS
        if self.system_prompt_file is not None:
            path = folder / self.system_prompt_file
        text = read_text(path, f"The system prompt {path}")
        if self.system_prompt_name is None:
            return text
        import yaml

        try:
            named = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ConfigError(f"{path} is not YAML: a map of names to prompts.") from error
        if not isinstance(named, dict):
            raise ConfigError(
                f"{path} is not a map of names to prompts.\nWrite each as NAME: text."
            )
        if self.system_prompt_name not in named:
            raise UnknownName("system prompt", self.system_prompt_name, map(str, named))
        return str(named[self.system_prompt_name])


class ChatModelSettings(SystemPromptSettings, StreamedChatSettings):
    """A target model behind any server of the common chat protocol."""

    roles: dict[Role, str] = Field(default_factory=dict)

    def build(self, name: str, context: BuildContext) -> object:
        """Build the model."""
        return ChatTarget(
            name,
            self.chat_endpoint(name, context),
            system_prompt=self.before(context.folder),
            roles=self.roles,
        )
