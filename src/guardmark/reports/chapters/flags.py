"""Services that flag: texts that went on, and were marked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.reports.document.blocks import Section, section
from guardmark.reports.document.cells import name, table_of, with_counts

if TYPE_CHECKING:
    from guardmark.analysis.run import RunAnalysis


def write_flags(analysis: RunAnalysis) -> Section | None:
    """Write the section on services that flagged texts; None where none did."""
    if not analysis.flagged_texts:
        return None
    return section(
        "flags",
        "Flagged texts",
        "What a service flags goes on: it counts as let through, and is told here.",
        table_of(
            analysis.flagged_texts,
            {
                "Defense": lambda row: name(row.defense),
                "Words": lambda row: ", ".join(row.words),
                "Attacks flagged|of answered": lambda row: with_counts(row.attacks),
                "Benign flagged|of answered": lambda row: with_counts(row.benign),
            },
            table_id="flags-table",
            title="Flagged, and let through",
            texts=("Words",),
            note="Words: those of the service that its configuration reads as flag.",
        ),
    )
