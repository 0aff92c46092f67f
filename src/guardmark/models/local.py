"""A target model in this process; questions that come together share batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from guardmark.core.outcome import TEXTS_ONLY
from guardmark.core.sample import Role
from guardmark.inference.generator import Draws, LocalChat
from guardmark.models.chat import USUAL_ROLES, SystemPromptSettings, response_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from guardmark.config.settings import BuildContext
    from guardmark.core.outcome import Response
    from guardmark.core.sample import Prompt


class LocalTarget:
    """A model that answers whole conversations in this process."""

    def __init__(
        self,
        name: str,
        chat: LocalChat,
        *,
        system_prompt: str = "",
        roles: Mapping[Role, str] | None = None,
        files: tuple[Path, ...] = (),
    ) -> None:
        self.name = name
        self.files = files
        self._chat = chat
        self._before: list[dict[str, Any]] = []
        if system_prompt:
            self._before.append({"role": "system", "content": system_prompt})
        self._roles = {**USUAL_ROLES, **(roles or {})}

    async def answer(self, prompt: Prompt) -> Response:
        """Answer one prompt, as the first repetition does."""
        return await self.draw(prompt, repeat=0)

    async def draw(self, prompt: Prompt, *, repeat: int) -> Response:
        """Answer one prompt."""
        if any(message.images for message in prompt.messages):
            return response_of(TEXTS_ONLY)
        messages = list(self._before)
        for message in prompt.messages:
            messages.append(message.chat(self._roles[message.role]))
        return response_of(await self._chat.complete(messages, repeat=repeat))

    async def close(self) -> None:
        """End the thread."""
        await self._chat.close()


class LocalModelSettings(SystemPromptSettings):
    """A target model in this process ([hf]); it draws only where a temperature is given."""

    path: str
    temperature: float = Field(0.0, ge=0, le=2)
    top_p: float = Field(1.0, gt=0, le=1)
    seed: int | None = Field(None, ge=0)  # the seed of the run if not given
    max_tokens: int = Field(256, ge=1)
    device: Literal["auto", "cpu", "cuda"] = "auto"
    batch_tokens: int = Field(4096, ge=64)
    roles: dict[Role, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _drawn(self) -> LocalModelSettings:
        if not self.temperature and (self.top_p < 1 or self.seed is not None):
            raise ValueError("top_p and seed need a temperature above 0: nothing is drawn at 0")
        return self

    def build(self, name: str, context: BuildContext) -> object:
        """Build the model."""
        from guardmark.inference.generator import LocalGenerator
        from guardmark.inference.runtime import model_folder

        path = model_folder(context.folder, self.path)
        generator = LocalGenerator(
            path, max_tokens=self.max_tokens, budget=self.batch_tokens, device=self.device
        )
        draws = None
        if self.temperature:
            draws = Draws(temperature=self.temperature, top_p=self.top_p)
        seed = self.seed
        if seed is None:
            seed = context.seed
        return LocalTarget(
            name,
            LocalChat(name, generator, draws=draws, seed=seed),
            system_prompt=self.before(context.folder),
            roles=self.roles,
            files=(path,),
        )

    @property
    def most_written(self) -> int:
        """The most tokens that an answer can have."""
        return self.max_tokens
