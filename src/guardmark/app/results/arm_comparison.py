"""Arms of agents against each other, within one run or across runs over the same cases."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from guardmark.analysis.agents.cases import read_agent_run
from guardmark.analysis.agents.counting import CaseCounting
from guardmark.analysis.agents.figures import compare_arms_of
from guardmark.analysis.agents.replay import is_replay
from guardmark.analysis.agents.spending import measure_spending
from guardmark.app.results.opened_run import find_run, label_runs
from guardmark.core.errors import ConfigError, IncomparableRuns, UnknownName
from guardmark.core.values import dataclass
from guardmark.store.reader import RecordReader

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from guardmark.analysis.agents.cases import AgentRun, CasesOfArm
    from guardmark.analysis.agents.figures import ArmPair
    from guardmark.analysis.agents.spending import CaseSpending


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedArms:
    """Pairs of arms, each with what the first has more of attacks and of utility.

    Attributes:
        runs: What each run is called.
        pairs: Every two arms of one agent.
        spending: What cases of these arms take.
    """

    runs: tuple[str, ...]
    pairs: tuple[ArmPair, ...]
    spending: tuple[CaseSpending, ...]


def compare_agent_runs(
    paths: Sequence[Path], *, only: Sequence[str] = (), against: str = ""
) -> ComparedArms | None:
    """Compare the arms of runs of agents; None where the runs are of no agent.

    Raises:
        IncomparableRuns: If some of the runs are of agents and others are not, or if they share
            no case.
    """
    folders = [find_run(path) for path in paths]
    labels = label_runs(folders)
    runs: list[AgentRun] = []
    confidence = 0.95
    for folder in folders:
        with RecordReader(folder.records) as reader:
            if not reader.holds_cases:
                continue
            _require_agent(reader, folder.path)
            runs.append(read_agent_run(reader))
            confidence = reader.manifest().confidence
    if not runs:
        return None
    if len(runs) < len(folders):
        raise IncomparableRuns("Some of these runs are of agents and others are not.")
    if len({folder.path.resolve() for folder in folders}) < len(folders):
        raise ConfigError("A run is named twice; a comparison across runs needs different ones.")
    arms = _named_arms(runs, labels)
    _require_shared_cases(runs)
    known = [arm.arm for arm in arms]
    for name in filter(None, (*only, against)):
        if name not in known:
            raise UnknownName("arm of these runs", name, known)
    pairs = compare_arms_of(arms, confidence=confidence)
    wanted = [pair for pair in pairs if _is_wanted(pair, only, against)]
    if not wanted:
        raise ConfigError(
            "There is one arm only, so there is nothing to compare it with.\n"
            "Next: name a second run over the same suite, or measure two arms in one run."
        )
    compared: set[str] = set()
    for pair in wanted:
        compared.update((pair.first, pair.second))
    spending = measure_spending(
        [arm for arm in arms if arm.arm in compared], CaseCounting(confidence=confidence)
    )
    return ComparedArms(runs=tuple(labels), pairs=tuple(wanted), spending=spending)


def _named_arms(runs: Sequence[AgentRun], labels: Sequence[str]) -> list[CasesOfArm]:
    """Return the arms of runs; of several runs each is named with its run."""
    if len(runs) == 1:
        return list(runs[0].stated)
    arms = []
    for label, run in zip(labels, runs, strict=True):
        arms += [replace(arm, arm=f"{label}: {arm.arm}") for arm in run.stated]
    return arms


def _is_wanted(pair: ArmPair, only: Sequence[str], against: str) -> bool:
    """Tell whether both arms of a pair were asked for, and one is the arm to compare with."""
    if only and not {pair.first, pair.second}.issubset(only):
        return False
    return not against or against in {pair.first, pair.second}


def _require_agent(reader: RecordReader, path: Path) -> None:
    """Refuse a run before stored runs: what its agent would have done is unknown."""
    if is_replay(reader.manifest()):
        raise IncomparableRuns(
            f"{path} put guards before stored runs; its report compares its arms.\n"
            "Next: name all guards in one configuration, each in an arm."
        )


def _require_shared_cases(runs: Sequence[AgentRun]) -> None:
    """Refuse runs that have no case in common."""
    ids = []
    for run in runs:
        of_run: set[object] = set()
        for arm in run.arms:
            of_run.update(row.case.id for row in arm.rows)
        ids.append(of_run)
    if not set.intersection(*ids):
        raise IncomparableRuns(
            "These runs share no case: their suites, wordings or limits differ.\n"
            "Next: measure both on the same suite and wordings."
        )
