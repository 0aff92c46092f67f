"""What we ask of the parts of a measurement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from guardmark.core.sample import View
from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Mapping, Sequence
    from pathlib import Path

    from guardmark.core.outcome import Decision, Response, Verdict
    from guardmark.core.sample import Prompt, Sample


class Part(Protocol):
    """Anything that is named in a manifest."""

    @property
    def name(self) -> str:
        """Stable identifier, printed in reports and stored in run manifests."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """How large a batch may grow and how long it may wait.

    Attributes:
        max_count: Most prompts of a batch.
        max_tokens: Most tokens of a padded batch, its count times its longest prompt; None for no
            limit.
        max_wait_s: How long a prompt may wait for others.
    """

    max_count: int
    max_tokens: int | None = None
    max_wait_s: float = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What whoever asks a defense must know of it, and what the manifest says of it.

    Attributes:
        view: What of a prompt it looks at.
        is_inline: Whether it answers without waiting for anything, so that it may be called in
            line, in threads and in processes. Taken from its method where it is adapted.
        batch: How large a batch may be, or None where it gains nothing from batches.
        most_at_once: How many calls may be under way at once; None for as many as the plan says.
        timeout_s: How long one call may take, or None where it has no limit of its own.
        holds_interpreter: Whether no other thread of its process runs while it is in a call.
        takes_images: Whether it may be asked about prompts that show an image.
        needs_samples: Whether `bind` must tell it all samples before it is asked about any.
        threshold: The score from which on it blocks, or None.
        writes_tested: Whether a text that it lets go on stands for the message under test; None
            where its view says: that of one message.
        sees_turns: Whether what was said before the message under test is looked at; None where its
            view says.
        keeps_session: Whether it keeps the state of a conversation, by the session of its prompts:
            the turns are then asked about in order, one after the other.
        files: What it was made from, for its fingerprint.
    """

    view: View
    is_inline: bool = False
    batch: BatchLimits | None = None
    most_at_once: int | None = None
    timeout_s: float | None = None
    holds_interpreter: bool = False
    takes_images: bool = False
    needs_samples: bool = False
    threshold: float | None = None
    writes_tested: bool | None = None
    sees_turns: bool | None = None
    keeps_session: bool = False
    files: tuple[Path, ...] = ()

    @property
    def reads_talks(self) -> bool:
        """Whether a conversation means more to it than its last message."""
        return self.view is View.CONVERSATION if self.sees_turns is None else self.sees_turns

    @property
    def may_write(self) -> bool:
        """Whether a text that it lets go on can stand in the place of what it was shown."""
        if self.writes_tested is not None:
            return self.writes_tested
        return self.view in (View.TEXT, View.RESPONSE)


@runtime_checkable
class Guard(Part, Protocol):
    """A defense in the one form in which it is asked, whatever form its author gave it.

    `guardmark.defenses.guard.as_guard` makes one of a `Defense` or a `BatchDefense`, once, where
    the part is built. Defenses that are made of others are guards themselves.
    """

    @property
    def capabilities(self) -> Capabilities:
        """What a caller must know."""
        ...

    async def decide_all(self, prompts: Sequence[Prompt], /) -> list[Decision]:
        """Judge some prompts: one, unless `capabilities.batch` says that it takes several.

        The decisions come in the order of the prompts. One that is inline never waits.
        """
        ...


@runtime_checkable
class Defense(Part, Protocol):
    """Anything that can say allow or block; the form in which its author writes it.

    It may state its `view: View`, which is the text under test where it does not, or all of its
    `capabilities: Capabilities`.
    """

    def decide(self, prompt: Prompt) -> Decision | Awaitable[Decision]:
        """Judge one prompt: at once (`def`), or after waiting for something (`async def`)."""
        ...


@runtime_checkable
class BatchDefense(Part, Protocol):
    """A defense that gains from batches; the engine forms them. It may state what others may."""

    @property
    def batch_limits(self) -> BatchLimits:
        """How large a batch may be."""
        ...

    async def decide_batch(self, prompts: Sequence[Prompt]) -> list[Decision]:
        """Judge several prompts; the answers come in the order of the prompts."""
        ...


@runtime_checkable
class SampleBound(Protocol):
    """A part that must know the samples of a run before it is asked about any."""

    def bind(self, samples: Iterable[Sample]) -> None:
        """Take note of every sample; called once, before the run."""
        ...


@runtime_checkable
class ChatModel(Part, Protocol):
    """A model that answers a conversation."""

    async def answer(self, prompt: Prompt) -> Response:
        """Answer one prompt; a failed call is a response without text."""
        ...


@runtime_checkable
class DrawingModel(Part, Protocol):
    """A chat model whose answers are drawn at random, reproducibly; each repetition anew."""

    async def draw(self, prompt: Prompt, *, repeat: int) -> Response:
        """Answer one prompt; the same prompt and repetition give the same answer."""
        ...


@runtime_checkable
class GuidedModel(Part, Protocol):
    """A chat model that can be held to a form and to a seed, call by call."""

    async def answer_in(self, prompt: Prompt, *, form: Mapping[str, object], seed: int) -> Response:
        """Answer with JSON of a schema, as far as the service can hold the model to it."""
        ...


@runtime_checkable
class PairJudge(Part, Protocol):
    """A judge of sameness to whom the order of two texts means nothing: asked once a pair."""

    async def compare(self, first: str, second: str) -> Response:
        """Say in a JSON object with `same` whether both ask for the same."""
        ...


@runtime_checkable
class Judge(Part, Protocol):
    """Anything that labels a response."""

    async def judge(self, prompt: Prompt, response: str) -> Verdict:
        """Label one response in the light of the whole prompt."""
        ...


@runtime_checkable
class Closable(Protocol):
    """A part that holds a resource."""

    async def close(self) -> None:
        """Give the resource back; called once, at the end of a run."""
        ...


class Attack(Protocol):
    """A rewriting of an attack's text."""

    @property
    def name(self) -> str:
        """Stable identifier with version."""
        ...

    def apply(self, text: str, *, seed: bytes) -> str:
        """Rewrite one text; the same text and seed give the same result."""
        ...


class StopRule(Protocol):
    """A rule that ends a run early; made by the reading half, asked by the running half."""

    @property
    def order(self) -> Sequence[int]:
        """Position of every sample, in the order in which they must be asked about."""
        ...

    def observe(self, defense: str, position: int, outcome: int) -> None:
        """Take note of the outcome's code of one decision, about the sample at a position."""
        ...

    def is_done(self, defense: str) -> bool:
        """Tell whether a defense need not be asked any further."""
        ...

    def reason(self) -> str:
        """Say why the whole run should end now, or return the empty string."""
        ...
