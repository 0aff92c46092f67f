"""Cases of a run of agents to read: which are wanted, told as stories."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.analysis.agents.cases import read_agent_run
from guardmark.app.results.opened_run import open_run
from guardmark.core.errors import UnknownName
from guardmark.core.values import dataclass
from guardmark.reports.chapters.case_story import Story, outcome_of, tell_case

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from guardmark.analysis.agents.cases import AgentRun, CaseRow, CasesOfArm


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseSelection:
    """Which cases are wanted.

    Attributes:
        kind: `bypass`, `lost`, `stopped`, `failed`, or empty for what went wrong.
        arm: Only this arm; empty for all.
        case_id: One case in all arms; empty for all.
    """

    kind: str = ""
    arm: str = ""
    case_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldCase:
    """One case in one arm, in a line and as a story.

    Attributes:
        id: Id of the case.
        arm: Name of the arm.
        agent: Name of the agent.
        outcome: What became of it, in a few words.
        story: Its steps, in their order.
    """

    id: str
    arm: str
    agent: str
    outcome: str
    story: Story


def read_cases(path: Path, wanted: CaseSelection) -> list[ToldCase] | None:
    """Return the wanted cases of a run of agents, or None where the run is of no agent."""
    with open_run(path) as opened:
        if not opened.reader.holds_cases:
            return None
        run = read_agent_run(opened.reader)
    _require_known(run, wanted)
    cases = []
    for arm, row in _rows(run):
        if wanted.arm in {"", arm.arm, arm.subject} and _is_wanted(row, wanted):
            case = ToldCase(
                id=row.case.id,
                arm=arm.arm,
                agent=arm.agent,
                outcome=outcome_of(row),
                story=tell_case(row),
            )
            cases.append(case)
    return cases


def _rows(run: AgentRun) -> Iterator[tuple[CasesOfArm, CaseRow]]:
    for arm in run.stated:
        for row in arm.rows:
            yield arm, row


def _require_known(run: AgentRun, wanted: CaseSelection) -> None:
    arms = [arm.arm for arm in run.stated]
    if wanted.arm and wanted.arm not in (*arms, *(arm.subject for arm in run.stated)):
        raise UnknownName("arm of this run", wanted.arm, arms)
    if wanted.case_id:
        ids = {row.case.id for _, row in _rows(run)}
        if wanted.case_id not in ids:
            raise UnknownName("case of this run", wanted.case_id, ids)


def _is_wanted(row: CaseRow, wanted: CaseSelection) -> bool:
    if wanted.case_id:
        return row.case.id == wanted.case_id
    kinds = {
        "bypass": row.is_let_through,
        "lost": row.is_lost,
        "stopped": row.stopped_by is not None,
        "failed": not row.is_decided,
    }
    if wanted.kind:
        return kinds[wanted.kind]
    return kinds["bypass"] or kinds["lost"] or kinds["failed"]
