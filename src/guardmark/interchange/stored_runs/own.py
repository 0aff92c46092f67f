"""Runs of agents that guardmark itself stored: the cases of the arm without a guard."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from guardmark.analysis.agents.cases import read_agent_run
from guardmark.core.case import StepKind
from guardmark.core.errors import DatasetError
from guardmark.core.place import Place
from guardmark.interchange.stored_runs.turns import LoggedMessage, Unusable, read_dialog
from guardmark.store.reader import RecordReader
from guardmark.suites.stored import StoredCase
from guardmark.suites.suite import CaseId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from guardmark.analysis.agents.cases import CaseRow
    from guardmark.store.run_dir import RunDir


def read_own_cases(folder: RunDir, leave_out: Callable[[Unusable], None]) -> Iterator[StoredCase]:
    """Yield every case that an agent without a guard did, with each of its repeats."""
    with RecordReader(folder.records) as reader:
        if not reader.holds_cases:
            raise DatasetError(
                f"{folder.path} is a run of no agent: it holds no calls and results.\n"
                "Next: name a run of `agent:`, or logs of AgentDojo or Inspect."
            )
        run = read_agent_run(reader)
    bare = [arm for arm in run.stated if not arm.guards]
    if not bare:
        raise DatasetError(
            f"{folder.path} has no arm without a guard, so what agents read there is what guards "
            "let through.\nNext: name a run with an arm such as  bare: {}"
        )
    for arm in bare:
        for row in arm.rows:
            try:
                yield _stored(row, arm.agent if len(bare) > 1 else "")
            except Unusable as why:
                leave_out(why)


def _stored(row: CaseRow, agent: str) -> StoredCase:
    case, result = row.case, row.result
    dialog = read_dialog(_turns(row))
    is_attack = case.is_attack and case.hidden_in != Place.TOOL_LIST.value
    if case.is_attack and not is_attack:
        raise Unusable("whose order stood in the list of tools")
    return StoredCase(
        id=CaseId(
            suite=case.suite,
            task=case.task,
            injection=case.injection,
            wording=case.wording,
            copy=agent,
        ),
        prompt=dialog.prompt,
        moves=dialog.moves,
        later_words=dialog.later_words,
        answer=dialog.answer,
        orders=(case.order,) if case.order else (),
        injection_done=result.injection_done,
        task_done=result.task_done,
    )


def _turns(row: CaseRow) -> Iterator[LoggedMessage]:
    for step in row.result.steps:
        if step.digest and step.kind is not StepKind.TOOLS:
            raise Unusable("with a text of which only the beginning is stored")
        if step.kind is StepKind.USER:
            yield LoggedMessage(role="user", text=step.text)
        elif step.kind is StepKind.CALL:
            call = json.loads(step.text)
            yield LoggedMessage(
                role="assistant", text="", calls=(("", call["name"], call["arguments"]),)
            )
        elif step.kind is StepKind.RESULT:
            yield LoggedMessage(role="tool", text=step.text, is_error=step.is_error)
        elif step.kind is StepKind.ANSWER:
            yield LoggedMessage(role="assistant", text=step.text)
