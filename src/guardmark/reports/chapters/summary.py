"""The headline figures of every defense."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.analysis.compare.merit import by_merit
from guardmark.core.manifest import ARM_OF_AGENTS
from guardmark.reports.document.blocks import (
    Column,
    Section,
    Table,
    TextCell,
    Unit,
    section,
    warning,
)
from guardmark.reports.document.cells import (
    known,
    mute,
    name,
    slug,
    table_of,
    with_column,
    with_counts,
    with_derived,
    without_columns,
)
from guardmark.reports.document.wording import count_text, percent_text
from guardmark.stats.figures import Ratio

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from guardmark.analysis.defense.defense_analysis import DefenseAnalysis
    from guardmark.analysis.defense.scorecard import Scorecard
    from guardmark.analysis.run import RunAnalysis
    from guardmark.core.estimate import Estimate
    from guardmark.reports.document.blocks import Headline, Part
    from guardmark.reports.document.cells import Value


def _policy_attack_success(card: Scorecard) -> Estimate | None:
    if card.under_policy is None:
        return None
    return card.under_policy.attack_success_rate


def _policy_false_positives(card: Scorecard) -> Estimate | None:
    if card.under_policy is None:
        return None
    return card.under_policy.false_positive_rate


_CARD: Final[Mapping[str, Callable[[Scorecard], Estimate | Ratio | None]]] = {
    "Attack success rate (ASR)": lambda card: card.attack_success_rate,
    "True positive rate (TPR, recall)": lambda card: card.true_positive_rate,
    "False positive rate (FPR)": lambda card: card.false_positive_rate,
    "False negative rate (FNR)": lambda card: card.false_negative_rate,
    "Precision, at this mix": lambda card: card.ratios.precision,
    "F1, at this mix": lambda card: card.ratios.f1,
    "Balanced error": lambda card: card.ratios.balanced_error,
    "TPR minus FPR (Youden's J)": lambda card: card.ratios.youden,
    "Matthews correlation, at this mix": lambda card: card.ratios.correlation,
    "Answered share, attacks": lambda card: card.answered_attacks,
    "Answered share, benign": lambda card: card.answered_benign,
    "ASR, failures allowed (fail-open)": lambda card: card.fail_open.attack_success_rate,
    "ASR, failures blocked (fail-closed)": lambda card: card.fail_closed.attack_success_rate,
    "FPR, failures allowed (fail-open)": lambda card: card.fail_open.false_positive_rate,
    "FPR, failures blocked (fail-closed)": lambda card: card.fail_closed.false_positive_rate,
    "ASR under the run's policy": _policy_attack_success,
    "FPR under the run's policy": _policy_false_positives,
    "Groups with any variant allowed": lambda card: card.any_bypass,
    "ASR, every group weighing the same": lambda card: card.group_mean,
    "Attacks cut to fit it, of those answered": lambda card: card.truncated_attacks,
    "Benign samples cut to fit it, of those answered": lambda card: card.truncated_benign,
}

_TABLED_FROM = 3
_OF_FAILURES = ("Answered", "Malformed", "Errors")
_SIGNED = ("TPR minus FPR (Youden's J)", "Matthews correlation, at this mix")


def write(analysis: RunAnalysis) -> Section:
    """Write the section with the headline figures."""
    samples = analysis.samples
    if samples.benign:
        one_sided = "The data hold no attacks: every rate of that side is undefined, not zero."
    elif all(part.type == ARM_OF_AGENTS for part in analysis.manifest.parts):
        one_sided = (
            "What these arms cost stands in the run of agents, as utility: here are attacks alone."
        )
    else:
        one_sided = (
            "The data hold no benign samples (add some, else block-all looks perfect): "
            "every rate of that side is undefined, not zero."
        )
    parts: list[Part] = []
    if not is_tabled(analysis):
        parts.append(_overview(analysis.defenses))
    if not samples.attacks or not samples.benign:
        parts.append(warning(one_sided))
    parts += map(_card, by_merit(analysis.defenses))
    parts.append(_prevalence(analysis.defenses))
    if any(defense.stability for defense in analysis.defenses):
        parts.append(_stability(analysis))
    return section("summary", "Summary", *parts)


def is_tabled(analysis: RunAnalysis) -> bool:
    """Tell whether the report begins with a table: from three defenses on, of no pipeline."""
    return len(analysis.defenses) >= _TABLED_FROM and not analysis.system


def verdict_table(analysis: RunAnalysis, verdicts: Sequence[Headline]) -> Table | None:
    """Lay out verdict and rates of every defense by merit; None where cards say it all."""
    if not is_tabled(analysis):
        return None
    answers = {}
    for verdict in verdicts:
        answer = verdict.answer or "baseline"
        answers[verdict.defense] = TextCell(text=answer, tone=verdict.tone)
    return _overview(analysis.defenses, answers)


def _overview(
    defenses: Sequence[DefenseAnalysis], answers: Mapping[str, TextCell] | None = None
) -> Table:
    """List every defense by merit, with its verdict where these are given."""
    ranked = by_merit(defenses)
    table = table_of(
        ranked,
        {
            "Defense": lambda row: name(row.name),
            (
                "Let through (ASR): attack success rate: attacks allowed, of those answered"
            ): lambda row: row.card.attack_success_rate,
            (
                "Benign blocked (FPR): false positive rate: benign samples blocked, of "
                "those answered"
            ): lambda row: row.card.false_positive_rate,
            "Balanced error: mean of false negative and false positive rate": lambda row: (
                row.card.ratios.balanced_error
            ),
            "Answered: samples with a decision, of all": lambda row: row.card.answered,
            "Malformed: unreadable answers": lambda row: row.card.confusion.malformed,
            "Errors: samples without an answer": lambda row: row.card.confusion.errors,
        },
        table_id="overview",
        title="All defenses",
        note="Rates count answered samples only. Baselines mark the floor and the ceiling.",
    )
    table = with_derived(table, "Balanced error")
    failed = 0
    for defense in ranked:
        failed += defense.card.confusion.malformed + defense.card.confusion.errors
    if not failed:
        table = without_columns(table, _OF_FAILURES)
    if answers is not None:
        verdicts = [answers[defense.name] for defense in ranked]
        table = with_column(table, 1, Column(title="Verdict"), verdicts)
    return mute(table, [defense.is_baseline for defense in ranked])


def _card(defense: DefenseAnalysis) -> Table:
    """Write every figure of a defense that there is."""
    card = defense.card
    rows = []
    for label, rate_of in _CARD.items():
        rate = rate_of(card)
        if rate is not None:
            rows.append(_rate_cells(label, rate))
    note = ""
    if card.confusion.error_kinds:
        kinds = [f"{kind} {count_text(count)}" for kind, count in card.confusion.error_kinds]
        note = f"Errors by kind: {', '.join(kinds)}."
    return table_of(
        rows,
        {"Figure|Value|Counts|Groups|Effective n|Design effect": lambda row: row[0]},
        table_id=f"card-{slug(defense.name)}",
        title=f"{defense.name}: all figures",
        greyed=lambda row: row[1],
        note=note,
        collapsed=True,
    )


def _rounded(count: float | None) -> str:
    if count is None:
        return ""
    return count_text(round(count))


def _rate_cells(label: str, rate: Estimate | Ratio) -> tuple[tuple[Value, ...], bool]:
    """Return the cells of a rate, and whether they are greyed."""
    unit = None
    if label in _SIGNED:
        unit = Unit.NUMBER
    measured = with_counts(rate, unit)
    groups = _rounded(rate.groups)
    if isinstance(rate, Ratio):
        return (label, *measured, groups, "", ""), False
    effect = _rounded(rate.effective_n), known(rate.design_effect, Unit.NUMBER)
    return (label, *measured, groups, *effect), rate.few_groups


def _stability(analysis: RunAnalysis) -> Table:
    """List how many samples were answered differently when asked again."""
    changes = []
    for each in analysis.defenses:
        stability = each.stability
        if stability is not None:
            left_out = stability.left_out
            changes.append((each.name, "attacks", stability.attacks_changed, left_out))
            changes.append((each.name, "benign", stability.benign_changed, left_out))
    return table_of(
        changes,
        {
            "Defense": lambda row: name(row[0]),
            "Label": lambda row: row[1],
            "Changed: samples whose answers were not all alike": lambda row: row[2],
            "Samples: answered every time": lambda row: row[2].trials,
            "Left out: samples not answered every time": lambda row: row[3],
        },
        table_id="stability",
        title=f"Asked {analysis.manifest.repeats} times: does the answer stay the same?",
        collapsed=True,
    )


def _prevalence(defenses: Sequence[DefenseAnalysis]) -> Table:
    """List what a decision is worth at assumed shares of attacks in traffic."""
    mix = ""
    if defenses and defenses[0].card.ratios.prevalence is not None:
        mix = f" ({percent_text(defenses[0].card.ratios.prevalence)} attacks)"
    rows = []
    for defense in defenses:
        for values in defense.card.predictive:
            rows.append((defense, values))
    table = table_of(
        rows,
        {
            "Defense": lambda row: name(row[0].name),
            "Attacks in traffic: assumed share of attacks": lambda row: (
                f"{100 * row[1].prevalence:g} %"
            ),
            "PPV: chance that a blocked input is an attack": lambda row: row[1].positive,
            "NPV: chance that an allowed input is benign": lambda row: row[1].negative,
        },
        table_id="prevalence",
        note=f"Precision and F1 above hold at the mix of this data only{mix}.",
        collapsed=True,
        title="What a decision is worth where attacks are rare",
    )
    return mute(table, [defense.is_baseline for defense, _ in rows])
