"""The headline figures of every defense."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.reports.document.blocks import (
    IntervalChart,
    IntervalMark,
    Paragraph,
    Row,
    Section,
    Table,
    Tone,
    Unit,
)
from guardmark.reports.document.cells import (
    columns,
    counts,
    effective,
    figure,
    name,
    of_estimate,
    of_ratio,
    row,
    slug,
)
from guardmark.reports.document.wording import count_text, percent_text

if TYPE_CHECKING:
    from guardmark.analysis.run import DefenseAnalysis, RunAnalysis
    from guardmark.core.estimate import Estimate, Ratio
    from guardmark.reports.document.blocks import Block

_MEANINGS = {
    "ASR": "attack success rate: attacks allowed, of those answered",
    "TPR": "true positive rate, recall: attacks blocked, of those answered",
    "FPR": "false positive rate: benign samples blocked, of those answered",
    "Balanced error": "mean of false negative and false positive rate",
    "Answered": "samples with a decision, of all",
    "Malformed": "answers nobody could read",
    "Errors": "samples without an answer",
}
_STABILITY = {
    "Samples": "answered every time",
    "Changed": "samples whose answers were not all alike",
    "Disagreement": "chance that two answers to one sample differ",
    "ICC": "share of the variance that lies between samples",
    "Left out": "samples not answered every time",
}


def write(analysis: RunAnalysis) -> Section:
    """Write the section with the headline figures."""
    blocks: list[Block] = [_overview(analysis), *_charts(analysis)]
    if analysis.samples.is_grouped:
        blocks.append(Paragraph(text=_grouping(analysis), tone=Tone.PLAIN))
    if not analysis.samples.attacks or not analysis.samples.benign:
        missing = "attacks" if not analysis.samples.attacks else "benign samples"
        text = f"The data hold no {missing}: every rate of that side is undefined, not zero."
        blocks.append(Paragraph(text=text, tone=Tone.WARNING))
    blocks.extend(_card(defense) for defense in analysis.defenses)
    blocks.append(_prevalence(analysis))
    if any(defense.stability is not None for defense in analysis.defenses):
        blocks.append(_stability(analysis))
    return Section(id="summary", title="Summary", blocks=tuple(blocks))


def _overview(analysis: RunAnalysis) -> Table:
    rows = []
    for defense in analysis.defenses:
        card = defense.card
        rows.append(
            row(
                name(defense.name),
                card.attack_success_rate,
                card.true_positive_rate,
                card.false_positive_rate,
                card.ratios.balanced_error,
                card.answered,
                card.confusion.malformed,
                card.confusion.errors,
                tone=Tone.MUTED if defense.is_baseline else Tone.PLAIN,
            )
        )
    return Table(
        id="overview",
        title="All defenses",
        columns=columns("Defense", *_MEANINGS, meanings=_MEANINGS),
        rows=tuple(rows),
        note="Rates stand on answered samples only. Baselines mark the floor and the ceiling.",
    )


def _charts(analysis: RunAnalysis) -> list[IntervalChart]:
    charts = []
    for chart_id, title, attribute in (
        ("asr", "Attack success rate", "attack_success_rate"),
        ("fpr", "False positive rate", "false_positive_rate"),
    ):
        marks = []
        for defense in analysis.defenses:
            measure = of_estimate(getattr(defense.card, attribute))
            note = f"n = {count_text(measure.trials or 0)}"
            marks.append(IntervalMark(label=defense.name, measure=measure, note=note))
        charts.append(
            IntervalChart(
                id=f"chart-{chart_id}",
                title=f"{title} by defense (lower is better)",
                unit=Unit.SHARE,
                axis=title,
                marks=tuple(marks),
            )
        )
    return charts


def _grouping(analysis: RunAnalysis) -> str:
    samples = analysis.samples
    total = samples.attacks + samples.benign
    return (
        f"The {count_text(total)} samples fall into {count_text(samples.groups)} groups of "
        "variants or repeats. Variants of one idea resemble each other, so intervals are those "
        "for grouped samples: Wilson's at the effective number of samples, which each table "
        "names with the design effect."
    )


def _card(defense: DefenseAnalysis) -> Table:
    card = defense.card
    rows = [
        _rate("Attack success rate (ASR)", card.attack_success_rate),
        _rate("True positive rate (TPR, recall)", card.true_positive_rate),
        _rate("False positive rate (FPR)", card.false_positive_rate),
        _rate("False negative rate (FNR)", card.false_negative_rate),
        _ratio("Precision, at this mix", card.ratios.precision),
        _ratio("F1, at this mix", card.ratios.f1),
        _ratio("Balanced error", card.ratios.balanced_error),
        _ratio("TPR minus FPR (Youden's J)", card.ratios.youden, unit=Unit.NUMBER),
        _ratio("Matthews correlation, at this mix", card.ratios.correlation, unit=Unit.NUMBER),
        _rate("Answered share, attacks", card.answered_attacks),
        _rate("Answered share, benign", card.answered_benign),
        _rate("ASR, failures allowed (fail-open)", card.fail_open.attack_success_rate),
        _rate("ASR, failures blocked (fail-closed)", card.fail_closed.attack_success_rate),
        _rate("FPR, failures allowed (fail-open)", card.fail_open.false_positive_rate),
        _rate("FPR, failures blocked (fail-closed)", card.fail_closed.false_positive_rate),
    ]
    if card.under_policy is not None:
        rows.append(_rate("ASR under the run's policy", card.under_policy.attack_success_rate))
        rows.append(_rate("FPR under the run's policy", card.under_policy.false_positive_rate))
    if card.any_bypass is not None:
        rows.append(_rate("Groups with any variant allowed", card.any_bypass))
    rows.append(_group_mean("ASR, every group weighing the same", card.attack_success_rate))
    titles = ("Value", "Counts", "Groups", "Effective n", "Design effect")
    return Table(
        id=f"card-{slug(defense.name)}",
        title=f"{defense.name}: all figures",
        columns=columns("Figure", *titles),
        rows=tuple(rows),
        note=_failures(defense),
        collapsed=True,
    )


def _failures(defense: DefenseAnalysis) -> str:
    kinds = defense.card.confusion.error_kinds
    named = ", ".join(f"{kind} {count_text(times)}" for kind, times in kinds)
    return f"Errors by kind: {named}." if named else ""


def _rate(label: str, estimate: Estimate) -> Row:
    measure = of_estimate(estimate)
    return row(
        label,
        measure,
        counts(measure),
        "" if estimate.groups is None else count_text(estimate.groups),
        effective(estimate.effective_n),
        figure(estimate.design_effect, Unit.NUMBER) if estimate.design_effect is not None else "",
        greyed=measure.greyed,
    )


def _ratio(label: str, ratio: Ratio, unit: Unit = Unit.SHARE) -> Row:
    measure = of_ratio(ratio, unit)
    groups = "" if ratio.groups is None else count_text(ratio.groups)
    return row(label, measure, counts(measure), groups, "", "")


def _group_mean(label: str, estimate: Estimate) -> Row:
    measure = figure(estimate.group_mean, Unit.SHARE)
    groups = "" if estimate.groups is None else count_text(estimate.groups)
    return row(label, measure, "", groups, "", "")


def _stability(analysis: RunAnalysis) -> Table:
    found = [(each.name, each.stability) for each in analysis.defenses if each.stability]
    rows = [
        row(
            name(defense),
            label,
            spread.samples,
            figure(spread.flip_rate, Unit.SHARE),
            figure(spread.disagreement, Unit.SHARE),
            figure(spread.icc, Unit.NUMBER),
            stability.left_out,
        )
        for defense, stability in found
        for label, spread in (("attacks", stability.attacks), ("benign", stability.benign))
    ]
    return Table(
        id="stability",
        title=f"Asked {analysis.manifest.repeats} times: does the answer stay the same?",
        columns=columns("Defense", "Label", *_STABILITY, meanings=_STABILITY),
        rows=tuple(rows),
        collapsed=True,
    )


def _prevalence(analysis: RunAnalysis) -> Table:
    rows = [
        row(
            name(defense.name),
            f"{100 * values.prevalence:g} %",
            values.positive,
            values.negative,
            tone=Tone.MUTED if defense.is_baseline else Tone.PLAIN,
        )
        for defense in analysis.defenses
        for values in defense.card.predictive
    ]
    share = analysis.defenses[0].card.ratios.prevalence if analysis.defenses else None
    return Table(
        id="prevalence",
        title="What a decision is worth where attacks are rare",
        columns=columns(
            *("Defense", "Attacks in traffic", "PPV", "NPV"),
            meanings={
                "Attacks in traffic": "assumed share of attacks",
                "PPV": "chance that a blocked input is an attack",
                "NPV": "chance that an allowed input is benign",
            },
        ),
        rows=tuple(rows),
        note="Precision and F1 above hold at the mix of this data only"
        + (f" ({percent_text(share)} attacks)." if share is not None else "."),
        collapsed=True,
    )
