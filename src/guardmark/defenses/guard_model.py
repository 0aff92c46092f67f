"""A language model as a guard: asked by a profile, read by its contract, scored by its tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from guardmark.core.outcome import (
    CategoryFinding,
    Decision,
    ErrorKind,
    Evidence,
    Outcome,
    ScoreKind,
)
from guardmark.core.sample import View
from guardmark.defenses.skipping import NOTHING_SHOWN
from guardmark.parsing.logprobs import ibm_sum, two_token_softmax

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.core.outcome import Attempt, Usage
    from guardmark.core.sample import Prompt
    from guardmark.defenses.guard_profiles import GuardProfile
    from guardmark.net.chat import ChatEndpoint
    from guardmark.parsing.guard import GuardReading
    from guardmark.parsing.logprobs import TokenAlternatives, TokenScore

_MOST_RAW = 2_000
_LOW_MASS = 0.5
TOP_LOGPROBS = 20


class GuardAnswer(Protocol):
    """What any transport brings back from a guard model."""

    @property
    def text(self) -> str | None:
        """What it wrote, or None."""
        ...

    @property
    def finish_reason(self) -> str:
        """Why it stopped."""
        ...

    @property
    def usage(self) -> Usage | None:
        """Tokens and money."""
        ...

    @property
    def choices(self) -> Sequence[TokenAlternatives]:
        """Token probabilities; empty when there are none."""
        ...

    @property
    def error_kind(self) -> ErrorKind | None:
        """Why there is no answer."""
        ...

    @property
    def message(self) -> str:
        """What failed."""
        ...

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """Every try, when there was more than one or one failed."""
        ...

    @property
    def service_ns(self) -> int:
        """Time it took."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardReader:
    """How answers of a guard model become decisions."""

    profile: GuardProfile
    ibm_sum: bool = False
    threshold: float | None = None

    def decision(self, answer: GuardAnswer, *, amortised: bool = False) -> Decision:
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
        found = self._score(answer)
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

    def _score(self, answer: GuardAnswer) -> TokenScore | None:
        score = ibm_sum if self.ibm_sum else two_token_softmax
        return score(answer.choices, risky=self.profile.risky, harmless=self.profile.harmless)

    def _evidence(
        self, answer: GuardAnswer, reading: GuardReading, found: TokenScore | None
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
    profile: str, answer: GuardAnswer, reading: GuardReading, found: TokenScore | None
) -> str:
    """What a reader of the records should know about an answer."""
    if reading.outcome is Outcome.MALFORMED:
        cut = ", cut off at its length limit" if answer.finish_reason == "length" else ""
        return f"the answer does not follow the contract of profile {profile}{cut}"
    mass = None if found is None else found.label_mass
    if mass is not None and mass < _LOW_MASS:
        return f"only {mass:.2f} of the probability is on the labels: does the profile fit?"
    return "" if answer.choices else "no score: the server gave no token probabilities"


class GuardModelDefense:
    """A guard model behind a server of the common chat protocol."""

    def __init__(
        self,
        name: str,
        chat: ChatEndpoint,
        *,
        reader: GuardReader,
        view: View = View.TEXT,
        policy: str = "",
        risk: str = "",
        wants_scores: bool = True,
        files: tuple[object, ...] = (),
    ) -> None:
        self.name = name
        self.view = view
        self.threshold = reader.threshold
        self.files = files
        self._chat = chat
        self._reader = reader
        self._policy = policy
        self._options = reader.profile.request_options(risk)
        if wants_scores:
            self._options |= {"logprobs": True, "top_logprobs": TOP_LOGPROBS}

    async def decide(self, prompt: Prompt) -> Decision:
        """Ask the guard about one prompt."""
        messages = self._reader.profile.messages(prompt, self.view, policy=self._policy)
        if messages is None:
            return NOTHING_SHOWN[self.view]
        return self._reader.decision(await self._chat.complete(messages, **self._options))
