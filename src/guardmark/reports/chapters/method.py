"""What was measured and under which settings, and how figures are computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.reports.document.blocks import (
    Bullets,
    Facts,
    Paragraph,
    Section,
    Table,
    Tone,
    section,
)
from guardmark.reports.document.cells import name, table_of, words
from guardmark.reports.document.wording import count_text, percent_text

if TYPE_CHECKING:
    from guardmark.analysis.defense.defense_analysis import DefenseAnalysis
    from guardmark.analysis.run import RunAnalysis


def write_method(analysis: RunAnalysis) -> Section:
    """Write the section on method and warnings."""
    warnings = Bullets(lines=_warnings(analysis), tone=Tone.WARNING)
    return section("method", "Method and warnings", Bullets(lines=_method(analysis)), warnings)


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
            "interval; below 10: greyed. They speak of families like these, not attacks at large."
        ),
        (
            "Differences: the same samples on both sides, Bonett-Price intervals, McNemar's mid-p "
            "(the cluster sign-flip where samples share groups), adjusted by Holm over all pairs "
            "on both rates and areas. Told apart is what the test and the interval both say."
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
            "Precision, F1 and balanced error: both rates drawn from Beta distributions at their "
            f"effective numbers of samples, {replicates} times, seed {analysis.settings.seed}.",
        )
    return tuple(lines)


def _warnings(analysis: RunAnalysis) -> tuple[str, ...]:
    samples, lines = analysis.samples, []
    if not samples.is_grouped:
        lines.append(
            "No sample names a group, so intervals take every sample as independent. If some "
            "are variants of one idea, the intervals are too narrow."
        )
    lines.append("The rates describe this data. " + _mix_words(analysis))
    lines += [_about_stop(each) for each in analysis.defenses if each.stopped]
    return tuple(lines)


def _mix_words(analysis: RunAnalysis) -> str:
    weighted = [(each.name, each.deployment) for each in analysis.defenses if each.deployment]
    if not weighted:
        return "Whether it resembles the traffic you expect was not assessed here."
    rates = "; ".join(
        f"{name} ASR {percent_text(found.attack_success_rate.value)} (worth "
        f"{count_text(round(found.worth_attacks))} attacks), FPR "
        f"{percent_text(found.false_positive_rate.value)} (worth "
        f"{count_text(round(found.worth_benign))} benign samples)"
        for name, found in weighted
    )
    return f"Weighted to the deployment's stated mix, without interval: {rates}."


def _about_stop(defense: DefenseAnalysis) -> str:
    asr, fpr = defense.card.attack_success_rate, defense.card.false_positive_rate
    decided = "; ".join(each.sentence for each in defense.stopped)
    return (
        f"{defense.name} was stopped early: {decided}. Its ASR, TPR and FPR stand on the "
        f"{count_text(asr.trials + fpr.trials)} answers by then, with an interval that holds "
        f"however often one looks ({asr.method}). All its other figures, slices among them, count "
        "every stored answer and keep their usual intervals: they are exploratory, and its slices "
        "are greyed. Comparisons with it use a betting sequence and the paired e-value."
    )


_HASH = 16


def write_configuration(analysis: RunAnalysis) -> Section:
    """Write the section on what was run."""
    status, remarks = analysis.status, []
    if status.possibly_billed:
        calls = count_text(status.possibly_billed)
        text = (
            f"{calls} call{' was' if calls == '1' else 's were'} under way when a command on this "
            "run was killed or stopped; without an answer in the records, but possibly billed. "
            "What calls used is a lower bound."
        )
        remarks.append(Paragraph(text=text))
    if status.retried:
        text = (
            f"{count_text(status.retried)} errors of earlier attempts were asked about again; the "
            "figures stand on the last attempt, and the earlier ones are kept in the records."
        )
        remarks.append(Paragraph(text=text))
    if status.stored < status.planned:
        text = (
            f"The run is {status.state.value}: {count_text(status.stored)} of "
            f"{count_text(status.planned)} planned records are stored. Every figure below "
            "stands on these alone."
        )
        remarks.append(Paragraph(text=text, tone=Tone.WARNING))
    tables = _facts(analysis), _defenses(analysis), _data(analysis)
    return section("configuration", "Configuration", *remarks, *tables)


def _facts(analysis: RunAnalysis) -> Facts:
    manifest = analysis.manifest
    policies = f"on malformed: {manifest.on_malformed.value}; on error: {manifest.on_error.value}"
    head = analysis.status.head
    return Facts(
        title="The run",
        pairs=(
            ("Run", name(manifest.name)),
            ("Date (UTC)", words(manifest.created_utc)),
            ("Evaluator", words(manifest.evaluator or "not named")),
            ("guardmark", words(manifest.guardmark_version)),
            ("Configuration hash", name(manifest.config_sha256[:_HASH])),
            ("Data hash", name(manifest.data_sha256[:_HASH])),
            ("Repeats", words(str(manifest.repeats))),
            ("Seed", words(str(manifest.seed))),
            ("Policies", words(policies)),
            ("Confidence", words(percent_text(analysis.settings.confidence))),
            *((("Head of the records", name(head)),) if head else ()),
        ),
    )


def _defenses(analysis: RunAnalysis) -> Table:
    return table_of(
        analysis.defenses,
        {
            "Defense": lambda each: name(each.part.name),
            "Type": lambda each: each.part.type or "unknown",
            "Version": lambda each: each.part.version or "not stated",
            "View": lambda each: each.part.view or "not stated",
            "Threshold": lambda each: "" if each.threshold is None else f"{each.threshold:g}",
            "Fingerprint": lambda each: name(each.part.fingerprint[:_HASH]),
        },
        table_id="defenses",
        title="Defenses",
        texts=("Type", "Version", "View", "Threshold", "Fingerprint"),
        note="The view is what of a prompt a defense is shown; the same defense may look good on "
        "one and miss attacks on another.",
    )


def _data(analysis: RunAnalysis) -> Table:
    return table_of(
        analysis.manifest.data,
        {
            "Data set": lambda each: name(each.name),
            "Version": lambda each: each.version or "not stated",
            "Files": lambda each: ", ".join(each.files),
            "Attacks": lambda each: each.attacks,
            "Benign": lambda each: each.benign,
            "Hash": lambda each: name(each.sha256[:_HASH]),
        },
        table_id="data",
        title="Data",
        texts=("Version", "Files", "Hash"),
    )
