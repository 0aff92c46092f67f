"""What a part answered: decisions, responses, verdicts, and failure as a value of its own."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from guardmark.core.sample import ToolCall
    from guardmark.core.usage import Usage


CUT_REASONS: Final = frozenset({"length", "max_tokens", "MAX_TOKENS", "max_output_tokens"})
"""Words of servers for an answer that was cut off at its limit of tokens."""
NATIVE_REFUSAL: Final = "refusal"
"""Native action of an answer that the model marked as a refusal itself."""


class Outcome(StrEnum):
    """What a defense did with an input."""

    ALLOW = "allow"
    BLOCK = "block"
    MALFORMED = "malformed"
    ERROR = "error"


class ErrorKind(StrEnum):
    """Why a part did not answer."""

    TIMEOUT = "timeout"
    CONNECTION = "connection"
    REFUSED = "refused"
    HTTP = "http"
    CRASH = "crash"
    SKIPPED = "skipped"
    LENGTH = "length"
    CONTRACT = "contract"


class BlockedAt(StrEnum):
    """Where the provider of a model blocked."""

    INPUT = "input"
    OUTPUT = "output"


PROVIDER: Final = "provider"
"""Name under which the filter of a model's provider stands as a guard; it is not configured."""
PROVIDER_ACTIONS: Final = {place: f"{PROVIDER}-{place.value}" for place in BlockedAt}
"""Native action of an answer that a provider blocked, by where it did."""


class ScoreKind(StrEnum):
    """What a score in [0, 1] means; higher is riskier."""

    CLASS_PROB = "class_prob"
    TWO_TOKEN_SOFTMAX = "two_token_softmax"  # noqa: S105 - a method's name, no secret
    FULL_VOCAB_PROB = "full_vocab_prob"
    CATEGORY_MAX = "category_max"
    ORDINAL = "ordinal"
    SEVERITY = "severity"
    SELF_REPORTED = "self_reported"
    CONFIDENCE = "confidence"  # of the part's own; nobody said whether it is a risk
    NONE = "none"


class VerdictLabel(StrEnum):
    """What a judge says of a response."""

    SAFE = "safe"
    UNSAFE = "unsafe"
    MALFORMED = "malformed"
    ERROR = "error"


class AnswerMode(StrEnum):
    """How a response met the request."""

    ANSWERED = "answered"
    REFUSED_OR_BLOCKED = "refused_or_blocked"
    INDIRECT = "indirect"
    NON_ANSWER = "non_answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try of a call.

    Attributes:
        service_ns: From the first byte sent to the last byte received, without our queue.
        status: HTTP status, or None when none came.
        error: What went wrong in a word, or empty.
        wait_ns: Sleep before this try (back-off, Retry-After), not part of `service_ns`.
    """

    service_ns: int
    status: int | None = None
    error: str = ""
    wait_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoryFinding:
    """One native category of a defense's answer.

    Attributes:
        name: Native code or name.
        flagged: Whether the defense flagged it, or None when it only scored.
        score: In [0, 1], or None.
    """

    name: str
    flagged: bool | None = None
    score: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamTrace:
    """How an answer streamed, until its end or until a block.

    Attributes:
        characters: Characters that had gone out; the part that blocks is not among them.
        chunks: Chunks of text that had gone out.
        first_ns: Time to the first of them; None where none went out, or nobody timed it.
        block_ns: Time to the block; None where there was none, or nobody timed it.
        last_ns: Time to the last chunk of text, of a model; None where none went out, or nobody
            timed it.
        tokens: Tokens that had gone out, as the service counted them with or after the last chunk
            of text; None where it did not.
    """

    characters: int
    chunks: int
    first_ns: int | None = None
    block_ns: int | None = None
    last_ns: int | None = None
    tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What lies behind an answer, kept for audit; absent when there is nothing to say.

    Attributes:
        reason: Why, in the part's own words.
        native_action: The part's own word for what it did (`redact`, `review` ...).
        raw: The native answer, cut by the adapter if it is huge.
        message: What failed, for errors and malformed answers.
        parse_method: Which rung of the parse ladder read the answer.
        finish_reason: Why a model stopped.
        categories: Native categories.
        usage: Tokens and money.
        attempts: Every try, when there was more than one or one failed.
        label_mass: Probability on the label tokens at the decision position, in [0, 1].
        truncated: Whether the input was cut to fit the part.
        from_cache: Whether the answer was kept from an earlier call, so that it took no time.
        stream: How the answer streamed, if it did: one entry.
    """

    reason: str = ""
    native_action: str = ""
    raw: str = ""
    message: str = ""
    parse_method: str = ""
    finish_reason: str = ""
    categories: tuple[CategoryFinding, ...] = ()
    usage: Usage | None = None
    attempts: tuple[Attempt, ...] = ()
    label_mass: float | None = None
    truncated: bool = False
    from_cache: bool = False
    stream: tuple[StreamTrace, ...] = ()

    @property
    def is_provider_block(self) -> bool:
        """Whether the filter of a provider stands in place of an answer."""
        return self.native_action in PROVIDER_ACTIONS.values()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a defense decided on one prompt.

    Attributes:
        outcome: Allow, block, malformed or error.
        score: Risk in [0, 1], or None; never invented from the outcome.
        score_kind: What the score means.
        error_kind: Why there is no answer; only with outcome `error`.
        latency_ns: Service time that the adapter measured, or None to let the engine time it.
        amortised: Whether the latency is a share of a batch's time.
        evidence: What lies behind it, or None.
        text: What goes on in place of what the defense was shown, or None where it wrote nothing.
    """

    outcome: Outcome
    score: float | None = None
    score_kind: ScoreKind = ScoreKind.NONE
    error_kind: ErrorKind | None = None
    latency_ns: int | None = None
    amortised: bool = False
    evidence: Evidence | None = None
    text: str | None = None


ALLOWED = Decision(outcome=Outcome.ALLOW)
BLOCKED = Decision(outcome=Outcome.BLOCK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """What a target model answered.

    Attributes:
        text: The answer, or None when there is none.
        error_kind: Why there is no answer, or None.
        latency_ns: Service time, or None to let the engine time the call.
        blocked_at: Where the provider of the model blocked, or None; then there is no text, and
            the call did not fail.
        evidence: Finish reason, usage, attempts.
    """

    text: str | None
    error_kind: ErrorKind | None = None
    blocked_at: BlockedAt | None = None
    latency_ns: int | None = None
    evidence: Evidence | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a judge said of a response.

    Attributes:
        label: Safe, unsafe, malformed or error.
        answer_mode: How the response met the request, or None when the judge did not say.
        score: Probability of unsafe in [0, 1], or None.
        error_kind: Why there is no verdict; only with label `error`.
        latency_ns: Service time, or None to let the engine time the call.
        evidence: What lies behind it, or None.
    """

    label: VerdictLabel
    answer_mode: AnswerMode | None = None
    score: float | None = None
    error_kind: ErrorKind | None = None
    latency_ns: int | None = None
    evidence: Evidence | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenChoice:
    """What a model weighed at one position, with natural logarithms of the probabilities.

    Attributes:
        token: The token that was written.
        alternatives: Tokens that were weighed, each with the logarithm of its probability.
    """

    token: str
    alternatives: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TextChunk:
    """A piece of text of an answer that streamed.

    Attributes:
        end: Characters of the answer so far, this piece included.
        arrival_ns: When it had come, since the request.
    """

    end: int
    arrival_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatAnswer:
    """What a language model wrote, behind a server or in this process, or why it wrote nothing.

    Attributes:
        text: What it wrote; None where it wrote nothing.
        is_refusal: Whether the service marks it as a refusal.
        finish_reason: Why it ended, in the service's word.
        thoughts: What it thought, where the server parts that from the answer.
        blocked_at: Where the provider's filter stopped it, or None; there is no text then.
        usage: What the call used, or None where that was not reported.
        choices: What was weighed at each position, where that was asked for.
        calls: Tools that it calls; they stand in the text, too.
        words: The text without the calls.
        chunks: The pieces that the text came in; None where it came at once.
        error_kind: What failed, or None.
        message: What is to be said of a failure.
        attempts: The requests that were sent, where any failed.
        service_ns: The time that the service took.
    """

    text: str | None
    is_refusal: bool = False
    finish_reason: str = ""
    thoughts: str = ""
    blocked_at: BlockedAt | None = None
    usage: Usage | None = None
    choices: tuple[TokenChoice, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    words: str = ""
    chunks: tuple[TextChunk, ...] | None = None
    error_kind: ErrorKind | None = None
    message: str = ""
    attempts: tuple[Attempt, ...] = ()
    service_ns: int = 0


TEXTS_ONLY = ChatAnswer(
    text=None, error_kind=ErrorKind.SKIPPED, message="it is shown an image, and takes texts only"
)
