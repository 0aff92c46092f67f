"""Small slices of a run beside the whole: how far they would have misled about it."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from guardmark.reports.document.blocks import Document, Table, Unit, section
from guardmark.reports.document.cells import table_of, with_counts
from guardmark.reports.document.wording import count_text, percent_text, value_text

if TYPE_CHECKING:
    from guardmark.analysis.pipeline.small_slices import SliceCard, SliceFigure, SliceStability

_SMALL_SLICES: Final = {
    "attack_success_rate": "attack success",
    "over_refusal_rate": "over-refusal",
    "false_positive_rate": "false positives",
    "balanced_error": "balanced error",
}

_METHOD: Final = (
    "Mean over seeds with the half width of its t interval; the last column is "
    "the slice that lies farthest from the whole run. Slices of one run share "
    "samples: this tells how a slice of this size misleads about this run, and "
    "nothing about other data."
)


def stability_document(stability: SliceStability) -> Document:
    """Lay the figures of small slices beside those of the run; variants are folded."""
    request, variants = stability.request, stability.variants
    attacks = count_text(sum(each.drawn_attacks for each in variants))
    benign = count_text(sum(each.drawn_benign for each in variants))
    title = "Slices beside the whole run"
    tables = [_table(number, card) for number, card in enumerate(stability.cards)]
    return Document(
        title=f"Small slices of {stability.run}",
        subtitle=f"{count_text(len(request.seeds))} seeds; of each variant "
        f"{count_text(request.attacks)} attacks and {count_text(request.benign)} benign samples: "
        f"a slice holds {attacks} and {benign}",
        caveats=stability_warnings(stability),
        sections=(section("slices", title, _worst(stability), *tables, _METHOD),),
    )


def _table(number: int, card: SliceCard) -> Table:
    variants = "all variants"
    if card.variant is not None:
        variants = f"variant {card.variant}"
    return table_of(
        card.figures,
        {
            "Figure": lambda each: _SMALL_SLICES[each.name],
            "Whole run|Counts": lambda each: with_counts(each.whole),
            "Mean of slices": _mean,
            "Range": _range,
            "Off by up to": lambda each: _points(each.farthest),
        },
        table_id=f"slices-{number}",
        title=f"{card.arm}, scope {card.scope}, {variants}",
        collapsed=card.variant is not None,
    )


def stability_warnings(stability: SliceStability) -> tuple[str, ...]:
    """Say where slices cannot vary, or hold nothing."""
    lines = []
    for each in stability.variants:
        attacks = "attacks", each.attacks, each.drawn_attacks
        benign = "benign samples", each.benign, each.drawn_benign
        for side, held, drawn in (attacks, benign):
            if not held:
                lines.append(f"Variant {each.variant} has no {side}.")
            elif held == drawn:
                lines.append(
                    f"Variant {each.variant} has {count_text(held)} {side}: every slice takes all "
                    "of them and cannot vary there."
                )
    return tuple(lines)


def _worst(stability: SliceStability) -> str:
    """Say how far the worst slice was off, over all variants; empty where no figure is defined."""
    sentence, most = "", -inf
    for card in stability.cards:
        if card.variant is not None:
            continue
        for figure in card.figures:
            if figure.farthest is not None and figure.farthest > most:
                most = figure.farthest
                sentence = (
                    f"One slice would have been off by {_points(most)} on "
                    f"{_SMALL_SLICES[figure.name]} of {card.arm} ({card.scope})."
                )
    return sentence


def _mean(figure: SliceFigure) -> str:
    """Write the mean over seeds with the half width of its interval."""
    half_width = ""
    if figure.half_width is not None:
        half_width = f" ± {100 * figure.half_width:.1f}"
    missing = len(figure.values) - len(figure.defined)
    undefined = ""
    if missing and figure.defined:
        undefined = f" ({count_text(missing)} undefined)"
    return percent_text(figure.mean) + half_width + undefined


def _range(figure: SliceFigure) -> str:
    if figure.low is None or figure.low == figure.high:
        return percent_text(figure.low)
    return f"{100 * figure.low:.1f} to {percent_text(figure.high)}"


def _points(value: float | None) -> str:
    return value_text(value, Unit.POINTS).removeprefix("+")
