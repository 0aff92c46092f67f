"""A gate: which limits hold, by the whole of each interval."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.analysis.gate import GateStatus, GateUnit
from guardmark.analysis.pipeline.frame import DEFENSE, SYSTEM
from guardmark.reports.chapters.comparison import subject
from guardmark.reports.document.blocks import Document, FigureCell, Table, Tone, Unit, section
from guardmark.reports.document.cells import figure, name, table_of, words
from guardmark.reports.document.wording import count_text, measure_text, p_text, value_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.analysis.gate import GateCheck, GateResult


_UNITS: Final = {
    GateUnit.SHARE: Unit.SHARE,
    GateUnit.POINTS: Unit.POINTS,
    GateUnit.MILLISECONDS: Unit.MILLISECONDS,
    GateUnit.RECORDS: Unit.COUNT,
}
_LOOKS: Final = {
    GateStatus.BROKEN: ("FAIL", Tone.BAD, "failed"),
    GateStatus.OPEN: ("UNDECIDED", Tone.WARNING, "the data cannot decide"),
    GateStatus.HELD: ("PASS", Tone.GOOD, "passed"),
}
"""What a check is called on a line of its own, its tone, and how a gate is headed; worst first."""

_FIGURES: Final = {
    "asr_upper": "ASR",
    "fpr_upper": "FPR",
    "max_malformed": "malformed answers",
    "max_errors": "errors",
    "per_category": "ASR",
    "latency_p95_upper_ms": "latency p95",
    "system.asr_upper": "system attack success",
    "system.over_refusal_upper": "over-refusal",
    "system.per_category": "system attack success",
    "system.regression_asr": "system attack success against the baseline",
    "system.regression_over_refusal": "over-refusal against the baseline",
    "judge.min_agreement": "judge against people, disagreement",
    "regression_asr": "ASR against the baseline",
    "regression_fpr": "FPR against the baseline",
}


def check_sentence(check: GateCheck) -> str:
    """Say in one sentence how a limit stands."""
    if check.rule == "complete":
        stored, planned = count_text(check.trials), count_text(round(check.limit))
        return f"only {stored} of {planned} records are stored: {check.reason}"
    figure, what = _FIGURES[check.rule], _plural(check.subject)
    scope = SYSTEM if check.rule.startswith(f"{SYSTEM}.") else DEFENSE
    if check.rule.endswith("per_category"):
        figure, what = f"{figure} of {check.subject}", "attacks"
    elif check.rule == "latency_p95_upper_ms":
        what = f"answers to {what}"
    lead = f"{subject(check.defense, scope)}: " if check.defense else ""
    p_value = "" if check.p_value is None else f", p {p_text(check.p_value)}"
    limit = f"the limit of {value_text(check.limit, _UNITS[check.unit])}"
    stands = {
        GateStatus.HELD: f" holds {limit}",
        GateStatus.BROKEN: f"{p_value} is above {limit}",
        GateStatus.OPEN: f" does not decide about {limit}; {_what_would(check)}",
    }
    rests = f"{_figure_of(check)} ({count_text(check.trials)} {what})"
    return f"{lead}{figure} {rests}{stands[check.standing]}"


def _figure_of(check: GateCheck) -> str:
    return measure_text(
        FigureCell(value=check.value, low=check.low, high=check.high, unit=_UNITS[check.unit])
    )


def conclusion(result: GateResult) -> str:
    """Say in one sentence how a gate stands."""
    standings = [check.standing for check in result.checks]
    broken, unresolved = standings.count(GateStatus.BROKEN), standings.count(GateStatus.OPEN)
    total = len(standings)
    if broken:
        undecided = f"; {unresolved} cannot be decided" if unresolved else ""
        return f"Failed: {broken} of {total} limits broken{undecided}."
    if unresolved:
        return f"Undecided, so not passed: {unresolved} of {total} limits cannot be decided."
    return f"Passed: all {total} limits held, each by its whole interval."


def _what_would(check: GateCheck) -> str:
    if check.needed is None:
        return check.reason or "no number of samples can promise to"
    unit = _plural(check.subject)
    if check.rule.endswith("per_category"):
        unit = f"attacks of {check.subject}"
    elif check.unit is GateUnit.POINTS:
        unit = f"pairs of {unit}"
    lead = f"{check.reason}; " if check.reason else ""
    return f"{lead}about {count_text(check.needed)} {unit} would, if the rate stays"


def _plural(subject: str) -> str:
    return "benign samples" if subject == "benign" else subject


_METHOD = (
    "A limit is held when the whole {confidence} interval lies on its good side, broken when the "
    "exact lower bound of the same confidence lies beyond it (Clopper-Pearson at the effective "
    "number of samples; Holm over all categories), open otherwise. A regression is broken when it "
    "is significant (Holm) and larger than the margin."
)


def worst_first(result: GateResult) -> list[GateCheck]:
    """Return the checks, broken ones before open ones before those that hold."""
    order = tuple(_LOOKS)
    return sorted(result.checks, key=lambda check: order.index(check.standing))


def gate_document(result: GateResult, *, run: str, caveats: Sequence[str] = ()) -> Document:
    """Tell a gate: every limit, broken ones first, and what would decide the open ones."""
    checks = worst_first(result)
    undone = [
        f"{_LOOKS[check.standing][0]}: {check_sentence(check)}."
        for check in checks
        if check.standing is not GateStatus.HELD
    ]
    method = _METHOD.format(confidence=f"{100 * result.confidence:g} %")
    return Document(
        title=f"Guard gate: {_LOOKS[result.standing][2]}",
        subtitle=f"Run {run}: {conclusion(result)}",
        caveats=tuple(caveats),
        sections=(section("limits", "Limits", _limits(checks), undone, method),),
    )


def _limits(checks: Sequence[GateCheck]) -> Table:
    return table_of(
        checks,
        {
            "Status": lambda each: words(*_LOOKS[each.standing][:2]),
            "Rule": lambda each: name(each.rule),
            "Defense": lambda each: name(each.defense),
            "Of": lambda each: each.subject,
            "Figure": _figure_of,
            "Limit": lambda each: figure(each.limit, _UNITS[each.unit]),
            "n": lambda each: each.trials,
            "n that would decide": lambda each: each.needed,
        },
        table_id="gate",
        title="",
        texts=("Rule", "Defense", "Of"),
    )
