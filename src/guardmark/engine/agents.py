"""Many cases of agents: each in each arm, stored exactly once."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING

from guardmark.core.case import CaseEnd
from guardmark.core.errors import BudgetReached
from guardmark.core.outcome import ErrorKind, Evidence, Outcome, Response
from guardmark.core.protocols import Closable
from guardmark.core.record import Stage
from guardmark.core.values import dataclass
from guardmark.engine.agent_case import run_case
from guardmark.engine.asking import Question
from guardmark.engine.calls import (
    as_coroutine,
    as_decision,
)
from guardmark.engine.execution.sessions import session_id
from guardmark.engine.recorder import open_recorder
from guardmark.engine.run_monitor import Halt, Progress, RunMonitor
from guardmark.engine.runner import raise_for, run_state, summary_of
from guardmark.engine.supervision import StopSignal, supervise
from guardmark.store.cases import case_to_json
from guardmark.store.reader import RunState
from guardmark.store.schema import OUTCOME_CODE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from guardmark.core.case import Agent, CaseResult, World
    from guardmark.core.manifest import RunManifest
    from guardmark.core.outcome import Decision
    from guardmark.core.place import Place
    from guardmark.core.protocols import Guard
    from guardmark.core.sample import Prompt
    from guardmark.engine.agent_case import CaseRules
    from guardmark.engine.plan import Plan
    from guardmark.engine.recorder import Recorder
    from guardmark.engine.runner import RunSummary
    from guardmark.store.records import RecordWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentArm:
    """Guards at places around one agent; its name is that of its records."""

    name: str
    agent: str
    guards: Mapping[Place, Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPlan:
    """Everything a run of agents does.

    Attributes:
        plan: Guards, budget, policies and repeats, as of any run.
        arms: What is compared.
        rules: What an arm does where a guard blocks or fails, for each agent.
        open_world: Opens the world of the case at a position.
        make_agent: Makes the agent of a name for a case.
        attacks: Positions of the cases with an injection.
        around: Guards that stand on the way to the tools, each with what puts it there.
        concurrency: Cases under way at once.
    """

    plan: Plan
    arms: Sequence[AgentArm]
    rules: Mapping[str, CaseRules]
    open_world: Callable[[int], Awaitable[World]]
    make_agent: Callable[[str, World, int], Agent]
    attacks: frozenset[int]
    around: Mapping[str, Callable[[World], World]] = field(default_factory=dict)
    concurrency: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lane:
    """One arm in one repeat, with the recorder of its cases and the positions still missing."""

    arm: AgentArm
    repeat: int
    recorder: Recorder
    missing: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sessions:
    """Ids for the guards that keep a session: one a case, arm and repeat.

    A case that was broken off is carried out anew, under another id: that is what `begun` counts.
    """

    guards: frozenset[str]
    manifest: RunManifest | None
    begun: int

    def of(self, guard: str, lane: _Lane, position: int) -> str:
        """Return the id of a case for a guard; nothing where it keeps no session."""
        if guard not in self.guards:
            return ""
        words = guard, lane.arm.name, position, lane.repeat, self.begun
        return session_id(self.manifest, *words)


@dataclass(slots=True, kw_only=True)
class _Asker:
    """Asks guards; the same guard about the same prompt of a case once, whichever arm asks."""

    monitor: RunMonitor
    guards: Mapping[str, Callable[[Prompt], Awaitable[Decision]]]
    sessions: _Sessions

    async def ask(
        self, guard: str, prompt: Prompt, *, lane: _Lane, position: int
    ) -> tuple[Decision, int | None]:
        """Return the decision of a guard and its time; the same question is put once.

        A guard that keeps a session hears each arm by itself.
        """
        asker = self.monitor.asker
        session = self.sessions.of(guard, lane, position)
        if session:
            own = Question(guard, (replace(prompt, session=session),), position, lane.repeat)
            asked, is_new = await asker.put(self.guards[guard], own), True
        else:
            question = Question(guard, (prompt,), position, lane.repeat)
            asked, is_new = await asker.ask_once(self.guards[guard], question, case=position)
        decision = as_decision(asked.answer)
        if is_new:
            self._note(guard, decision)
        return decision, asked.took_ns

    def _note(self, guard: str, decision: Decision) -> None:
        """Count what a call spent, and one that failed."""
        if decision.evidence is not None:
            self.monitor.spend(decision.evidence, guard)
        if decision.outcome in (Outcome.ERROR, Outcome.MALFORMED):
            code = OUTCOME_CODE[decision.outcome]
            self.monitor.note_failure(guard, decision, code=code)


async def run_agents(
    plan: AgentPlan,
    writer: RecordWriter,
    *,
    progress: Progress | None = None,
    stop: StopSignal | None = None,
) -> RunSummary:
    """Carry out every case in every arm that is not stored yet."""
    counters = progress or Progress()
    monitor = RunMonitor(
        plan.plan, writer, progress=counters, stop=stop or StopSignal(), stop_rule=None
    )
    lanes = _lanes(plan, monitor)
    asker = _Asker(
        monitor=monitor,
        guards={guard.name: as_coroutine(guard) for guard in plan.plan.guards},
        sessions=_sessions(plan.plan.guards, writer),
    )
    writer.plan(counters.planned)
    waiting = iter(range(writer.sample_count))
    work = [_work(plan, lanes, asker, waiting) for _ in range(plan.concurrency)]
    try:
        await supervise(work, monitor.tick)
        monitor.store(is_forced=True)
    except BaseException:
        writer.finish(RunState.FAILED)
        raise
    writer.plan(counters.planned)
    writer.finish(run_state(monitor))
    raise_for(monitor)
    return summary_of(monitor, counters)


def _sessions(guards: Sequence[Guard], writer: RecordWriter) -> _Sessions:
    """Begin the sessions of an invocation, where a guard keeps any."""
    names = frozenset(guard.name for guard in guards if guard.capabilities.keeps_session)
    begun = writer.begin_sessions() if names else 0
    return _Sessions(guards=names, manifest=writer.manifest, begun=begun)


def _lanes(plan: AgentPlan, monitor: RunMonitor) -> list[_Lane]:
    lanes = []
    positions = list(range(monitor.writer.sample_count))
    for arm in plan.arms:
        for repeat in range(plan.plan.repeats):
            recorder = open_recorder(monitor, arm.name, Stage.CASE, repeat=repeat)
            stored = monitor.writer.stored.outcomes(recorder.batch, positions)
            missing = frozenset(positions).difference(stored)
            lanes.append(_Lane(arm=arm, repeat=repeat, recorder=recorder, missing=missing))
    return lanes


async def _work(
    plan: AgentPlan, lanes: Sequence[_Lane], asker: _Asker, waiting: Iterator[int]
) -> None:
    """Take one case after the other and carry it out in all arms."""
    for position in waiting:
        for lane in lanes:
            if position not in lane.missing:
                continue
            if not asker.monitor.may_go_on():
                return
            try:
                result = await _carry_out(plan, lane, asker, position)
            except BudgetReached as reached:
                asker.monitor.end(Halt.BUDGET, str(reached))
                return
            _record(lane.recorder, position, result, is_attack=position in plan.attacks)
            asker.monitor.store()
        asker.monitor.asker.forget(position)


async def _carry_out(plan: AgentPlan, lane: _Lane, asker: _Asker, position: int) -> CaseResult:
    async def ask(guard: str, _place: Place, prompt: Prompt) -> tuple[Decision, int | None]:
        return await asker.ask(guard, prompt, lane=lane, position=position)

    world = await plan.open_world(position)
    asked: dict[Place, Sequence[str]] = {}
    for place, names in lane.arm.guards.items():
        asked[place] = [name for name in names if name not in plan.around]
    every = dict.fromkeys(name for names in lane.arm.guards.values() for name in names)
    for name in every:
        if name in plan.around:
            world = plan.around[name](world)
    agent = plan.make_agent(lane.arm.agent, world, lane.repeat)
    try:
        return await run_case(
            world,
            agent,
            ask,
            guards=asked,
            rules=plan.rules[lane.arm.agent],
            session=f"case-{position}-{lane.repeat}",
        )
    finally:
        if isinstance(agent, Closable):
            await agent.close()
        await world.close()


def _record(recorder: Recorder, position: int, result: CaseResult, *, is_attack: bool) -> None:
    has_failed = result.end is CaseEnd.FAILED
    response = Response(
        text=case_to_json(result),
        error_kind=(result.error_kind or ErrorKind.CRASH) if has_failed else None,
        evidence=Evidence(message=result.message) if has_failed else None,
    )
    recorder.record_answer(position, response, is_attack=is_attack, latency_ns=result.latency_ns)
