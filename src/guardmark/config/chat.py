"""Settings of everything that speaks the common chat protocol, and how it is reached."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from guardmark.config.settings import (
    Address,
    PriceSettings,
    Secret,
    Settings,
    read_secret,
    read_text,
    shown_address,
)
from guardmark.core.errors import ConfigError

if TYPE_CHECKING:
    from guardmark.config.settings import BuildContext, ServiceAccess

Preset = Literal["openai", "scaleway", "vllm", "ollama", "llama.cpp", "together", "groq"]

PRESETS: dict[str, tuple[str, str]] = {
    "openai": ("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "scaleway": ("https://api.scaleway.ai/v1", "SCW_SECRET_KEY"),
    "vllm": ("http://localhost:8000/v1", ""),
    "ollama": ("http://localhost:11434/v1", ""),
    "llama.cpp": ("http://localhost:8080/v1", ""),
    "together": ("https://api.together.xyz/v1", "TOGETHER_API_KEY"),
    "groq": ("https://api.groq.com/openai/v1", "GROQ_API_KEY"),
}
"""Preset to its base URL and the variable that usually holds its key; it fills in no more."""


class ChatSettings(Settings):
    """Where a chat model is and how it is asked."""

    preset: Preset | None = None
    base_url: Address | None = None
    model: str
    api_key: Secret | None = None
    temperature: float = Field(0.0, ge=0, le=2)
    max_tokens: int = Field(512, ge=1)
    seed: int | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    price: PriceSettings | None = None

    @model_validator(mode="after")
    def _somewhere(self) -> ChatSettings:
        if self.base_url is None and self.preset is None:
            raise ValueError("needs a base_url, or a preset that fills it in")
        return self

    @property
    def address(self) -> str:
        """The base URL without a slash at its end, or the variable that holds it."""
        return shown_address(base_address(self.base_url, self.preset)).rstrip("/")

    @property
    def most_written(self) -> int:
        """The most tokens that an answer can have."""
        return int(self.options.get("max_tokens", self.max_tokens))

    def chat_endpoint(self, name: str, context: BuildContext) -> Any:
        """Return the model as something that can be asked, a `net.chat.ChatEndpoint`."""
        where = context.where or name
        if context.services is None:
            raise ConfigError(f"{where} calls {self.address}, which is not possible here.")
        base = base_address(self.base_url, self.preset)
        options = {"temperature": self.temperature, "max_tokens": self.max_tokens, **self.options}
        if self.seed is not None:
            options["seed"] = self.seed
        return context.services.model(
            "chat",
            read_text(base, f"{where}.base_url", context.services).rstrip("/"),
            model=self.model,
            options=options,
            price=self.price or context.prices.get(self.model),
            secret_headers=service_headers(self.preset, self.api_key, where, context.services),
        )


def base_address(base_url: Address | None, preset: Preset | None) -> Address:
    """Return the base URL of a service, or the variable that holds it."""
    return base_url or PRESETS[str(preset)][0]


def service_headers(
    preset: Preset | None, api_key: Secret | None, where: str, services: ServiceAccess
) -> dict[str, str]:
    """Return the headers that carry the key of a service."""
    usual = PRESETS[preset][1] if preset else ""
    secret = api_key or (Secret(env=usual) if usual else None)
    if secret is None:
        return {}
    key = read_secret(secret, f"{where}.api_key", services)
    return {"Authorization": f"Bearer {key}"}
