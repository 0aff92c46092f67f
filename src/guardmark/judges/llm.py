"""A language model as judge: sees the whole exchange, answers in JSON, is asked again once."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import Field

from guardmark.config.chat import ChatSettings
from guardmark.config.settings import Settings
from guardmark.config.source import read_text
from guardmark.core.outcome import (
    PROVIDER_ACTIONS,
    TEXTS_ONLY,
    Attempt,
    ErrorKind,
    Evidence,
    Verdict,
    VerdictLabel,
)
from guardmark.core.protocols import Closable
from guardmark.core.sample import Message, Role
from guardmark.net.chat import refuses_options
from guardmark.parsing.objects import ParseMethod
from guardmark.parsing.verdicts import VerdictReading, asked_for, read_verdict, verdict_key

if TYPE_CHECKING:
    from guardmark.config.settings import BuildContext
    from guardmark.core.outcome import ChatAnswer
    from guardmark.core.sample import Image, Prompt
    from guardmark.inference.generator import LocalChat
    from guardmark.net.chat import ChatEndpoint

_MOST_RAW = 4_000
_ENCODE: Final = json.JSONEncoder(ensure_ascii=False).encode

ASK_AGAIN = "That was not the JSON object asked for. Say the same verdict again."
_JSON: Final = {"type": "json_object"}
"""What a server is asked to hold the answer to: a schema would differ for each key."""


class LlmJudge:
    """Asks a chat model for a verdict."""

    def __init__(
        self,
        name: str,
        chat: ChatEndpoint | LocalChat,
        *,
        rubric: str,
        system_prompt: str = "",
        strict: bool | None = None,
        retries: int = 1,
        seed: int = 0,
        files: tuple[Path, ...] = (),
    ) -> None:
        self.name = name
        self.files = files
        self._chat = chat
        self._rubric = rubric
        self._system_prompt = system_prompt
        self._may_fall_back = strict is None
        self._form: dict[str, Any] = {}
        if strict is not False:
            self._form["response_format"] = _JSON
        self._retries = retries
        self._seed = seed

    async def judge(self, prompt: Prompt, response: str) -> Verdict:
        """Judge one response."""
        material = self._material(prompt, response)
        if material.images and not hasattr(self._chat, "endpoint"):  # in this process
            return _failed(TEXTS_ONLY)
        key = verdict_key(self._seed, material.content)
        # Behind the material: what stands in it cannot ask for another key.
        question = replace(material, content=f"{material.content}\n\n{asked_for(key)}")
        asked: dict[str, Any] = {"role": "user", "content": question.parts()}
        messages = [{"role": "system", "content": self._rubric}, asked]
        answer = await self._ask(messages)
        if answer.text is None:
            return _failed(answer)
        reading = read_verdict(answer.text, key=key, material=material.content)
        first = answer
        for _ in range(self._retries):
            if _is_settled(reading):
                break
            messages = [
                *messages,
                {"role": "assistant", "content": answer.text or ""},
                {"role": "user", "content": f"{ASK_AGAIN} {asked_for(key)}"},
            ]
            again = await self._ask(messages)
            answer = _joined(answer, again)
            if again.text is None:
                break
            second = read_verdict(again.text, key=key, material=material.content)
            reading = _better(reading, second)
        return _verdict(reading, answer, first.text or "")

    async def close(self) -> None:
        """End what a model in this process works in."""
        if isinstance(self._chat, Closable):
            await self._chat.close()

    def _material(self, prompt: Prompt, response: str) -> Message:
        """Write the exchange as JSON, so that no text in it can pretend to be its end.

        Images go beside the text.
        """
        conversation: list[dict[str, Any]] = []
        if self._system_prompt:
            conversation.append({"role": "system", "content": self._system_prompt})
        images: list[Image] = []
        for message in prompt.messages:
            conversation.append(replace(message, images=()).chat(message.role.value))
            images.extend(message.images)
        document = {"conversation": conversation, "answer": response}
        return Message(role=Role.USER, content=_ENCODE(document), images=tuple(images))

    async def _ask(self, messages: list[dict[str, Any]]) -> ChatAnswer:
        answer = await self._chat.complete(messages, **self._form)
        if self._may_fall_back and self._form and refuses_options(answer):
            self._form = {}
            return _joined(answer, await self._chat.complete(messages))
        if answer.text is not None:
            self._may_fall_back = False
        return answer


def _is_settled(reading: VerdictReading) -> bool:
    """Tell whether a judge need not be asked again."""
    if reading.label is VerdictLabel.MALFORMED:
        return False
    return reading.method is not ParseMethod.WITHOUT_KEY or reading.is_alone


def _better(first: VerdictReading, second: VerdictReading) -> VerdictReading:
    """Take the second reading where it has the key, or where the first could not be read."""
    if second.label is VerdictLabel.MALFORMED:
        return first
    if second.method is not ParseMethod.WITHOUT_KEY:
        return replace(second, method=ParseMethod.RETRY)
    if first.label is VerdictLabel.MALFORMED:
        return second
    return first


def _failed(answer: ChatAnswer) -> Verdict:
    """Return the verdict where no answer came.

    A judge whose provider filters the text could not look. That counts as malformed: asking again
    would bring the same.
    """
    if answer.blocked_at is None:
        label = VerdictLabel.ERROR
        error_kind = answer.error_kind or ErrorKind.CONTRACT
        action = ""
    else:
        label = VerdictLabel.MALFORMED
        error_kind = None
        action = PROVIDER_ACTIONS[answer.blocked_at]
    return Verdict(
        label=label,
        error_kind=error_kind,
        latency_ns=answer.service_ns,
        evidence=Evidence(
            message=answer.message,
            native_action=action,
            finish_reason=answer.finish_reason,
            attempts=answer.attempts,
            usage=answer.usage,
        ),
    )


def _verdict(reading: VerdictReading, answer: ChatAnswer, raw: str) -> Verdict:
    """Return what was read of an answer as a verdict, with what the model wrote as evidence."""
    message = answer.message
    if reading.label is VerdictLabel.MALFORMED:
        message = "the judge gave no verdict that can be read"
    return Verdict(
        label=reading.label,
        answer_mode=reading.answer_mode,
        latency_ns=answer.service_ns,
        evidence=Evidence(
            reason="; ".join(reading.reasons),
            raw=raw[:_MOST_RAW],
            message=message,
            parse_method=reading.method.value,
            finish_reason=answer.finish_reason,
            usage=answer.usage,
            attempts=answer.attempts,
        ),
    )


def _joined(first: ChatAnswer, second: ChatAnswer) -> ChatAnswer:
    """Return the second answer with what both cost; its text is the first's where it has none."""
    usage = first.usage or second.usage
    if first.usage and second.usage:
        usage = first.usage + second.usage
    text = second.text
    if text is None:
        text = first.text
    return replace(
        second,
        text=text,
        usage=usage,
        attempts=(*_attempts_of(first), *_attempts_of(second)),
        service_ns=first.service_ns + second.service_ns,
    )


def _attempts_of(answer: ChatAnswer) -> tuple[Attempt, ...]:
    """Return the requests behind an answer; one that went well at once says nothing of itself."""
    return answer.attempts or (Attempt(service_ns=answer.service_ns),)


class _RubricSettings(Settings):
    """What a model is told that judges."""

    name: str = ""
    rubric: str | None = None
    retries: int = Field(1, ge=0, le=5)

    def before(self, folder: Path) -> str:
        """Return what the judge is told before every exchange."""
        path = Path(__file__).with_name("rubric.txt")
        if self.rubric:
            path = folder / self.rubric
        return read_text(path, f"The file {path} of a judge")

    def _judge(
        self, name: str, chat: ChatEndpoint | LocalChat, context: BuildContext, **more: Any
    ) -> LlmJudge:
        files = list(more.pop("files", ()))
        if self.rubric:
            files.append(context.folder / self.rubric)
        return LlmJudge(
            name,
            chat,
            rubric=self.before(context.folder),
            system_prompt=context.system_prompt,
            retries=self.retries,
            seed=context.seed,
            files=tuple(files),
            **more,
        )


class LlmJudgeSettings(ChatSettings, _RubricSettings):
    """Asks a chat model for a verdict in JSON."""

    strict: bool | None = None

    def build(self, name: str, context: BuildContext) -> object:
        """Build the judge."""
        chat = self.chat_endpoint(name, context)
        return self._judge(name, chat, context, strict=self.strict)


class LocalJudgeSettings(_RubricSettings):
    """Asks a model in this process for a verdict in JSON; needs the [hf] extra."""

    path: str
    max_tokens: int = Field(512, ge=1)
    device: Literal["auto", "cpu", "cuda"] = "auto"
    batch_tokens: int = Field(4096, ge=64)

    @property
    def most_written(self) -> int:
        """The most tokens that an answer can have."""
        return self.max_tokens

    def build(self, name: str, context: BuildContext) -> object:
        """Build the judge."""
        from guardmark.inference.generator import LocalChat, LocalGenerator
        from guardmark.inference.runtime import model_folder

        path = model_folder(context.folder, self.path)
        generator = LocalGenerator(
            path, max_tokens=self.max_tokens, budget=self.batch_tokens, device=self.device
        )
        return self._judge(name, LocalChat(name, generator), context, strict=False, files=(path,))
