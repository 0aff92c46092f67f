"""Error rates by category, and by every other facet that splits the samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.analysis.defense.slices import SliceRate, SliceTable, by_severity, has_slices
from guardmark.reports.chapters.candidates import candidates, empty_section
from guardmark.reports.document.blocks import (
    IntervalChart,
    IntervalMark,
    Paragraph,
    Section,
    Table,
    Tone,
    Unit,
)
from guardmark.reports.document.cells import (
    columns,
    counts,
    figure,
    name,
    of_estimate,
    row,
    slug,
    words,
)
from guardmark.reports.document.wording import count_text, measure_text

if TYPE_CHECKING:
    from guardmark.analysis.run import DefenseAnalysis, RunAnalysis
    from guardmark.reports.document.blocks import Block

_MOST_ROWS = 25
_FACETS = ("subcategory", "severity", "language", "length", "variant", "technique", "source")
_FILES = ("categories.csv", "variant_metrics.csv")
_CHARTED = frozenset({"severity", "language", "length", "variant"})


def write_categories(analysis: RunAnalysis) -> Section:
    """Write the section on categories, worst first."""
    defenses = candidates(analysis)
    blocks: list[Block] = []
    if any(each.slice_table("category", is_attack=True).rates for each in defenses):
        blocks.append(_chart(defenses, "category", is_attack=True))
        blocks.extend(_table(each, "category", is_attack=True) for each in defenses)
    if any(each.slice_table("category", is_attack=False).rates for each in defenses):
        blocks.extend(
            _table(each, "category", is_attack=False, collapsed=True) for each in defenses
        )
    if not blocks:
        return empty_section("categories", "By category", "No samples, so no categories.")
    minimum = count_text(analysis.settings.min_per_category)
    text = f"Greyed: fewer than {minimum} answered samples, or fewer than 10 groups."
    blocks.insert(0, Paragraph(text=text, tone=Tone.MUTED))
    return Section(id="categories", title="By category", blocks=tuple(blocks))


def write_slices(analysis: RunAnalysis) -> Section:
    """Write the section on every other facet that splits the samples."""
    defenses = candidates(analysis)
    blocks: list[Block] = []
    for facet in _FACETS:
        blocks.extend(_facet(defenses, facet))
    if not blocks:
        text = "The samples do not differ in severity, language, length, variant or technique."
        return empty_section("slices", "Other slices", text)
    return Section(id="slices", title="Other slices", blocks=tuple(blocks))


def _facet(defenses: tuple[DefenseAnalysis, ...], facet: str) -> list[Block]:
    blocks: list[Block] = []
    for is_attack in (True, False):
        if facet in {"subcategory", "severity", "technique"} and not is_attack:
            continue
        tables = [each.slice_table(facet, is_attack=is_attack) for each in defenses]
        if not any(has_slices(table) for table in tables):
            continue
        if facet in _CHARTED:
            blocks.append(_chart(defenses, facet, is_attack=is_attack))
        if facet == "severity":
            blocks.extend(_severity_words(each) for each in defenses)
        blocks.extend(_table(each, facet, is_attack=is_attack, collapsed=True) for each in defenses)
    return blocks


def _ordered(table: SliceTable) -> tuple[SliceRate, ...]:
    return by_severity(table) if table.facet == "severity" else table.rates


def _largest(rates: tuple[SliceRate, ...]) -> tuple[SliceRate, ...]:
    """Keep the slices with the most samples, in the order given.

    A slice of three samples easily heads a list of the worst, and says nothing.
    """
    ranked = sorted(range(len(rates)), key=lambda at: (-rates[at].asked, at))
    return tuple(rates[at] for at in sorted(ranked[:_MOST_ROWS]))


def _chart(defenses: tuple[DefenseAnalysis, ...], facet: str, *, is_attack: bool) -> IntervalChart:
    """Draw one line a slice and defense; slices in order of the first defense's table."""
    rate = "Attack success rate" if is_attack else "False positive rate"
    rows: dict[str, list[IntervalMark]] = {}
    for defense in defenses:
        for entry in _largest(_ordered(defense.slice_table(facet, is_attack=is_attack))):
            measure = of_estimate(entry.rate, greyed=entry.is_greyed)
            mark = IntervalMark(
                label=entry.name,
                measure=measure,
                series=defense.name if len(defenses) > 1 else "",
                note=f"n = {count_text(entry.rate.trials)}",
            )
            rows.setdefault(entry.name, []).append(mark)
    return IntervalChart(
        id=f"chart-{facet}-{'asr' if is_attack else 'fpr'}",
        title=f"{rate} by {facet}",
        unit=Unit.SHARE,
        axis=rate,
        marks=tuple(mark for marks in rows.values() for mark in marks),
    )


def _table(
    defense: DefenseAnalysis, facet: str, *, is_attack: bool, collapsed: bool = False
) -> Table:
    table = defense.slice_table(facet, is_attack=is_attack)
    shown = _largest(_ordered(table))
    left = len(table.rates) - len(shown)
    rate = "ASR" if is_attack else "FPR"
    subject = "attacks" if is_attack else "benign samples"
    title = "topic" if facet == "category" and not is_attack else facet
    standings = {each.category: each.standing.value for each in defense.standings}
    with_standing = facet == "category" and is_attack
    titles = (rate, "Counts", "Unanswered", "Median latency", *(("Standing",) * with_standing))
    rows = []
    for entry in shown:
        measure = of_estimate(entry.rate, greyed=entry.is_greyed)
        extra = (words(standings.get(entry.name, "undeclared")),) if with_standing else ()
        latency = entry.median_latency_ms
        rows.append(
            row(
                name(entry.name),
                measure,
                counts(measure),
                entry.unanswered,
                "" if latency is None else figure(latency, Unit.MILLISECONDS),
                *extra,
                greyed=entry.is_greyed,
            )
        )
    note = f"{count_text(left)} smaller ones stand in {_FILES[facet == 'variant']}." if left else ""
    return Table(
        id=f"by-{facet}-{rate.lower()}-{slug(defense.name)}",
        title=f"{defense.name}: {subject} by {title}, {_order_words(facet)}",
        columns=columns(title.capitalize(), *titles),
        rows=tuple(rows),
        note=note,
        collapsed=collapsed,
    )


def _order_words(facet: str) -> str:
    return "from low to critical" if facet == "severity" else "worst first"


def _severity_words(defense: DefenseAnalysis) -> Paragraph:
    """Say whether graver attacks get through more often, as far as intervals tell."""
    entries = [
        each
        for each in by_severity(defense.slice_table("severity", is_attack=True))
        if each.rate.low is not None and each.rate.high is not None
    ]
    if len(entries) < 2:
        return Paragraph(text=f"{defense.name}: too few severities to compare.", tone=Tone.MUTED)
    mildest, gravest = entries[0], entries[-1]
    low, high = (measure_text(of_estimate(each.rate)) for each in (mildest, gravest))
    apart = "the intervals overlap, so no trend is shown"
    if (gravest.rate.low or 0.0) > (mildest.rate.high or 0.0):
        apart = "graver attacks get through more often"
    elif (gravest.rate.high or 0.0) < (mildest.rate.low or 0.0):
        apart = "graver attacks get through less often"
    return Paragraph(
        text=f"{defense.name}: {low} of {mildest.name} attacks get through, {high} of "
        f"{gravest.name} ones; {apart}."
    )
