"""A language model as a guard: asked by a profile, read by its contract, scored by its tokens."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from pydantic import Field, field_validator, model_validator

from guardmark.config.chat import ChatSettings
from guardmark.config.settings import Rate
from guardmark.config.source import read_text
from guardmark.core.errors import UnknownName
from guardmark.core.outcome import (
    CategoryFinding,
    Decision,
    ErrorKind,
    Evidence,
    Outcome,
    ScoreKind,
)
from guardmark.core.sample import View
from guardmark.defenses.baseline import NOTHING_SHOWN
from guardmark.defenses.classifier import ClassifierBatchLimits
from guardmark.defenses.guard_profile import ScoreMethod, guard_profile
from guardmark.defenses.profile import profile_names, with_profile
from guardmark.parsing.logprobs import ibm_sum, two_token_softmax

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from guardmark.config.settings import BuildContext
    from guardmark.core.outcome import ChatAnswer
    from guardmark.core.sample import Prompt
    from guardmark.defenses.guard_profile import GuardProfile
    from guardmark.inference.generator import LocalGenerator
    from guardmark.net.chat import ChatEndpoint
    from guardmark.parsing.guard import GuardReading
    from guardmark.parsing.logprobs import TokenScore

_MOST_RAW = 2_000
_LOW_MASS = 0.5
TOP_LOGPROBS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardReader:
    """How answers of a guard model become decisions."""

    profile: GuardProfile
    ibm_sum: bool = False
    threshold: float | None = None

    def decision(self, answer: ChatAnswer, *, amortised: bool = False) -> Decision:
        """Read one answer."""
        if answer.text is None or answer.error_kind is not None:
            return Decision(
                outcome=Outcome.ERROR,
                error_kind=answer.error_kind or ErrorKind.CONTRACT,
                latency_ns=answer.service_ns,
                evidence=Evidence(
                    message=answer.message, attempts=answer.attempts, usage=answer.usage
                ),
            )
        reading = self.profile.read(answer.text)
        labels = self.profile.labels
        score = ibm_sum if self.ibm_sum else two_token_softmax
        found = score(answer.choices, risky=labels.risky, harmless=labels.harmless)
        outcome = reading.outcome
        if self.threshold is not None and found is not None and outcome is not Outcome.MALFORMED:
            outcome = Outcome.BLOCK if found.score >= self.threshold else Outcome.ALLOW
        return Decision(
            outcome=outcome,
            score=None if found is None else found.score,
            score_kind=ScoreKind.NONE if found is None else ScoreKind.TWO_TOKEN_SOFTMAX,
            latency_ns=answer.service_ns,
            amortised=amortised,
            evidence=self._evidence(answer, reading, found),
        )

    def _evidence(
        self, answer: ChatAnswer, reading: GuardReading, found: TokenScore | None
    ) -> Evidence:
        confidence = f"confidence {reading.confidence}" if reading.confidence else ""
        return Evidence(
            reason="; ".join(part for part in (reading.reason, confidence) if part),
            raw=(answer.text or "")[:_MOST_RAW],
            message=_remark(self.profile.name, answer, reading, found),
            parse_method="ibm_sum" if self.ibm_sum and found else "",
            finish_reason=answer.finish_reason,
            categories=tuple(CategoryFinding(name=c, flagged=True) for c in reading.categories),
            usage=answer.usage,
            attempts=answer.attempts,
            label_mass=None if found is None else found.label_mass,
        )


def _remark(
    profile: str, answer: ChatAnswer, reading: GuardReading, found: TokenScore | None
) -> str:
    """What a reader of the records should know about an answer."""
    if reading.outcome is Outcome.MALFORMED:
        cut = ", cut off at its length limit" if answer.finish_reason == "length" else ""
        return f"the answer does not follow the contract of profile {profile}{cut}"
    mass = None if found is None else found.label_mass
    if mass is not None and mass < _LOW_MASS:
        return f"only {mass:.2f} of the probability is on the labels: does the profile fit?"
    return "" if answer.choices else "no score: the server gave no token probabilities"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GuardModelDefense:
    """A guard model behind a server of the common chat protocol."""

    name: str
    chat: ChatEndpoint
    reader: GuardReader
    view: View
    policy: str
    options: dict[str, object]
    files: tuple[Path, ...] = ()

    @property
    def threshold(self) -> float | None:
        """The score from which an answer means blocked."""
        return self.reader.threshold

    async def decide(self, prompt: Prompt) -> Decision:
        """Ask the guard about one prompt."""
        messages = self.reader.profile.messages(prompt, self.view, policy=self.policy)
        if messages is None:
            return NOTHING_SHOWN[self.view]
        return self.reader.decision(await self.chat.complete(messages, **self.options))


class LocalGuardDefense:
    """A guard model in this process."""

    def __init__(
        self,
        name: str,
        generator: LocalGenerator,
        *,
        reader: GuardReader,
        view: View = View.TEXT,
        policy: str = "",
        files: tuple[Path, ...] = (),
    ) -> None:
        self.name = name
        self.view = view
        self.threshold = reader.threshold
        self.batch_limits = ClassifierBatchLimits(max_count=32)
        self.files = files
        self._generator = generator
        self._reader = reader
        self._policy = policy
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"guardmark-{name}")

    async def decide_batch(self, prompts: Sequence[Prompt]) -> list[Decision]:
        """Ask the guard about several prompts."""
        write = self._reader.profile.messages
        asked = [write(prompt, self.view, policy=self._policy) for prompt in prompts]
        conversations = [messages for messages in asked if messages is not None]
        loop = asyncio.get_running_loop()
        complete = self._generator.complete
        found = await loop.run_in_executor(self._thread, complete, conversations)
        amortised = len(conversations) > 1
        answers = iter([self._reader.decision(answer, amortised=amortised) for answer in found])
        return [NOTHING_SHOWN[self.view] if m is None else next(answers) for m in asked]

    async def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)


class GuardModelSettings(ChatSettings):
    """Asks a guard model, behind a server of the common chat protocol or in this process."""

    profile: str
    model: str = ""
    path: str | None = None
    device: Literal["auto", "cpu", "cuda"] = "auto"
    risk: str = "harm"
    policy: str = ""
    policy_file: str | None = None
    view: View = View.TEXT
    threshold: Rate | None = None
    score: ScoreMethod = "two_token_softmax"
    max_tokens: int = Field(0, ge=0)  # 0: what the profile needs

    @field_validator("profile")
    @classmethod
    def _known_profile(cls, value: str) -> str:
        try:
            return guard_profile(value).name
        except UnknownName as error:
            raise ValueError(str(error)) from error

    @model_validator(mode="before")
    @classmethod
    def _as_the_profile_says(cls, given: Any) -> Any:
        """Take from the profile what the configuration leaves out."""
        name = given.get("profile") if isinstance(given, dict) else None
        if not isinstance(name, str) or name not in profile_names("guard-model"):
            return given
        profile = guard_profile(name)
        return with_profile(given, {"view": profile.view, "score": profile.score})

    @model_validator(mode="after")
    def _somewhere(self) -> GuardModelSettings:
        behind_a_server = self.base_url is not None or self.preset is not None
        if behind_a_server == (self.path is not None):
            raise ValueError("needs either a base_url (or preset) or the path of a local model")
        if behind_a_server and not self.model:
            raise ValueError("needs the name of the model, as its server knows it")
        return self

    @property
    def most_written(self) -> int:
        """The most tokens that an answer can have."""
        return self._profile().max_tokens

    def before(self, folder: Path) -> str:
        """Return what the guard is told before every text."""
        return self._policy(folder) or self._profile().instruction

    def build(self, name: str, context: BuildContext) -> object:
        """Build the defense."""
        path = context.folder / self.policy_file if self.policy_file else None
        policy = self._policy(context.folder)
        files = (path,) if path else ()
        if self.path is not None:
            return self._local(name, context.folder / self.path, policy, files)
        reader = self._reader()
        options = reader.profile.request_options(self.risk)
        if self.score != "none":
            options |= {"logprobs": True, "top_logprobs": TOP_LOGPROBS}
        return GuardModelDefense(
            name=name,
            chat=self.chat_endpoint(name, context),
            reader=reader,
            view=self.view,
            policy=policy,
            options=options,
            files=files,
        )

    def _policy(self, folder: Path) -> str:
        if not self.policy_file:
            return self.policy
        path = folder / self.policy_file
        return read_text(path, f"The policy {path}")

    def _profile(self) -> GuardProfile:
        profile = guard_profile(self.profile)
        if not self.max_tokens:
            return profile
        return profile.model_copy(update={"max_tokens": self.max_tokens})

    def _reader(self) -> GuardReader:
        return GuardReader(
            profile=self._profile(), ibm_sum=self.score == "ibm_sum", threshold=self.threshold
        )

    def _local(self, name: str, path: Path, policy: str, files: tuple[Path, ...]) -> object:
        from guardmark.inference.generator import LocalGenerator

        reader = self._reader()
        options = reader.profile.request_options(self.risk)
        generator = LocalGenerator(
            path,
            max_tokens=reader.profile.max_tokens,
            template_options=cast("dict[str, Any]", options.get("chat_template_kwargs", {})),
            wants_scores=self.score != "none",
            device=self.device,
        )
        return LocalGuardDefense(
            name, generator, reader=reader, view=self.view, policy=policy, files=(path, *files)
        )
