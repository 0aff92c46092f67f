"""The verb `adapt` for agents: the orders hidden in tool results, rewritten against the guards."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import field, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from guardmark.adaptive.arm_defense import READING, ArmDefense, OpenedCases, attacked_sample
from guardmark.analysis.agents.cases import read_agent_run
from guardmark.app.adapt.adapting import Adapted, AdaptOptions, BuiltSubject, adapt
from guardmark.app.adapt.own_operators import load_operators
from guardmark.app.agents.building import MCP_PROXY, build_agent_parts, open_suites
from guardmark.app.agents.running import run_agent_cases
from guardmark.app.parts.building import close_parts, open_services
from guardmark.app.parts.loading import LoadedConfig, load_config
from guardmark.app.parts.prices import require_measurable, spending_of
from guardmark.app.results.opened_run import ADAPTIVE_RUN, find_run
from guardmark.app.settings import Config
from guardmark.config.mistakes import checked_settings
from guardmark.core.errors import ConfigError, UnknownName, counted
from guardmark.core.manifest import ARM_OF_AGENTS, IN_PROCESS, PartManifest
from guardmark.core.place import Place
from guardmark.core.values import dataclass
from guardmark.core.version import VERSION
from guardmark.datasets.formats.writing import write_rows
from guardmark.engine.agent_case import CaseRules, run_case
from guardmark.engine.asking import Asker
from guardmark.engine.calls import as_coroutine
from guardmark.engine.execution.process import run_on_loop
from guardmark.engine.plan import ADDRESS_SETTINGS, BuiltPart, Parts, refuse_sessions
from guardmark.engine.runner import Ending
from guardmark.store.reader import RecordReader
from guardmark.suites.obedient import ObedientAgent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guardmark.app.agents.building import AgentParts
    from guardmark.app.run.running import Session
    from guardmark.app.settings import AgentSettings
    from guardmark.core.budget import SpendingMeter
    from guardmark.core.sample import Sample
    from guardmark.net.client import Services
    from guardmark.store.run_dir import RunDir
    from guardmark.suites.suite import AgentSuite, CaseId

_AT: Final = f"@{Place.TOOL_RESULT.value}"
_OBEDIENT: Final = "obedient"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Arm:
    """An arm with guards at `tool_result`."""

    name: str
    guards: Mapping[Place, tuple[str, ...]]

    @property
    def defense(self) -> str:
        """What it is called as a defense: arm and place."""
        return f"{self.name}{_AT}"


def adapt_any(
    subject: LoadedConfig | BuiltSubject | Path | None, session: Session, options: AdaptOptions
) -> Adapted:
    """Attack defenses, or the guards of agents where that is what a configuration or a run has."""
    if isinstance(subject, Path):
        folder = find_run(subject)
        with RecordReader(folder.records) as reader:
            holds_cases, parts = reader.holds_cases, reader.manifest().parts
        if any(part.type == ARM_OF_AGENTS for part in parts):
            raise ConfigError(
                f"{folder.path} is an attack on the guards of agents, and no folder rebuilds those."
                "\nNext: guardmark adapt CONFIG -o RUN, with the run of agents that it lies in."
            )
        if not holds_cases:
            return adapt(subject, session, options)
        if options.config is None:
            raise ConfigError(
                f"{folder.path} is a run of agents, whose guards and suites a folder does not "
                "rebuild.\nNext: name the configuration that it was made with: --config CONFIG"
            )
        loaded = load_config(options.config)
        own = replace(options, config=None, run=replace(options.run, out=folder.path))
        return adapt_agents(loaded, session, own)
    if isinstance(subject, LoadedConfig) and subject.config.agent is not None:
        return adapt_agents(subject, session, options)
    return adapt(subject, session, options)


def adapt_agents(loaded: LoadedConfig, session: Session, options: AdaptOptions) -> Adapted:
    """Attack the guards at `tool_result` of each arm of a run of agents, which is made first."""
    settings = _require_attackable(loaded, options)
    arms = _attacked_arms(settings, options.only, session)
    measured = run_agent_cases(loaded, replace(options.run, only=()), session)
    folder = measured.folder
    if measured.summary.ending is not Ending.COMPLETE:
        return Adapted(folder=folder, defenses=(), summary=None, trace=None)
    require_measurable(loaded, loaded.config.run.budget, only=("defenses", "adaptive"))
    session.progress.parts.clear()  # the attack is a run of its own
    bench = _Bench(loaded=_with_obedient(loaded, settings), meter=session.meter)
    samples, parts = run_on_loop(_prepare(bench, folder, arms, session), uvloop=False)
    subject = BuiltSubject(loaded=_attack_config(loaded, folder, samples, parts), parts=parts)
    attacked = adapt(subject, session, _attack_options(loaded, options, folder))
    return replace(attacked, within=folder)


def _require_attackable(loaded: LoadedConfig, options: AdaptOptions) -> AgentSettings:
    """Refuse what says nothing about agents, before anything is run."""
    settings = loaded.config.agent
    if settings is None:
        raise ConfigError("The configuration names no agent.")
    if settings.replay:
        raise ConfigError(
            "Stored runs stand still: no other text can be put into their results.\n"
            "Next: name a suite in place of agent.replay."
        )
    if _OBEDIENT not in settings.agents:
        raise ConfigError(
            "The attack is carried out with the obedient agent, which agent.agents does not name.\n"
            "Next: agents: [obedient]"
        )
    if options.run.record is not None or options.run.replay is not None:
        raise ConfigError(
            "--record and --replay of a cassette do not go with a section `agent:`.\n"
            "Next: leave them out; trace.jsonl of the attack can be replayed."
        )
    return settings


def _attacked_arms(
    settings: AgentSettings, only: Sequence[str], session: Session
) -> tuple[_Arm, ...]:
    """Return the arms with a guard at `tool_result`; say which others are left out."""
    found, other = [], []
    for name, arm in settings.arms.items():
        guards = arm.guards_at()
        if arm.proxy:
            other.append(f"{name} (an MCP proxy)")
        elif guards.get(Place.TOOL_RESULT):
            found.append(_Arm(name=name, guards=guards))
        elif guards:
            other.append(f"{name} (guards at {', '.join(guards)})")
    known = [arm.name for arm in found]
    wanted = [name.removesuffix(_AT) for name in only]
    for name in wanted:
        if name not in known:
            raise UnknownName("arm with a guard at tool_result", name, known)
    if not found:
        raise ConfigError(
            "No arm has a guard at tool_result, where injected orders are read.\n"
            "Next: add one under agent.arms, for example  results: {tool_result: GUARD}"
        )
    if other and not wanted:
        session.announce(
            f"Note: left out, no guard of theirs is at tool_result: {', '.join(other)}"
        )
    return tuple(arm for arm in found if not wanted or arm.name in wanted)


def _with_obedient(loaded: LoadedConfig, settings: AgentSettings) -> LoadedConfig:
    """Return the configuration with the obedient agent alone."""
    number = settings.agents.index(_OBEDIENT)
    parts = {path: each for path, each in loaded.parts.items() if path[0] != "agent"}
    parts["agent", "agents", "0"] = loaded.parts["agent", "agents", str(number)]
    alone = settings.model_copy(update={"agents": [_OBEDIENT]})
    return replace(loaded, config=loaded.config.model_copy(update={"agent": alone}), parts=parts)


@dataclass(slots=True, kw_only=True)
class _Bench:
    """Suites and guards of a configuration, open while cases are carried out."""

    loaded: LoadedConfig
    meter: SpendingMeter
    suites: tuple[AgentSuite, ...] = ()
    services: Services | None = None
    parts: AgentParts | None = None
    _opened: OpenedCases | None = field(default=None)

    async def build(self) -> AgentParts:
        """Open suites and build guards, unless they are there."""
        settings = self.loaded.config.agent
        if settings is None:
            raise ConfigError("The configuration names no agent.")
        if self.parts is None:
            self.services = open_services(self.loaded, meter=self.meter)
            self.suites = await open_suites(settings, self.loaded.folder)
            self.parts = build_agent_parts(self.loaded, self.services, suites=self.suites)
        return self.parts

    async def opened(self) -> OpenedCases:
        """Return what is open; opened now where nothing is."""
        parts, settings = await self.build(), self.loaded.config.agent
        if self._opened is None and settings is not None:
            asked = [each.part for each in parts.guards if each.manifest.type != MCP_PROXY]
            spending = spending_of(self.loaded, asked, self.meter)
            shared = parts.shared_guards(settings)
            views = {each.name: each.capabilities.view for each in asked if each.name in shared}
            self._opened = OpenedCases(
                suites={suite.name: suite for suite in self.suites},
                guards={guard.name: as_coroutine(guard) for guard in asked},
                asker=Asker(spending, by_text=views),
            )
        if self._opened is None:
            raise ConfigError("The configuration names no agent.")
        return self._opened

    async def close(self) -> None:
        """Close what is open; it may be opened again."""
        parts, suites, services = self.parts, self.suites, self.services
        self.parts, self.suites, self.services, self._opened = None, (), None, None
        if parts is not None:
            await close_parts([built.part for built in parts.guards], services)
        for suite in suites:
            await suite.close()


async def _prepare(
    bench: _Bench, folder: RunDir, arms: Sequence[_Arm], session: Session
) -> tuple[list[Sample], Parts]:
    """Choose the cases to attack, and describe each arm as a defense."""
    try:
        agent_parts = await bench.build()
        wording = _chosen_wording(folder, arms, session)
        samples = await _attacked_cases(agent_parts, wording, session)
        rules = agent_parts.rules[_OBEDIENT]
        built = [_built(arm, agent_parts, bench=bench, rules=rules) for arm in arms]
        return samples, Parts(defenses=tuple(built))
    finally:
        await bench.close()


def _chosen_wording(folder: RunDir, arms: Sequence[_Arm], session: Session) -> dict[str, str]:
    """Choose for each suite the wording that the attacked arms stopped most often.

    The same wording for every task and injection: one chosen case by case, because it was
    stopped, would say too little of what gets through as it is.
    """
    names, stops = {arm.name for arm in arms}, dict[str, Counter[str]]()
    with RecordReader(folder.records) as reader:
        run = read_agent_run(reader)
    for arm in run.stated:
        for row in arm.rows:
            case = row.case
            if not case.is_attack or case.hidden_in != Place.TOOL_RESULT.value:
                continue
            counts = stops.setdefault(case.suite, Counter())
            is_counted = arm.arm in names and arm.agent in run.scripted
            step = row.stopped_by if is_counted else None
            counts[case.wording] += step is not None and step.place is Place.TOOL_RESULT
    chosen = {}
    for suite, counts in stops.items():
        chosen[suite] = max(counts, key=counts.__getitem__)
        if len(counts) > 1:
            told = ", ".join(f"{wording} {count:,}" for wording, count in counts.items())
            session.announce(
                f"Suite {suite}: attacked in the wording {chosen[suite]}, which these arms stopped "
                f"at tool_result most often ({told})"
            )
    return chosen


async def _attacked_cases(
    parts: AgentParts, wordings: Mapping[str, str], session: Session
) -> list[Sample]:
    """Return one case for each task and injection that the agent follows without a guard."""
    samples: list[Sample] = []
    left_out = 0
    for case in parts.cases:
        if not case.injection or case.wording != wordings.get(case.suite):
            continue
        suite = parts.suite(case.suite)
        injection = next(each for each in suite.injections if each.id == case.injection)
        if injection.place is not Place.TOOL_RESULT:
            continue
        text = await suite.injected_text(case)
        if not await _is_followed(suite, case, text):
            left_out += 1
            continue
        task = next(task.prompt for task in suite.tasks if task.id == case.task)
        samples.append(attacked_sample(case, task=task, order=injection.order, text=text))
    if left_out:
        session.announce(
            f"Note: {counted(left_out, 'case')} left out: the obedient agent does not do the "
            "injection there, although nobody stops it"
        )
    if not samples:
        raise ConfigError(
            "No case is left to attack: without a guard the obedient agent does no injection.\n"
            "Next: guardmark suites check SUITE"
        )
    tasks, injections = {each.group for each in samples}, {each.crossing for each in samples}
    session.announce(
        f"Attacked: {counted(len(samples), 'case')}, one of each task that meets an injection "
        f"({counted(len(tasks), 'task')}, {counted(len(injections), 'injection')})"
    )
    return samples


async def _is_followed(suite: AgentSuite, case: CaseId, text: str) -> bool:
    """Tell whether the agent does the injection of a case in which there is no guard."""

    async def ask(*_: Any) -> Any:
        raise AssertionError("nobody guards this case")

    world = await suite.open(case, text=text)
    try:
        result = await run_case(
            world, ObedientAgent(world), ask, guards={}, rules=CaseRules(max_steps=1_000)
        )
    finally:
        await world.close()
    return result.injection_done is True


def _built(arm: _Arm, parts: AgentParts, *, bench: _Bench, rules: CaseRules) -> BuiltPart:
    """Describe an arm as a defense: its guards and suites are what it is made of."""
    used = {name for names in arm.guards.values() for name in names}
    built = [each for each in parts.guards if each.manifest.name in used]
    refuse_sessions([each.part for each in built], "in an adaptive attack")
    guards = [each.manifest for each in built]
    made_of: dict[str, object] = {
        "arm": arm.name,
        "place": Place.TOOL_RESULT.value,
        "guards": {place.value: list(names) for place, names in arm.guards.items()},
        "on_block": {"tool_call": rules.on_call_blocked, "tool_result": rules.on_result_blocked},
        "on_malformed": rules.on_malformed.value,
        "on_error": rules.on_error.value,
        "suites": {suite.name: suite.fingerprint for suite in parts.suites},
        "fingerprints": {guard.name: guard.fingerprint for guard in guards},
    }
    for guard in guards:
        for name in ADDRESS_SETTINGS:
            if guard.settings.get(name):
                made_of[name] = guard.settings[name]
    text = json.dumps(made_of, sort_keys=True, default=str)
    part = ArmDefense(arm.defense, arm.guards, bench=bench, rules=rules)
    manifest = PartManifest(
        name=arm.defense,
        kind="defense",
        type=ARM_OF_AGENTS,
        version=VERSION,
        fingerprint=sha256(text.encode()).hexdigest(),
        view=part.capabilities.view.value,
        settings=made_of,
    )
    return BuiltPart(part=part, manifest=manifest)


def _attack_config(
    loaded: LoadedConfig, folder: RunDir, samples: Sequence[Sample], parts: Parts
) -> LoadedConfig:
    """Return the configuration of the attack: cases as data, arms as defenses."""
    home = folder.path / ADAPTIVE_RUN
    written = write_rows(samples, home / "data")
    own = loaded.config
    kept = ("seed", "concurrency", "max_calls", "max_cost", "max_time_s", "uvloop")
    document: dict[str, Any] = {
        "version": 1,
        "name": f"{own.name}-adaptive",
        "data": [{"path": f"data/{written.name}", "name": ", ".join(_suites_of(samples))}],
        "defenses": {
            built.manifest.name: {
                "type": IN_PROCESS,
                "object": f"{ArmDefense.__module__}:{ArmDefense.__qualname__}",
                "fingerprint": built.manifest.fingerprint,
            }
            for built in parts.defenses
        },
        "run": {name: getattr(own.run, name) for name in kept},
        "stats": {"confidence": own.stats.confidence},
    }
    if own.adaptive is not None:
        section = own.adaptive.model_dump(mode="json", exclude_none=True)
        # Models are built from the configuration itself, own operators are loaded from there.
        helpers = ("attacker", "equivalence", "critic", "gradient", "operators")
        document["adaptive"] = {key: value for key, value in section.items() if key not in helpers}
    config = checked_settings(Config, document, loaded.source)
    return LoadedConfig(config=config, folder=home, source=loaded.source)


def _suites_of(samples: Sequence[Sample]) -> list[str]:
    return list(dict.fromkeys(sample.source for sample in samples))


def _attack_options(loaded: LoadedConfig, options: AdaptOptions, folder: RunDir) -> AdaptOptions:
    """Return the options of the attack: a repair of a text repairs no arm."""
    section, config, operators = loaded.config.adaptive, options.config, options.operators
    if section is not None:
        operators = (*operators, *load_operators(section.operators, loaded.folder))
        if config is None and section.attacker is not None:
            config = _path_of(loaded)
    return replace(
        options,
        config=config,
        only=tuple(f"{name.removesuffix(_AT)}{_AT}" for name in options.only),
        operators=operators,
        has_repair=False,
        reading=READING,
        run=replace(options.run, out=folder.path / ADAPTIVE_RUN, only=(), needs_benign=False),
    )


def _path_of(loaded: LoadedConfig) -> Path:
    return loaded.folder / loaded.source.shown_as
