"""A comparison for a terminal: figures of each pair, what they carry, what to read."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

from guardmark.reports.compared_words import best_sentence, caveats, cost_sentence, recommendation
from guardmark.reports.document.blocks import FigureCell, Unit
from guardmark.reports.document.cells import of_difference
from guardmark.reports.document.safe_text import plain_line
from guardmark.reports.document.wording import (
    count_text,
    interval_text,
    measure_text,
    p_text,
    percent_text,
    value_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guardmark.analysis.compare.compared import Compared
    from guardmark.analysis.compare.comparison import PairedComparison, PairedSide
    from guardmark.analysis.compare.paired_details import (
        CategoryDifference,
        DiscordantSample,
        LatencyDifference,
        PairDetail,
    )

_MOST_PAIRS: Final = 3
_MOST_CATEGORIES: Final = 6
_EXCERPT: Final = 70


def render_compared(compared: Compared, *, width: int = 100, texts: bool = True) -> str:
    """Render a comparison for a terminal."""
    lines = list(_head(compared))
    pairs = compared.comparison.pairs
    details = {(each.first, each.second): each for each in compared.details}
    for pair in pairs[:_MOST_PAIRS]:
        detail = details.get((pair.first, pair.second))
        lines.extend(("", *_pair(pair, detail, compared, texts=texts)))
    if len(pairs) > 1:
        lines.extend(("", *_standings(compared)))
        if compared.front:
            lines.append(_front(compared))
    if len(pairs) > _MOST_PAIRS:
        lines.append(
            f"{len(pairs) - _MOST_PAIRS} more pairs: --json lists them; --only or --against "
            "names those of interest."
        )
    wrapped: list[str] = []
    for line in lines:
        wrapped.extend(_wrapped(line, max(40, width)))
    return "\n".join(wrapped) + "\n"


def _head(compared: Compared) -> Iterator[str]:
    runs = ", ".join(plain_line(run.label) for run in compared.runs)
    grouped = "; intervals and tests count groups of variants" if compared.is_grouped else ""
    yield (
        f"{runs}: the same {count_text(compared.attacks)} attacks and "
        f"{count_text(compared.benign)} benign samples{grouped}"
    )
    for line in caveats(compared):
        yield f"Beware: {plain_line(line)}"


def _pair(
    pair: PairedComparison, detail: PairDetail | None, compared: Compared, *, texts: bool
) -> Iterator[str]:
    first, second = plain_line(pair.first), plain_line(pair.second)
    yield f"{first} against {second}"
    for side, name, what in ((pair.attacks, "ASR", "attacks"), (pair.benign, "FPR", "benign")):
        yield f"  {name}  {_side(side, (first, second), what)}"
    if detail is not None:
        for latency in detail.latency:
            if latency.median.value is not None:
                yield f"  {_latency(latency, (first, second))}"
        for cost in detail.costs:
            yield f"  {cost_sentence(cost, (first, second))}"
        yield from _categories(detail, compared)
    yield f"  => {plain_line(recommendation(pair, margin=compared.margin))}"
    if detail is not None:
        yield from _discordant(detail, texts=texts)


def _side(side: PairedSide, names: tuple[str, str], what: str) -> str:
    difference = side.difference
    if difference.value is None:
        return f"undefined: {difference.reason or f'no {what} answered by both'}"
    own = [side.both + (count or 0) for count in (difference.first_only, difference.second_only)]
    rates = ", ".join(
        f"{name} {percent_text(count / difference.pairs)}"
        for name, count in zip(names, own, strict=True)
    )
    left_out = f", {count_text(side.unpaired)} left out" if side.unpaired else ""
    return (
        f"{rates} of {count_text(difference.pairs)} {what}{left_out}: difference "
        f"{_difference(side)}; only {names[0]} wrong on {count_text(difference.first_only or 0)}, "
        f"only {names[1]} on {count_text(difference.second_only or 0)}"
    )


def _difference(side: PairedSide) -> str:
    words = measure_text(of_difference(side.difference))
    if side.difference.p_value is not None:
        words += f", p {p_text(side.difference.p_value)}"
    if side.adjusted_p is not None and side.adjusted_p != side.difference.p_value:
        words += f" (Holm {p_text(side.adjusted_p)})"
    return words


def _latency(latency: LatencyDifference, names: tuple[str, str]) -> str:
    what = "attacks" if latency.is_attack else "benign"
    gap = FigureCell(
        value=latency.median.value,
        low=latency.median.low,
        high=latency.median.high,
        unit=Unit.MILLISECONDS,
    )
    medians = ", ".join(
        f"{name} {value_text(value, Unit.MILLISECONDS)}"
        for name, value in zip(names, (latency.first_ms, latency.second_ms), strict=True)
    )
    return (
        f"Latency on {what}, median: {medians}; paired difference "
        f"{value_text(gap.value, gap.unit)}{interval_text(gap)} over "
        f"{count_text(latency.median.pairs)}"
    )


def _categories(detail: PairDetail, compared: Compared) -> Iterator[str]:
    told = [each for each in detail.categories if _is_telling(each, compared.confidence)]
    if told:
        yield "  By category, clearest differences first (p by Holm over the categories):"
    for each in sorted(told, key=_telling)[:_MOST_CATEGORIES]:
        label = "ASR" if each.is_attack else "FPR"
        p_value = each.side.adjusted_p
        shown = "" if p_value is None else f", p {p_text(p_value)}"
        yield (
            f"    {label} {plain_line(each.category)}: "
            f"{measure_text(of_difference(each.side.difference))}{shown}"
            f"{'  (few samples)' if each.is_greyed else ''}"
        )
    untold = len(detail.categories) - min(len(told), _MOST_CATEGORIES)
    if untold:
        yield f"    ({untold} more, of few samples or without a difference: --json lists them)"


def _is_telling(each: CategoryDifference, confidence: float) -> bool:
    """Tell whether a category differs, and is large or sure enough to say so."""
    p_value = each.side.adjusted_p
    is_sure = p_value is not None and p_value < 1 - confidence
    return bool(each.side.difference.value) and (is_sure or not each.is_greyed)


def _telling(each: CategoryDifference) -> tuple[float, float]:
    p_value = 1.0 if each.side.adjusted_p is None else each.side.adjusted_p
    return (p_value, -abs(each.side.difference.value or 0.0))


def _discordant(detail: PairDetail, *, texts: bool) -> Iterator[str]:
    if not detail.discordant:
        return
    total = count_text(detail.first_only + detail.second_only)
    yield f"  They differ on {total} samples; to read first:"
    for each in detail.discordant:
        yield _discordant_line(each, texts=texts)


def _discordant_line(each: DiscordantSample, *, texts: bool) -> str:
    sample = each.sample
    facets = [sample.label.value, sample.severity.value if sample.severity else "", sample.category]
    shown = plain_line(sample.prompt.text) if texts else f"sha256 {sample.prompt.digest().hex()}"
    cut = shown if len(shown) <= _EXCERPT else shown[: _EXCERPT - 1] + "…"
    known = ", ".join(plain_line(facet) for facet in facets if facet)
    return f"    only {plain_line(each.erred)} wrong: {plain_line(sample.id)} ({known}) {cut}"


def _standings(compared: Compared) -> Iterator[str]:
    if not compared.comparison.attacks.best:
        return
    for best, rate in (
        (compared.comparison.attacks, "attack success rate"),
        (compared.comparison.benign, "false positive rate"),
    ):
        if best.best:
            yield plain_line(best_sentence(best, rate))


def _front(compared: Compared) -> str:
    names = ", ".join(plain_line(name) for name in compared.front)
    return f"Worth choosing between (no other is shown to beat them on both sides): {names}."


def _wrapped(line: str, width: int) -> list[str]:
    indent = " " * (len(line) - len(line.lstrip()))
    return textwrap.wrap(
        line,
        width,
        subsequent_indent=f"{indent}     ",
        break_long_words=False,
        break_on_hyphens=False,
    ) or [""]
