"""The verb `suites`: which suites there are, what is in one, and whether it is sound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from guardmark.app.agents.building import build_agent_parts, describe_suites, open_suites
from guardmark.app.parts.building import close_parts, open_services
from guardmark.app.parts.loading import require_gate
from guardmark.core.errors import UnknownName, counted
from guardmark.core.values import dataclass
from guardmark.engine.execution.process import run_on_loop
from guardmark.suites.agentdojo.suite import SUITES
from guardmark.suites.checking import check_suite
from guardmark.suites.loading import BUILT_IN, load_suite, read_suite, suite_path

if TYPE_CHECKING:
    from pathlib import Path

    from guardmark.app.parts.loading import LoadedConfig
    from guardmark.net.client import Services


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteLine:
    """A suite by name, and what it is."""

    name: str
    about: str


def list_suites() -> list[SuiteLine]:
    """Return every suite that a configuration can name without a file."""
    errands = "everyday work over mail, calendar, files, a shop, a chat and web pages; built in"
    lines = [SuiteLine(name="errands", about=errands)]
    about = "of AgentDojo 0.1.35 (pip install 'guardmark[agentdojo]')"
    lines += [SuiteLine(name=f"agentdojo/{name}", about=about) for name in SUITES]
    own = "a suite of your own: docs/reference/suite-files.md"
    lines.append(SuiteLine(name="FILE.yaml", about=own))
    return lines


def describe_suite(name: str, folder: Path) -> dict[str, Any]:
    """Return what a suite file states; no code of it runs."""
    settings, _ = read_suite(_file_of(name, folder))
    return settings.model_dump(mode="json", exclude={"world"})


def check_suite_file(name: str, folder: Path) -> list[str]:
    """Run all known solutions of a suite, and say what is wrong with it."""
    return check_suite(load_suite(_file_of(name, folder)))


def check_agent_config(loaded: LoadedConfig) -> list[str]:
    """Build everything that a configuration of agents names, and say what a run will do."""
    services = open_services(loaded)
    require_gate(loaded.config, ())
    return run_on_loop(_checked(loaded, services), uvloop=False)


async def _checked(loaded: LoadedConfig, services: Services | None) -> list[str]:
    settings = loaded.config.agent
    if settings is None:
        return []
    suites = await open_suites(settings, loaded.folder)
    parts = None
    try:
        parts = build_agent_parts(loaded, services, suites=suites)
        lines = ["Settings: fine.", "Stored runs" if settings.replay else "Suites"]
        for suite_counts in describe_suites(parts):
            alone = counted(suite_counts.benign, "task")
            attacks = f"{suite_counts.attacks:,} with an injection"
            lines.append(f"  {suite_counts.name}: {alone} alone, {attacks}")
        lines += [f"  Note: {note}" for note in parts.notes]
        lines.append("Arms")
        for name, arm in settings.arms.items():
            places = []
            for place, guards in arm.guards_at().items():
                places.append(f"{place.value}: {', '.join(guards)}")
            lines.append(f"  {name}: {'; '.join(places) or 'no guard'}")
        if settings.replay:
            lines.append("No agent is at work: guards are shown what is stored.")
        else:
            lines.append(f"Agents: {', '.join(settings.agent_names)}")
        runs = len(parts.arms) * len(parts.cases) * loaded.config.run.repeats
        lines.append(f"Cases to carry out: {runs:,} (arms that leave one guard out included)")
        return lines
    finally:
        built = () if parts is None else (*parts.guards, *parts.agents)
        await close_parts([each.part for each in built], services)
        for suite in suites:
            await suite.close()


def _file_of(name: str, folder: Path) -> Path:
    path = suite_path(name, folder)
    if path is None:
        raise UnknownName("suite that lies in a file", name, BUILT_IN)
    return path
