"""An encoder in this process: texts in, vectors out."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter_ns
from typing import TYPE_CHECKING

from guardmark.core.errors import ConfigError
from guardmark.core.outcome import EmbeddingAnswer, ErrorKind, fault_of
from guardmark.core.usage import Usage
from guardmark.inference.runtime import device_of, library, load

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class LocalEncoder:
    """A transformers encoder with its tokenizer; mean pooling over the tokens of a text."""

    def __init__(self, path: Path, *, max_length: int = 512, device: str = "auto") -> None:
        self._torch = library("torch")
        self._device = device_of(device)
        self._tokenizer = load("AutoTokenizer", path)
        self._model = load("AutoModel", path).to(self._device).eval()
        if getattr(self._model.config, "is_encoder_decoder", False):
            raise ConfigError(f"{path.name} is not an encoder: it also writes.")
        reach = getattr(self._model.config, "max_position_embeddings", None)
        self._most = max_length if reach is None else min(max_length, reach)
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
        fault = fault_of(vectors)
        return EmbeddingAnswer(
            vectors=None if fault else vectors,
            error_kind=ErrorKind.CONTRACT if fault else None,
            message=fault,
            usage=Usage(
                prompt_tokens=int(encoded["attention_mask"].sum()), completion_tokens=0, cost=None
            ),
            service_ns=perf_counter_ns() - began,
        )
