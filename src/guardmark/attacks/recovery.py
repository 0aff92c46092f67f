"""Whether the shipped decoders bring the words of an attack back from a variant."""

from __future__ import annotations

from typing import Final

from guardmark.canon import Step, apply_steps, skeleton

DECODERS: Final = (Step.ENCODINGS, Step.TAGS, Step.SELECTORS, Step.DIRECTION)
"""Steps of the canonicaliser that read codes and carriers without being told which it is."""


def recovers(original: str, variant: str) -> bool:
    """Tell whether what a variant hides can be read by a machine that is not told how."""
    wanted = skeleton(original)
    return bool(wanted) and wanted in skeleton(apply_steps(variant, DECODERS))
