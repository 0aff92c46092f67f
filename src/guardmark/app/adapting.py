"""The verb `adapt`: the defenses of a run attacked by somebody who watches them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from guardmark.app.config import LoadedConfig, parse_config
from guardmark.app.configuration import builtin_config
from guardmark.app.fingerprints import resolved
from guardmark.app.network import open_services
from guardmark.app.parts import build_parts
from guardmark.app.protecting import CANARIES, protected_of
from guardmark.app.reporting import find_run, run_config
from guardmark.app.running import RunOptions, run
from guardmark.attacks.battery import lock_text, require_lock
from guardmark.core.errors import ConfigError, IncomparableRuns
from guardmark.core.protocols import Closable, SampleBound
from guardmark.engine.adaptive.campaign import (
    AdaptivePlan,
    AdaptiveSummary,
    check_settings,
    earlier_tries,
    run_adaptive,
)
from guardmark.engine.adaptive.scene import BUDGETS
from guardmark.engine.adaptive.target_trace import target_lines
from guardmark.engine.adaptive.trace import read_trace, trace_lines
from guardmark.engine.runner import Ending
from guardmark.store.records import RecordReader, RecordWriter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guardmark.app.parts import BuiltPart, Parts
    from guardmark.app.running import Session
    from guardmark.core.sample import Sample
    from guardmark.engine.adaptive.caller import Place, Remembered
    from guardmark.store.run_dir import RunDir

LOCK = "battery.lock"
"""File of a run folder: operators, parameters and tables the tries were made with."""
_LEAST = 4
_BASELINES = ("allow-all", "block-all", "coin")


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapted:
    """What an adaptive measurement did.

    Attributes:
        folder: Folder of the run.
        defenses: Names of the defenses that were attacked.
        summary: Calls by account.
        trace: The exported trace, or None when it was interrupted.
    """

    folder: RunDir
    defenses: tuple[str, ...]
    summary: AdaptiveSummary | None
    trace: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptOptions:
    """How an adaptive measurement goes about its work.

    Attributes:
        budget: Search calls for each attack.
        trace: Take every answer from this trace and call nothing.
        canaries: Harmless sentences a target model is asked to read through each operator; 0
            for none.
    """

    budget: int
    trace: Path | None = None
    canaries: int = CANARIES


def parse_budget(said: str) -> int:
    """Read a budget.

    Args:
        said: `quick`, `standard`, `thorough`, or a number of search calls for each attack.

    Returns:
        Search calls for each attack.

    Raises:
        ConfigError: If it is neither.
    """
    if said in BUDGETS:
        return BUDGETS[said]
    if not said.isdecimal() or int(said) < _LEAST:
        raise ConfigError(
            f"--budget {said!r} is no budget. Known: {', '.join(BUDGETS)}, or a number of search "
            f"calls for each attack, at least {_LEAST}."
        )
    return int(said)


def adapt(
    subject: LoadedConfig | Path | None,
    session: Session,
    *,
    how: AdaptOptions,
    options: RunOptions | None = None,
) -> Adapted:
    """Attack the defenses of a run; of a new one when a configuration is named.

    Args:
        subject: A finished run, a configuration to run first, or None for the built-in run.
        session: Clock, counters and the way out.
        how: Budget, and what is asked beside the defenses.
        options: For the run that is made first.

    Returns:
        What was done. Given again, it continues where it stopped.

    Raises:
        ConfigError: If there is no defense to attack.
        IncomparableRuns: If tries stored here, or the trace, were made otherwise.
        GuardmarkError: As `run` does.
    """
    if subject is None or isinstance(subject, LoadedConfig):
        loaded = subject or builtin_config()
        result = run(loaded, options or RunOptions(), session)
        folder = result.folder
        if result.summary.ending is Ending.INTERRUPTED:
            return Adapted(folder=folder, defenses=(), summary=None, trace=None)
    else:
        folder = find_run(subject)
        with RecordReader(folder.records) as reader:
            loaded = _stored_config(reader, folder)
    work = _Work(folder=folder, loaded=loaded, session=session, how=how)
    return asyncio.run(work.carry_out())


def _stored_config(reader: RecordReader, folder: RunDir) -> LoadedConfig:
    """Return the configuration a run was made with, paths seen from the present folder."""
    import yaml

    text = yaml.safe_dump(resolved(run_config(reader.manifest())))
    return parse_config(text, folder=Path.cwd(), shown_as=str(folder.path))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """One call of the verb on a finished run."""

    folder: RunDir
    loaded: LoadedConfig
    session: Session
    how: AdaptOptions

    async def carry_out(self) -> Adapted:
        services = open_services(self.loaded, offline=self.how.trace is not None)
        parts = build_parts(self.loaded, services)
        attacked = [built for built in parts.defenses if built.manifest.type not in _BASELINES]
        if not attacked:
            raise ConfigError("There is no defense to attack: only baselines are configured.")
        try:
            return await self._attack(parts, attacked)
        finally:
            for part in parts.every:
                if isinstance(part, Closable):
                    await part.close()
            if services is not None:
                await services.close()

    async def _attack(self, parts: Parts, attacked: Sequence[BuiltPart]) -> Adapted:
        trace = self.how.trace
        with RecordReader(self.folder.records) as reader:
            samples = list(reader.samples())
            manifest = reader.manifest()
            order = [part.name for part in manifest.parts]
            attacked = sorted(attacked, key=lambda built: order.index(built.manifest.name))
            names = tuple(built.manifest.name for built in attacked)
            self._check_parts(attacked, {p.name: p.fingerprint for p in manifest.parts})
            plan = AdaptivePlan(
                defenses=tuple(built.part for built in attacked),
                seed=manifest.seed,
                budget=self.how.budget,
                concurrency=self.loaded.config.run.concurrency,
                target=protected_of(
                    parts, reader, samples, canaries=self.how.canaries, trace=trace
                ),
            )
            if self.folder.file(LOCK).exists():
                require_lock(self.folder.file(LOCK).read_text(encoding="utf-8"))
            check_settings(plan, reader)
            earlier = earlier_tries(reader, names)
        if trace is not None:
            plan = self._replay(plan, trace, samples, earlier)
            earlier = {}
        for built in attacked:
            if isinstance(built.part, SampleBound):
                built.part.bind(samples)
        started = self.session.now.strftime("%Y-%m-%dT%H:%M:%SZ")
        self.session.announce(f"Attacking {', '.join(names)} in {self.folder.path}")
        with self.folder.lock(started=started), RecordWriter(self.folder.records) as writer:
            self.folder.write_text(LOCK, lock_text())
            summary = await run_adaptive(
                plan, writer, samples, earlier=earlier, stop=self.session.stop
            )
        if summary.is_interrupted:
            return Adapted(folder=self.folder, defenses=names, summary=summary, trace=None)
        with RecordReader(self.folder.records) as reader:
            told = "".join(trace_lines(reader, defenses=names))
            self.folder.write_text(self.folder.trace.name, told)
            if said := "".join(target_lines(reader)):
                self.folder.write_text(self.folder.target.name, said)
        return Adapted(folder=self.folder, defenses=names, summary=summary, trace=self.folder.trace)

    @staticmethod
    def _check_parts(attacked: Sequence[BuiltPart], before: dict[str, str]) -> None:
        for built in attacked:
            name, now = built.manifest.name, built.manifest.fingerprint
            if before.get(name, now) != now:
                raise IncomparableRuns(
                    f"{name} is not the defense the run measured: its settings or files changed.\n"
                    "Next: run it anew, then adapt."
                )

    @staticmethod
    def _replay(
        plan: AdaptivePlan,
        trace: Path,
        samples: Sequence[Sample],
        earlier: Mapping[str, Mapping[Place, Remembered]],
    ) -> AdaptivePlan:
        if any(earlier.values()):
            raise IncomparableRuns(
                "The run holds tries already; a trace is replayed into a run without any.\n"
                "Next: guardmark run CONFIG, then guardmark adapt on the new folder."
            )
        positions = {sample.id: place for place, sample in enumerate(samples)}
        return replace(plan, trace=read_trace(trace, settings=plan.settings, positions=positions))
