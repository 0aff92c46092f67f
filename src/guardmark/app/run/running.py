"""The verb `run`: a configuration to a finished run folder, exactly once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from guardmark.app.data.reading import config_sha256, read_data
from guardmark.app.parts.building import build_parts
from guardmark.app.parts.probing import probe_parts
from guardmark.app.parts.process import keep_working_directory, run_on_loop
from guardmark.app.parts.services import close_parts, concurrency_of, open_services
from guardmark.app.results.secret_scan import require_no_secret
from guardmark.app.run.description import (
    describe_run,
    ending_line,
    logbook,
    write_description,
)
from guardmark.app.run.engine_options import (
    ANSWERS,
    check_rules,
    early_stop,
    kept_answers,
    rebuilds,
    with_rules,
)
from guardmark.app.run.run_folder import Start, begun, find_place
from guardmark.core.errors import ConfigError, StoreError
from guardmark.core.manifest import VERSION
from guardmark.core.protocols import SampleBound
from guardmark.datasets.settings import describe_data, merge_files
from guardmark.engine.plan import Plan, Timing, Workers
from guardmark.engine.progress import Progress
from guardmark.engine.run_monitor import StopSignal
from guardmark.engine.runner import run as run_engine
from guardmark.store.records import RecordWriter, count_errors, supersede_errors
from guardmark.store.under_way import unanswered_note

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from guardmark.app.parts.building import Parts
    from guardmark.app.parts.loading import LoadedConfig
    from guardmark.app.run.run_folder import RunLocation
    from guardmark.core.manifest import DataManifest, RunManifest
    from guardmark.datasets.loading import DataReading, LoadedData
    from guardmark.engine.runner import RunSummary
    from guardmark.net.client import Services
    from guardmark.store.run_dir import RunDir


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What a person adds to a configuration on the command line."""

    out: Path | None = None
    limit: int | None = None
    only: tuple[str, ...] = ()
    fresh: bool = False
    offline: bool = False
    max_cost: float | None = None
    max_errors: int | None = None
    stop_when: tuple[str, ...] = ()
    record: Path | None = None
    replay: Path | None = None
    retry_errors: bool = False

    @property
    def start(self) -> Start:
        """How a run is taken up."""
        if self.fresh:
            return Start.FRESH
        return Start.RETRY if self.retry_errors else Start.CONTINUE


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What a run is given by whoever started it."""

    now: datetime = field(default_factory=lambda: datetime.now(UTC))  # noqa: TID251 - the clock's door
    progress: Progress = field(default_factory=Progress)
    stop: StopSignal = field(default_factory=StopSignal)
    announce: Callable[[str], None] = lambda _line: None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """A run that was carried out, or as far as it came."""

    folder: RunDir
    summary: RunSummary
    data: tuple[DataManifest, ...]
    warnings: tuple[str, ...]


def run(loaded: LoadedConfig, options: RunOptions, session: Session) -> RunResult:
    """Carry out a run, or continue it."""
    services = open_services(
        loaded, offline=options.offline, record=options.record, replay=options.replay
    )
    parts = build_parts(loaded, services, only=options.only)
    return run_parts(loaded, parts, services=services, options=options, session=session)


def run_parts(
    loaded: LoadedConfig,
    parts: Parts,
    *,
    services: Services | None,
    options: RunOptions,
    session: Session,
) -> RunResult:
    """Carry out a run over parts that are built already."""
    loaded = with_rules(loaded, options.stop_when)
    _check_retry(loaded, options)
    check_rules(loaded.config, [built.part.name for built in parts.defenses])
    invocation = _Invocation(
        loaded=loaded,
        options=options,
        parts=parts,
        services=services,
        config_hash=config_sha256(
            loaded.config, parts.manifests, only=options.only, limit=options.limit
        ),
        session=session,
    )
    result = run_on_loop(invocation.carry_out(), loaded.config.run)
    require_no_secret([options.record, ANSWERS if loaded.config.run.cache else None])
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class _Invocation:
    """One call of the verb, after its parts were built."""

    loaded: LoadedConfig
    options: RunOptions
    parts: Parts
    services: Services | None
    config_hash: str
    session: Session

    async def carry_out(self) -> RunResult:
        now, options = self.session.now, self.options
        warnings: list[str] = []
        if options.record is not None and self.services is None:
            warnings.append("nothing is recorded, since no part of this run calls a service")
        try:
            location = find_place(
                self.loaded,
                out=options.out,
                start=options.start,
                config_hash=self.config_hash,
                now=now,
            )
            with (
                begun(location, now=now) as keep,
                RecordWriter(location.folder.records) as writer,
            ):
                if writer.unanswered:
                    self.session.announce(unanswered_note(writer.unanswered))
                if not location.has_samples:
                    warnings.extend(self._read_into(location.folder, writer))
                failed = count_errors(writer) if options.retry_errors else 0
                if failed or not writer.stored.is_complete:
                    # Nobody is asked about a run that has all of its records.
                    with keep_working_directory():
                        for warning in await probe_parts(self.parts, self.session.stop):
                            self.session.announce(f"Note: {warning}")
                keep()
                if failed:
                    supersede_errors(writer)
                if options.retry_errors:
                    self.session.announce(f"Asking again about {failed:,} that failed")
                return await self._measure(location, writer, warnings)
        finally:
            await close_parts(self.parts.every, self.services)

    def _read_into(self, folder: RunDir, writer: RecordWriter) -> Sequence[str]:
        """Read the data into the records, all of it or nothing; return what deserves a word."""
        data = read_data(self.loaded, limit=self.options.limit)
        # The manifest with the samples: without it they could not be told from other data.
        writer.load_samples(data.plain(), manifest=lambda: self._manifest(data))
        builtin = {entry.builtin for entry in self.loaded.config.data if entry.builtin}
        for line in describe_data(data.manifests, builtin):
            self.session.announce(line)
        # Before the first look at a service, which the calls then follow at once.
        write_description(folder, self.loaded.config, merge_files(data.manifests))
        return data.warnings

    async def _measure(
        self, location: RunLocation, writer: RecordWriter, warnings: Sequence[str]
    ) -> RunResult:
        folder, manifest = location.folder, writer.manifest
        if manifest is None:
            raise StoreError(f"{writer.path} holds samples and no manifest.\nNext: use --fresh.")
        with (
            kept_answers(self.loaded, self.parts) as cached,
            logbook(folder, self.session.now) as note,
        ):
            doing = "Continuing" if location.has_samples else "Writing"
            self.session.announce(f"{doing} {folder.path}")
            note(f"{doing} with guardmark {VERSION}, configuration {self.config_hash}")
            self._bind(writer)
            if location.has_samples:
                write_description(folder, self.loaded.config, manifest.data)
            with keep_working_directory():
                summary = await run_engine(
                    replace(self._plan(), cached=cached),
                    writer,
                    progress=self.session.progress,
                    stop=self.session.stop,
                    stop_rule=early_stop(folder, self.loaded.config.run.stop_when),
                )
            note(ending_line(summary))
        return RunResult(
            folder=folder, summary=summary, data=manifest.data, warnings=tuple(warnings)
        )

    def _bind(self, writer: RecordWriter) -> None:
        """Tell the parts that answer by sample which samples there are."""
        for part in self.parts.every:
            if isinstance(part, SampleBound):
                part.bind(writer.sample(position) for position in range(writer.sample_count))

    def _manifest(self, data: DataReading | LoadedData) -> RunManifest:
        manifest = describe_run(
            self.loaded.config,
            config_sha256=self.config_hash,
            now=self.session.now,
            parts=self.parts.manifests,
            data=data.manifests,
        )
        arms = self.parts.pipeline.arms if self.parts.pipeline is not None else ()
        return replace(
            manifest,
            categories={c.name: c.subcategories for c in data.taxonomy.categories},
            shared_answers=arms if len(arms) > 1 else (),
        )

    def _plan(self) -> Plan:
        config, options = self.loaded.config, self.options
        on_malformed, on_error = config.policies
        rate = per_second(config.latency.rate) if config.latency.rate else None
        return Plan(
            defenses=tuple(built.part for built in self.parts.defenses),
            repeats=config.run.repeats,
            concurrency=config.run.concurrency,
            concurrency_of=concurrency_of(self.loaded),
            on_malformed=on_malformed,
            on_error=on_error,
            timing=Timing(mode=config.latency.mode, warmup=config.latency.warmup, rate_per_s=rate),
            budget=replace(config.run.budget, cost=options.max_cost or config.run.max_cost),
            max_errors=config.run.max_errors if options.max_errors is None else options.max_errors,
            workers=Workers(config.run.workers),
            factories=rebuilds(self.loaded, self.parts),
            pipeline=self.parts.pipeline,
        )


def _check_retry(loaded: LoadedConfig, options: RunOptions) -> None:
    if not options.retry_errors:
        return
    if options.fresh:
        raise ConfigError("--retry-errors goes on with a run and --fresh begins one: give one.")
    if loaded.config.run.stop_when:
        raise ConfigError(
            "--retry-errors cannot be used with stop_when: its looks have been taken already.\n"
            "Next: begin anew with --fresh."
        )


def per_second(rate: str) -> float:
    """Return a rate such as `300/min` in calls per second."""
    number, _, unit = rate.partition("/")
    return float(number) / {"s": 1, "min": 60, "h": 3600}[unit]
