"""What was measured and under which settings, and how figures are computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.reports.document.blocks import (
    Bullets,
    Facts,
    Paragraph,
    Section,
    Table,
    TextCell,
    Tone,
)
from guardmark.reports.document.cells import columns, name, row, words
from guardmark.reports.document.wording import count_text, percent_text

if TYPE_CHECKING:
    from guardmark.analysis.run import DefenseAnalysis, RunAnalysis
    from guardmark.reports.document.blocks import Block


def write_method(analysis: RunAnalysis) -> Section:
    """Write the section on method and warnings."""
    warnings = Bullets(lines=_warnings(analysis), tone=Tone.WARNING)
    blocks = (Bullets(lines=_method(analysis)), warnings)
    return Section(id="method", title="Method and warnings", blocks=blocks)


def _method(analysis: RunAnalysis) -> tuple[str, ...]:
    confidence = percent_text(analysis.settings.confidence)
    lines = [
        (
            "Scope: the defense alone; a sample counts as caught when it was blocked. ASR = "
            "attacks allowed / attacks answered, FPR = benign blocked / benign answered."
        ),
        (
            "Malformed answers and errors are no decisions. They stand beside the rates, with the "
            "bounds that count all of them as allowed or all as blocked."
        ),
        (
            f"Intervals are two-sided at {confidence}. A rate: Wilson's, at the effective number "
            "of samples with Student's t where samples share groups. Fewer than two groups: no "
            "interval; fewer than 10: greyed."
        ),
        (
            "Differences: the same samples on both sides, Bonett-Price intervals, McNemar's mid-p "
            "(the cluster sign-flip where samples share groups), adjusted by Holm over the pairs "
            "of a table."
        ),
        (
            "Latency: order-statistic intervals, attacks and benign samples apart; first calls and "
            "warm-up left out."
        ),
        "Figures here are rounded; summary.json holds them in full.",
    ]
    drawn = max((each.card.ratios.f1.replicates for each in analysis.defenses), default=0)
    if drawn:
        replicates = count_text(drawn)
        lines.insert(
            3,
            "Precision, F1 and balanced error: a bootstrap of whole groups, attacks and benign "
            f"samples drawn apart, {replicates} times, seed {analysis.settings.seed}.",
        )
    return tuple(lines)


def _warnings(analysis: RunAnalysis) -> tuple[str, ...]:
    samples, lines = analysis.samples, []
    if not samples.is_grouped:
        lines.append(
            "No sample names a group, so intervals take every sample as independent. If some "
            "are variants of one idea, the intervals are too narrow."
        )
    small = sum(
        1
        for each in analysis.taxonomy.categories
        if 0 < each.attacks < analysis.settings.min_per_category
    )
    if small:
        lines.append(
            f"{count_text(small)} categories hold fewer than "
            f"{count_text(analysis.settings.min_per_category)} attacks and are greyed."
        )
    lines.append("The rates describe this data. " + _mix_words(analysis))
    lines.extend(line for each in analysis.defenses for line in _about(each))
    return tuple(lines)


def _mix_words(analysis: RunAnalysis) -> str:
    weighted = [(each.name, each.deployment) for each in analysis.defenses if each.deployment]
    if not weighted:
        return "Whether it resembles the traffic you expect was not assessed here."
    said = "; ".join(
        f"{name} ASR {percent_text(found.attack_success_rate.value)} (worth "
        f"{count_text(round(found.worth_attacks))} attacks), FPR "
        f"{percent_text(found.false_positive_rate.value)} (worth "
        f"{count_text(round(found.worth_benign))} benign samples)"
        for name, found in weighted
    )
    return f"Weighted to the deployment's stated mix, without interval: {said}."


def _about_stop(defense: DefenseAnalysis) -> list[str]:
    if not defense.stopped:
        return []
    card = defense.card
    method = card.attack_success_rate.method
    used = card.attack_success_rate.trials + card.false_positive_rate.trials
    decided = "; ".join(each.sentence for each in defense.stopped)
    line = (
        f"{defense.name} was stopped early: {decided}. Its ASR, TPR and FPR stand on the "
        f"{count_text(used)} answers by then, with an interval that holds however often one "
        f"looks ({method}). All its other figures, slices among them, count every stored answer "
        "and keep their usual intervals: they are exploratory, and its slices are greyed. "
        "Comparisons with it use a betting sequence and the paired e-value."
    )
    return [line]


def _about(defense: DefenseAnalysis) -> list[str]:
    counts, lines = defense.card.confusion, _about_stop(defense)
    if counts.malformed or counts.errors:
        lines.append(
            f"{defense.name}: {count_text(counts.malformed)} malformed answers and "
            f"{count_text(counts.errors)} errors among {count_text(counts.total)} samples."
        )
    for estimate, what in (
        (defense.card.attack_success_rate, "attacks"),
        (defense.card.false_positive_rate, "benign samples"),
    ):
        if estimate.trials and (estimate.few_groups or estimate.low is None):
            lines.append(
                f"{defense.name}: the {what} fall into {estimate.groups} groups only; "
                "do not lean on their interval."
            )
    return lines


_HASH = 16


def write_configuration(analysis: RunAnalysis) -> Section:
    """Write the section on what was run."""
    blocks: list[Block] = [_facts(analysis), _defenses(analysis), _data(analysis)]
    status = analysis.status
    if status.stored < status.planned:
        text = (
            f"The run is {status.state.value}: {count_text(status.stored)} of "
            f"{count_text(status.planned)} planned records are stored. Every figure below "
            "stands on these alone."
        )
        blocks.insert(0, Paragraph(text=text, tone=Tone.WARNING))
    if status.retried:
        text = (
            f"{count_text(status.retried)} errors of earlier attempts were asked about again; the "
            "figures stand on the last attempt, and the earlier ones are kept in the records."
        )
        blocks.insert(0, Paragraph(text=text))
    return Section(id="configuration", title="Configuration", blocks=tuple(blocks))


def _facts(analysis: RunAnalysis) -> Facts:
    manifest, samples = analysis.manifest, analysis.samples
    pairs: list[tuple[str, TextCell]] = [
        ("Run", name(manifest.name)),
        ("Date (UTC)", words(manifest.created_utc)),
        ("Evaluator", words(manifest.evaluator or "not named")),
        ("guardmark", words(manifest.guardmark_version)),
        ("Configuration hash", name(manifest.config_sha256[:_HASH])),
        ("Data hash", name(manifest.data_sha256[:_HASH])),
        (
            "Samples",
            words(
                f"{count_text(samples.attacks)} attacks, {count_text(samples.benign)} benign, "
                f"in {count_text(samples.groups)} groups"
            ),
        ),
        ("Repeats", words(str(manifest.repeats))),
        ("Seed", words(str(manifest.seed))),
        (
            "Policies",
            words(
                f"on malformed: {manifest.on_malformed.value}; on error: {manifest.on_error.value}"
            ),
        ),
        ("Confidence", words(percent_text(analysis.settings.confidence))),
    ]
    if analysis.status.head:
        pairs.append(("Head of the records", name(analysis.status.head)))
    return Facts(title="The run", pairs=tuple(pairs))


def _defenses(analysis: RunAnalysis) -> Table:
    rows = []
    for defense in analysis.defenses:
        part = defense.part
        threshold = "" if defense.threshold is None else f"{defense.threshold:g}"
        rows.append(
            row(
                name(part.name),
                part.type or "unknown",
                part.version or "not stated",
                part.view or "not stated",
                threshold,
                name(part.fingerprint[:_HASH]),
            )
        )
    titles = ("Defense", "Type", "Version", "View", "Threshold", "Fingerprint")
    return Table(
        id="defenses",
        title="Defenses",
        columns=columns(*titles, texts=titles),
        rows=tuple(rows),
        note="The view is what of a prompt a defense is shown; the same defense may look good on "
        "one and be blind on another.",
    )


def _data(analysis: RunAnalysis) -> Table:
    rows = tuple(
        row(
            name(data.name),
            data.version or "not stated",
            ", ".join(data.files),
            data.attacks,
            data.benign,
            name(data.sha256[:_HASH]),
        )
        for data in analysis.manifest.data
    )
    return Table(
        id="data",
        title="Data",
        columns=columns(
            *("Data set", "Version", "Files", "Attacks", "Benign", "Hash"),
            texts=("Version", "Files", "Hash"),
        ),
        rows=rows,
    )
