"""Rates by slice, how much of the taxonomy they cover, and how far small slices mislead."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from guardmark.analysis.defense.slices import (
    CategoryStatus,
    SliceRate,
    SliceTable,
    by_severity,
    has_slices,
)
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
    section,
)
from guardmark.reports.document.cells import (
    columns,
    grey,
    known,
    mark,
    name,
    row,
    slug,
    table_of,
    with_counts,
    words,
)
from guardmark.reports.document.wording import count_text, percent_text, value_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guardmark.analysis.defense.defense_analysis import DefenseAnalysis
    from guardmark.analysis.pipeline.small_slices import SliceCard, SliceFigure, SliceStability
    from guardmark.analysis.run import RunAnalysis
    from guardmark.reports.document.blocks import Block


_MOST_ROWS = 25
_FACETS = ("subcategory", "severity", "language", "length", "variant", "technique", "source")
_FILES = ("categories.csv", "variant_metrics.csv")
_OF_ATTACKS = frozenset({"subcategory", "severity", "technique"})
_CHARTED = frozenset({"severity", "language", "length", "variant"})


def write_categories(analysis: RunAnalysis) -> Section:
    """Write the section on categories, worst first."""
    defenses = analysis.candidates
    sides = [
        is_attack
        for is_attack in (True, False)
        if any(each.slice_table("category", is_attack=is_attack).rates for each in defenses)
    ]
    minimum = count_text(analysis.settings.min_per_category)
    greyed = f"Greyed: fewer than {minimum} answered samples, or fewer than 10 groups."
    return section(
        *("categories", "By category"),
        Paragraph(text=greyed, tone=Tone.MUTED) if sides else None,
        _chart(defenses, "category", is_attack=True) if True in sides else None,
        *(_table(each, "category", is_attack=side) for side in sides for each in defenses),
        otherwise="No samples, so no categories.",
    )


def write_slices(analysis: RunAnalysis) -> Section:
    """Write the section on every other facet that splits the samples."""
    nothing = "The samples do not differ in severity, language, length, variant or technique."
    blocks = (block for facet in _FACETS for block in _facet(analysis.candidates, facet))
    return section("slices", "Other slices", *blocks, otherwise=nothing)


def _facet(defenses: tuple[DefenseAnalysis, ...], facet: str) -> Iterator[Block]:
    for is_attack in (True, False) if facet not in _OF_ATTACKS else (True,):
        tables = [each.slice_table(facet, is_attack=is_attack) for each in defenses]
        if any(has_slices(table) for table in tables):
            if facet in _CHARTED:
                yield _chart(defenses, facet, is_attack=is_attack)
            yield from (_table(each, facet, is_attack=is_attack) for each in defenses)


def _shown(table: SliceTable) -> tuple[SliceRate, ...]:
    """Keep the slices with the most samples, in order.

    A slice of three samples easily heads a list of the worst, and says nothing.
    """
    rates = by_severity(table) if table.facet == "severity" else table.rates
    ranked = sorted(range(len(rates)), key=lambda at: (-rates[at].asked, at))
    return tuple(rates[at] for at in sorted(ranked[:_MOST_ROWS]))


def _chart(defenses: tuple[DefenseAnalysis, ...], facet: str, *, is_attack: bool) -> IntervalChart:
    """Draw one line a slice and defense; slices in order of the first defense's table."""
    rate = "Attack success rate" if is_attack else "False positive rate"
    rows: dict[str, list[IntervalMark]] = {}
    for defense in defenses:
        series = defense.name if len(defenses) > 1 else ""
        for each in _shown(defense.slice_table(facet, is_attack=is_attack)):
            drawn = mark(each.name, each.rate, series=series, greyed=each.is_greyed)
            rows.setdefault(each.name, []).append(drawn)
    return IntervalChart(
        id=f"chart-{facet}-{'asr' if is_attack else 'fpr'}",
        title=f"{rate} by {facet}",
        axis=rate,
        marks=tuple(itertools.chain(*rows.values())),
    )


def _table(defense: DefenseAnalysis, facet: str, *, is_attack: bool) -> Table:
    rates = defense.slice_table(facet, is_attack=is_attack)
    shown = _shown(rates)
    left = len(rates.rates) - len(shown)
    rate, what = ("ASR", "attacks") if is_attack else ("FPR", "benign samples")
    is_category = facet == "category"
    title = "topic" if is_category and not is_attack else facet
    order = "from low to critical" if facet == "severity" else "worst first"
    more = f"{count_text(left)} smaller ones stand in {_FILES[facet == 'variant']}."
    table = table_of(
        shown,
        {
            title.capitalize(): lambda each: name(each.name),
            f"{rate}|Counts": lambda each: with_counts(each.rate),
            "Unanswered": lambda each: each.unanswered,
            "Median latency": lambda each: known(each.median_latency_ms, Unit.MILLISECONDS),
        },
        table_id=f"by-{facet}-{rate.lower()}-{slug(defense.name)}",
        title=f"{defense.name}: {what} by {title}, {order}",
        note=more if left else "",
        collapsed=not (is_category and is_attack),
    )
    return grey(table, (each.is_greyed for each in shown))


_TONES = {
    CategoryStatus.ADDRESSED: Tone.GOOD,
    CategoryStatus.NOT_ADDRESSED: Tone.BAD,
    CategoryStatus.NOT_ASSESSABLE: Tone.MUTED,
    CategoryStatus.NOT_TESTED: Tone.WARNING,
}


def write_coverage(analysis: RunAnalysis) -> Section:
    """Write the section on coverage and its gaps."""
    taxonomy = analysis.taxonomy
    undeclared = tuple(f"not in the taxonomy: {each}" for each in taxonomy.undeclared)
    gaps = Bullets(lines=tuple(f"not tested: {each}" for each in taxonomy.gaps), tone=Tone.WARNING)
    tested = Paragraph(text="Every declared category and subcategory was tested.")
    rule = (
        f"{taxonomy.tested} of {taxonomy.declared} declared categories hold attacks. A "
        "category counts as addressed by a defense when the lower bound of its true "
        "positive rate lies above the upper bound of the overall false positive rate."
    )
    return section(
        *("coverage", "Coverage", Paragraph(text=rule), _coverage_table(analysis)),
        gaps if gaps.lines else tested,
        Bullets(lines=undeclared),
        Paragraph(text="Only text was tested: no images, audio or files.", tone=Tone.MUTED),
    )


def _coverage_table(analysis: RunAnalysis) -> Table:
    standings = [
        {each.category: each.standing for each in defense.standings}
        for defense in analysis.candidates
    ]
    names = [defense.name for defense in analysis.candidates]
    return Table(
        id="coverage-table",
        title="Categories of attack",
        columns=columns("Category", "Attacks", *names, texts=names),
        rows=tuple(
            row(
                name(category.name),
                category.attacks,
                *(
                    words(each[category.name].value, _TONES[each[category.name]])
                    for each in standings
                ),
            )
            for category in analysis.taxonomy.categories
            if category.is_declared
        ),
    )


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
    request = found.request
    attacks = sum(each.drawn_attacks for each in found.variants)
    benign = sum(each.drawn_benign for each in found.variants)
    return Document(
        title=f"Small slices of {found.run}",
        subtitle=f"{count_text(len(request.seeds))} seeds; of each variant "
        f"{count_text(request.attacks)} attacks and {count_text(request.benign)} benign samples: "
        f"a slice holds {count_text(attacks)} and {count_text(benign)}",
        caveats=stability_warnings(found),
        sections=(
            section(
                *("slices", "Slices beside the whole run"),
                Paragraph(text=worst) if worst else None,
                *(_stability_table(number, card) for number, card in enumerate(found.cards)),
                Paragraph(text=_METHOD),
            ),
        ),
    )


def _stability_table(number: int, card: SliceCard) -> Table:
    return table_of(
        card.figures,
        {
            "Figure": lambda each: _WORDS[each.name],
            "Whole run|Counts": lambda each: with_counts(each.whole),
            "Mean of slices": _mean,
            "Range": _range,
            "Off by up to": lambda each: _points(each.farthest),
        },
        table_id=f"slices-{number}",
        title=f"{card.arm}, scope {card.scope}, "
        + ("all variants" if card.variant is None else f"variant {card.variant}"),
        collapsed=card.variant is not None,
    )


def stability_warnings(found: SliceStability) -> tuple[str, ...]:
    """Say where slices cannot vary, or hold nothing."""
    lines = []
    for each in found.variants:
        for what, held, drawn in (
            ("attacks", each.attacks, each.drawn_attacks),
            ("benign samples", each.benign, each.drawn_benign),
        ):
            if not held:
                lines.append(f"Variant {each.variant} has no {what}.")
            elif held == drawn:
                lines.append(
                    f"Variant {each.variant} has {count_text(held)} {what}: every slice takes all "
                    "of them and cannot vary there."
                )
    return tuple(lines)


def _worst(found: SliceStability) -> str:
    figures = [
        (figure.farthest, card, figure)
        for card in found.cards
        if card.variant is None
        for figure in card.figures
        if figure.farthest is not None
    ]
    if not figures:
        return ""
    farthest, card, figure = max(figures, key=lambda each: each[0])
    return (
        f"One slice would have been off by {_points(farthest)} on {_WORDS[figure.name]} of "
        f"{card.arm} ({card.scope})."
    )


def _mean(figure: SliceFigure) -> str:
    half_width = "" if figure.half_width is None else f" ± {100 * figure.half_width:.1f}"
    missing = len(figure.values) - len(figure.defined)
    undefined = f" ({count_text(missing)} undefined)" if missing and figure.defined else ""
    return percent_text(figure.mean) + half_width + undefined


def _range(figure: SliceFigure) -> str:
    if figure.low is None or figure.low == figure.high:
        return percent_text(figure.low)
    return f"{100 * figure.low:.1f} to {percent_text(figure.high)}"


def _points(value: float | None) -> str:
    return value_text(value, Unit.POINTS).removeprefix("+")
