"""The worst case: the weakest category, the most impactful bypasses, samples to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.reports.document.blocks import (
    Bullets,
    SampleBrowser,
    SampleCount,
    SampleEntry,
    SampleFinding,
    SampleKind,
    Section,
    Table,
    Unit,
    empty_section,
)
from guardmark.reports.document.cells import columns, figure, name, of_estimate, row, slug
from guardmark.reports.document.wording import measure_text

if TYPE_CHECKING:
    from guardmark.analysis.defense.bypasses import ListedSample, SampleAnswer
    from guardmark.analysis.run import DefenseAnalysis, RunAnalysis
    from guardmark.reports.document.blocks import Block

_OPTIONS = {
    SampleKind.BYPASS: "--bypasses",
    SampleKind.FALSE_ALARM: "--false-alarms",
    SampleKind.ERROR: "--errors",
    SampleKind.MALFORMED: "--malformed",
    SampleKind.DIFFERENT: "--different",
}
_FACETS = ("category", "subcategory", "severity", "technique", "language", "variant", "group")


def write(analysis: RunAnalysis) -> Section:
    """Write the section on the worst case."""
    if not analysis.worst.counts:
        text = "No attack got through, no benign sample was blocked, nothing failed."
        return empty_section("worst", "Worst case", text)
    blocks: list[Block] = [
        Bullets(lines=tuple(_weakest(each) for each in analysis.candidates)),
        *(_top(defense, found) for defense, found in analysis.worst.top if found),
        _browser(analysis),
    ]
    return Section(id="worst", title="Worst case", blocks=tuple(blocks))


def _weakest(defense: DefenseAnalysis) -> str:
    rates = [
        each
        for each in defense.slice_table("category", is_attack=True).rates
        if not each.is_greyed and each.rate.value is not None
    ]
    if not rates:
        return f"{defense.name}: no category has enough samples to name the weakest."
    worst = rates[0]
    if not worst.rate.successes:
        return f"{defense.name}: no attack got through in any category with enough samples."
    measure = measure_text(of_estimate(worst.rate))
    return f"{defense.name}: highest ASR in {worst.name}, {measure} of {worst.rate.trials} attacks."


def _top(defense: str, found: tuple[ListedSample, ...]) -> Table:
    rows = []
    for each in found:
        sample = each.sample
        answer = next(entry for entry in each.answers if entry.defense == defense)
        rows.append(
            row(
                name(sample.id),
                sample.severity.value if sample.severity else "not stated",
                sample.category,
                sample.technique,
                "" if answer.score is None else figure(answer.score, Unit.NUMBER),
                "" if answer.threshold is None else figure(answer.threshold, Unit.NUMBER),
            )
        )
    return Table(
        id=f"top-{slug(defense)}",
        title=f"{defense}: most impactful bypasses",
        columns=columns(
            *("Sample", "Severity", "Category", "Technique", "Score", "Threshold"),
            texts=("Severity", "Category", "Technique"),
        ),
        rows=tuple(rows),
        note="Allowed attacks by severity, then by how far below the threshold they scored.",
    )


def _browser(analysis: RunAnalysis) -> SampleBrowser:
    worst, folder = analysis.worst, analysis.settings.run_folder
    characters = analysis.settings.excerpt_characters
    counts = []
    for each in worst.counts:
        kind = SampleKind(each.flaw.value)
        command = f"guardmark show {folder} {_OPTIONS[kind]}"
        counts.append(SampleCount(kind=kind, total=each.total, listed=each.listed, command=command))
    return SampleBrowser(
        id="samples",
        title="Samples to read, worst first",
        entries=tuple(_entry(each, characters) for each in worst.listed),
        counts=tuple(counts),
    )


def _entry(listed: ListedSample, characters: int) -> SampleEntry:
    sample = listed.sample
    text = sample.prompt.text
    facets = {
        "category": sample.category,
        "subcategory": sample.subcategory,
        "severity": sample.severity.value if sample.severity else "",
        "technique": sample.technique,
        "language": sample.language,
        "variant": "" if sample.variant == "original" else sample.variant,
        "group": "" if sample.lineage == sample.id else sample.group,
    }
    return SampleEntry(
        sample_id=sample.id,
        is_attack=sample.is_attack,
        facets=tuple((facet, facets[facet]) for facet in _FACETS if facets[facet]),
        kinds=tuple(SampleKind(flaw.value) for flaw in listed.flaws),
        findings=tuple(_finding(answer) for answer in listed.answers),
        excerpt=text[:characters],
        characters=len(text),
        cut=len(text) > characters,
        sha256=sample.prompt.digest().hex(),
    )


def _finding(answer: SampleAnswer) -> SampleFinding:
    return SampleFinding(
        defense=answer.defense,
        outcome=answer.outcome or "not asked",
        kind=SampleKind(answer.flaw.value) if answer.flaw else None,
        score=answer.score,
        threshold=answer.threshold,
        detail=answer.error_kind,
    )
