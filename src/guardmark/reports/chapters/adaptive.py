"""Adaptive rounds: what an attacker does who rewrites and watches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.reports.chapters.candidates import empty_section
from guardmark.reports.document.blocks import Section

if TYPE_CHECKING:
    from guardmark.analysis.run import RunAnalysis

_NONE: Final = "No adaptive rounds were run; an attacker who adapts may do better than these rates."


def write(analysis: RunAnalysis) -> Section:
    """Write the section on adaptive rounds."""
    if not analysis.adaptive:
        return empty_section("adaptive", "Adaptive rounds", _NONE)
    # Most runs were not attacked, and these pages take a twentieth of a short run to load.
    from guardmark.reports.chapters.adaptive_cards import card_blocks

    return Section(id="adaptive", title="Adaptive rounds", blocks=card_blocks(analysis))
