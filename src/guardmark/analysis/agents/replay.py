"""Guards before stored runs: which orders they would have stopped, and what they block by mistake.

Utility and attack success are in no figure here: what an agent would have done after a block
stands in no stored run.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

from guardmark.analysis.agents.cases import read_agent_run
from guardmark.analysis.agents.counting import (
    CaseCounting,
    guards_in_order,
    has_block,
    mean,
    pair_cases,
)
from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from guardmark.analysis.agents.cases import AgentRun, CaseRow, CasesOfArm
    from guardmark.analysis.agents.counting import GuardPlace
    from guardmark.core.estimate import Difference, Estimate
    from guardmark.core.manifest import RunManifest
    from guardmark.stats.figures import Quantile
    from guardmark.store.reader import RecordReader


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayArm:
    """What the guards of one arm would have done to stored runs.

    Attributes:
        arm: Name of the arm.
        guards: Each as `place: guard`, as a case comes by them.
        stopped: Attacks whose order was stopped at or before the result that first shows it.
        stopped_itself: The same where that result was stopped, and not only a text before it.
        stopped_here: `stopped` over these injections, and no others.
        stopped_done: The same of the attacks whose injection was done in the stored run.
        blocked: Attacks in which anything was blocked anywhere, whether it shows the order or not.
        false_blocks: Runs without an attack in which anything was blocked.
        by_policy: Runs in which a policy stood in for a guard that gave no decision.
        places: What each guard did at each place.
        guards_ms: Time of the guards in a run.
        calls: Guards asked in a run, on average.
    """

    arm: str
    guards: tuple[str, ...]
    stopped: Estimate
    stopped_itself: Estimate
    stopped_here: Estimate
    stopped_done: Estimate
    blocked: Estimate
    false_blocks: Estimate
    by_policy: int
    places: tuple[GuardPlace, ...]
    guards_ms: tuple[Quantile, ...] = field(metadata={"json": False})
    calls: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPair:
    """Two arms over the same stored runs.

    Attributes:
        first: Name of an arm.
        second: Name of another.
        stopped: Share of orders stopped, of the first less that of the second.
        false_blocks: Of the first less those of the second.
    """

    first: str
    second: str
    stopped: Difference
    false_blocks: Difference


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayAnalysis:
    """Everything that is computed of guards before stored runs.

    Attributes:
        arms: What the guards of each arm would have done.
        pairs: Arms against each other.
        suites: Names of the suites that the runs are of.
        attacks: Stored runs with an injection.
        benign: Stored runs without one.
        shown: Attacks of which a stored result shows the order: `stopped` is over these.
        not_shown: Attacks whose order is stated and stands in no stored result.
        unknown: Attacks whose order is not stated, so that no result can be told to show it.
        tasks: How many different tasks.
        injections: How many different injections; 0 where the runs do not name them.
        notes: What was left out when the runs were read, and what cannot be known.
    """

    arms: tuple[ReplayArm, ...]
    pairs: tuple[ReplayPair, ...]
    suites: tuple[str, ...]
    attacks: int
    benign: int
    shown: int
    not_shown: int
    unknown: int
    tasks: int
    injections: int
    notes: tuple[str, ...]
    run: AgentRun = field(metadata={"json": False})


def is_replay(manifest: RunManifest) -> bool:
    """Tell whether a run put guards before stored runs."""
    section: Any = manifest.settings.get("agent") or {}
    return bool(section.get("replay"))


def analyse_replay(reader: RecordReader, *, confidence: float) -> ReplayAnalysis:
    """Compute everything that a report says of guards before stored runs."""
    run = read_agent_run(reader)
    arms = run.stated
    rows = {(row.case.id, row.repeat): row for arm in arms for row in arm.rows}
    cases = {row.case.id: row for row in rows.values()}
    attacks = [row for row in cases.values() if row.case.is_attack]
    shown = [row for row in attacks if row.reads_order]
    unknown = [row for row in attacks if not row.case.order]
    is_named = bool(attacks) and all(row.case.names_injection for row in attacks)
    counting = _Counting(counting=CaseCounting(confidence=confidence), is_crossed=is_named)
    injections = {(row.case.suite, row.case.injection) for row in attacks}
    return ReplayAnalysis(
        arms=tuple(counting.arm(arm) for arm in arms),
        pairs=tuple(counting.pairs(arms)),
        suites=run.suites,
        attacks=len(attacks),
        benign=len(cases) - len(attacks),
        shown=len(shown),
        not_shown=len(attacks) - len(shown) - len(unknown),
        unknown=len(unknown),
        tasks=len({(row.case.suite, row.case.task) for row in cases.values()}),
        injections=len(injections) if is_named else 0,
        notes=_notes(reader.manifest()),
        run=run,
    )


def _notes(manifest: RunManifest) -> tuple[str, ...]:
    for part in manifest.parts:
        stated = part.settings.get("notes")
        if part.kind == "agent" and isinstance(stated, list | tuple):
            return tuple(str(note) for note in stated)
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counting:
    """Counts stored runs; crossed where they name task and injection, else by task."""

    counting: CaseCounting
    is_crossed: bool

    def arm(self, arm: CasesOfArm) -> ReplayArm:
        """Count what one arm would have done."""
        decided = [row for row in arm.rows if row.is_decided]
        attacks = [row for row in decided if row.case.is_attack]
        shown = [row for row in attacks if row.reads_order]
        done = [row for row in shown if row.case.stored_done]
        benign = [row for row in decided if not row.case.is_attack]
        return ReplayArm(
            arm=arm.arm,
            guards=tuple(f"{place.value}: {name}" for place, name in guards_in_order(arm)),
            stopped=self._of_attacks(shown, _is_stopped),
            stopped_itself=self._of_attacks(shown, _is_stopped_itself),
            stopped_here=self.counting.by_task(shown, _is_stopped),
            stopped_done=self._of_attacks(done, _is_stopped),
            blocked=self._of_attacks(attacks, has_block),
            false_blocks=self.counting.by_task(benign, has_block),
            by_policy=len(arm.rows) - len(decided),
            places=tuple(
                self.counting.place(arm, place, name, ended=shown)
                for place, name in guards_in_order(arm)
            ),
            guards_ms=self.counting.quantiles(
                [row.guards_ns / 1e6 for row in arm.rows if row.guard_steps]
            ),
            calls=mean([len(row.guard_steps) for row in arm.rows]),
        )

    def pairs(self, arms: Sequence[CasesOfArm]) -> Iterable[ReplayPair]:
        """Hold every arm against every other one."""
        for index, first in enumerate(arms):
            for second in arms[index + 1 :]:
                attacks = pair_cases(first, second, _shows_order)
                benign = pair_cases(first, second, lambda row: not row.case.is_attack)
                yield ReplayPair(
                    first=first.arm,
                    second=second.arm,
                    stopped=self.counting.difference(
                        attacks, _is_stopped, is_attack=self.is_crossed
                    ),
                    false_blocks=self.counting.difference(benign, has_block, is_attack=False),
                )

    def _of_attacks(self, rows: Sequence[CaseRow], has: Any) -> Estimate:
        if self.is_crossed:
            return self.counting.crossed(rows, has)
        return self.counting.by_task(rows, has)


def _is_stopped(row: CaseRow) -> bool:
    return row.stopped_by is not None


def _is_stopped_itself(row: CaseRow) -> bool:
    return row.stops_order_itself


def _shows_order(row: CaseRow) -> bool:
    return row.case.is_attack and row.reads_order
