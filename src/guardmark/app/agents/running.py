"""The verb `run` where a configuration names an agent: every case in every arm, exactly once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from guardmark.app.agents.building import (
    MCP_PROXY,
    build_agent_parts,
    describe_suites,
    open_suites,
    samples_of,
)
from guardmark.app.parts.building import close_parts, open_services
from guardmark.app.parts.loading import config_sha256, require_gate
from guardmark.app.parts.prices import require_known_prices, require_measurable, spending_of
from guardmark.app.run.continuing import SPENT_NOTE, find_place, unanswered_note
from guardmark.app.run.run_folder import (
    begun,
    describe_run,
    ending_line,
    logbook,
    write_description,
)
from guardmark.core.errors import ConfigError, StoreError, counted
from guardmark.core.version import VERSION
from guardmark.engine.agents import AgentPlan, run_agents
from guardmark.engine.execution.process import keep_working_directory, run_on_loop
from guardmark.engine.plan import Plan
from guardmark.store.records import RecordWriter
from guardmark.store.spent import SPENT, keep_spending

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.app.agents.building import AgentParts
    from guardmark.app.parts.loading import LoadedConfig
    from guardmark.app.run.running import RunOptions, RunResult, Session
    from guardmark.core.budget import SpendingMeter
    from guardmark.core.case import Agent, World
    from guardmark.net.client import Services
    from guardmark.suites.suite import CaseId


def run_agent_cases(loaded: LoadedConfig, options: RunOptions, session: Session) -> RunResult:
    """Carry out a run of agents, or continue it."""
    _refuse_options(options)
    require_gate(loaded.config, ())
    require_known_prices(loaded)
    budget = replace(loaded.config.run.budget, cost=options.max_cost or loaded.config.run.max_cost)
    require_measurable(loaded, budget, only=("defenses", "agent"))
    services = open_services(
        loaded,
        offline=options.offline,
        record=options.record,
        replay=options.replay,
        meter=session.meter,
    )
    session.progress.failed = dict if services is None else services.failed
    uvloop = None if services is not None else False
    work = _with_suites(loaded, services, options=options, session=session)
    return run_on_loop(work, uvloop=uvloop)


def _refuse_options(options: RunOptions) -> None:
    stated = {
        "--only": options.only,
        "--shard": options.shard,
        "--stop-when": options.stop_when,
        "--failed": options.retry_errors,
        "--repeat-guards": options.repeat_guards,
    }
    for name, value in stated.items():
        if value:
            raise ConfigError(
                f"{name} does not go with a section `agent:`.\n"
                "Next: leave it out; to leave out an arm, take it out of agent.arms."
            )


async def _with_suites(
    loaded: LoadedConfig, services: Services | None, *, options: RunOptions, session: Session
) -> RunResult:
    """Open the suites, carry out the run, and close them again."""
    settings = loaded.config.agent
    if settings is None:
        raise ConfigError("The configuration names no agent.")
    suites = await open_suites(settings, loaded.folder)
    try:
        parts = build_agent_parts(loaded, services, suites=suites, limit=options.limit)
        _tell_unmeasured(parts, session)
        return await _carry_out(loaded, parts, services, options=options, session=session)
    finally:
        for suite in suites:
            await suite.close()


def _tell_unmeasured(parts: AgentParts, session: Session) -> None:
    """Say which injections only a model agent could carry out, and which stored runs are out."""
    for note in parts.notes:
        session.announce(note)
    if any(built.manifest.type != "obedient" for built in parts.agents):
        return
    for suite in parts.suites:
        unknown = [each.id for each in suite.injections if not each.is_measurable]
        if unknown:
            left_out = len(unknown) * len(suite.tasks)
            session.announce(
                f"Suite {suite.name}: {len(unknown)} injections state no known calls, so "
                f"{left_out:,} cases exist for model agents only and are left out"
            )


async def _carry_out(
    loaded: LoadedConfig,
    parts: AgentParts,
    services: Services | None,
    *,
    options: RunOptions,
    session: Session,
) -> RunResult:
    from guardmark.app.run.running import RunResult

    config_hash = config_sha256(
        loaded.config, parts.manifests, only=options.only, limit=options.limit
    )
    try:
        location = find_place(
            loaded,
            out=options.out,
            start=options.start,
            config_hash=config_hash,
            now=session.now,
        )
        folder = location.folder
        spent = folder.file(SPENT)
        with (
            begun(location, now=session.now) as keep,
            RecordWriter(folder.records) as writer,
            keep_spending(spent, session.meter, is_new=not location.has_samples) as has_spent,
        ):
            if has_spent:
                session.announce(SPENT_NOTE)
            if writer.unanswered:
                session.announce(unanswered_note(writer.unanswered))
            if not location.has_samples:
                _store_cases(loaded, parts, writer, config_hash=config_hash, session=session)
            keep()
            manifest = writer.manifest
            if manifest is None:
                raise StoreError(f"{writer.path} holds no manifest.\nNext: use --fresh.")
            write_description(folder, loaded.config, manifest.data)
            with logbook(folder, session.now) as note:
                doing = "Continuing" if location.has_samples else "Writing"
                session.announce(f"{doing} {folder.path}")
                note(f"{doing} with guardmark {VERSION}, configuration {config_hash}")
                with keep_working_directory():
                    summary = await run_agents(
                        _plan(loaded, parts, options, meter=session.meter),
                        writer,
                        progress=session.progress,
                        stop=session.stop,
                    )
                note(ending_line(summary))
                for line in summary.notes:
                    note(line)
                    session.announce(line)
        return RunResult(folder=folder, summary=summary, data=manifest.data, warnings=())
    finally:
        await close_parts([built.part for built in (*parts.guards, *parts.agents)], services)


def _store_cases(
    loaded: LoadedConfig,
    parts: AgentParts,
    writer: RecordWriter,
    *,
    config_hash: str,
    session: Session,
) -> None:
    data = describe_suites(parts)
    writer.load_samples(
        samples_of(parts),
        manifest=lambda: describe_run(
            loaded.config,
            config_sha256=config_hash,
            now=session.now,
            parts=parts.manifests,
            data=data,
        ),
    )
    for manifest in data:
        session.announce(
            f"Suite {manifest.name}: {counted(manifest.benign, 'task')} alone, "
            f"{manifest.attacks:,} with an injection"
        )


def _plan(
    loaded: LoadedConfig, parts: AgentParts, options: RunOptions, *, meter: SpendingMeter
) -> AgentPlan:
    config = loaded.config
    settings = config.agent
    if settings is None:
        raise ConfigError("The configuration names no agent.")
    on_malformed, on_error = config.policies
    agents = {built.manifest.name: built.part for built in parts.agents}
    cases = parts.cases

    async def open_world(position: int) -> World:
        case = cases[position]
        return await parts.suite(case.suite).open(case)

    def make_agent(name: str, world: World, repeat: int) -> Agent:
        agent: Agent = agents[name].make(world, repeat)
        return agent

    plan = Plan(
        defenses=tuple(built.part for built in parts.guards if built.manifest.type != MCP_PROXY),
        repeats=config.run.repeats,
        concurrency=config.run.concurrency,
        on_malformed=on_malformed,
        on_error=on_error,
        budget=replace(config.run.budget, cost=options.max_cost or config.run.max_cost),
        spending=spending_of(loaded, [*agents.values(), *(g.part for g in parts.guards)], meter),
        max_errors=config.run.max_errors if options.max_errors is None else options.max_errors,
        asked_once=parts.shared_guards(settings),
    )
    return AgentPlan(
        plan=plan,
        arms=parts.arms,
        rules=parts.rules,
        open_world=open_world,
        make_agent=make_agent,
        attacks=_attacks(cases),
        around={
            built.manifest.name: built.part.around
            for built in parts.guards
            if built.manifest.type == MCP_PROXY
        },
        concurrency=config.run.concurrency,
    )


def _attacks(cases: Sequence[CaseId]) -> frozenset[int]:
    return frozenset(position for position, case in enumerate(cases) if case.injection)
