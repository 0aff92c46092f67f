"""A language model as a guard: asked by a profile, read by its contract, scored by its tokens."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial, reduce
from itertools import product
from operator import add
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from pydantic import Field, field_validator, model_validator

from guardmark.config.chat import ChatSettings
from guardmark.config.settings import Rate
from guardmark.config.source import read_text
from guardmark.core.errors import ConfigError, UnknownName
from guardmark.core.outcome import (
    PROVIDER_ACTIONS,
    CategoryFinding,
    Decision,
    ErrorKind,
    Evidence,
    Outcome,
    ScoreKind,
)
from guardmark.core.protocols import BatchLimits, Capabilities
from guardmark.core.sample import Prompt, View
from guardmark.core.values import dataclass
from guardmark.defenses.baseline import NOTHING_SHOWN, in_order
from guardmark.defenses.guard_profile import (
    ScoreMethod,
    guard_profile,
    ibm_sum,
    stage_of,
    two_token_softmax,
)
from guardmark.defenses.profile import profile_names, with_profile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from guardmark.config.settings import BuildContext
    from guardmark.core.outcome import ChatAnswer
    from guardmark.core.usage import Usage
    from guardmark.defenses.guard_profile import GuardProfile, Stage, TokenScore
    from guardmark.inference.generator import LocalGenerator
    from guardmark.net.chat import ChatEndpoint
    from guardmark.parsing.guard import GuardReading

_CANARY: Final = "Which ferry leaves at nine? <b>7*7</b>"
_MOST_RAW = 2_000
_LOW_MASS = 0.5
TOP_LOGPROBS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardReader:
    """How answers of a guard model become decisions."""

    profile: GuardProfile
    ibm_sum: bool = False
    wants_score: bool = True
    threshold: float | None = None

    def decision(
        self, answer: ChatAnswer, stage: Stage = "prompt", *, amortised: bool = False
    ) -> Decision:
        """Read one answer; a text that the provider of the guard filtered is malformed."""
        if answer.blocked_at is not None:
            return Decision(
                outcome=Outcome.MALFORMED,
                latency_ns=answer.service_ns,
                evidence=Evidence(
                    message=answer.message,
                    native_action=PROVIDER_ACTIONS[answer.blocked_at],
                    finish_reason=answer.finish_reason,
                    attempts=answer.attempts,
                    usage=answer.usage,
                ),
            )
        if answer.text is None or answer.error_kind is not None:
            return Decision(
                outcome=Outcome.ERROR,
                error_kind=answer.error_kind or ErrorKind.CONTRACT,
                latency_ns=answer.service_ns,
                evidence=Evidence(
                    message=answer.message, attempts=answer.attempts, usage=answer.usage
                ),
            )
        reading = self.profile.read(answer.text, stage)
        risky, harmless = self.profile.labels.risky, self.profile.labels.harmless
        if self.ibm_sum:
            token_score = ibm_sum(answer.choices, risky=risky, harmless=harmless)
        else:
            after = self.profile.before_label(stage)
            token_score = two_token_softmax(
                answer.choices, risky=risky, harmless=harmless, after=after
            )
        outcome = reading.outcome
        if (
            self.threshold is not None
            and token_score is not None
            and outcome is not Outcome.MALFORMED
        ):
            outcome = Outcome.ALLOW
            if token_score.score >= self.threshold:
                outcome = Outcome.BLOCK
        score, score_kind = None, ScoreKind.NONE
        if token_score is not None:
            score, score_kind = token_score.score, ScoreKind.TWO_TOKEN_SOFTMAX
        return Decision(
            outcome=outcome,
            score=score,
            score_kind=score_kind,
            latency_ns=answer.service_ns,
            amortised=amortised,
            evidence=self._evidence(answer, reading, token_score),
        )

    def _evidence(
        self, answer: ChatAnswer, reading: GuardReading, token_score: TokenScore | None
    ) -> Evidence:
        """Return what is kept of an answer beside its decision."""
        reasons = [reading.reason]
        if reading.confidence:
            reasons.append(f"confidence {reading.confidence}")
        remark = _remark(
            self.profile.name, answer, reading, token_score, wants_score=self.wants_score
        )
        parse_method, label_mass = "", None
        if token_score is not None:
            label_mass = token_score.label_mass
            if self.ibm_sum:
                parse_method = "ibm_sum"
        return Evidence(
            reason="; ".join(filter(None, reasons)),
            raw=(answer.text or "")[:_MOST_RAW],
            message="; ".join(filter(None, (remark, answer.message))),
            parse_method=parse_method,
            finish_reason=answer.finish_reason,
            categories=tuple(
                CategoryFinding(name=category, flagged=True) for category in reading.categories
            ),
            usage=answer.usage,
            attempts=answer.attempts,
            label_mass=label_mass,
        )


def _remark(
    profile: str,
    answer: ChatAnswer,
    reading: GuardReading,
    token_score: TokenScore | None,
    *,
    wants_score: bool,
) -> str:
    """Say what a reader of the records should know about an answer."""
    if reading.outcome is Outcome.MALFORMED:
        remark = f"the answer does not follow the contract of profile {profile}"
        if answer.finish_reason == "length":
            remark += ", cut off at its length limit"
        return remark
    if token_score is not None:
        mass = token_score.label_mass
        if mass is not None and mass < _LOW_MASS:
            return f"only {mass:.2f} of the probability is on the labels: does the profile fit?"
        return ""
    if not wants_score:
        return ""
    if answer.choices:
        return "no score: no label is among the likeliest tokens where it belongs"
    return "no score: the server gave no token probabilities"


_GRAVEST: Final = (Outcome.BLOCK, Outcome.ERROR, Outcome.MALFORMED, Outcome.ALLOW)


def join_risks(risks: Sequence[str], decisions: Sequence[Decision]) -> Decision:
    """Join the decisions of one prompt by several risks: any blocks, the highest score counts.

    Where one is missing, the others do not make an allow: that is an error, or malformed.
    """
    if len(decisions) == 1:
        return decisions[0]
    decides = min(decisions, key=lambda decision: _GRAVEST.index(decision.outcome))
    findings: list[CategoryFinding] = []
    usages: list[Usage] = []
    scores, masses, latencies = list[float](), list[float](), list[int]()
    for risk, decision in zip(risks, decisions, strict=True):
        is_blocked = decision.outcome is Outcome.BLOCK
        findings.append(CategoryFinding(name=risk[:200], flagged=is_blocked, score=decision.score))
        if decision.score is not None:
            scores.append(decision.score)
        if decision.latency_ns is not None:
            latencies.append(decision.latency_ns)
        evidence = decision.evidence or Evidence()
        if evidence.usage is not None:
            usages.append(evidence.usage)
        if evidence.label_mass is not None:
            masses.append(evidence.label_mass)
    # A sum, or the greatest, of which one is missing is not known.
    score, score_kind, latency_ns, usage = None, ScoreKind.NONE, None, None
    if len(scores) == len(decisions):
        score, score_kind = max(scores), ScoreKind.CATEGORY_MAX
    if len(latencies) == len(decisions):
        latency_ns = sum(latencies)
    if len(usages) == len(decisions):
        usage = reduce(add, usages)
    evidence = replace(
        decides.evidence or Evidence(),
        categories=tuple(findings),
        usage=usage,
        label_mass=min(masses, default=None),
    )
    return replace(
        decides, score=score, score_kind=score_kind, latency_ns=latency_ns, evidence=evidence
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GuardModelDefense:
    """A guard model behind a server of the common chat protocol.

    Attributes:
        name: Its name.
        chat: The server.
        reader: What reads its answers.
        view: What it is shown of a prompt.
        policy: What the user forbids, for models that ask.
        requests: The fields of the request for each risk.
        files: Files that its answers depend on.
        takes_images: Whether images are sent.
    """

    name: str
    chat: ChatEndpoint
    reader: GuardReader
    view: View
    policy: str
    requests: dict[str, dict[str, object]]
    files: tuple[Path, ...] = ()
    takes_images: bool = False

    @property
    def capabilities(self) -> Capabilities:
        """What is stated of it."""
        return Capabilities(
            view=self.view,
            takes_images=self.takes_images,
            threshold=self.reader.threshold,
            files=self.files,
        )

    async def decide(self, prompt: Prompt) -> Decision:
        """Ask the guard about one prompt, once for each risk."""
        messages = self.reader.profile.messages(prompt, self.view, policy=self.policy)
        if messages is None:
            return NOTHING_SHOWN[self.view]
        stage = stage_of(prompt, self.view)
        decisions = []
        for options in self.requests.values():
            answer = await self.chat.complete(messages, **options)
            decisions.append(self.reader.decision(answer, stage))
        return join_risks(list(self.requests), decisions)


class LocalGuardDefense:
    """A guard model in this process."""

    def __init__(
        self,
        name: str,
        generator: LocalGenerator,
        *,
        reader: GuardReader,
        requests: dict[str, dict[str, object]],
        view: View = View.TEXT,
        policy: str = "",
        files: tuple[Path, ...] = (),
    ) -> None:
        self.name = name
        self.view = view
        self.capabilities = Capabilities(view=view, threshold=reader.threshold, files=files)
        self.batch_limits = BatchLimits(max_count=32)
        self._generator = generator
        self._reader = reader
        self._requests = requests
        self._policy = policy
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"guardmark-{name}")

    async def decide_batch(self, prompts: Sequence[Prompt]) -> list[Decision]:
        """Ask the guard about several prompts, once for each risk."""
        write = self._reader.profile.messages
        asked = [write(prompt, self.view, policy=self._policy) for prompt in prompts]
        stages, conversations = [], []
        for prompt, messages in zip(prompts, asked, strict=True):
            if messages is not None:
                stages.append(stage_of(prompt, self.view))
                conversations.append(messages)
        loop, amortised = asyncio.get_running_loop(), len(conversations) > 1
        by_risk = []
        for options in self._requests.values():
            call = partial(
                self._generator.complete, conversations, template_options=_template_options(options)
            )
            answers = await loop.run_in_executor(self._thread, call)
            decisions = []
            for answer, stage in zip(answers, stages, strict=True):
                decisions.append(self._reader.decision(answer, stage, amortised=amortised))
            by_risk.append(decisions)
        risks = list(self._requests)
        joined = [join_risks(risks, of_prompt) for of_prompt in zip(*by_risk, strict=True)]
        return in_order(asked, joined, self.view)

    async def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _template_options(options: Mapping[str, object]) -> dict[str, Any]:
    """Return the arguments of the chat template among the fields of a request."""
    template_settings = cast("dict[str, Any]", options.get("chat_template_kwargs", {}))
    template = options.get("chat_template")
    if template is None:
        return template_settings
    return {**template_settings, "chat_template": template}


class GuardModelSettings(ChatSettings):
    """Asks a guard model, behind a server of the common chat protocol or in this process."""

    profile: str
    model: str = ""
    path: str | None = None
    device: Literal["auto", "cpu", "cuda"] = "auto"
    risk: str | list[str] = Field(default_factory=list)
    policy: str = ""
    policy_file: str | None = None
    template_file: str | None = None
    view: View = View.TEXT
    threshold: Rate | None = None
    score: ScoreMethod = "two_token_softmax"
    max_tokens: int = Field(0, ge=0)  # 0: what the profile needs
    batch_tokens: int = Field(4096, ge=64)

    @property
    def draws_nothing(self) -> bool:
        """Whether the same question gets the same answer: the likeliest tokens."""
        return self.path is not None or not self.options.get("temperature", self.temperature)

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
        """Take from the profile what the configuration leaves out; `auto` is local by hub id."""
        if not isinstance(given, dict):
            return given
        name = given.get("profile")
        if not isinstance(name, str) or name not in profile_names("guard-model"):
            return given
        if given.get("preset") == "auto" and "/" in str(given.get("model")):
            given = {**given, "preset": None, "path": given.get("path") or given["model"]}
        profile = guard_profile(name)
        return with_profile(given, {"view": profile.view, "score": profile.score})

    @model_validator(mode="after")
    def _somewhere(self) -> GuardModelSettings:
        behind_a_server = self.base_url is not None or self.preset is not None
        if behind_a_server == (self.path is not None):
            raise ValueError("needs either a base_url (or preset) or the path of a local model")
        if behind_a_server and not self.model:
            raise ValueError("needs the name of the model, as its server knows it")
        profile, transport = self._profile(), "local"
        if behind_a_server:
            transport = "server"
        if transport not in profile.transports:
            raise ValueError(f"profile {profile.name} is for a {profile.transports[0]} only")
        if profile.template == "given" and not behind_a_server and not self.template_file:
            raise ValueError(
                f"profile {profile.name} needs a template_file: the published prompt of the model "
                f"as a chat template (Jinja); see {profile.source.url}"
            )
        if profile.policy and not (self.policy or self.policy_file):
            raise ValueError(f"profile {profile.name} needs a policy or a policy_file")
        return self

    @model_validator(mode="after")
    def _known_risks(self) -> GuardModelSettings:
        profile = self._profile()
        if profile.risk_option and not self.risks:
            raise ValueError(
                f"profile {profile.name} needs a risk: the text of a policy, or several"
            )
        for risk in self.risks:
            if profile.risks and risk not in profile.risks:
                raise ValueError(str(UnknownName("risk", risk, profile.risks)))
        return self

    @property
    def risks(self) -> list[str]:
        """The risks that the guard is asked about, one after the other."""
        if not self.risk:
            return self._profile().risks[:1]
        if isinstance(self.risk, str):
            return [self.risk]
        return list(dict.fromkeys(self.risk))

    @property
    def calls_each(self) -> int:
        """How often the guard is asked about one prompt."""
        return max(1, len(self.risks))

    @property
    def most_written(self) -> int:
        """The most tokens that an answer can have."""
        return self._profile().max_tokens

    def before(self, folder: Path) -> str:
        """Return what the guard is told before every text."""
        return self._policy(folder) or self._profile().instruction

    def build(self, name: str, context: BuildContext) -> object:
        """Build the defense."""
        policy = self._policy(context.folder)
        files = []
        for name_of_file in (self.policy_file, self.template_file):
            if name_of_file:
                files.append(context.folder / name_of_file)
        reader = GuardReader(
            profile=self._profile(),
            ibm_sum=self.score == "ibm_sum",
            wants_score=self.score != "none",
            threshold=self.threshold,
        )
        if self.path is not None:
            from guardmark.inference.runtime import model_folder

            path = model_folder(context.folder, self.path)
            requests = self._requests(context.folder)
            generator = self._generator(path, reader.profile)
            for risk, options in requests.items():
                check_fit(generator, reader.profile, options, risk=risk, policy=policy)
            return LocalGuardDefense(
                name,
                generator,
                reader=reader,
                requests=requests,
                view=self.view,
                policy=policy,
                files=(path, *files),
            )
        return GuardModelDefense(
            name=name,
            chat=self.chat_endpoint(name, context),
            reader=reader,
            view=self.view,
            policy=policy,
            requests=self._requests(context.folder),
            files=tuple(files),
            takes_images=reader.profile.images,
        )

    def _requests(self, folder: Path) -> dict[str, dict[str, object]]:
        """Return the fields of the requests about one prompt, by risk."""
        common: dict[str, object] = {}
        if self.template_file:
            path = folder / self.template_file
            common["chat_template"] = read_text(path, f"The chat template {path}")
        if self.score != "none":
            common |= {"logprobs": True, "top_logprobs": TOP_LOGPROBS}
        profile, requests = self._profile(), {}
        for risk in self.risks or [""]:
            requests[risk] = profile.request_options(risk) | common
        return requests

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

    def _generator(self, path: Path, profile: GuardProfile) -> LocalGenerator:
        from guardmark.inference.generator import LocalGenerator

        return LocalGenerator(
            path,
            max_tokens=profile.max_tokens,
            wants_scores=self.score != "none",
            budget=self.batch_tokens,
            device=self.device,
            has_template=not self.template_file,
        )


def check_fit(
    generator: LocalGenerator,
    profile: GuardProfile,
    options: Mapping[str, object],
    *,
    risk: str,
    policy: str,
) -> None:
    """Refuse a model that the profile does not fit, before anything is measured with it."""
    messages = profile.messages(Prompt.of_text(_CANARY), View.TEXT, policy=policy) or []
    written = generator.written(messages, _template_options(options))
    if _CANARY not in written:
        raise ConfigError(
            f"The chat template does not show the guard the text as it is (profile {profile.name})."
            "\nNext: take the template of the model's own tokenizer, or another template_file."
        )
    others_known = [known for known in profile.risks if known != risk]
    other = next(iter(others_known), "another policy")
    others = _template_options({**options, **profile.request_options(other)})
    if profile.risk_option and generator.writes(messages, others, written):
        raise ConfigError(
            f"The chat template ignores {profile.risk_option[1]}, by which profile {profile.name} "
            "names the risk.\n"
            "Next: take the profile of this model, or the tokenizer that belongs to it."
        )
    if profile.score == "none":
        return
    for risky, harmless in product(profile.labels.risky, profile.labels.harmless):
        shared = generator.shared_piece(risky, harmless)
        if shared:
            raise ConfigError(
                f"The tokenizer begins {risky!r} and {harmless!r} with one piece, {shared!r}: no "
                "token tells them apart "
                f"(profile {profile.name}).\nNext: score: none, or another model."
            )
