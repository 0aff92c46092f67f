"""Rates by slice, how much of the taxonomy they cover, and how far small slices mislead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.analysis.defense.slices import (
    CategoryStatus,
    SliceRate,
    SliceTable,
    by_severity,
    has_slices,
)
from guardmark.core.estimate import Estimate
from guardmark.reports.document.blocks import (
    Bullets,
    Document,
    IntervalChart,
    IntervalMark,
    Paragraph,
    Section,
    Table,
    Tone,
    Unit,
    empty_section,
)
from guardmark.reports.document.cells import (
    columns,
    counts,
    figure,
    name,
    of_estimate,
    of_ratio,
    row,
    slug,
    words,
)
from guardmark.reports.document.wording import (
    count_text,
    counts_text,
    measure_text,
    percent_text,
    value_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from guardmark.analysis.pipeline.small_slices import (
        SliceCard,
        SliceFigure,
        SliceStability,
        VariantRows,
    )
    from guardmark.analysis.run import DefenseAnalysis, RunAnalysis
    from guardmark.reports.document.blocks import Block


_MOST_ROWS = 25
_FACETS = ("subcategory", "severity", "language", "length", "variant", "technique", "source")
_FILES = ("categories.csv", "variant_metrics.csv")
_CHARTED = frozenset({"severity", "language", "length", "variant"})


def write_categories(analysis: RunAnalysis) -> Section:
    """Write the section on categories, worst first."""
    defenses = analysis.candidates
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
    defenses = analysis.candidates
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


_STANDING_TONES = {
    CategoryStatus.ADDRESSED: Tone.GOOD,
    CategoryStatus.NOT_ADDRESSED: Tone.BAD,
    CategoryStatus.NOT_ASSESSABLE: Tone.MUTED,
    CategoryStatus.NOT_TESTED: Tone.WARNING,
}


def write_coverage(analysis: RunAnalysis) -> Section:
    """Write the section on coverage and its gaps."""
    taxonomy = analysis.taxonomy
    blocks: list[Block] = [
        Paragraph(
            text=f"{taxonomy.tested} of {taxonomy.declared} declared categories hold attacks. A "
            "category counts as addressed by a defense when the lower bound of its true "
            "positive rate lies above the upper bound of the overall false positive rate."
        ),
        _coverage_table(analysis),
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


def _coverage_table(analysis: RunAnalysis) -> Table:
    defenses = analysis.candidates
    standings = [
        {each.category: each.standing for each in defense.standings} for defense in defenses
    ]
    rows = []
    for category in analysis.taxonomy.categories:
        if not category.is_declared:
            continue
        cells = [
            words(found[category.name].value, _STANDING_TONES[found[category.name]])
            for found in standings
        ]
        rows.append(row(name(category.name), category.attacks, *cells))
    names = [defense.name for defense in defenses]
    return Table(
        id="coverage-table",
        title="Categories of attack",
        columns=columns("Category", "Attacks", *names, texts=names),
        rows=tuple(rows),
    )


_HEADS: Final = ("Figure", "Whole run", "Counts", "Mean of slices", "Range", "Off by up to")

_WORDS: Final = {
    "attack_success_rate": "attack success",
    "over_refusal_rate": "over-refusal",
    "false_positive_rate": "false positives",
    "balanced_error": "balanced error",
}

_METHOD: Final = (
    "Mean over seeds with the half width of its t interval; the last column is the slice that "
    "lies farthest from the whole run. Slices of one run share samples: this tells how a slice of "
    "this size misleads about this run, and nothing about other data."
)


def stability_document(found: SliceStability) -> Document:
    """Lay the figures of small slices beside those of the run; variants are folded."""
    worst = _worst(found)
    blocks = (
        *((Paragraph(text=worst),) if worst else ()),
        *(_stability_table(number, card) for number, card in enumerate(found.cards)),
        Paragraph(text=_METHOD),
    )
    return Document(
        title=f"Small slices of {found.run}",
        subtitle=_request(found),
        caveats=stability_warnings(found),
        sections=(Section(id="slices", title="Slices beside the whole run", blocks=blocks),),
    )


def _stability_table(number: int, card: SliceCard) -> Table:
    return Table(
        id=f"slices-{number}",
        title=_place(card),
        columns=columns(*_HEADS),
        rows=tuple(row(*_figure_row(figure)) for figure in card.figures),
        collapsed=card.variant is not None,
    )


def _request(found: SliceStability) -> str:
    request = found.request
    attacks = sum(each.drawn_attacks for each in found.variants)
    benign = sum(each.drawn_benign for each in found.variants)
    return (
        f"{count_text(len(request.seeds))} seeds; of each variant {count_text(request.attacks)} "
        f"attacks and {count_text(request.benign)} benign samples: a slice holds "
        f"{count_text(attacks)} and {count_text(benign)}"
    )


def stability_warnings(found: SliceStability) -> tuple[str, ...]:
    """Say where slices cannot vary, or hold nothing."""
    return tuple(_warnings(found.variants))


def _warnings(variants: Iterable[VariantRows]) -> Iterator[str]:
    for each in variants:
        for what, held, drawn in (
            ("attacks", each.attacks, each.drawn_attacks),
            ("benign samples", each.benign, each.drawn_benign),
        ):
            if not held:
                yield f"Variant {each.variant} has no {what}."
            elif held == drawn:
                yield (
                    f"Variant {each.variant} has {count_text(held)} {what}: every slice takes all "
                    "of them and cannot vary there."
                )


def _worst(found: SliceStability) -> str:
    told = [
        (figure.farthest, card, figure)
        for card in found.cards
        if card.variant is None
        for figure in card.figures
        if figure.farthest is not None
    ]
    if not told:
        return ""
    _, card, figure = max(told, key=lambda each: each[0])
    return (
        f"One slice would have been off by {_points(figure.farthest)} on {_WORDS[figure.name]} of "
        f"{card.arm} ({card.scope})."
    )


def _place(card: SliceCard) -> str:
    variant = "all variants" if card.variant is None else f"variant {card.variant}"
    return f"{card.arm}, scope {card.scope}, {variant}"


def _figure_row(figure: SliceFigure) -> tuple[str, ...]:
    whole = figure.whole
    measure = of_estimate(whole) if isinstance(whole, Estimate) else of_ratio(whole)
    mean = percent_text(figure.mean)
    if figure.half_width is not None:
        mean += f" ± {100 * figure.half_width:.1f}"
    missing = len(figure.values) - len(figure.defined)
    if missing and figure.defined:
        mean += f" ({count_text(missing)} undefined)"
    span = percent_text(figure.low)
    if figure.low is not None and figure.low != figure.high:
        span = f"{100 * figure.low:.1f} to {percent_text(figure.high)}"
    value, off = measure_text(measure), _points(figure.farthest)
    return (_WORDS[figure.name], value, counts_text(measure), mean, span, off)


def _points(value: float | None) -> str:
    return value_text(value, Unit.POINTS).removeprefix("+")
