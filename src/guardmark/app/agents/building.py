"""Building what the section `agent:` names: suites, agents, arms and the cases of a run."""

from __future__ import annotations

from dataclasses import field
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from guardmark.app.parts.building import build_agent, build_defenses
from guardmark.app.settings import STORED_AGENT
from guardmark.core.arms import leave_one_out
from guardmark.core.case import name_subject
from guardmark.core.errors import ConfigError, UnknownName
from guardmark.core.manifest import DataManifest, PartManifest
from guardmark.core.place import Place
from guardmark.core.sample import Label, Prompt, Sample
from guardmark.core.values import dataclass
from guardmark.engine.agent_case import CaseRules
from guardmark.engine.agents import AgentArm
from guardmark.engine.plan import BuiltPart
from guardmark.interchange.stored_runs.reading import read_stored_runs
from guardmark.suites.agentdojo.suite import SUITES, AgentDojoSuite, start_processes
from guardmark.suites.loading import BUILT_IN, load_suite, suite_path
from guardmark.suites.stored import StoredAgents, StoredSuite
from guardmark.suites.suite import cases_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from guardmark.app.parts.loading import LoadedConfig
    from guardmark.app.settings import AgentArmSettings, AgentSettings
    from guardmark.net.client import Services
    from guardmark.suites.stored import StoredCase, StoredRuns
    from guardmark.suites.suite import AgentSuite, CaseId

_DRAWS_NOTHING: Final = frozenset({"allow-all", "block-all", "pattern", "ngram"})
"""Types of guards whose answer depends on the text alone."""
_AGENTDOJO: Final = "agentdojo"
MCP_PROXY: Final = "mcp-proxy"
"""Type of guards that stand on the way to the tools."""
_STORED_STEPS: Final = 1_000_000
"""Most moves of a stored run: it has as many as it has."""
_SCRIPTED_STEPS: Final = 1_000
"""Most moves of an agent that ends by itself; `max_steps` is for models, which may not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentParts:
    """Everything that a run of agents is made of.

    Attributes:
        suites: The suites, opened.
        guards: The guards, each built once.
        agents: The agents.
        arms: The arms: guards at places around an agent.
        cases: Ids of the cases to carry out.
        rules: What an arm does where a guard blocks or fails, by agent.
        stored: Stored runs by case, where guards are put before these.
        notes: What was left out of stored runs, and why.
    """

    suites: tuple[AgentSuite, ...]
    guards: tuple[BuiltPart, ...]
    agents: tuple[BuiltPart, ...]
    arms: tuple[AgentArm, ...]
    cases: tuple[CaseId, ...]
    rules: dict[str, CaseRules]
    stored: Mapping[CaseId, StoredCase] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def manifests(self) -> tuple[PartManifest, ...]:
        """What the manifest says of each part."""
        parts = [built.manifest for built in (*self.guards, *self.agents)]
        for suite in self.suites:
            part = PartManifest(
                name=suite.name, kind="suite", type="suite", fingerprint=suite.fingerprint
            )
            parts.append(part)
        return tuple(parts)

    def suite(self, name: str) -> AgentSuite:
        """Return a suite by its name."""
        return next(suite for suite in self.suites if suite.name == name)

    def shared_guards(self, settings: AgentSettings) -> frozenset[str]:
        """Return the guards whose answer depends on the text alone: by type, or as stated."""
        shared = set(settings.deterministic)
        for built in self.guards:
            guard = built.manifest
            if guard.type in _DRAWS_NOTHING or guard.settings.get("draws_nothing"):
                shared.add(guard.name)
        return frozenset(shared)


def build_agent_parts(
    loaded: LoadedConfig,
    services: Services | None,
    *,
    suites: tuple[AgentSuite, ...],
    limit: int | None = None,
) -> AgentParts:
    """Build everything that a run of agents is made of, around suites that are open."""
    settings = loaded.config.agent
    if settings is None:
        raise ConfigError("The configuration names no agent.")
    used = _used_guards(settings)
    guards: tuple[BuiltPart, ...] = ()
    if used:
        guards = build_defenses(loaded, services, only=used)
    _check_proxies(settings, guards)
    if settings.replay:
        return _replay_parts(loaded, settings, suites, guards, limit=limit)
    agents = tuple(build_agent(loaded, number, services) for number in range(len(settings.agents)))
    is_model = any(built.manifest.type != "obedient" for built in agents)
    return AgentParts(
        suites=suites,
        guards=guards,
        agents=agents,
        arms=tuple(_arms(settings, agents)),
        cases=tuple(_cases(settings, suites, only_measurable=not is_model, limit=limit)),
        rules=_rules(loaded, settings, agents),
    )


def _replay_parts(
    loaded: LoadedConfig,
    settings: AgentSettings,
    suites: tuple[AgentSuite, ...],
    guards: tuple[BuiltPart, ...],
    *,
    limit: int | None,
) -> AgentParts:
    """Build guards around stored runs: what guards do is noted, what was stored goes on."""
    stored: dict[CaseId, StoredCase] = {}
    notes: dict[str, None] = {}
    for suite in suites:
        if isinstance(suite, StoredSuite):
            stored |= suite.cases
            notes |= dict.fromkeys(suite.notes)
    manifest = PartManifest(
        name=STORED_AGENT, kind="agent", type="replay", settings={"notes": list(notes)}
    )
    agent = BuiltPart(part=StoredAgents(STORED_AGENT), manifest=manifest)
    on_malformed, on_error = loaded.config.policies
    rules = CaseRules(
        on_malformed=on_malformed, on_error=on_error, max_steps=_STORED_STEPS, is_replay=True
    )
    return AgentParts(
        suites=suites,
        guards=guards,
        agents=(agent,),
        arms=tuple(_arms(settings, (agent,))),
        cases=tuple(_limited(list(stored), limit)),
        rules={STORED_AGENT: rules},
        stored=stored,
        notes=tuple(notes),
    )


def open_stored_suites(runs: StoredRuns) -> tuple[StoredSuite, ...]:
    """Return stored runs by the suite that they are of."""
    by_suite: dict[str, dict[CaseId, StoredCase]] = {}
    for case in runs.cases:
        by_suite.setdefault(case.id.suite, {})[case.id] = case
    suites = []
    for name, cases in by_suite.items():
        suite = StoredSuite(name=name, fingerprint=runs.fingerprint, cases=cases, notes=runs.notes)
        suites.append(suite)
    return tuple(suites)


def _limited(cases: list[CaseId], limit: int | None) -> list[CaseId]:
    """Return the cases of the first tasks of each suite."""
    if limit is None:
        return cases
    tasks: dict[str, dict[str, None]] = {}
    for case in cases:
        tasks.setdefault(case.suite, {})[case.task] = None
    first = {suite: list(own)[:limit] for suite, own in tasks.items()}
    return [case for case in cases if case.task in first[case.suite]]


def _arms(settings: AgentSettings, agents: Sequence[BuiltPart]) -> list[AgentArm]:
    """Return the arms of each agent; a scripted one also goes without each of several guards."""
    stated = {name: arm.guards_at() for name, arm in settings.arms.items()}
    arms = []
    for built in agents:
        agent = built.manifest.name
        guards: dict[str, Mapping[Place, tuple[str, ...]]] = dict(stated)
        if built.manifest.type == "obedient":
            for without in leave_one_out(stated):
                guards[without.name] = without.guards
        for name, places in guards.items():
            subject = name_subject(name, agent, settings.agent_names)
            arms.append(AgentArm(name=subject, agent=agent, guards=places))
    return arms


async def open_suites(settings: AgentSettings, folder: Path) -> tuple[AgentSuite, ...]:
    """Open the suites that a configuration names; code of their authors runs from here on.

    Stored runs are suites of their own, of which nothing runs.
    """
    if settings.replay:
        return open_stored_suites(read_stored_runs(folder / settings.replay))
    opened: list[AgentSuite] = []
    interpreter, shared = settings.interpreter, start_processes(settings.interpreter)
    for name in _suite_names(settings):
        path = suite_path(name, folder)
        if path is not None:
            opened.append(load_suite(path))
            continue
        family, _, own = name.partition("/")
        if family != _AGENTDOJO or own not in SUITES:
            known = [*BUILT_IN, _AGENTDOJO, *_agentdojo_suites()]
            raise UnknownName("suite", name, known)
        opened.append(await AgentDojoSuite.start(own, interpreter=interpreter, shared=shared))
    names = [suite.name for suite in opened]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"Two suites are called {twice[0]!r}.\nNext: give one another name.")
    return tuple(opened)


def _suite_names(settings: AgentSettings) -> list[str]:
    """Return the suites by name, with `agentdojo` for all of its suites."""
    names: list[str] = []
    for name in settings.suites:
        if name == _AGENTDOJO:
            names += _agentdojo_suites()
        else:
            names.append(name)
    return names


def _agentdojo_suites() -> list[str]:
    return [f"{_AGENTDOJO}/{suite}" for suite in SUITES]


def _check_proxies(settings: AgentSettings, guards: Sequence[BuiltPart]) -> None:
    """Refuse a proxy where a guard is asked, and a guard where a proxy is wanted."""
    kinds = {built.manifest.name: built.manifest.type for built in guards}
    for name, arm in settings.arms.items():
        for place in Place:
            for guard in _names_at(arm, place):
                if kinds.get(guard) == MCP_PROXY:
                    raise ConfigError(
                        f"agent.arms.{name}: {guard} is an MCP proxy and is not asked at a place.\n"
                        f"Next: proxy: {guard}"
                    )
        if arm.proxy and kinds.get(arm.proxy) != MCP_PROXY:
            raise ConfigError(
                f"agent.arms.{name}.proxy: {arm.proxy} is of type {kinds.get(arm.proxy)}.\n"
                "Next: name a defense of type mcp-proxy, or put this one at a place."
            )


def _names_at(arm: AgentArmSettings, place: Place) -> tuple[str, ...]:
    stated = getattr(arm, place.value, ())
    if isinstance(stated, str):
        return (stated,)
    return tuple(stated)


def _used_guards(settings: AgentSettings) -> tuple[str, ...]:
    names: dict[str, None] = {}
    for arm in settings.arms.values():
        for guards in arm.guards_at().values():
            names.update(dict.fromkeys(guards))
    return tuple(names)


def _cases(
    settings: AgentSettings,
    suites: Sequence[AgentSuite],
    *,
    only_measurable: bool,
    limit: int | None,
) -> list[CaseId]:
    """Return the cases of suites, of each the first tasks where a limit is given."""
    cases: list[CaseId] = []
    # Nobody who leaves the list of tools unguarded learns anything from orders that stand in it.
    guarded = any(arm.tool_list or arm.proxy for arm in settings.arms.values())
    for suite in suites:
        for name in settings.injections:
            if name not in suite.wordings:
                raise UnknownName(f"wording of {suite.name}", name, suite.wordings)
        wordings = settings.injections or [suite.wordings[0]]
        of_suite = cases_of(suite, wordings, only_measurable=only_measurable)
        if not guarded:
            in_list = {
                injection.id for injection in suite.injections if injection.place is Place.TOOL_LIST
            }
            of_suite = [case for case in of_suite if case.injection not in in_list]
        cases += of_suite
    return _limited(cases, limit)


def _rules(
    loaded: LoadedConfig, settings: AgentSettings, agents: Sequence[BuiltPart]
) -> dict[str, CaseRules]:
    """Return what an arm does where a guard blocks or fails, by agent."""
    on_malformed, on_error = loaded.config.policies
    rules = {}
    for built in agents:
        max_steps = settings.max_steps
        if built.manifest.type == "obedient":
            max_steps = _SCRIPTED_STEPS
        rules[built.manifest.name] = CaseRules(
            on_call_blocked=settings.on_block.tool_call,
            on_result_blocked=settings.on_block.tool_result,
            on_malformed=on_malformed,
            on_error=on_error,
            max_steps=max_steps,
        )
    return rules


def samples_of(parts: AgentParts) -> list[Sample]:
    """Return the cases as the samples of a run: the user's words, and which case it is."""
    samples = []
    for case in parts.cases:
        suite = parts.suite(case.suite)
        prompt = next(task.prompt for task in suite.tasks if task.id == case.task)
        label, category, hidden_in, order = Label.BENIGN, "", "", ""
        if case.injection:
            label, category = Label.ATTACK, "indirect_injection"
            hidden_in = Place.TOOL_RESULT.value
        for injection in suite.injections:
            if case.injection and injection.id == case.injection:
                hidden_in, order = injection.place.value, injection.order
        metadata: dict[str, object] = {
            "suite": case.suite,
            "task": case.task,
            "injection": case.injection,
            "wording": case.wording,
            "hidden_in": hidden_in,
            "order": order,
        }
        stored = parts.stored.get(case)
        if stored is not None:
            prompt = stored.prompt
            metadata |= {
                "order": stored.order,
                "names_injection": stored.names_injection,
                "stored_injection_done": stored.injection_done,
                "stored_task_done": stored.task_done,
            }
        samples.append(
            Sample(
                id=case.text,
                prompt=Prompt.of_text(prompt),
                label=label,
                category=category,
                technique=case.wording,
                source=case.suite,
                group=f"{case.suite}/{case.task}",
                metadata=metadata,
            )
        )
    return samples


def describe_suites(parts: AgentParts) -> tuple[DataManifest, ...]:
    """Return what the manifest says of each suite, as of data."""
    manifests = []
    for suite in parts.suites:
        ids, attacks = [], 0
        for case in parts.cases:
            if case.suite == suite.name:
                ids.append(case.text)
                if case.injection:
                    attacks += 1
        digest = sha256(suite.fingerprint.encode())
        digest.update("\n".join(ids).encode())
        manifests.append(
            DataManifest(
                name=suite.name,
                version="",
                sha256=digest.hexdigest(),
                attacks=attacks,
                benign=len(ids) - attacks,
            )
        )
    return tuple(manifests)
