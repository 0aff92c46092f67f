"""The verb `run`: a configuration to a finished run folder, exactly once."""

from __future__ import annotations

import json
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from guardmark.analysis.frameworks.framework import is_framework
from guardmark.app.parts.building import (
    Rebuild,
    asked_once,
    build_parts,
    calls_service,
    close_parts,
    concurrency_of,
    open_services,
)
from guardmark.app.parts.loading import config_sha256, read_data, require_gate, require_judge
from guardmark.app.parts.prices import (
    require_known_prices,
    require_measurable,
    spending_of,
)
from guardmark.app.results.service_notes import note_refused_fields
from guardmark.app.run.continuing import SPENT_NOTE, Start, find_place, unanswered_note
from guardmark.app.run.equal_texts import note_equal_texts
from guardmark.app.run.run_folder import (
    begun,
    describe_run,
    ending_line,
    logbook,
    utc_text,
    write_description,
)
from guardmark.app.secret_scan import require_no_secret
from guardmark.config.stop_rules import parse_stop_rule, statements_for
from guardmark.core.budget import SpendingMeter
from guardmark.core.errors import ConfigError, StoreError, counted
from guardmark.core.manifest import LatencyMode
from guardmark.core.values import dataclass
from guardmark.core.version import VERSION
from guardmark.datasets.checks.crossed import note_crossed
from guardmark.datasets.checks.duplicates import note_copies
from guardmark.datasets.checks.expectations import note_expectations
from guardmark.datasets.checks.patterns import note_patterns
from guardmark.datasets.settings import describe_data, merge_files
from guardmark.engine.execution.process import keep_working_directory, run_on_loop
from guardmark.engine.plan import CachedParts, Plan, Timing, Workers
from guardmark.engine.probing import probe_parts
from guardmark.engine.run_monitor import Progress
from guardmark.engine.runner import run as run_engine
from guardmark.engine.shards import ShardSet
from guardmark.engine.supervision import StopSignal
from guardmark.net.redaction import KNOWN
from guardmark.net.service import ENDPOINTS, describe_traffic, parse_rate, traffic_text
from guardmark.reports.chapters.data_sets import training_warnings
from guardmark.store.reader import RecordReader
from guardmark.store.records import RecordWriter, count_errors, supersede_errors
from guardmark.store.run_dir import RunDir
from guardmark.store.spent import SPENT, keep_spending

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from guardmark.analysis.early_stop import EarlyStop
    from guardmark.app.parts.loading import LoadedConfig
    from guardmark.app.run.run_folder import RunLocation
    from guardmark.app.settings import Config
    from guardmark.core.manifest import DataManifest, RunManifest
    from guardmark.core.sample import Sample
    from guardmark.datasets.loading import DataReading, LoadedData
    from guardmark.engine.plan import Parts
    from guardmark.engine.runner import RunSummary
    from guardmark.net.client import Services


_MOST_SEARCHED: Final = 300  # samples that are compared after a run: data check compares all


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What a person adds to a configuration on the command line.

    Attributes:
        out: Folder of the run; None for a new one below `runs`.
        limit: How many samples are taken; None for all.
        only: Names of the defenses to run; empty for all.
        fresh: Whether a run that is there is begun anew.
        offline: Whether no service may be called.
        max_cost: Most money that the calls may cost.
        max_errors: The run ends after more errors than this.
        stop_when: Rules that end the calls of a defense early.
        record: File in which answers of services are recorded.
        replay: File from which answers of services are taken.
        retry_errors: Whether samples without an answer are asked again.
        shard: Which part of the samples is run, such as `1/4`.
        repeat_guards: Whether guards whose answer cannot differ are asked in every repeat, too.
    """

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
    shard: str | None = None
    repeat_guards: bool = False
    needs_judge: bool = True
    """False where canaries tell what a target model does, as in an adaptive measurement."""
    needs_benign: bool = True
    """False where the benign side was measured before, as tasks of agents are."""

    @property
    def start(self) -> Start:
        """How a run is taken up."""
        if self.fresh:
            return Start.FRESH
        if self.retry_errors:
            return Start.RETRY
        return Start.CONTINUE


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What the caller gives a run: clock, progress, stop signal and the like."""

    now: datetime = field(default_factory=lambda: datetime.now(UTC))  # noqa: TID251 - the clock's door
    progress: Progress = field(default_factory=Progress)
    stop: StopSignal = field(default_factory=StopSignal)
    announce: Callable[[str], None] = lambda _line: None
    meter: SpendingMeter = field(default_factory=SpendingMeter)
    after_calls: Callable[[], None] = lambda: None
    """What the process does once it has asked for the last time, before anything is computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """A run that was carried out, or as far as it came.

    Attributes:
        folder: Where it is stored.
        summary: How many calls were planned, made and failed.
        data: The data sets, with hashes and counts.
        warnings: What to look at before a figure is believed.
    """

    folder: RunDir
    summary: RunSummary
    data: tuple[DataManifest, ...]
    warnings: tuple[str, ...]


def run(loaded: LoadedConfig, options: RunOptions, session: Session) -> RunResult:
    """Carry out a run, or continue it."""
    if loaded.config.agent is not None:
        raise ConfigError(
            "A section `agent:` measures agents, and this command measures defenses.\n"
            "Next: guardmark run CONFIG."
        )
    services = open_services(
        loaded,
        offline=options.offline,
        record=options.record,
        replay=options.replay,
        meter=session.meter,
    )
    settings, mode = loaded.config.run.cluster, loaded.config.latency.mode
    if settings and mode is not LatencyMode.LOADED:
        raise ConfigError(
            f"Latency mode {mode} times single calls, and run.engine ray asks batches.\n"
            "Next: set latency.mode to loaded, or run.engine to local."
        )
    cluster = None
    if settings:
        from guardmark.engine.execution.cluster import Cluster  # on use: most runs have no cluster

        cluster = Cluster(settings)
    with closing(cluster) if cluster else nullcontext():
        parts = build_parts(replace(loaded, cluster=cluster), services, only=options.only)
        return run_parts(loaded, parts, services=services, options=options, session=session)


def _fetch_data(loaded: LoadedConfig, announce: Callable[[str], None]) -> None:
    """Fetch the public sets that the data name and this machine lacks."""
    public = [entry for entry in loaded.config.data if entry.is_public]
    if public:
        from guardmark.datasets.public_sets import fetch_missing  # on use: most data are files

        for entry in public:
            fetch_missing(entry, loaded.folder, announce)


def run_parts(
    loaded: LoadedConfig,
    parts: Parts,
    *,
    services: Services | None,
    options: RunOptions,
    session: Session,
) -> RunResult:
    """Carry out a run over parts that are built already."""
    loaded = with_options(loaded, options)
    meter = session.meter
    session.progress.failed = dict
    if services is not None:
        meter = services.meter
        session.progress.failed = services.failed
    _check_retry(loaded, options)
    names = [built.part.name for built in parts.defenses]
    check_rules(loaded.config, names)
    require_gate(loaded.config, names)
    if options.needs_judge:
        require_judge(loaded.config)
    budget = replace(loaded.config.run.budget, cost=options.max_cost or loaded.config.run.max_cost)
    require_known_prices(loaded)
    require_measurable(loaded, budget)
    meter.limit(budget)
    if not options.offline:
        _fetch_data(loaded, session.announce)
    invocation = _Invocation(
        loaded=loaded,
        meter=meter,
        options=options,
        parts=parts,
        services=services,
        config_hash=config_sha256(
            loaded.config, parts.manifests, only=options.only, limit=options.limit
        ),
        session=session,
    )
    uvloop = loaded.config.run.uvloop
    if uvloop is None and services is None:
        uvloop = False  # nothing waits for a network: there is nothing to gain
    result = run_on_loop(invocation.carry_out(), uvloop=uvloop)
    written = [options.record]
    if loaded.config.run.cache:
        written.append(ANSWERS)
    require_no_secret(written)
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
    meter: SpendingMeter

    async def carry_out(self) -> RunResult:
        """Find the folder, hold it for as long as the run takes, and measure into its records."""
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
            spent = location.folder.file(SPENT)
            with (
                begun(location, now=now) as keep,
                RecordWriter(location.folder.records) as writer,
                keep_spending(spent, self.meter, is_new=not location.has_samples) as has_spent,
            ):
                if has_spent:
                    self.session.announce(SPENT_NOTE)
                if writer.unanswered:
                    self.session.announce(unanswered_note(writer.unanswered))
                if not location.has_samples:
                    warnings.extend(self._read_into(location.folder, writer))
                failed = 0
                if options.retry_errors:
                    failed = count_errors(writer)
                if failed or not writer.stored.is_complete:
                    # Nobody is asked about a run that has all of its records.
                    with keep_working_directory():
                        stop = self.session.stop
                        spending = spending_of(self.loaded, self.parts.every, self.meter)
                        remarks = await probe_parts(self.parts, stop, spending=spending)
                    writer.note_remarks(remarks)
                    for remark in remarks:
                        self.session.announce(f"Note: {remark}")
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
        data, shard = read_data(self.loaded, limit=self.options.limit), self.loaded.config.run.shard
        samples = data.plain()
        if shard:
            samples = ShardSet.parse(shard).take(samples)
        # The manifest with the samples: without it they could not be told from other data.
        writer.load_samples(samples, manifest=lambda: self._manifest(data))
        builtin = {(entry.builtin or "").partition("@")[0] for entry in self.loaded.config.data}
        needs_benign = self.options.needs_benign
        for line in describe_data(data.manifests, builtin, data.unused, needs_benign=needs_benign):
            self.session.announce(line)
        # Before the first look at a service, which the calls then follow at once.
        write_description(folder, self.loaded.config, merge_files(data.manifests))
        trained = training_warnings(self.parts.manifests, data.manifests)
        return [*data.warnings, *trained]

    def _notes_on_data(self, writer: RecordWriter) -> Iterator[str]:
        """Say which samples are counted as independent and are not, once all calls are made.

        The built-in data were checked when they were written. Of many samples only
        `guardmark data check` looks at all: this is to cost next to nothing of a run.
        """
        if all(entry.builtin for entry in self.loaded.config.data):
            return
        self.session.after_calls()
        views = [str(built.manifest.view) for built in self.parts.defenses]
        yield from note_equal_texts(writer, views)
        count = min(writer.labelled_count, _MOST_SEARCHED)
        samples = [writer.sample(position) for position in range(count)]
        yield from note_patterns(samples)
        yield from note_copies(samples)
        yield from note_crossed(samples)
        yield from note_expectations(samples)
        for name in self.loaded.config.stats.slices:
            if is_framework(name):
                continue
            if not any(name in sample.metadata for sample in samples):
                yield (
                    f"stats.slices names {name!r}, which none of the first {count:,} samples has "
                    "in its metadata: nothing is sliced by it"
                )
        yield from self._note_category_map(samples)

    def _note_category_map(self, samples: Sequence[Sample]) -> Iterator[str]:
        """Note categories that native ones are said to stand for and no sample has."""
        known = {sample.category for sample in samples}
        for defense, categories in self.loaded.config.stats.categories_meant:
            for native, own in categories.items():
                for name in own:
                    if name not in known:
                        yield (
                            f"stats.category_map says that {native!r} of {defense} stands for "
                            f"{name!r}, a category that none of the first {len(samples):,} "
                            "samples has"
                        )

    async def _measure(
        self, location: RunLocation, writer: RecordWriter, warnings: Sequence[str]
    ) -> RunResult:
        """Answer what the records do not hold yet; where they are complete, nobody is asked."""
        folder, manifest = location.folder, writer.manifest
        if manifest is None:
            raise StoreError(f"{writer.path} holds samples and no manifest.\nNext: use --fresh.")
        with (
            kept_answers(self.loaded, self.parts) as cached,
            logbook(folder, self.session.now) as note,
        ):
            verb, kept = "Writing", ""
            if location.has_samples:
                with RecordReader(folder.records) as reader:
                    stored = reader.status().stored
                verb, kept = "Continuing", f": {counted(stored, 'answer')} kept"
            line = f"{verb} {folder.path}{kept}"
            if location.has_samples and writer.stored.is_complete:
                line = (
                    f"Complete: {folder.path} is reported again, nothing is asked (unless --fresh)"
                )
            self.session.announce(line)
            note(f"{verb} with guardmark {VERSION}, configuration {self.config_hash}")
            for built in self.parts.defenses:
                if built.part.capabilities.needs_samples:  # it answers by sample
                    samples = map(writer.sample, range(writer.sample_count))
                    built.part.bind(samples)
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
            lines = [*summary.notes]
            if self.services is not None:
                for refused in note_refused_fields(writer, self.services.refused):
                    self.session.announce(f"Note: {refused}")
                lines += self._tell_endpoints(folder, self.services)
            note(ending_line(summary))
            for line in lines:
                note(line)
                self.session.announce(line)
        warnings = [*warnings, *self._notes_on_data(writer)]
        return RunResult(
            folder=folder, summary=summary, data=manifest.data, warnings=tuple(warnings)
        )

    def _tell_endpoints(self, folder: RunDir, services: Services) -> Iterator[str]:
        """Write how each of several addresses of a service answered, and yield it as lines."""
        path, lines = folder.file(ENDPOINTS), list[str]()
        for endpoint in services.use():
            if endpoint.is_one_of_many:
                from guardmark.stats.quantiles import estimate_quantiles  # numpy: only here

                quantiles = estimate_quantiles(
                    [ns / 1e6 for ns in endpoint.times_ns],
                    (0.5, 0.95),
                    is_in_time_order=True,
                    confidence=self.loaded.config.stats.confidence,
                )
                rows = [asdict(quantile) for quantile in quantiles]
                line = describe_traffic(endpoint, KNOWN.text(endpoint.base_url), rows)
                lines.append(json.dumps({"command_utc": utc_text(self.session.now), **line}) + "\n")
                yield traffic_text(line)
        if lines:
            earlier = ""
            if path.is_file():
                earlier = path.read_text(encoding="utf-8")
            folder.write_text(ENDPOINTS, earlier + "".join(lines))

    def _manifest(self, data: DataReading | LoadedData) -> RunManifest:
        """Return the manifest that is written with the samples: settings, parts and data."""
        manifest = describe_run(
            self.loaded.config,
            config_sha256=self.config_hash,
            now=self.session.now,
            parts=self.parts.manifests,
            data=data.manifests,
        )
        pipeline = self.parts.pipeline
        shared: tuple[str, ...] = ()
        if pipeline is not None and len(pipeline.arms) > 1:
            shared = pipeline.arms
        return replace(manifest, categories=data.taxonomy, shared_answers=shared)

    def _plan(self) -> Plan:
        """Return what the engine is to do."""
        config = self.loaded.config
        on_malformed, on_error = config.policies
        rate_per_s = None
        if config.latency.rate:
            rate = parse_rate(config.latency.rate)
            rate_per_s = rate.count / rate.period_s
        workers = Workers.INLINE
        if not isinstance(config.run.workers, int):
            workers = Workers(config.run.workers)
        max_errors = self.options.max_errors
        if max_errors is None:
            max_errors = config.run.max_errors
        return Plan(
            defenses=tuple(built.part for built in self.parts.defenses),
            repeats=config.run.repeats,
            concurrency=config.run.concurrency,
            concurrency_of=concurrency_of(self.loaded),
            on_malformed=on_malformed,
            on_error=on_error,
            timing=Timing(
                mode=config.latency.mode,
                warmup=config.latency.warmup,
                rate_per_s=rate_per_s,
            ),
            budget=self.meter.budget,
            spending=spending_of(self.loaded, self.parts.every, self.meter),
            max_errors=max_errors,
            workers=workers,
            factories=rebuilds(self.loaded, self.parts),
            pipeline=self.parts.pipeline,
            asked_once=asked_once(self.loaded),
        )


def _check_retry(loaded: LoadedConfig, options: RunOptions) -> None:
    """Refuse to repeat failed calls where a run starts anew, or may stop before its data ends."""
    if not options.retry_errors:
        return
    if options.fresh:
        raise ConfigError("--failed continues a run and --fresh starts one: choose one.")
    if loaded.config.run.stop_when:
        raise ConfigError(
            "--failed cannot be used with stop_when: its checks have been made already.\n"
            "Next: start again with --fresh."
        )


def with_options(loaded: LoadedConfig, options: RunOptions) -> LoadedConfig:
    """Put rules and shard of the command line in the place of the configuration's."""
    update: dict[str, object] = {}
    if options.shard:
        update["shard"] = options.shard
    if options.stop_when:
        update["stop_when"] = [parse_stop_rule(rule).said for rule in options.stop_when]
    if options.repeat_guards:
        update["repeat_guards"] = True
    if options.limit is not None:
        update["limit"] = options.limit
    run = loaded.config.run.model_copy(update=update)
    return replace(loaded, config=loaded.config.model_copy(update={"run": run}))


def check_rules(config: Config, defenses: Sequence[str]) -> None:
    """Refuse rules that this run cannot follow, before anything is called."""
    rules = config.run.stop_when
    if not rules:
        return
    statements_for(rules, defenses)
    clash = ""
    if config.run.shard:
        clash = "a shard: a rule looks at the whole data"
    elif config.run.repeats > 1:
        clash = "repeats above 1: more answers to one sample are not new evidence"
    elif config.pipeline:
        clash = "a pipeline: it asks each arm about every sample"
    elif config.latency.mode is LatencyMode.OPEN:
        clash = "latency mode open: how many calls are sent would depend on the answers"
    if clash:
        raise ConfigError(f"stop_when does not go with {clash}.\nNext: leave out one of the two.")


def early_stop(folder: RunDir, rules: Sequence[str]) -> EarlyStop | None:
    """Make the rule of a run whose samples and manifest are stored."""
    if not rules:
        return None
    # numpy is needed only where a rule is
    from guardmark.analysis.early_stop import open_early_stop

    with RecordReader(folder.records) as reader:
        return open_early_stop(reader, rules)


ANSWERS: Final = Path("runs", "answers.sqlite")
"""Where answers are kept: beside the runs, so that runs of one place share them."""


@contextmanager
def kept_answers(loaded: LoadedConfig, parts: Parts) -> Iterator[CachedParts | None]:
    """Open the kept answers for the time of a run."""
    if not loaded.config.run.cache:
        yield None
        return
    from guardmark.store.cache import AnswerCache

    RunDir(path=ANSWERS.parent).create()
    with closing(AnswerCache(ANSWERS)) as cache:
        yield CachedParts(cache=cache, identities=parts.identities)


def rebuilds(loaded: LoadedConfig, parts: Parts) -> Mapping[str, Rebuild]:
    """Return how processes and other machines get the defenses that call no service."""
    factories = {}
    for built in parts.defenses:
        name = built.manifest.name
        if ("defenses", name) not in loaded.parts or calls_service(loaded, name):
            continue
        # What answers by looking samples up knows them in this process only.
        if not built.part.capabilities.needs_samples:
            factories[name] = Rebuild(loaded=loaded, name=name, manifest=built.manifest)
    return factories
