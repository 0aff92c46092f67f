"""Which parts of the taxonomy were tested, and which each defense addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.analysis.defense.slices import CategoryStatus
from guardmark.reports.chapters.candidates import candidates
from guardmark.reports.document.blocks import Bullets, Paragraph, Section, Table, Tone
from guardmark.reports.document.cells import columns, name, row, words

if TYPE_CHECKING:
    from guardmark.analysis.run import RunAnalysis
    from guardmark.reports.document.blocks import Block

_TONES = {
    CategoryStatus.ADDRESSED: Tone.GOOD,
    CategoryStatus.NOT_ADDRESSED: Tone.BAD,
    CategoryStatus.NOT_ASSESSABLE: Tone.MUTED,
    CategoryStatus.NOT_TESTED: Tone.WARNING,
}


def write(analysis: RunAnalysis) -> Section:
    """Write the section on coverage and its gaps."""
    taxonomy = analysis.taxonomy
    blocks: list[Block] = [
        Paragraph(
            text=f"{taxonomy.tested} of {taxonomy.declared} declared categories hold attacks. A "
            "category counts as addressed by a defense when the lower bound of its true "
            "positive rate lies above the upper bound of the overall false positive rate."
        ),
        _table(analysis),
    ]
    if taxonomy.gaps:
        gaps = tuple(f"not tested: {each}" for each in taxonomy.gaps)
        blocks.append(Bullets(lines=gaps, tone=Tone.WARNING))
    else:
        blocks.append(Paragraph(text="Every declared category and subcategory was tested."))
    if taxonomy.undeclared:
        undeclared = tuple(f"not in the taxonomy: {each}" for each in taxonomy.undeclared)
        blocks.append(Bullets(lines=undeclared))
    blocks.append(
        Paragraph(text="Only text was tested: no images, audio or files.", tone=Tone.MUTED)
    )
    return Section(id="coverage", title="Coverage", blocks=tuple(blocks))


def _table(analysis: RunAnalysis) -> Table:
    defenses = candidates(analysis)
    standings = [
        {each.category: each.standing for each in defense.standings} for defense in defenses
    ]
    rows = []
    for category in analysis.taxonomy.categories:
        if not category.is_declared:
            continue
        cells = [
            words(found[category.name].value, _TONES[found[category.name]]) for found in standings
        ]
        rows.append(row(name(category.name), category.attacks, *cells))
    names = [defense.name for defense in defenses]
    return Table(
        id="coverage-table",
        title="Categories of attack",
        columns=columns("Category", "Attacks", *names, texts=names),
        rows=tuple(rows),
    )
