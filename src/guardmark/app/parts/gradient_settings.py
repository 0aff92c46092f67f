"""Attacks that follow a gradient (access A3): their settings, and how one is built for a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from guardmark.app.registry import BuildContext, build_part
from guardmark.config.settings import Settings
from guardmark.core.errors import ConfigError
from guardmark.core.protocols import GradientAttack, GradientDefense

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.app.parts.building import BuiltPart
    from guardmark.app.parts.loading import LoadedConfig

_PLACE = ("adaptive", "gradient")


class HotFlipSettings(Settings):
    """Swaps one token after the other where the gradient is steepest."""

    bounded: bool = True

    def build(self, name: str, context: BuildContext) -> object:  # noqa: ARG002 - all have one signature
        """Build the attack."""
        from guardmark.attacks.hotflip import HotFlip

        return HotFlip(bounded=self.bounded)


def build_gradient(loaded: LoadedConfig, attacked: Sequence[BuiltPart]) -> GradientAttack | None:
    """Build the attack that follows gradients."""
    settings = loaded.parts.get(_PLACE)
    if settings is None:
        return None
    if not any(_has_gradient(built.part) for built in attacked):
        names = ", ".join(built.manifest.name for built in attacked)
        raise ConfigError(
            f"{loaded.source.shown_as}: adaptive.gradient needs a defense in this process that has "
            f"a gradient, and none of these has: {names}.\n"
            "Next: add one, for example of type classifier (pip install 'guardmark[hf]'), or take "
            "adaptive.gradient out."
        )
    context = BuildContext(
        folder=loaded.folder, seed=loaded.config.run.seed, services=None, defenses={}
    )
    return cast("GradientAttack", build_part(settings, "gradient", context))


def _has_gradient(part: object) -> bool:
    return isinstance(part, GradientDefense) and part.gradients() is not None
