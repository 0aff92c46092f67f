"""Settings of everything that speaks the common chat protocol, and how it is reached."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, model_validator

from guardmark.config.deadline import GrownSettings
from guardmark.config.settings import (
    Address,
    PriceSettings,
    Secret,
    Settings,
    read_secret,
    read_text,
    shown_address,
    stated_price,
)
from guardmark.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guardmark.config.settings import BuildContext

Preset = Literal["auto", "openai", "scaleway", "vllm", "ollama", "llama.cpp", "together", "groq"]
_Protocol = Literal["chat", "embeddings"]

PRESETS: dict[str, tuple[str, str, str]] = {
    "openai": ("https://api.openai.com/v1", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
    "scaleway": ("https://api.scaleway.ai/v1", "SCW_SECRET_KEY", "SCW_BASE_URL"),
    "vllm": ("http://localhost:8000/v1", "", ""),
    "ollama": ("http://localhost:11434/v1", "", ""),
    "llama.cpp": ("http://localhost:8080/v1", "", ""),
    "together": ("https://api.together.xyz/v1", "TOGETHER_API_KEY", "TOGETHER_BASE_URL"),
    "groq": ("https://api.groq.com/openai/v1", "GROQ_API_KEY", ""),
}
"""Preset to its base URL, and the variables that usually hold its key and another base URL."""
PRESETS["auto"] = PRESETS["openai"]


class RemoteModelSettings(Settings):
    """Where a model behind a server is."""

    preset: Preset | None = None
    base_url: Address | None = None
    model: str
    api_key: Secret | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    price: PriceSettings | None = None

    @model_validator(mode="before")
    @classmethod
    def _address_in_the_environment(cls, given: Any) -> Any:
        """Take the base URL of a preset from its variable: what was called is then stored."""
        if isinstance(given, dict) and not given.get("base_url"):
            usual = PRESETS.get(str(given.get("preset")), ("", "", ""))
            url = os.environ.get(usual[2], "").strip()
            if url:
                return {**given, "base_url": url}
        return given

    @model_validator(mode="after")
    def _somewhere(self) -> RemoteModelSettings:
        if self.base_url is None and self.preset is None:
            raise ValueError("needs a base_url, or a preset that fills it in")
        return self

    @property
    def address(self) -> str:
        """The base URL without a slash at its end, or the variable that holds it."""
        return shown_address(self.base_url or PRESETS[str(self.preset)][0]).rstrip("/")

    def endpoint(
        self, protocol: _Protocol, name: str, context: BuildContext, options: Mapping[str, Any]
    ) -> Any:
        """Return the model as something that can be asked, an endpoint of `net.chat`."""
        where = context.where or name
        services = context.services
        base = self.base_url or PRESETS[str(self.preset)][0]
        if services is None:
            raise ConfigError(f"{where} calls {self.address}, which is not possible here.")
        secret = self.api_key
        if not secret and self.preset and PRESETS[self.preset][1]:
            secret = Secret(env=PRESETS[self.preset][1])
        headers: dict[str, str] = {}
        if secret:
            key = read_secret(secret, f"{where}.api_key", services)
            if key:
                headers["Authorization"] = f"Bearer {key}"
        return services.model(
            protocol,
            read_text(base, f"{where}.base_url", services).rstrip("/"),
            model=self.model,
            options=options,
            is_streamed=bool(options.get("stream")),
            price=stated_price(context.prices, name, self),
            secret_headers=headers,
        )


class ChatSettings(RemoteModelSettings):
    """Where a chat model is and how it is asked."""

    temperature: float = Field(0.0, ge=0, le=2)
    max_tokens: int = Field(512, ge=1)
    seed: int | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None

    @property
    def most_written(self) -> int:
        """The most tokens that an answer can have."""
        return int(self.options.get("max_tokens", self.max_tokens))

    def chat_endpoint(self, name: str, context: BuildContext) -> Any:
        """Return the model as something that can be asked, a `net.chat.ChatEndpoint`."""
        options: dict[str, Any] = {"temperature": self.temperature, "max_tokens": self.max_tokens}
        if self.reasoning_effort is not None:
            options["reasoning_effort"] = self.reasoning_effort
        options.update(self.options)
        if self.seed is not None:
            options["seed"] = self.seed
        return self.endpoint("chat", name, context, options)


class StreamedChatSettings(GrownSettings, ChatSettings):
    """A chat model that may be asked to stream its answers."""

    later: ClassVar[tuple[str, ...]] = ("stream",)
    stream: bool = False

    @model_validator(mode="after")
    def _streams_by_its_setting(self) -> StreamedChatSettings:
        if self.options.get("stream"):
            raise ValueError("options holds stream: write stream: true beside options")
        return self

    def chat_endpoint(self, name: str, context: BuildContext) -> Any:
        """Return the model as something that can be asked, a `net.chat.ChatEndpoint`."""
        if not self.stream:
            return super().chat_endpoint(name, context)
        # The usage of a stream is stated on demand only, and no answer is priced without it.
        options = {"stream": True, "stream_options": {"include_usage": True}, **self.options}
        if options["stream_options"] is None:
            del options["stream_options"]
        streamed = self.model_copy(update={"options": options})
        return ChatSettings.chat_endpoint(streamed, name, context)
