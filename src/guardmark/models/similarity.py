"""A judge of sameness by embeddings: two texts ask for the same when their cosine reaches tau."""

from __future__ import annotations

import asyncio
import json
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass, replace
from time import perf_counter_ns
from typing import TYPE_CHECKING, Literal, Protocol

from pydantic import Field, model_validator

from guardmark.config.chat import RemoteModelSettings
from guardmark.config.settings import Settings
from guardmark.core.embedding import EmbeddingAnswer, fault_of
from guardmark.core.errors import ConfigError
from guardmark.core.outcome import ErrorKind, Evidence, Response
from guardmark.core.protocols import Closable
from guardmark.core.usage import Usage
from guardmark.inference.runtime import device_of, library, load

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from guardmark.config.settings import BuildContext
    from guardmark.core.embedding import Vector


class Embedder(Protocol):
    """Turns texts into vectors of one length."""

    async def embed(self, texts: Sequence[str]) -> EmbeddingAnswer:
        """Return one vector for each text, or why there are none."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class SimilarityJudge:
    """Calls two texts the same request when the cosine of their vectors is at least tau.

    Attributes:
        name: What it is called.
        embedder: What turns texts into vectors.
        tau: The cosine from which on two texts ask for the same, in [-1, 1].
        files: What it was made from, for its fingerprint.
    """

    name: str
    embedder: Embedder
    _: KW_ONLY
    tau: float
    files: tuple[Path, ...] = ()

    async def similarity(self, first: str, second: str) -> tuple[float | None, EmbeddingAnswer]:
        """Measure how near two texts are.

        Both go into one call, so that no vector outlives it and order changes nothing.
        """
        answer = await self.embedder.embed((first, second))
        if answer.vectors is None:
            return None, answer
        return cosine(*answer.vectors), answer

    async def compare(self, first: str, second: str) -> Response:
        """Say whether two texts ask for the same."""
        value, answer = await self.similarity(first, second)
        verdict = None
        if value is not None:
            verdict = json.dumps({"same": value >= self.tau, "cosine": value})
        return Response(
            text=verdict,
            error_kind=answer.error_kind,
            latency_ns=answer.service_ns,
            evidence=Evidence(message=answer.message, usage=answer.usage, attempts=answer.attempts),
        )

    async def close(self) -> None:
        """Give back what the embedder holds."""
        if isinstance(self.embedder, Closable):
            await self.embedder.close()


def cosine(first: Vector, second: Vector) -> float:
    """Return the cosine of the angle between two vectors."""
    one, other = _unit(first), _unit(second)
    return max(-1.0, min(1.0, math.fsum(a * b for a, b in zip(one, other, strict=True))))


def _unit(vector: Vector) -> list[float]:
    largest = max(map(abs, vector))
    scaled = [value / largest for value in vector]
    length = math.hypot(*scaled)
    return [value / length for value in scaled]


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
        calibration = self.calibration
        if calibration is None:
            return self
        if calibration.tau != self.tau or calibration.model != self.encoder:
            raise ValueError(
                "tau or model is not what was calibrated: calibrate anew, or leave calibration out"
            )
        return self


class EmbeddingSettings(TauSettings, RemoteModelSettings):
    """Cosine of embeddings from a service (`/v1/embeddings`): the same request from tau on."""

    @property
    def encoder(self) -> str:
        """Which model the threshold belongs to."""
        return self.model

    def build(self, name: str, context: BuildContext) -> object:
        """Build the judge."""
        endpoint = self.endpoint("embeddings", name, context, self.options)
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
        from guardmark.inference.runtime import model_folder
        from guardmark.models.similarity import LocalEncoder

        path = model_folder(context.folder, self.path)
        encoder = LocalEncoder(path, max_length=self.max_length, device=self.device)
        return SimilarityJudge(name, encoder, tau=self.tau, files=(path,))


class LocalEncoder:
    """A transformers encoder with its tokenizer; mean pooling over the tokens of a text."""

    def __init__(self, path: Path, *, max_length: int = 512, device: str = "auto") -> None:
        self._torch = library("torch")
        self._device = device_of(device)
        self._tokenizer = load("AutoTokenizer", path)
        self._model = load("AutoModel", path).to(self._device).eval()
        if getattr(self._model.config, "is_encoder_decoder", False):
            raise ConfigError(f"{path.name} writes text: it is no encoder.\nNext: name an encoder.")
        self._most = max_length
        reach = getattr(self._model.config, "max_position_embeddings", None)
        if reach is not None:
            self._most = min(max_length, reach)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="guardmark-encoder")

    async def embed(self, texts: Sequence[str]) -> EmbeddingAnswer:
        """Return the vectors of some texts."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._embed, list(texts))

    async def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _embed(self, texts: list[str]) -> EmbeddingAnswer:
        began = perf_counter_ns()
        torch = self._torch
        longest = max(len(ids) for ids in self._tokenizer(texts)["input_ids"])
        if longest > self._most:
            return EmbeddingAnswer(
                vectors=None,
                error_kind=ErrorKind.LENGTH,
                message=f"a text has {longest} tokens, and the model reads {self._most}",
            )
        encoded = self._tokenizer(texts, padding=True, return_tensors="pt").to(self._device)
        with torch.inference_mode():
            states = self._model(**encoded).last_hidden_state.float()
        mask = encoded["attention_mask"].unsqueeze(-1).float()
        pooled = (states * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)
        vectors = tuple(tuple(map(float, row)) for row in pooled.tolist())
        answer = EmbeddingAnswer(
            vectors=vectors,
            usage=Usage(
                prompt_tokens=int(encoded["attention_mask"].sum()), completion_tokens=0, cost=None
            ),
            service_ns=perf_counter_ns() - began,
        )
        fault = fault_of(vectors)
        if fault:
            return replace(answer, vectors=None, error_kind=ErrorKind.CONTRACT, message=fault)
        return answer
