"""A local sequence classifier as a defense, asked in batches."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from mmap import ACCESS_READ, mmap
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import ConfigDict, Field, model_validator

from guardmark.config.deadline import CODE_TIMEOUT_S, TimedSettings, overrun_message
from guardmark.config.settings import Rate, Settings
from guardmark.core.errors import ConfigError, UnknownName
from guardmark.core.outcome import Decision, ErrorKind, Evidence, Outcome, ScoreKind
from guardmark.core.protocols import BatchLimits, Capabilities
from guardmark.core.sample import View
from guardmark.defenses.baseline import in_order
from guardmark.defenses.profile import Profile, load_profile, profile_names, with_profile
from guardmark.inference.runtime import HALVED

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future
    from pathlib import Path

    from guardmark.config.settings import BuildContext
    from guardmark.core.sample import Prompt
    from guardmark.inference.classifier import ClassScore, SequenceClassifier
    from guardmark.inference.gradients import EmbeddingGradients


_MOST_STUCK: Final = 4  # threads that are left behind in calls
_OPERATORS_OF_INT8: Final = (b"MatMulInteger", b"DequantizeLinear", b"QLinear", b"QGemm")


class ClassifierDefense:
    """Blocks from a probability on."""

    def __init__(
        self,
        name: str,
        classifier: SequenceClassifier,
        *,
        threshold: float,
        view: View = View.TEXT,
        files: tuple[Path, ...] = (),
        timeout_s: float = CODE_TIMEOUT_S,
    ) -> None:
        self.name = name
        self.timeout_s = timeout_s
        self.view = view
        self.threshold = threshold
        self.capabilities = Capabilities(
            view=view, timeout_s=timeout_s, threshold=threshold, files=files
        )
        self.batch_limits = BatchLimits(max_count=256)
        self._classifier = classifier
        # One thread: the model uses all cores by itself, and the loop stays free meanwhile.
        self._thread = self._new_thread()
        self._left_behind: list[Future[tuple[Sequence[ClassScore], int]]] = []

    async def decide_batch(self, prompts: Sequence[Prompt]) -> list[Decision]:
        """Score several prompts."""
        shown = [prompt.shown(self.view) for prompt in prompts]
        texts = [text for text in shown if text is not None]
        scores, took_ns = await self._scored(texts)
        share, is_shared = took_ns // max(1, len(texts)), len(texts) > 1
        decisions = [self._decision(score, share, amortised=is_shared) for score in scores]
        return in_order(shown, decisions, self.view)

    async def _scored(self, texts: Sequence[str]) -> tuple[Sequence[ClassScore], int]:
        """Score in the thread; a batch has the time of its texts together."""
        if sum(not call.done() for call in self._left_behind) >= _MOST_STUCK:
            raise TimeoutError(f"{_MOST_STUCK} calls have not come back; none is begun")
        call = self._thread.submit(self._timed, texts)
        try:
            return await asyncio.wait_for(
                asyncio.wrap_future(call), self.timeout_s * max(1, len(texts))
            )
        except TimeoutError as error:
            if call.done() and not call.cancelled() and call.exception() is not None:
                raise  # the classifier's own
            if not call.done():  # a thread cannot be ended
                self._left_behind.append(call)
                self._thread.shutdown(wait=False, cancel_futures=True)
                self._thread = self._new_thread()
            raise TimeoutError(overrun_message(self.timeout_s)) from error

    def _new_thread(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, thread_name_prefix=f"guardmark-{self.name}")

    def gradients(self) -> EmbeddingGradients | None:
        """Return access to the gradients of what scores the texts, if it has any."""
        return self._classifier.gradients()

    async def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _timed(self, texts: Sequence[str]) -> tuple[Sequence[ClassScore], int]:
        """Score texts, and say how long that took."""
        if not texts:
            return [], 0
        began = perf_counter_ns()
        scores = self._classifier.scores(texts)
        return scores, perf_counter_ns() - began

    def _decision(self, score: ClassScore, latency_ns: int, *, amortised: bool) -> Decision:
        if score.probability is None:
            message = f"the text has {score.tokens} tokens, more than the model reads"
            return Decision(
                outcome=Outcome.ERROR,
                error_kind=ErrorKind.SKIPPED,
                evidence=Evidence(message=message),
            )
        outcome, evidence = Outcome.ALLOW, None
        if score.probability >= self.threshold:
            outcome = Outcome.BLOCK
        if score.is_halved:
            evidence = Evidence(truncated=score.truncated, message=HALVED)
        elif score.truncated:
            evidence = Evidence(truncated=True)
        return Decision(
            outcome=outcome,
            score=score.probability,
            score_kind=ScoreKind.CLASS_PROB,
            latency_ns=latency_ns,
            amortised=amortised,
            evidence=evidence,
        )


class ClassifierExample(Settings):
    """What the model may say of a text, label by label, and what that decides."""

    scores: dict[str, Rate] = Field(min_length=2)
    outcome: Literal["allow", "block"]


class ClassifierProfile(Profile):
    """How one classifier is loaded and read."""

    models: list[str] = Field(min_length=1)
    settings: dict[str, Any]
    examples: list[ClassifierExample] = Field(min_length=2)


@cache
def classifier_profile(name: str) -> ClassifierProfile:
    """Return a profile by name."""
    return load_profile("classifier", name, ClassifierProfile)


class ClassifierSettings(TimedSettings):
    """Scores texts with a sequence classifier in this process; needs [hf], or [onnx] for ONNX."""

    model_config = ConfigDict(
        json_schema_extra={
            "required": ["path"],
            "anyOf": [{"required": ["profile"]}, {"required": ["positive", "threshold"]}],
        }
    )

    profile: str | None = None
    path: str
    positive: list[str] = Field(min_length=1)
    threshold: Rate
    view: View = View.TEXT
    max_length: int = Field(512, ge=8)
    long_text: Literal["truncate", "chunk", "error"] = "truncate"
    batch_tokens: int = Field(1024, ge=16)
    device: Literal["auto", "cpu", "cuda"] = "auto"
    onnx: str = ""  # a file below path, run by ONNX Runtime in place of torch

    @model_validator(mode="before")
    @classmethod
    def _as_the_profile_says(cls, given: Any) -> Any:
        """Take from the profile what the configuration leaves out."""
        if not isinstance(given, dict) or not isinstance(given.get("profile"), str):
            return given
        name = given["profile"]
        if name not in profile_names("classifier"):
            known = profile_names("classifier")
            raise ValueError(str(UnknownName("classifier profile", name, known)))
        return with_profile(given, classifier_profile(name).settings)

    def build(self, name: str, context: BuildContext) -> object:
        """Build the defense."""
        from guardmark.inference.classifier import LongText, SequenceClassifier
        from guardmark.inference.runtime import model_folder

        path = model_folder(context.folder, self.path)
        onnx, budget = None, self.batch_tokens
        if self.onnx:
            onnx = path / self.onnx
            if _is_int8(name, onnx):
                # In int8 a whole batch sets the scale: a neighbour would move a text's score.
                budget = 1
        classifier = SequenceClassifier(
            path,
            positive=self.positive,
            max_length=self.max_length,
            long_text=LongText(self.long_text),
            budget=budget,
            device=self.device,
            onnx=onnx,
        )
        return ClassifierDefense(
            name,
            classifier,
            threshold=self.threshold,
            view=self.view,
            files=(path,),
            timeout_s=self.timeout_s,
        )


def _is_int8(name: str, file: Path) -> bool:
    """Tell whether a model is in int8; refuse a name that does not say so: it is another model."""
    if not file.is_file() or not file.stat().st_size:
        raise ConfigError(
            f"The model file {file} does not exist or is empty.\n"
            "Next: name a file below the folder of the model, such as onnx/model.onnx."
        )
    with file.open("rb") as opened, mmap(opened.fileno(), 0, access=ACCESS_READ) as content:
        is_int8 = any(content.find(operator) >= 0 for operator in _OPERATORS_OF_INT8)
    if is_int8 and "int8" not in name.lower():
        raise ConfigError(
            f"{file.name} is in int8, which is another model than the one it was made from: its "
            f"scores differ.\nNext: give the defense a name that says so, for example {name}-int8."
        )
    return is_int8
