"""A local sequence classifier as a defense, asked in batches."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from pydantic import Field

from guardmark.config.settings import Rate, Settings
from guardmark.core.outcome import Decision, ErrorKind, Evidence, Outcome, ScoreKind
from guardmark.core.sample import View
from guardmark.defenses.skipping import NOTHING_SHOWN

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from guardmark.config.settings import BuildContext
    from guardmark.core.sample import Prompt
    from guardmark.inference.gradient_access import GradientAccess


class TextScore(Protocol):
    """What a classifier says of one text."""

    @property
    def probability(self) -> float | None:
        """Of an attack, in [0, 1]; None when the text is too long."""
        ...

    @property
    def tokens(self) -> int:
        """How long the text is."""
        ...

    @property
    def truncated(self) -> bool:
        """Whether its end was not looked at."""
        ...


class Classifier(Protocol):
    """Scores several texts at once."""

    def scores(self, texts: Sequence[str]) -> Sequence[TextScore]:
        """Score texts, in their order."""
        ...


@runtime_checkable
class _HasGradients(Protocol):
    def gradients(self) -> GradientAccess: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassifierBatchLimits:
    """How large a batch may grow and how long it may wait."""

    max_count: int = 256
    max_tokens: int | None = None
    max_wait_s: float = 0.01


class ClassifierDefense:
    """Blocks from a probability on."""

    def __init__(
        self,
        name: str,
        classifier: Classifier,
        *,
        threshold: float,
        view: View = View.TEXT,
        limits: ClassifierBatchLimits | None = None,
        files: tuple[Path, ...] = (),
    ) -> None:
        self.name = name
        self.view = view
        self.threshold = threshold
        self.batch_limits = limits or ClassifierBatchLimits()
        self.files = files
        self._classifier = classifier
        # One thread: the model uses all cores by itself, and the loop stays free meanwhile.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"guardmark-{name}")

    async def decide_batch(self, prompts: Sequence[Prompt]) -> list[Decision]:
        """Score several prompts."""
        shown = [prompt.shown(self.view) for prompt in prompts]
        texts = [text for text in shown if text is not None]
        loop = asyncio.get_running_loop()
        scores, took_ns = await loop.run_in_executor(self._thread, self._timed, texts)
        share = took_ns // max(1, len(texts))
        answers = iter([self._decision(s, share, amortised=len(texts) > 1) for s in scores])
        return [NOTHING_SHOWN[self.view] if text is None else next(answers) for text in shown]

    def gradients(self) -> GradientAccess | None:
        """Return access to the gradients of what scores the texts, or None where it has none."""
        scorer = self._classifier
        return scorer.gradients() if isinstance(scorer, _HasGradients) else None

    async def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _timed(self, texts: Sequence[str]) -> tuple[Sequence[TextScore], int]:
        began = perf_counter_ns()
        scores = self._classifier.scores(texts) if texts else []
        return scores, perf_counter_ns() - began

    def _decision(self, score: TextScore, latency_ns: int, *, amortised: bool) -> Decision:
        if score.probability is None:
            message = f"the text has {score.tokens} tokens, more than the model reads"
            return Decision(
                outcome=Outcome.ERROR,
                error_kind=ErrorKind.SKIPPED,
                evidence=Evidence(message=message),
            )
        is_block = score.probability >= self.threshold
        return Decision(
            outcome=Outcome.BLOCK if is_block else Outcome.ALLOW,
            score=score.probability,
            score_kind=ScoreKind.CLASS_PROB,
            latency_ns=latency_ns,
            amortised=amortised,
            evidence=Evidence(truncated=True) if score.truncated else None,
        )


class ClassifierSettings(Settings):
    """Scores texts with a sequence classifier in this process; needs the [hf] extra."""

    path: str
    positive: list[str] = Field(min_length=1)
    threshold: Rate
    view: View = View.TEXT
    max_length: int = Field(512, ge=8)
    long_text: Literal["truncate", "chunk", "error"] = "truncate"
    batch_tokens: int = Field(1024, ge=16)
    device: Literal["auto", "cpu", "cuda"] = "auto"

    def build(self, name: str, context: BuildContext) -> object:
        """Build the defense."""
        from guardmark.inference.classifier import LongText, SequenceClassifier

        path = context.folder / self.path
        classifier = SequenceClassifier(
            path,
            positive=self.positive,
            max_length=self.max_length,
            long_text=LongText(self.long_text),
            budget=self.batch_tokens,
            device=self.device,
        )
        return ClassifierDefense(
            name, classifier, threshold=self.threshold, view=self.view, files=(path,)
        )
