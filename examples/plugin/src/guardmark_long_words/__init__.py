"""A template of a plug-in: settings that a configuration may state, and the defense they build."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import Field

from guardmark import Decision, Outcome
from guardmark.config.settings import Settings
from guardmark.core.outcome import Evidence
from guardmark.core.sample import View

if TYPE_CHECKING:
    from guardmark.config.settings import BuildContext
    from guardmark.core.sample import Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class LongWords:
    """Blocks a text that has a word longer than any that people write."""

    name: str
    longest: int
    view: View = View.TEXT

    def decide(self, prompt: Prompt) -> Decision:
        """Decide at once; in a defense that waits for something this is `async def`."""
        words = prompt.shown(self.view)
        length = max(map(len, (words or "").split()), default=0)
        if length <= self.longest:
            return Decision(outcome=Outcome.ALLOW)
        reason = f"a word of {length:,} characters"
        return Decision(outcome=Outcome.BLOCK, evidence=Evidence(reason=reason))


class LongWordsSettings(Settings):
    """Blocks texts with very long words, such as encoded ones."""

    longest: int = Field(40, ge=1)

    def build(self, name: str, context: BuildContext) -> object:  # noqa: ARG002 - others need files
        """Build the defense; `context.folder` is where the configuration stands."""
        return LongWords(name=name, longest=self.longest)
