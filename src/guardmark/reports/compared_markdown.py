"""A comparison as a Markdown comment for a pull request: advice first, figures folded below."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.reports.compared_words import caveats, cost_sentence, recommendation
from guardmark.reports.document.blocks import Unit
from guardmark.reports.document.cells import of_difference, of_estimate
from guardmark.reports.document.safe_text import markdown_code, markdown_line
from guardmark.reports.document.wording import count_text, measure_text, percent_text, value_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guardmark.analysis.compare.compared import Compared
    from guardmark.analysis.compare.comparison import PairedComparison, PairedSide
    from guardmark.analysis.compare.paired_details import PairDetail

MARKER: Final = "<!-- guardmark-comparison -->"
"""Stands in the first line, so that a workflow finds its own comment and replaces it."""

_EXCERPT: Final = 120
_HEADS: Final = (
    "Rate",
    "First",
    "Second",
    "Difference",
    "p",
    "p (Holm)",
    "Only first",
    "Only second",
    "Left out",
)


def render_comment(compared: Compared, *, texts: bool = True) -> str:
    """Render a comparison as Markdown."""
    runs = ", ".join(markdown_code(run.label) for run in compared.runs)
    same = (
        f"{runs}: the same {count_text(compared.attacks)} attacks and "
        f"{count_text(compared.benign)} benign samples."
    )
    lines = [MARKER, "### Defenses compared", "", same]
    lines.extend(f"- **Beware:** {markdown_line(line)}" for line in caveats(compared))
    lines.extend(("", *_standings(compared)))
    details = {(each.first, each.second): each for each in compared.details}
    for pair in compared.comparison.pairs:
        lines.extend(("", *_pair(pair, margin=compared.margin)))
        detail = details.get((pair.first, pair.second))
        if detail is not None:
            lines.extend(("", *_folded(detail, texts=texts)))
    lines.extend(("", "<sub>", _method(compared), "</sub>"))
    return "\n".join(lines) + "\n"


def _standings(compared: Compared) -> Iterator[str]:
    yield "| Defense | ASR | FPR | Worth choosing |"
    yield "|---|---:|---:|---|"
    for each in compared.rates:
        cells = (
            markdown_code(each.name, in_table=True),
            measure_text(of_estimate(each.rates.attack_success_rate)),
            measure_text(of_estimate(each.rates.false_positive_rate)),
            "yes" if each.name in compared.front else "",
        )
        yield f"| {' | '.join(cells)} |"
    if compared.front:
        yield ""
        yield "Worth choosing: no other is shown to beat it on both sides."


def _pair(pair: PairedComparison, *, margin: float | None) -> Iterator[str]:
    yield f"#### {markdown_code(pair.first)} (first) against {markdown_code(pair.second)} (second)"
    yield ""
    yield f"**{markdown_line(recommendation(pair, margin=margin))}**"
    yield ""
    yield f"| {' | '.join(_HEADS)} |"
    yield "|---|" + "---:|" * (len(_HEADS) - 1)
    yield _row("ASR", pair.attacks)
    yield _row("FPR", pair.benign)


def _row(name: str, side: PairedSide) -> str:
    difference = side.difference
    rates = [
        percent_text((side.both + (count or 0)) / difference.pairs)
        if difference.pairs
        else "undefined"
        for count in (difference.first_only, difference.second_only)
    ]
    cells = (
        f"{name}, {count_text(difference.pairs)} pairs",
        *rates,
        measure_text(of_difference(difference)),
        _p(difference.p_value),
        _p(side.adjusted_p),
        count_text(difference.first_only or 0),
        count_text(difference.second_only or 0),
        count_text(side.unpaired),
    )
    return f"| {' | '.join(cells)} |"


def _p(p_value: float | None) -> str:
    return markdown_line(value_text(p_value, Unit.P_VALUE))


def _folded(detail: PairDetail, *, texts: bool) -> Iterator[str]:
    yield "<details><summary>By category, latency, and samples to read</summary>"
    yield ""
    yield "| Rate | Category | Difference | p (Holm) | Pairs |"
    yield "|---|---|---:|---:|---:|"
    for each in detail.categories:
        if each.is_greyed and not each.is_attack:
            continue
        cells = (
            "ASR" if each.is_attack else "FPR",
            markdown_line(each.category),
            measure_text(of_difference(each.side.difference)),
            _p(each.side.adjusted_p),
            count_text(each.side.difference.pairs),
        )
        shown = [f"*{cell}*" for cell in cells] if each.is_greyed else list(cells)
        yield f"| {' | '.join(shown)} |"
    yield ""
    yield "Rows in italics: too few samples to lean on; benign topics of few samples are left out."
    yield ""
    yield from _latency(detail)
    names = (markdown_code(detail.first), markdown_code(detail.second))
    for cost in detail.costs:
        yield f"- {cost_sentence(cost, names)}."
    yield from _samples(detail, texts=texts)
    yield "</details>"


def _latency(detail: PairDetail) -> Iterator[str]:
    for each in detail.latency:
        if each.median.value is None:
            continue
        what = "attacks" if each.is_attack else "benign samples"
        low, high = (value_text(b, Unit.MILLISECONDS) for b in (each.median.low, each.median.high))
        yield (
            f"- Median paired difference in latency on {what}: "
            f"{value_text(each.median.value, Unit.MILLISECONDS)}, from {low} to {high}, over "
            f"{count_text(each.median.pairs)}."
        )


def _samples(detail: PairDetail, *, texts: bool) -> Iterator[str]:
    for each in detail.discordant:
        sample = each.sample
        text = sample.prompt.text if texts else f"sha256 {sample.prompt.digest().hex()}"
        cut = text if len(text) <= _EXCERPT else text[: _EXCERPT - 1] + "…"
        severity = f", {sample.severity.value}" if sample.severity else ""
        yield (
            f"- Only {markdown_code(each.erred)} wrong: {markdown_code(sample.id)} "
            f"({sample.label.value}{severity}) {markdown_code(cut)}"
        )
    yield ""


def _method(compared: Compared) -> str:
    unit = "groups of variants" if compared.is_grouped else "samples"
    return (
        f"First rate minus second; below zero the first is better. {compared.confidence:.0%} "
        f"Bonett-Price intervals and McNemar's mid-p, by sign flips over {unit}; Holm over all "
        "pairs of a rate. Only samples that both answered count."
    ).replace("%", " %", 1)
