"""Answers that need no look at the text: baselines, chance, and nothing to show."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from guardmark.config.settings import Rate, Settings
from guardmark.core.outcome import ALLOWED, BLOCKED, Decision, ErrorKind, Evidence, Outcome
from guardmark.core.sample import View

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from guardmark.config.settings import BuildContext
    from guardmark.core.sample import Prompt


def _nothing_shown(view: View) -> Decision:
    """Return the error about a sample that has nothing for a view."""
    evidence = Evidence(message=f"the sample has nothing for the view {view.value!r}")
    return Decision(outcome=Outcome.ERROR, error_kind=ErrorKind.SKIPPED, evidence=evidence)


NOTHING_SHOWN = {view: _nothing_shown(view) for view in View}
"""View to the shared decision for prompts it cannot show: an error, never an allow."""


def in_order(
    shown: Sequence[object | None], decisions: Iterable[Decision], view: View
) -> list[Decision]:
    """Return the decisions about what was shown of each prompt, also where nothing was."""
    answers, complete = iter(decisions), list[Decision]()
    for text in shown:
        if text is None:
            complete.append(NOTHING_SHOWN[view])
        else:
            complete.append(next(answers))
    return complete


_DRAWS = 2**64


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """Gives the same decision on everything."""

    name: str
    decision: Decision
    view: View = View.TEXT

    def decide(self, prompt: Prompt) -> Decision:  # noqa: ARG002 - that is the point
        """Answer without looking."""
        return self.decision


def allow_all(name: str = "allow-all") -> Constant:
    """Return the defense that lets everything through."""
    return Constant(name, ALLOWED)


def block_all(name: str = "block-all") -> Constant:
    """Return the defense that lets nothing through."""
    return Constant(name, BLOCKED)


class Coin:
    """Blocks by a seeded coin, one fixed toss a prompt.

    It is taken from the prompt's own hash, so it depends neither on order nor on number.
    """

    __slots__ = ("_limit", "_salt", "name")

    view = View.TEXT

    def __init__(self, name: str, *, seed: int, probability: float = 0.5) -> None:
        if not 0 <= probability <= 1:
            raise ValueError(f"probability must be in [0, 1], got {probability}")
        self.name = name
        self._salt = f"guardmark coin {seed}\n".encode()
        self._limit = probability * _DRAWS

    def decide(self, prompt: Prompt) -> Decision:
        """Toss for one prompt."""
        toss = sha256(self._salt + prompt.digest()).digest()
        if int.from_bytes(toss[:8], "big") < self._limit:
            return BLOCKED
        return ALLOWED


class AllowAllSettings(Settings):
    """Lets everything through."""

    def build(self, name: str, context: BuildContext) -> object:  # noqa: ARG002 - all have one signature
        """Build the defense."""
        return allow_all(name)


class BlockAllSettings(Settings):
    """Lets nothing through."""

    def build(self, name: str, context: BuildContext) -> object:  # noqa: ARG002 - all have one signature
        """Build the defense."""
        return block_all(name)


class CoinSettings(Settings):
    """Blocks by chance; the seed of the run decides, not the order of the samples."""

    probability: Rate = 0.5

    def build(self, name: str, context: BuildContext) -> object:
        """Build the defense."""
        return Coin(name, seed=context.seed, probability=self.probability)
