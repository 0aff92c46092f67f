"""Which defenses a section talks about at length."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.reports.document.blocks import Paragraph, Section, Tone

if TYPE_CHECKING:
    from guardmark.analysis.run import DefenseAnalysis, RunAnalysis


def candidates(analysis: RunAnalysis) -> tuple[DefenseAnalysis, ...]:
    """Return the defenses that are no baselines, or all when there are only baselines."""
    found = tuple(each for each in analysis.defenses if not each.is_baseline)
    return found or analysis.defenses


def empty_section(section_id: str, title: str, text: str) -> Section:
    """Write a section that says it has no data."""
    blocks = (Paragraph(text=text, tone=Tone.MUTED),)
    return Section(id=section_id, title=title, blocks=blocks, empty=True)
