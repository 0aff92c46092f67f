"""A user's first plug-in; only type-checked, never run."""

from __future__ import annotations

import guardmark
from guardmark.core.outcome import ALLOWED, BLOCKED
from guardmark.core.sample import Prompt, View


class LengthGuard:
    """Blocks what is very long."""

    name = "length"
    view = View.TEXT

    def decide(self, prompt: Prompt) -> guardmark.Decision:
        """Judge one prompt."""
        return BLOCKED if len(prompt.text) > 10_000 else ALLOWED


class SlowGuard:
    """Asks somebody else."""

    @property
    def name(self) -> str:
        """Name in reports."""
        return "slow"

    @property
    def view(self) -> View:
        """Looks at the text alone."""
        return View.TEXT

    async def decide(self, prompt: Prompt) -> guardmark.Decision:
        """Judge one prompt."""
        return ALLOWED if prompt.text else BLOCKED


def measure() -> float | None:
    """Use the public door as a notebook would."""
    defense: guardmark.Defense = SlowGuard()
    measured = guardmark.run(defense, "core")
    card: guardmark.Scorecard = measured.analysis.defenses[0].card
    rate: guardmark.Estimate = card.attack_success_rate
    return rate.value


def measure_function() -> None:
    """A plain function is a defense, too."""
    guardmark.run(lambda text: "ignore" in text, "core", name="one-word")
    for sample in guardmark.load_dataset("core").samples():
        one: guardmark.Sample = sample
        del one
