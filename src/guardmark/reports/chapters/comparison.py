"""The defenses of the run against each other, on the same samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.analysis.compare.pair_verdict import PairVerdict
from guardmark.reports.chapters.candidates import candidates, empty_section
from guardmark.reports.chapters.plane import draw_plane
from guardmark.reports.compared_words import best_sentence
from guardmark.reports.document.blocks import (
    Bullets,
    FigureCell,
    IntervalChart,
    IntervalMark,
    Paragraph,
    Section,
    Table,
    Tone,
    Unit,
)
from guardmark.reports.document.cells import columns, figure, name, of_difference, row
from guardmark.reports.document.wording import count_text, measure_text, p_text

if TYPE_CHECKING:
    from guardmark.analysis.compare.comparison import PairedComparison, PairedSide, RunComparison
    from guardmark.analysis.run import RunAnalysis
    from guardmark.reports.document.blocks import Block

_MEANINGS = {
    "Difference": "first rate minus second; below zero the first is better",
    "p": "cluster sign-flip mid-p; McNemar's mid-p without groups",
    "p (Holm)": "adjusted for all pairs of this table",
    "Only first": "samples on which only the first erred",
    "Only second": "samples on which only the second erred",
    "Both": "samples on which both erred",
    "Neither": "samples on which neither erred",
    "Left out": "samples without a decision on one side",
}


def write(analysis: RunAnalysis) -> Section:
    """Write the section that compares the defenses."""
    comparison = analysis.comparison
    if comparison is None:
        text = "The run holds one defense, so there is nothing to compare."
        return empty_section("comparison", "Comparison", text)
    from guardmark.analysis.compare.compared import find_front  # only where there is a comparison

    rated = ((each.name, each.card) for each in candidates(analysis))
    plane = draw_plane(rated, find_front(comparison))
    blocks = comparison_blocks(comparison)
    if plane is not None:
        blocks = (*blocks[:1], plane, *blocks[1:])
    return Section(id="comparison", title="Comparison", blocks=blocks)


def comparison_blocks(comparison: RunComparison) -> tuple[Block, ...]:
    """Tell defenses against each other: sentences, charts, tables."""
    blocks: list[Block] = [
        Bullets(lines=tuple(pair_sentence(pair) for pair in comparison.pairs)),
    ]
    if comparison.attacks.best or comparison.benign.best:  # across runs nobody asks who is best
        lines = (
            best_sentence(comparison.attacks, "attack success rate"),
            best_sentence(comparison.benign, "false positive rate"),
        )
        blocks.append(Bullets(lines=lines))
    blocks += [
        _chart(comparison, is_attack=True),
        _chart(comparison, is_attack=False),
        _table(comparison, is_attack=True),
        _table(comparison, is_attack=False),
    ]
    if comparison.left_out:
        text = f"Baselines are no candidates and were left out: {', '.join(comparison.left_out)}."
        blocks.append(Paragraph(text=text, tone=Tone.MUTED))
    return tuple(blocks)


def pair_sentence(pair: PairedComparison) -> str:
    """Say in one sentence what the data carry about two defenses."""
    asr, fpr = _gap(pair.attacks, "ASR"), _gap(pair.benign, "FPR")
    first, second = pair.first, pair.second
    sentences = {
        PairVerdict.FIRST_BETTER: f"{first} is better than {second}: {asr}; {fpr}.",
        PairVerdict.SECOND_BETTER: f"{second} is better than {first}: {asr}; {fpr}.",
        PairVerdict.TRADE_OFF: f"{first} and {second} trade bypasses for false alarms, so neither "
        f"is better: {asr}; {fpr}.",
        PairVerdict.FIRST_FEWER_BYPASSES: f"{first} lets fewer attacks through than {second}, but "
        f"its false alarms are not shown to be no more: {asr}; {fpr}.",
        PairVerdict.SECOND_FEWER_BYPASSES: f"{second} lets fewer attacks through than {first}, "
        f"but its false alarms are not shown to be no more: {asr}; {fpr}.",
        PairVerdict.FIRST_FEWER_FALSE_ALARMS: f"{first} has fewer false alarms than {second}; on "
        f"attacks the two cannot be told apart: {asr}; {fpr}.",
        PairVerdict.SECOND_FEWER_FALSE_ALARMS: f"{second} has fewer false alarms than {first}; "
        f"on attacks the two cannot be told apart: {asr}; {fpr}.",
        PairVerdict.UNDECIDED: f"{first} and {second} cannot be told apart, which does not make "
        f"them equal: {asr}; {fpr}.",
    }
    return sentences[pair.verdict]


def _gap(side: PairedSide, label: str) -> str:
    measure = of_difference(side.difference)
    if measure.value is None:
        return f"{label} difference undefined"
    words_ = f"{label} {measure_text(measure)}"
    if side.adjusted_p is None:
        return f"{words_} ({measure.reason})"
    words_ += f", p {p_text(side.adjusted_p)}"
    crosses = (measure.low or 0.0) <= 0.0 <= (measure.high or 0.0)
    if crosses and side.detectable is not None:
        words_ += f" (a difference of {100 * side.detectable:.1f} points would have been found)"
    return words_


def _side(pair: PairedComparison, *, is_attack: bool) -> PairedSide:
    return pair.attacks if is_attack else pair.benign


def _chart(comparison: RunComparison, *, is_attack: bool) -> IntervalChart:
    label = "ASR" if is_attack else "FPR"
    marks = []
    for pair in comparison.pairs:
        measure = of_difference(_side(pair, is_attack=is_attack).difference)
        note = f"{count_text(measure.trials or 0)} pairs"
        marks.append(
            IntervalMark(label=f"{pair.first} - {pair.second}", measure=measure, note=note)
        )
    return IntervalChart(
        id=f"difference-{label.lower()}",
        title=f"Difference in {label}, first minus second",
        unit=Unit.POINTS,
        axis=f"Difference in {label}",
        marks=tuple(marks),
        reference=(0.0, "no difference"),
    )


def _table(comparison: RunComparison, *, is_attack: bool) -> Table:
    rows = []
    for pair in comparison.pairs:
        side = _side(pair, is_attack=is_attack)
        difference = side.difference
        rows.append(
            row(
                name(pair.first),
                name(pair.second),
                difference,
                _p_cell(difference.p_value),
                _p_cell(side.adjusted_p),
                difference.first_only or 0,
                difference.second_only or 0,
                side.both,
                side.neither,
                side.unpaired,
            )
        )
    label = "attacks (ASR)" if is_attack else "benign samples (FPR)"
    return Table(
        id=f"pairs-{'asr' if is_attack else 'fpr'}",
        title=f"Pairs on the same {label}",
        columns=columns("First", "Second", *_MEANINGS, texts=("Second",), meanings=_MEANINGS),
        rows=tuple(rows),
        note="Samples without a decision on one side are left out and counted, never taken as "
        "allowed.",
        collapsed=not is_attack,
    )


def _p_cell(p_value: float | None) -> FigureCell:
    return figure(p_value, Unit.P_VALUE)
