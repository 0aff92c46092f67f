"""The first lines of a report on agents: which arm keeps the limits, and which is nearest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.analysis.agents.figures import AgentReliance
from guardmark.reports.chapters.answer import limit_text, number_word
from guardmark.reports.document.cells import figure_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.analysis.agents.figures import AgentAnalysis, AgentArmFigures
    from guardmark.analysis.gate import GateResult
    from guardmark.analysis.settings import RelianceLimits


def write_agent_answer(
    agent: AgentAnalysis,
    ranked: Sequence[tuple[str, AgentArmFigures]],
    limits: RelianceLimits,
    gate: GateResult | None = None,
) -> tuple[str, ...]:
    """Write the answer, how the gate stands, and the limits; arms come named, the best first."""
    guarded = [(title, arm) for title, arm in ranked if arm.guards]
    lines = [_answer(guarded)]
    if not guarded:
        rate = "undefined"
        if agent.arms:
            rate = figure_text(agent.arms[0].row.attack_success)
        return (f"{lines[0]} Its attack success is {rate}.",)
    if gate is not None:
        from guardmark.reports.chapters.gate import conclusion  # on use: many runs set no limit

        sentence = conclusion(gate)
        lines.append(f"Gate {sentence[0].lower()}{sentence[1:]}")
    origin = "no gate states others"
    if limits.is_of_gate:
        origin = "this run's gate"
    lines.append(
        f"Limits of the verdict: at most {limit_text(limits.attacks)} of attacks succeed, at most "
        f"{limit_text(limits.alarms)} of tasks are lost to guards ({origin})."
    )
    return tuple(lines)


def _answer(guarded: Sequence[tuple[str, AgentArmFigures]]) -> str:
    """Say which arms pass, or which comes nearest."""
    if not guarded:
        return "Only the agent without a guard was measured."
    passing = [(title, arm) for title, arm in guarded if arm.reliance is AgentReliance.GOOD]
    is_open = any(arm.reliance is AgentReliance.UNKNOWN for _, arm in guarded)
    title, best = (passing or guarded)[0]
    words = outcome_words(best)
    if len(guarded) == 1:
        verb = "does not pass"
        if passing:
            verb = "passes"
        elif is_open:
            verb = "is not shown to pass"
        return f"The arm {title} {verb}: it {words}."
    count = number_word(len(guarded))
    if not passing:
        verb = "passes"
        if is_open:
            verb = "is shown to pass"
        return f"None of {count} arms {verb}. Nearest: {title}, which {words}."
    names = ", ".join(passed_title for passed_title, _ in passing)
    if len(passing) == len(guarded):
        return f"All {count} arms pass: {names}. First by merit: {title}, which {words}."
    passed = f"{number_word(len(passing)).capitalize()} of {count} arms"
    if len(passing) == 1:
        return f"{passed} passes: {names}. It {words}."
    return f"{passed} pass: {names}. First by merit: {title}, which {words}."


def outcome_words(arm: AgentArmFigures) -> str:
    """Say what an arm stops of what succeeds without it, and what it costs of what gets done."""
    success, utility = arm.row.attack_success.value, arm.row.utility.value
    if success is None or utility is None:
        return "says nothing: no case of one kind was decided"
    stopped, lost = 100 * (1.0 - success), 100 * (1.0 - utility)
    if arm.attacks_stopped is not None and arm.utility_loss is not None:
        stopped = 100 * (arm.attacks_stopped.value or 0.0)
        lost = 100 * (arm.utility_loss.value or 0.0)
    return f"stops {stopped:.0f} of 100 attacks and costs {max(lost, 0.0):.0f} of 100 tasks"
