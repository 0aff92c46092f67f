"""Who writes the candidates of round 5, who judges them, and how often they are asked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from guardmark.attacks.prompts import (
    CRITIC_VERSION,
    EQUIVALENCE_VERSION,
    NEUTRAL_VERSION,
    PROMPT_VERSION,
    critic_digest,
    equivalence_digest,
    neutral_digest,
    prompt_digest,
)
from guardmark.core.protocols import PairJudge

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guardmark.adaptive.caller import Place
    from guardmark.adaptive.model_reply import StoredReply
    from guardmark.core.protocols import ChatModel

_SHARE = 4  # of the search calls a quarter, so that rules and model both get their turn


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackerPlan:
    """What round 5 does."""

    model: ChatModel
    judge: ChatModel | PairJudge | None = None
    critic: ChatModel | None = None
    identity: Mapping[str, str] = field(default_factory=dict)
    candidates: int = 4
    streams: int = 3
    depth: int = 5
    history: int = 6
    max_calls: int = 1_000
    twin: int = 0
    replies: Mapping[str, Mapping[Place, StoredReply]] = field(default_factory=dict)

    @property
    def votes(self) -> int:
        """How often a candidate is judged: in both orders, unless the order means nothing."""
        return 1 if isinstance(self.judge, PairJudge) else 2

    @property
    def lock(self) -> tuple[tuple[str, str], ...]:
        """What `battery.lock` says of it: prompts by version and hash, models, sizes."""
        said = {
            "prompt": f"{PROMPT_VERSION} {prompt_digest()}",
            "equivalence_prompt": f"{EQUIVALENCE_VERSION} {equivalence_digest()}",
            **self._more_prompts,
            **self.identity,
            **{name: str(value) for name, value in self.sizes.items()},
        }
        return tuple(sorted(said.items()))

    @property
    def _more_prompts(self) -> dict[str, str]:
        found = {}
        if self.critic is not None:
            found["critic_prompt"] = f"{CRITIC_VERSION} {critic_digest()}"
        if self.twin:
            found["neutral_prompt"] = f"{NEUTRAL_VERSION} {neutral_digest()}"
        return found

    @property
    def sizes(self) -> dict[str, int]:
        """How often is asked, and for how much."""
        return {
            "candidates": self.candidates,
            "streams": self.streams,
            "depth": self.depth,
            "history": self.history,
            "max_calls": self.max_calls,
            "twin": self.twin,
        }

    def tries(self, budget: int) -> int:
        """Return how many of the search calls of an attack are set aside for candidates."""
        return min(self.candidates * self.streams * self.depth, budget // _SHARE)
