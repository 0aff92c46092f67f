"""Settings of judges of sameness by embeddings, and where their threshold comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from guardmark.app.parts.chat_settings import PRESETS, Preset, service_headers
from guardmark.app.settings import PriceSettings
from guardmark.config.settings import Secret, Settings
from guardmark.core.errors import ConfigError

if TYPE_CHECKING:
    from guardmark.app.registry import BuildContext

Cosine = Field(0.8, ge=-1, le=1)


class CalibrationSettings(Settings):
    """Where tau comes from, as `guardmark attacks calibrate` wrote it."""

    pairs: str
    sha256: str
    model: str
    tau: float
    bound: float
    different: int = Field(ge=0)
    false_same: int = Field(ge=0)
    same: int = Field(ge=0)
    true_same: int = Field(ge=0)


class TauSettings(Settings):
    """From which cosine on two texts ask for the same."""

    tau: float = Cosine
    calibration: CalibrationSettings | None = None

    @property
    def encoder(self) -> str:
        """Which model the threshold belongs to."""
        return ""

    @model_validator(mode="after")
    def _fits(self) -> TauSettings:
        said = self.calibration
        if said is not None and (said.tau, said.model) != (self.tau, self.encoder):
            raise ValueError(
                "tau or model is not what was calibrated: calibrate anew, or leave calibration out"
            )
        return self


class EmbeddingSettings(TauSettings):
    """Cosine of embeddings from a service (`/v1/embeddings`): the same request from tau on."""

    preset: Preset | None = None
    base_url: str | None = None
    model: str
    api_key: Secret | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    price: PriceSettings | None = None

    @model_validator(mode="after")
    def _somewhere(self) -> EmbeddingSettings:
        if self.base_url is None and self.preset is None:
            raise ValueError("needs a base_url, or a preset that fills it in")
        return self

    @property
    def encoder(self) -> str:
        """Which model the threshold belongs to."""
        return self.model

    def build(self, name: str, context: BuildContext) -> object:
        """Build the judge."""
        from guardmark.models.similarity import SimilarityJudge
        from guardmark.net.chat import Price
        from guardmark.net.embeddings import EmbeddingEndpoint

        address = (self.base_url or PRESETS[str(self.preset)][0]).rstrip("/")
        where = context.where or name
        if context.services is None:
            raise ConfigError(f"{where} calls {address}, which is not possible here.")
        headers = service_headers(self.preset, self.api_key, where)
        price = self.price or context.prices.get(self.model)
        endpoint = EmbeddingEndpoint(
            endpoint=context.services.endpoint(f"{address}/embeddings", secret_headers=headers),
            model=self.model,
            options=self.options,
            price=None if price is None else Price(**price.model_dump()),
        )
        return SimilarityJudge(name, endpoint, tau=self.tau)


class LocalEmbeddingSettings(TauSettings):
    """Cosine of embeddings of an encoder in this process (mean pooling); needs [hf]."""

    path: str
    max_length: int = Field(512, ge=8)
    device: Literal["auto", "cpu", "cuda"] = "auto"

    @property
    def encoder(self) -> str:
        """Which model the threshold belongs to."""
        return self.path

    def build(self, name: str, context: BuildContext) -> object:
        """Build the judge."""
        from guardmark.inference.encoder import LocalEncoder
        from guardmark.models.similarity import SimilarityJudge

        path = context.folder / self.path
        encoder = LocalEncoder(path, max_length=self.max_length, device=self.device)
        return SimilarityJudge(name, encoder, tau=self.tau, files=(path,))
