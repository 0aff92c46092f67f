"""A gate: which limits hold, by the whole of each interval."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from guardmark.analysis.gate import OF_SLICES, SYSTEM_RULES, GateStatus, GateUnit
from guardmark.analysis.pipeline.frame import DEFENSE, SYSTEM
from guardmark.reports.chapters.subjects import subject
from guardmark.reports.document.blocks import (
    Document,
    FigureCell,
    IntervalChart,
    IntervalMark,
    Section,
    Table,
    Tone,
    Unit,
    muted,
    section,
)
from guardmark.reports.document.cells import figure, name, table_of, words
from guardmark.reports.document.wording import (
    count_text,
    measure_text,
    p_text,
    percent_text,
    value_text,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.analysis.gate import GateCheck, GateResult
    from guardmark.reports.document.blocks import Part

_GATE: Final = {
    "asr_upper": "ASR",
    "fpr_upper": "FPR",
    "max_malformed": "malformed answers",
    "max_errors": "errors",
    "latency_p95_upper_ms": "latency p95",
    "system.asr_upper": "system attack success",
    "system.over_refusal_upper": "over-refusal",
    "system.regression_asr": "system attack success against the baseline",
    "system.regression_over_refusal": "over-refusal against the baseline",
    "judge.min_agreement": "judge against people, disagreement",
    "utility_lower": "tasks not done",
    "attack_success_upper": "attack success",
    "utility_loss_upper": "tasks lost to guards",
    "regression_asr": "ASR against the baseline",
    "regression_fpr": "FPR against the baseline",
}

_GATE_METHOD: Final = {
    "deciding": (
        "n that would decide: a new set of about so many, looked at once, would "
        "decide in 8 of 10 runs, if the rate stays."
    ),
    "rates": (
        "A limit is held when the whole {confidence} interval lies on its good side, "
        "broken when the exact lower bound of the same confidence lies beyond it "
        "(Clopper-Pearson at the effective number of samples; Holm over all slices), "
        "undecided otherwise. A regression is broken when it is significant (Holm) "
        "and larger than the margin."
    ),
}

_OF_SYSTEM: Final = f"{SYSTEM}."
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


def reading_commands(result: GateResult, run: str) -> tuple[str, ...]:
    """Name the commands that show what broke a limit: of each side the worst defense."""
    commands = []
    for rule, option in (("asr_upper", "--bypasses"), ("fpr_upper", "--false-alarms")):
        of_rule = [check for check in result.checks if check.rule == rule and check.defense]
        broken = [check for check in of_rule if check.standing is GateStatus.BROKEN]
        if broken:
            worst = max(broken, key=lambda check: (check.value or 0.0) - check.limit)
            commands.append(
                f"guardmark show {shlex.quote(run)} {option} --defense {shlex.quote(worst.defense)}"
            )
    return tuple(commands)


def check_sentence(check: GateCheck) -> str:
    """Say in one sentence how a limit stands."""
    if check.rule == "complete":
        stored, planned = count_text(check.trials), count_text(round(check.limit))
        return f"only {stored} of {planned} records are stored: {check.reason}"
    figure, what = _figure_words(check), _plural(check.subject)
    if is_of_slice(check):
        figure, what = f"{figure} of {slice_words(check)}", _unit_of_slice(check)
    elif check.rule == "latency_p95_upper_ms":
        what = f"answers to {what}"
    p_value = ""
    if check.p_value is not None:
        p_value = f", p {p_text(check.p_value)}"
    limit = f"the limit of {value_text(check.limit, _UNITS[check.unit])}"
    stands = {
        GateStatus.HELD: f" holds {limit}",
        GateStatus.BROKEN: f" is above {limit}{p_value}",
        GateStatus.OPEN: f" does not decide about {limit}; {_what_would(check)}",
    }
    rests = f"{measure_text(_figure_of(check))} ({count_text(check.trials)} {what})"
    if 0 < check.looked_at < 1:
        rests += (
            f" (the set was extended: {percent_text(check.looked_at)} of its answers were "
            "kept from an earlier look, so the limits are wider)"
        )
    return f"{_who(check)}{figure} {rests}{stands[check.standing]}"


def is_of_slice(check: GateCheck) -> bool:
    """Tell whether a limit is about one slice of the samples."""
    return check.rule.removeprefix(_OF_SYSTEM).startswith(OF_SLICES)


def slice_words(check: GateCheck) -> str:
    """Name the slice that a limit is about, such as `language de`; of a category its name."""
    facet = check.rule.removeprefix(_OF_SYSTEM).removeprefix(OF_SLICES).rpartition(".")[0]
    if facet == "category" or check.subject.startswith("every "):
        return check.subject
    return f"{facet} {check.subject}"


def _unit_of_slice(check: GateCheck) -> str:
    if check.rule.endswith("asr_upper"):
        return "attacks"
    return "benign samples"


def _figure_words(check: GateCheck) -> str:
    """Return what the figure of a check is called."""
    words = _GATE
    if not is_of_slice(check):
        return words[check.rule]
    side = "fpr_upper"
    if check.rule.endswith("asr_upper"):
        side = "asr_upper"
    if check.rule.startswith(_OF_SYSTEM):
        return words[SYSTEM_RULES[side]]
    return words[side]


def _figure_of(check: GateCheck) -> FigureCell:
    unit = _UNITS[check.unit]
    return FigureCell(value=check.value, low=check.low, high=check.high, unit=unit)


def _who(check: GateCheck) -> str:
    """Name the defense or system that a check is about; empty where it is about the run."""
    if not check.defense:
        return ""
    scope = DEFENSE
    if check.rule.startswith(f"{SYSTEM}."):
        scope = SYSTEM
    return f"{subject(check.defense, scope)}: "


def conclusion(result: GateResult) -> str:
    """Say in one sentence how a gate stands."""
    standings = [check.standing for check in result.checks]
    broken, unresolved = standings.count(GateStatus.BROKEN), standings.count(GateStatus.OPEN)
    total = len(standings)
    if broken:
        undecided = ""
        if unresolved:
            undecided = f"; {unresolved} cannot be decided"
        return f"Failed: {broken} of {total} limits broken{undecided}."
    if unresolved:
        return f"Undecided, so not passed: {unresolved} of {total} limits cannot be decided."
    return f"Passed: all {total} limits held, each by its whole interval."


def _what_would(check: GateCheck) -> str:
    """Say how many samples would decide about a limit, or that none are known to."""
    if check.needed is None:
        return check.reason or "no number of samples can promise to"
    unit = _plural(check.subject)
    if is_of_slice(check):
        unit = f"{_unit_of_slice(check)} of {slice_words(check)}"
    elif check.unit is GateUnit.POINTS:
        unit = f"pairs of {unit}"
    lead = ""
    if check.reason:
        lead = f"{check.reason}; "
    return lead + (
        f"a new set of about {count_text(check.needed)} {unit}, looked at once, would "
        "in 8 of 10 runs, if the rate stays"
    )


def _plural(subject: str) -> str:
    if subject == "benign":
        return "benign samples"
    return subject


def worst_first(result: GateResult) -> list[GateCheck]:
    """Return the checks, broken ones before open ones before those that hold."""
    order = tuple(_LOOKS)
    return sorted(result.checks, key=lambda check: order.index(check.standing))


_MOST_DRAWN: Final = 8


def write_gate(result: GateResult) -> Section:
    """Write the limits of a run's own gate as a strip of its cover, broken ones first."""
    checks = worst_first(result)
    left = len(checks) - _MOST_DRAWN
    parts: list[Part] = [conclusion(result)]
    for unit in GateUnit:
        parts.append(_strip(checks[:_MOST_DRAWN], unit))
    if left > 0:
        parts.append(muted(f"{count_text(left)} more limits are in the table."))
    parts.append(replace(_limits(checks), title="Every limit", collapsed=True))
    return section("gate", f"Gate: {_LOOKS[result.standing][2]}", *parts)


def _strip(checks: Sequence[GateCheck], unit: GateUnit) -> IntervalChart | None:
    """Draw the limits of one unit, each an interval against its line; None without any."""
    marks = []
    for check in checks:
        if check.unit is not unit:
            continue
        word, tone, _ = _LOOKS[check.standing]
        mark = IntervalMark(
            label=_limit_words(check),
            measure=_figure_of(check),
            note=word,
            tone=tone,
            limit=check.limit,
        )
        marks.append(mark)
    if not marks:
        return None
    return IntervalChart(
        id=f"gate-{unit.value}",
        title="Each interval against its limit (upright line)",
        axis="Measured",
        marks=tuple(marks),
        unit=_UNITS[unit],
    )


def _limit_words(check: GateCheck) -> str:
    """Name what is limited, and by how much."""
    if check.rule == "complete":
        return "records stored, of all planned"
    of = ""
    if is_of_slice(check):
        of = f" of {slice_words(check)}"
    limit = value_text(check.limit, _UNITS[check.unit])
    return f"{_who(check)}{_figure_words(check)}{of}, at most {limit}"


def gate_document(
    result: GateResult,
    *,
    run: str,
    caveats: Sequence[str] = (),
    is_brief: bool = False,
    says_method: bool = True,
) -> Document:
    """Tell a gate: every limit, broken ones first, and of open ones why they are.

    In brief, beside a report that tells both rates and whether they keep their limits, only other
    limits that do not hold.
    """
    checks = worst_first(result)
    undone = []
    for check in checks:
        if _needs_words(check):
            undone.append(f"{_LOOKS[check.standing][0]}: {check_sentence(check)}.")
    sections = []
    if is_brief:
        beside = [check for check in checks if _is_beside_the_table(check)]
        if beside:
            sections.append(section("limits", "", _limits(beside), undone))
    else:
        parts: list[Part] = [_limits(checks), undone]
        if any(check.needed for check in checks):
            parts.append(_GATE_METHOD["deciding"])
        if says_method:
            confidence = f"{100 * result.confidence:g} %"
            parts.append(_GATE_METHOD["rates"].format(confidence=confidence))
        sections.append(section("limits", "Limits", *parts))
    return Document(
        title=f"Guard gate: {_LOOKS[result.standing][2]}",
        subtitle=f"Run {run}: {conclusion(result)}",
        caveats=tuple(caveats),
        sections=tuple(sections),
    )


def _is_beside_the_table(check: GateCheck) -> bool:
    """Tell whether a limit is not held, and no line of the report's table says so."""
    is_told = check.rule in {"asr_upper", "fpr_upper"} and not check.reason
    return check.standing is not GateStatus.HELD and not (is_told and not check.looked_at)


def _needs_words(check: GateCheck) -> bool:
    """Tell whether a line of the table does not say all there is to a limit that is not held."""
    if check.standing is GateStatus.HELD:
        return False
    is_regression = check.unit is GateUnit.POINTS
    return check.rule == "complete" or is_regression or bool(check.reason or check.looked_at)


def _limits(checks: Sequence[GateCheck]) -> Table:
    """List every check with its figure, its limit and the samples that would decide."""
    return table_of(
        checks,
        {
            "Status": lambda each: words(*_LOOKS[each.standing][:2]),
            "Rule": lambda each: name(each.rule),
            "Defense": lambda each: name(each.defense),
            "Of": lambda each: each.subject,
            "Figure": lambda each: measure_text(_figure_of(each)),
            "Limit": lambda each: figure(each.limit, _UNITS[each.unit]),
            "n": lambda each: each.trials,
            "n that would decide": lambda each: each.needed,
        },
        table_id="gate",
        title="",
        texts=("Rule", "Defense", "Of"),
    )
