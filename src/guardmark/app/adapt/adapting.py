"""The verb `adapt`: the defenses of a run attacked by somebody who watches them."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from guardmark.adaptive.asker import stored_tries
from guardmark.adaptive.campaign import (
    AdaptivePlan,
    AdaptiveSummary,
    check_settings,
    run_adaptive,
)
from guardmark.adaptive.state import BUDGETS
from guardmark.app.adapt.attacker import (
    Attacker,
    AttackerConfig,
    attacker_config,
    build_attacker,
    probe_attacker,
)
from guardmark.app.adapt.forecast import AttackForecast, calls_line, forecast_campaign
from guardmark.app.adapt.own_operators import chains_of, load_operators
from guardmark.app.adapt.subject import (
    CANARIES,
    TrustList,
    left_out_note,
    nothing_to_attack,
    protected_of,
    require_attackable,
    require_same,
    require_texts,
    require_untouched,
    stated_views,
    subject_config,
    target_name,
    unseen,
)
from guardmark.app.parts.building import build_gradient, build_parts, close_parts, open_services
from guardmark.app.parts.loading import LoadedConfig, builtin_config
from guardmark.app.parts.prices import require_known_prices, require_measurable, spending_of
from guardmark.app.results import try_trace
from guardmark.app.results.opened_run import find_run
from guardmark.app.run.continuing import SPENT_NOTE, unanswered_note
from guardmark.app.run.run_folder import utc_text
from guardmark.app.run.running import RunOptions, run, run_parts
from guardmark.app.secret_scan import require_no_secret
from guardmark.attacks.battery import lock_text, require_lock
from guardmark.config.deadline import CallAlarm, Overrun
from guardmark.core.errors import ConfigError, IncomparableRuns, UnknownName, counted
from guardmark.core.record import Stage
from guardmark.core.values import dataclass
from guardmark.engine.execution.process import keep_working_directory, run_on_loop
from guardmark.engine.probing import probe_parts
from guardmark.engine.runner import Ending
from guardmark.store.reader import RecordReader
from guardmark.store.records import RecordWriter
from guardmark.store.run_dir import RunDir
from guardmark.store.spent import SPENT, keep_spending

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from guardmark.adaptive.asker import TryKey
    from guardmark.adaptive.state import ReadingRule
    from guardmark.app.run.running import RunResult, Session
    from guardmark.attacks.contract import Operator
    from guardmark.core.sample import Sample
    from guardmark.engine.plan import BuiltPart, Parts
    from guardmark.net.client import Services
    from guardmark.store.tries import TryRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptOptions:
    """What a person adds on the command line.

    Attributes:
        operators: Own ones, beside those that the configuration names.
        reading: What a rewritten attack must keep, beside its tier.
        forecast: Says what will be asked, and may refuse.
    """

    budget: int
    config: Path | None = None
    trace: Path | None = None
    canaries: int = CANARIES
    shared_memory: bool = True
    seeds: int | None = None
    run: RunOptions = field(default_factory=RunOptions)
    trust: Callable[[TrustList], bool] | None = None
    only: tuple[str, ...] = ()
    has_repair: bool = True
    has_controls: bool = True
    operators: tuple[Operator, ...] = ()
    reading: ReadingRule | None = None
    forecast: Callable[[LoadedConfig, AttackForecast, Sequence[Sample]], None] = lambda *_: None


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltSubject:
    """Defenses that exist as objects, with a configuration around them."""

    loaded: LoadedConfig
    parts: Parts


_LITTLE: Final = 0.2  # blocked as they are, below which a search has little to do
_LEAST_CALLS: Final = 4  # of a search, for each attack
_BUILD_S: Final = 3.0  # regular expressions can take minutes to compile
LOCK = "battery.lock"  # of a run folder: operators, parameters and tables of its tries


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapted:
    """What an adaptive measurement did.

    Attributes:
        calls: How often somebody was asked, by purpose.
        within: Run of agents in whose folder the attack lies.
    """

    folder: RunDir
    defenses: tuple[str, ...]
    summary: AdaptiveSummary | None
    trace: Path | None
    calls: str = ""
    within: RunDir | None = None


def little_to_search(defense: str, blocked: int, attacks: int) -> str:
    """Say that a search can hardly add to what passes a defense that blocks few attacks."""
    if not blocked:
        return f"Note: {defense} blocks none of {attacks:,} attacks: there is nothing to search for"
    return (
        f"Note: {defense} blocks {blocked:,} of {attacks:,} attacks as they are: "
        "there is little to search for"
    )


def parse_budget(budget: str) -> int:
    """Read search calls for each attack: one of the known words, or a number."""
    if budget in BUDGETS:
        return BUDGETS[budget]
    if not budget.isdecimal() or int(budget) < _LEAST_CALLS:
        raise ConfigError(
            f"--budget {budget!r} is not a budget. Known: {', '.join(BUDGETS)}, or a number of "
            f"search calls for each attack, at least {_LEAST_CALLS}."
        )
    return int(budget)


def adapt(
    subject: LoadedConfig | BuiltSubject | Path | None, session: Session, options: AdaptOptions
) -> Adapted:
    """Attack the defenses of a run; of a new one when something else than a run is named."""
    if isinstance(subject, Path):
        folder = find_run(subject)
        named = () if options.config is None else (options.config.parent,)
        require_untouched(folder, Path.cwd(), *named)
        with RecordReader(folder.records) as reader:
            manifest = reader.manifest()
        loaded = subject_config(folder, manifest, own=options.config, trust=options.trust)
        parts = None
    else:
        parts = None
        if isinstance(subject, BuiltSubject):
            loaded, parts = subject.loaded, subject.parts
        else:
            loaded = subject or builtin_config()
            require_attackable(loaded)
        measured = _measure_first(loaded, parts, session, options)
        folder = measured.folder
        if measured.summary.ending is Ending.INTERRUPTED:
            return Adapted(folder=folder, defenses=(), summary=None, trace=None)
    config = attacker_config(loaded, options.config)
    work = _Work(config=config, options=options, session=session, parts=parts)
    adapted = run_on_loop(work.carry_out(folder), uvloop=bool(config.loaded.config.run.uvloop))
    require_no_secret([options.run.record])
    return adapted


def _measure_first(
    loaded: LoadedConfig, parts: Parts | None, session: Session, options: AdaptOptions
) -> RunResult:
    """Measure the defenses as they are, once it is known that the attacker can be asked."""
    config = attacker_config(loaded, options.config)
    work = _Work(config=config, options=options, session=session)
    run_on_loop(work.probe(), uvloop=bool(config.loaded.config.run.uvloop))
    own = replace(options.run, needs_judge=False)
    if parts is None:
        return run(loaded, own, session)
    return run_parts(loaded, parts, services=None, options=own, session=session)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """One call of the verb.

    Attributes:
        parts: Where they exist already.
    """

    config: AttackerConfig
    options: AdaptOptions
    session: Session
    parts: Parts | None = None

    async def probe(self) -> None:
        """Ask the attacker model and its judge for a word, before a run is paid for."""
        async with self._attacker() as (_, attacker):
            if attacker is not None:
                await probe_attacker(attacker)

    async def carry_out(self, folder: RunDir) -> Adapted:
        """Attack the defenses of a finished run."""
        loaded = self.config.loaded
        with RecordReader(folder.records) as reader:
            named = [part.name for part in reader.manifest().parts if part.kind == "defense"]
        measured = [name for name in named if name in loaded.config.defenses]
        for name in self.options.only:
            if name not in measured:
                raise UnknownName("defense of this run", name, measured)
        async with self._attacker() as (services, attacker):
            if self.parts is not None:
                try:
                    return await self._attack(folder, self.parts, attacker=attacker)
                finally:
                    await close_parts(self.parts.every, None)
            try:
                with CallAlarm(_BUILD_S if loaded.is_foreign else None):
                    parts = build_parts(loaded, services, only=measured)
            except Overrun as error:
                raise ConfigError(
                    f"{folder.path} names parts that take too long to build.\n"
                    "Next: name your own configuration of the run with --config."
                ) from error
            try:
                return await self._attack(folder, parts, attacker=attacker)
            finally:
                await close_parts(parts.every, None)

    @asynccontextmanager
    async def _attacker(self) -> AsyncIterator[tuple[Services | None, Attacker | None]]:
        """Hold the client and what attacks, for as long as they are asked."""
        own, loaded = self.options.run, self.config.loaded
        budget = loaded.config.run.budget
        require_known_prices(loaded)
        require_measurable(loaded, budget, only=("defenses", "pipeline", "adaptive"))
        self.session.meter.limit(budget)
        is_offline = self.options.trace is not None and own.replay is None
        services = open_services(
            self.config.loaded,
            offline=is_offline,
            record=own.record,
            replay=own.replay,
            meter=self.session.meter,
        )
        attacker = build_attacker(self.config, services)
        self.session.progress.failed = dict if services is None else services.failed
        try:
            if is_offline and attacker is not None and attacker.calls_services:
                raise ConfigError(
                    "A trace holds no words of the attacker model, and this one is behind a "
                    "service.\nNext: name the cassette of its answers too: --replay FILE"
                )
            yield services, attacker
        finally:
            await close_parts([part.part for part in attacker.parts] if attacker else [], services)

    async def _attack(self, folder: RunDir, parts: Parts, *, attacker: Attacker | None) -> Adapted:
        with RecordReader(folder.records) as reader:
            samples = list(reader.samples())
            require_texts(samples)
            require_same(parts, reader.manifest(), shown_as=self.config.loaded.source.shown_as)
            left_out = self._left_out(parts, samples)
            attacked = self._attacked(parts, left_out)
            names = tuple(built.manifest.name for built in attacked)
            made = self._plan(reader, parts, attacked, attacker=attacker)
            plan = replace(made, left_out=left_out)
            if folder.file(LOCK).is_file():
                require_lock(folder.file(LOCK).read_text(encoding="utf-8"), plan.lock)
            check_settings(plan, reader)
            earlier = stored_tries(reader)
        if self.options.trace is not None:
            plan, earlier = _replay(plan, self.options.trace, samples, earlier), {}
        self._forecast(folder, plan, attacked, samples)
        await self._prepare_target(parts, plan)
        if attacker is not None:
            await self._prepare(attacker)
        for built in attacked:
            if built.part.capabilities.needs_samples:
                built.part.bind(samples)
        kept = f": {counted(len(earlier), 'answer')} kept" if earlier else ""
        self.session.announce(f"Attacking {', '.join(names)} in {folder.path}{kept}")
        with (
            folder.lock(started=utc_text(self.session.now)),
            RecordWriter(folder.records) as writer,
            keep_spending(folder.file(SPENT), self.session.meter) as has_spent,
        ):
            if has_spent:
                self.session.announce(SPENT_NOTE)
            if writer.unanswered:
                self.session.announce(unanswered_note(writer.unanswered))
            folder.write_text(LOCK, lock_text(plan.lock))
            with keep_working_directory():
                summary = await run_adaptive(
                    plan,
                    writer,
                    samples,
                    earlier=earlier,
                    stop=self.session.stop,
                    progress=self.session.progress,
                )
        calls = calls_line(summary.calls, sent=self.session.meter.calls)
        if summary.is_interrupted:
            self.session.announce(calls)
            return Adapted(folder=folder, defenses=names, summary=summary, trace=None)
        with RecordReader(folder.records) as reader:
            folder.write_text(
                folder.trace.name, "".join(try_trace.trace_lines(reader, defenses=names))
            )
            text = "".join(try_trace.target_lines(reader))
            if text:
                folder.write_text(folder.target.name, text)
        return Adapted(
            folder=folder, defenses=names, summary=summary, trace=folder.trace, calls=calls
        )

    def _forecast(
        self,
        folder: RunDir,
        plan: AdaptivePlan,
        attacked: Sequence[BuiltPart],
        samples: Sequence[Sample],
    ) -> None:
        """Say what the attack will ask, by purpose, before the first call."""
        with RecordReader(folder.records) as reader:
            blocked = {part.name: reader.counts(part.name)[True, "block"] for part in plan.defenses}
        attacks = sum(sample.is_attack for sample in samples)
        for name, count in blocked.items():
            if attacks and count < _LITTLE * attacks:
                self.session.announce(little_to_search(name, count, attacks))
        forecast = forecast_campaign(plan, attacked=attacked, samples=samples, blocked=blocked)
        for name, most in forecast.planned.items():
            self.session.progress.of(name, Stage.TRY).planned = most
        if plan.trace is not None or self.options.run.replay is not None:
            forecast = replace(forecast, at_service=(), outside=0)  # answers come from a file
        forecast = replace(forecast, is_limited=self.session.meter.is_limited)
        self.options.forecast(self.config.loaded, forecast, samples)

    def _attacked(self, parts: Parts, left_out: Mapping[str, str]) -> list[BuiltPart]:
        """Return the candidates that are to be attacked."""
        attacked = []
        for built in parts.defenses:
            name, only = built.manifest.name, self.options.only
            if name in left_out or built.manifest.is_baseline:
                continue
            if not only or name in only:
                attacked.append(built)
        if not attacked:
            raise ConfigError(
                "--only names no defense that can be attacked: baselines are not.\n"
                "Next: name a candidate."
            )
        return attacked

    def _left_out(self, parts: Parts, samples: Sequence[Sample]) -> Mapping[str, str]:
        """Say which defenses are left out, and return what they look at, baselines aside."""
        if self.parts is None:
            built = {each.manifest.name for each in parts.defenses}
            stated = stated_views(self.config.loaded)
            views = {name: view for name, view in stated.items() if name in built}
        else:  # no settings tell of objects
            views = {each.manifest.name: each.part.capabilities.view for each in parts.defenses}
        left = unseen(views, samples)
        if len(left) == len(views):
            raise nothing_to_attack(left)
        for name, view in left.items():
            self.session.announce(f"Note: left out: {left_out_note(name, view.value)}")
        return {name: view.value for name, view in left.items()}

    def _plan(
        self,
        reader: RecordReader,
        parts: Parts,
        attacked: Sequence[BuiltPart],
        *,
        attacker: Attacker | None,
    ) -> AdaptivePlan:
        options, config = self.options, self.config
        return AdaptivePlan(
            defenses=tuple(built.part for built in attacked),
            seed=reader.manifest().seed,
            budget=options.budget,
            concurrency=config.loaded.config.run.concurrency,
            shares_memory=options.shared_memory and config.section.shared_memory,
            gradient=build_gradient(config.located, attacked),
            seeds=options.seeds or config.section.seeds,
            battery=config.section.battery,
            is_foreign=config.loaded.is_foreign,
            spending=spending_of(config.loaded, parts.every, self.session.meter),
            attacker=None if attacker is None else attacker.plan,
            target=protected_of(parts, reader, canaries=options.canaries, trace=options.trace),
            own=chains_of((*options.operators, *self._own_operators())),
            has_repair=options.has_repair,
            has_controls=self._has_controls(),
            reading=options.reading,
        )

    def _own_operators(self) -> tuple[Operator, ...]:
        """Load the operators that the configuration names; never those of a run folder."""
        named = self.config.section.operators
        if named and self.config.loaded.is_foreign:
            raise ConfigError(
                "The run names own operators, which are code: none is loaded because a folder says "
                "so.\nNext: name your own configuration of the run with --config."
            )
        return load_operators(named, self.config.loaded.folder)

    def _has_controls(self) -> bool:
        """Tell whether control arms are asked; several seeds are there to compare with them."""
        if not self.options.has_controls and (self.options.seeds or self.config.section.seeds) > 1:
            raise ConfigError(
                "Several seeds compare arms, and --no-controls leaves arms out.\n"
                "Next: leave out one of the two."
            )
        return self.options.has_controls

    async def _prepare_target(self, parts: Parts, plan: AdaptivePlan) -> None:
        """Check that the target model and its judges can be asked; say so where they are not."""
        if parts.model is None:
            return
        if plan.target is None:
            self.session.announce(
                "Note: without target.jsonl beside the trace, the target model is not measured."
            )
        elif self.options.trace is None:
            self.session.announce(
                f"Target model: {target_name(plan.target)}; asked about each attack as it is "
                f"and as it got through, and {plan.target.canaries} canaries for each operator"
            )
            for warning in await probe_parts(replace(parts, defenses=())):
                self.session.announce(f"Note: {warning}")

    async def _prepare(self, attacker: Attacker) -> None:
        """Say who attacks, and see that they can be asked."""
        identity, max_calls = attacker.plan.identity, attacker.plan.max_calls
        critic = ""
        if identity.get("critic"):
            critic = f", critic: {identity['critic']}"
        self.session.announce(
            f"Attacker model: {identity['model']}, judge of sameness: {identity['judge']}{critic}; "
            f"at most {max_calls:,} calls of the attacker model for each defense"
        )
        for warning in attacker.warnings:
            self.session.announce(f"Note: {warning}")
        await probe_attacker(attacker)


def _replay(
    plan: AdaptivePlan, trace: Path, samples: Sequence[Sample], earlier: Mapping[TryKey, TryRecord]
) -> AdaptivePlan:
    if earlier:
        raise IncomparableRuns(
            "The run already holds tries; a trace is replayed into a run without any.\n"
            "Next: guardmark run CONFIG, then guardmark adapt on the new folder."
        )
    positions = {sample.id: position for position, sample in enumerate(samples)}
    answers = try_trace.read_trace(trace, settings=plan.settings, positions=positions)
    if plan.target is not None:
        beside = RunDir(path=trace.parent).target
        answers |= try_trace.read_target_trace(
            beside, settings=plan.target.settings, positions=positions
        )
    return replace(plan, trace=answers)
