"""Who writes the candidates of round 5, who judges them, and how often they are asked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from guardmark.attacks.attacker_prompt import PROMPT_VERSION, prompt_digest
from guardmark.attacks.equivalence_prompt import EQUIVALENCE_VERSION, equivalence_digest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guardmark.core.protocols import ChatModel
    from guardmark.engine.adaptive.caller import Place
    from guardmark.engine.adaptive.model_reply import StoredReply

_SHARE = (
    4  # a quarter of the search calls is set aside, so that rules and model both get their turn
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackerPlan:
    """What round 5 does.

    Attributes:
        model: Writes candidates.
        judge: Says whether a candidate asks for the same; None leaves candidates unproved.
        identity: Which models these are, as `battery.lock` and the report say it: the keys
            `model`, `model_fingerprint`, `judge`, `judge_fingerprint`.
        candidates: Asked for in one call.
        streams: Lines of thought on one attack, side by side.
        depth: Calls in one line of thought.
        history: Earlier candidates of its line that a call is told.
        max_calls: Most calls of the attacker model against one defense, repairs among them.
        replies: What the models replied already, by defense and place.
    """

    model: ChatModel
    judge: ChatModel | None = None
    identity: Mapping[str, str] = field(default_factory=dict)
    candidates: int = 4
    streams: int = 3
    depth: int = 5
    history: int = 6
    max_calls: int = 1_000
    replies: Mapping[str, Mapping[Place, StoredReply]] = field(default_factory=dict)

    @property
    def lock(self) -> tuple[tuple[str, str], ...]:
        """What `battery.lock` says of it: prompts by version and hash, models, sizes."""
        said = {
            "prompt": f"{PROMPT_VERSION} {prompt_digest()}",
            "equivalence_prompt": f"{EQUIVALENCE_VERSION} {equivalence_digest()}",
            **self.identity,
            **{name: str(value) for name, value in self.sizes.items()},
        }
        return tuple(sorted(said.items()))

    @property
    def sizes(self) -> dict[str, int]:
        """How often is asked, and for how much."""
        return {
            "candidates": self.candidates,
            "streams": self.streams,
            "depth": self.depth,
            "history": self.history,
            "max_calls": self.max_calls,
        }

    def tries(self, budget: int) -> int:
        """Return how many of the search calls of an attack are set aside for candidates.

        Args:
            budget: Search calls an attack is worth.

        Returns:
            A quarter, but no more than there can be candidates.
        """
        return min(self.candidates * self.streams * self.depth, budget // _SHARE)
