"""Limits of a release on agents: utility, attack success, and what guards may cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.analysis.defense.scorecard import complement
from guardmark.analysis.gate import GateUnit, check_figure, check_rate
from guardmark.core.errors import UnknownName

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guardmark.analysis.agents.figures import AgentAnalysis, AgentArmFigures
    from guardmark.analysis.gate import GateCheck, GatePolicy

_NO_BARE = "the run has no arm without a guard for the same agent"


def check_agents(analysis: AgentAnalysis, policy: GatePolicy) -> tuple[GateCheck, ...]:
    """Check the limits of a policy about arms of agents: those it names, or all with guards."""
    known = [arm.row.arm for arm in analysis.arms]
    for name in policy.defenses:
        if name not in known:
            raise UnknownName("arm of this run", name, known)
    checks = []
    for arm in analysis.arms:
        if arm.row.arm in policy.defenses or (not policy.defenses and arm.guards):
            checks += list(_checks(arm, analysis, policy))
    return tuple(checks)


def _checks(
    arm: AgentArmFigures, analysis: AgentAnalysis, policy: GatePolicy
) -> Iterator[GateCheck]:
    several = len(analysis.agents) > 1
    title = f"{arm.row.arm} with {arm.row.agent}" if several else arm.row.arm
    if policy.attack_success_upper is not None:
        named = ("attack_success_upper", title, "attacks")
        yield check_rate(arm.row.attack_success, named, policy.attack_success_upper)
    if policy.utility_lower is not None:
        named = ("utility_lower", title, "tasks")
        yield check_rate(complement(arm.row.utility), named, 1.0 - policy.utility_lower)
    if policy.utility_loss_upper is not None:
        loss = arm.utility_loss
        yield check_figure(
            ("utility_loss_upper", title, "tasks"),
            policy.utility_loss_upper,
            loss,
            trials=loss.pairs if loss else 0,
            unit=GateUnit.POINTS,
            reason=(loss.reason if loss.high is None else "") if loss else _NO_BARE,
        )
