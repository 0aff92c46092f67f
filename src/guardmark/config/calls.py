"""How calls are spaced, and within which limits of a service they are made."""

from __future__ import annotations

from pydantic import Field, model_validator

from guardmark.config.settings import Settings
from guardmark.core.manifest import LatencyMode


class ServiceSettings(Settings):
    """How one service may be called."""

    concurrency: int | None = Field(None, ge=1, le=2_000)
    rate: str | None = Field(None, pattern=r"^\d+(\.\d+)?/(s|min|h)$")
    tokens: str | None = Field(None, pattern=r"^\d+/(s|min|h)$")
    connect_timeout_s: float = Field(5.0, gt=0)
    read_timeout_s: float = Field(60.0, gt=0)
    retries: int = Field(3, ge=0, le=20)
    adaptive: bool = False
    ca_file: str | None = None
    base_urls: list[str] = Field(default_factory=list)


class LatencySettings(Settings):
    """How calls are spaced while latency is measured."""

    mode: LatencyMode = LatencyMode.LOADED
    warmup: int = Field(3, ge=0)
    rate: str | None = Field(None, pattern=r"^\d+(\.\d+)?/(s|min|h)$")

    @model_validator(mode="after")
    def _open_needs_a_rate(self) -> LatencySettings:
        if self.mode is LatencyMode.OPEN and self.rate is None:
            raise ValueError("mode: open needs a rate, for example rate: 20/s")
        return self
