"""How far small slices of a run would have misled, in words and as JSON."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from guardmark.core.estimate import Estimate
from guardmark.reports.document.blocks import Unit
from guardmark.reports.document.cells import of_estimate, of_ratio
from guardmark.reports.document.safe_text import markdown_line, plain_line
from guardmark.reports.document.wording import (
    count_text,
    counts_text,
    measure_text,
    percent_text,
    value_text,
)
from guardmark.reports.encode import Json, estimate_json, ratio_json
from guardmark.reports.summary import summary_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from guardmark.analysis.pipeline.small_slices import (
        SliceCard,
        SliceFigure,
        SliceStability,
        VariantRows,
    )

SCHEMA_VERSION: Final = 1
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


def stability_schema() -> str:
    """Return the JSON Schema of `slice_stability.json`; estimates are those of `summary.json`."""
    path = files("guardmark.reports").joinpath("slice_stability.schema.json")
    schema: Json = json.loads(path.read_text(encoding="utf-8"))
    shared = json.loads(summary_schema())["$defs"]
    schema["$defs"] |= {name: shared[name] for name in ("estimate", "ratio")}
    return json.dumps(schema, indent=2) + "\n"


def stability_json(found: SliceStability) -> str:
    """Write `slice_stability.json`."""
    request = found.request
    document: Json = {
        "schema_version": SCHEMA_VERSION,
        "run": found.run,
        "attacks": request.attacks,
        "benign": request.benign,
        "seeds": list(request.seeds),
        "confidence": found.confidence,
        "variants": [
            {
                "variant": each.variant,
                "attacks": each.attacks,
                "benign": each.benign,
                "drawn_attacks": each.drawn_attacks,
                "drawn_benign": each.drawn_benign,
            }
            for each in found.variants
        ],
        "cards": [
            {
                "arm": card.arm,
                "scope": card.scope,
                "variant": card.variant,
                "figures": [_figure_json(figure) for figure in card.figures],
            }
            for card in found.cards
        ],
        "warnings": list(stability_warnings(found)),
    }
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def stability_markdown(found: SliceStability) -> str:
    """Write `slice_stability.md`: every arm, scope and variant."""
    lines = [f"# {markdown_line(_title(found))}", "", markdown_line(_request(found)), ""]
    lines.extend(f"- {markdown_line(warning)}" for warning in stability_warnings(found))
    for card in found.cards:
        lines.extend(("", f"## {markdown_line(_place(card))}", ""))
        lines.append(f"| {' | '.join(_HEADS)} |")
        lines.append("|---|" + "---:|" * (len(_HEADS) - 1))
        lines.extend(f"| {' | '.join(_cells(figure))} |" for figure in card.figures)
    lines.extend(("", markdown_line(_METHOD)))
    return "\n".join(lines) + "\n"


def stability_lines(found: SliceStability) -> tuple[str, ...]:
    """Say how far slices of all variants together lie from the run, for a terminal."""
    lines = [plain_line(_title(found)), plain_line(_request(found))]
    lines.extend(plain_line(f"Beware: {warning}") for warning in stability_warnings(found))
    cards = [card for card in found.cards if card.variant is None]
    rows = [_HEADS, *(_cells(figure) for card in cards for figure in card.figures)]
    head, *told = _aligned(rows)
    lines.extend(("", f"  {head}"))
    for card in cards:
        lines.append(plain_line(f"{card.arm}, scope {card.scope}"))
        lines.extend(f"  {told.pop(0)}" for _ in card.figures)
    worst = _worst(found)
    if worst:
        lines.extend(("", plain_line(worst)))
    return tuple(lines)


def _title(found: SliceStability) -> str:
    return f"Small slices of {found.run}"


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


def _cells(figure: SliceFigure) -> tuple[str, ...]:
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


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Lay out a table whose first column stands left; the head is as far in as its rows."""
    lines = []
    sizes = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = [f"{cell:>{size}}" for cell, size in zip(others, sizes[1:], strict=True)]
        lines.append("  ".join((f"{first:<{sizes[0]}}", *cells)).rstrip())
    return lines


def _figure_json(figure: SliceFigure) -> Json:
    whole = figure.whole
    return {
        "name": figure.name,
        "whole": estimate_json(whole) if isinstance(whole, Estimate) else ratio_json(whole),
        "mean": figure.mean,
        "half_width": figure.half_width,
        "standard_deviation": figure.standard_deviation,
        "low": figure.low,
        "high": figure.high,
        "farthest": figure.farthest,
        "values": list(figure.values),
        "trials": list(figure.trials),
    }
