"""How far small slices of a run would have misled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.core.estimate import Estimate
from guardmark.reports.document.blocks import Document, Paragraph, Section, Table, Unit
from guardmark.reports.document.cells import columns, of_estimate, of_ratio, row
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
        *(_table(number, card) for number, card in enumerate(found.cards)),
        Paragraph(text=_METHOD),
    )
    return Document(
        title=f"Small slices of {found.run}",
        subtitle=_request(found),
        caveats=stability_warnings(found),
        sections=(Section(id="slices", title="Slices beside the whole run", blocks=blocks),),
    )


def _table(number: int, card: SliceCard) -> Table:
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
