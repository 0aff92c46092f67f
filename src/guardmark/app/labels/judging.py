"""The verb `judge`: stored answers judged again, or labelled by people, as a new layer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from guardmark.analysis.pipeline.judges import Flips, find_flips
from guardmark.app.labels.audit_file import is_sheet_of_bypasses
from guardmark.app.labels.human_labels import (
    read_bypass_labels,
    read_labels,
    store_bypass_labels,
    store_labels,
)
from guardmark.app.parts import building
from guardmark.app.parts.building import build_judges, close_parts, concurrency_of, open_services
from guardmark.app.parts.loading import LoadedConfig, config_around, load_config, load_section
from guardmark.app.parts.prices import require_known_prices, require_measurable, spending_of
from guardmark.app.results.opened_run import find_run
from guardmark.app.run.continuing import SPENT_NOTE, data_hashes, unanswered_note
from guardmark.app.run.run_folder import utc_text
from guardmark.app.settings import RunSettings
from guardmark.config.settings import PriceSettings, ServiceSettings, Settings
from guardmark.config.source import read_text
from guardmark.core.errors import ConfigError, DatasetError, StoreError
from guardmark.core.place import NO_GUARD, part_of
from guardmark.core.record import FIRST_LAYER, Stage
from guardmark.core.values import dataclass
from guardmark.engine.execution.process import keep_working_directory, run_on_loop
from guardmark.engine.plan import Plan
from guardmark.engine.probing import probe_judge
from guardmark.engine.rejudge import judge_again
from guardmark.models.chat import SystemPromptSettings
from guardmark.store.reader import RecordReader
from guardmark.store.records import RecordWriter
from guardmark.store.spent import SPENT, keep_spending

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from guardmark.app.labels.human_labels import BypassLabel, HumanLabel
    from guardmark.app.run.running import Session
    from guardmark.core.manifest import RunManifest
    from guardmark.engine.plan import BuiltPart
    from guardmark.engine.runner import RunSummary
    from guardmark.store.run_dir import RunDir


class JudgingSettings(Settings):
    """A file that names judges only."""

    judges: list[dict[str, Any]]
    headline: str = ""
    services: dict[str, ServiceSettings] = Field(default_factory=dict)
    prices: dict[str, PriceSettings] = Field(default_factory=dict)
    run: RunSettings = RunSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What judging again did.

    Attributes:
        headline: The judging that its configuration wants figures to stand on.
    """

    folder: RunDir
    layers: tuple[str, ...] = ()
    summaries: tuple[RunSummary, ...] = ()
    labels: int = 0
    flips: Flips | None = None
    headline: str = ""
    warnings: tuple[str, ...] = ()


def judge_run(
    run: Path,
    session: Session,
    *,
    config: Path | None = None,
    layer: str = "",
    human_labels: Path | None = None,
) -> Judged:
    """Judge the stored answers of a run again; the target model is not called."""
    _require_task(config, human_labels, layer=layer)
    folder = find_run(run)
    with RecordReader(folder.records) as reader:
        manifest = reader.manifest()
        bypasses: tuple[BypassLabel, ...] = ()
        labels: tuple[HumanLabel, ...] = ()
        if human_labels is not None and is_sheet_of_bypasses(human_labels):
            bypasses = read_bypass_labels(human_labels, reader)
        if not _has_answers(reader) and (config is not None or not bypasses):
            raise ConfigError(
                f"{run} holds no answers of a target model, so there is nothing to judge.\n"
                "Next: name a run with a pipeline."
            )
        if human_labels is not None and not bypasses:
            labels = read_labels(human_labels, reader)
    done, added, loaded = Judged(folder=folder), [], None
    if config is not None:
        loaded = load_judges(config, manifest, announce=session.announce)
        limit_session(loaded, session)
    with (
        folder.lock(started=utc_text(session.now)),
        RecordWriter(folder.records) as writer,
        keep_spending(folder.file(SPENT), session.meter) as has_spent,
    ):
        tell_of_a_kill(writer, session, has_spent=has_spent)
        if human_labels is not None and bypasses:
            added.append(store_bypass_labels(writer, bypasses, source=human_labels))
        elif human_labels is not None:
            added.append(store_labels(writer, labels, source=human_labels))
        if loaded is not None:
            with keep_working_directory():
                work = _judge(folder, writer, loaded, session, layer=layer)
                done = run_on_loop(work, uvloop=bool(loaded.config.run.uvloop))
    if done.layers and not session.stop.is_seen:
        with RecordReader(folder.records) as reader:
            done = replace(done, flips=find_flips(reader, done.layers[0].split("/")[0]))
    count = len(labels) + len([label for label in bypasses if label.same])
    return replace(done, layers=(*added, *done.layers), labels=count)


def _require_task(config: Path | None, human_labels: Path | None, *, layer: str) -> None:
    """Refuse a command that names nothing to do, or a layer that belongs to the run itself."""
    if config is None and human_labels is None:
        raise ConfigError("Nothing to do: name judges (--config) or labels (--human-labels).")
    if layer.split("/", maxsplit=1)[0] == FIRST_LAYER:
        raise ConfigError(f"The layer {layer!r} belongs to the run. Next: choose another name.")


def _has_answers(reader: RecordReader) -> bool:
    """Tell whether a target model was asked, about texts as they are or as guards wrote them."""
    for name, stage, _ in reader.recorded_stages():
        if stage is Stage.MODEL and part_of(name) == NO_GUARD:
            return True
    return False


def load_judges(
    path: Path, manifest: RunManifest, *, announce: Callable[[str], None]
) -> LoadedConfig:
    """Read judges from a configuration, or from a file that names nothing else."""
    text = read_text(path, f"The configuration {path}")
    loaded: LoadedConfig | None = None
    if any(line.startswith("pipeline:") for line in text.splitlines()):
        loaded = load_config(path)
        whole = loaded.config
        for change in _changes(loaded, manifest):
            announce(f"Note: {change}; what the run keeps is judged, as it was")
        settings = JudgingSettings(
            judges=list(whole.pipeline_judges),
            headline=getattr(whole.pipeline, "headline", ""),
            services=whole.services,
            prices=whole.prices,
            run=whole.run,
        )
    else:
        settings = load_section(path, JudgingSettings, key="judging")
    if not settings.judges:
        raise ConfigError(f"{path} names no judge.\nNext: list one under judges:")
    document: dict[str, Any] = {
        "version": 1,
        "data": [{"builtin": "tutor"}],
        "pipeline": {
            "model": {"type": "scripted", "system_prompt": _system_prompt(manifest, loaded)},
            **settings.model_dump(include={"judges", "headline"}),
        },
        **settings.model_dump(mode="json", exclude={"judges", "headline"}, exclude_none=True),
    }
    document["run"]["repeats"] = manifest.repeats
    here = ("pipeline", "judges")
    judging = config_around(path, document, moved={("judges",): here, ("judging", "judges"): here})
    if loaded is None:
        require_known_prices(judging)
    return judging


def _system_prompt(manifest: RunManifest, own: LoadedConfig | None = None) -> str:
    """Return what the run's target model was told, as the run keeps it; older ones name a file."""
    kept: Mapping[str, object] = next((p.settings for p in manifest.parts if p.kind == "model"), {})
    text, file = kept.get("system_prompt") or "", kept.get("system_prompt_file")
    if file and not text:
        if own and own.parts["pipeline", "model"].model_dump(mode="json") == kept:
            return building.instructions(own)
        raise ConfigError(
            f"What the run told its target model is in a file it does not hold ({file!r}).\n"
            "No file is read because a folder names it.\nNext: name the configuration of the run."
        )
    if not isinstance(text, str):
        raise StoreError(f"{manifest.name!r}: its system prompt is not text.\nNext: run it again.")
    name = None
    if not text:
        name = kept.get("system_prompt_name")
    told = SystemPromptSettings.model_validate({"system_prompt": text, "system_prompt_name": name})
    return told.before(Path())


def _changes(loaded: LoadedConfig, manifest: RunManifest) -> Iterator[str]:
    """Say which originals that a configuration names are no longer those of the run."""
    known: dict[str, str] = {}
    for data in manifest.data:
        known |= data.files
    try:
        if building.instructions(loaded) != _system_prompt(manifest, loaded):
            yield f"{loaded.source.shown_as} tells the target model something else by now"
    except ConfigError as error:
        yield str(error).partition("\n")[0].rstrip(".")
    try:
        hashes = data_hashes(loaded)
    except (DatasetError, OSError) as error:
        yield str(error).partition("\n")[0].rstrip(".")
    else:
        for name, digest in known.items():
            if hashes.get(name) != digest:
                yield f"{name} was changed"


async def _judge(
    folder: RunDir, writer: RecordWriter, loaded: LoadedConfig, session: Session, *, layer: str
) -> Judged:
    services = open_services(loaded, meter=session.meter)
    parts: list[BuiltPart] = []
    try:
        parts.extend(build_judges(loaded, services))
        warnings: list[str] = []
        for built in parts:
            warnings += await probe_judge(built)
        names = [built.manifest.name for built in parts]
        base = layer or names[0]
        if base == FIRST_LAYER and not layer:
            base = f"{base}-again"
        layers: tuple[str, ...] = (base,)
        if len(names) > 1:
            layers = tuple(f"{base}/{name}" for name in names)
        summaries = []
        for built, own_layer in zip(parts, layers, strict=True):
            manifest = built.manifest
            settings = {
                "kind": "judge",
                "judge": manifest.name,
                "type": manifest.type,
                "version": manifest.version,
                "fingerprint": manifest.fingerprint,
                "settings": dict(manifest.settings),
            }
            writer.add_layer(own_layer, settings)
            session.announce(f"Judging the answers in {folder.path} as layer {own_layer}")
            plan = plan_of_judging(loaded, built, session)
            summary = await judge_again(
                plan,
                writer,
                judge=built.part,
                layer=own_layer,
                progress=session.progress,
                stop=session.stop,
            )
            summaries.append(summary)
    finally:
        await close_parts((built.part for built in parts), services)
    headline = getattr(loaded.config.pipeline, "headline", "")
    done = Judged(folder=folder, layers=layers, summaries=tuple(summaries))
    return replace(done, headline=headline, warnings=tuple(warnings))


def plan_of_judging(loaded: LoadedConfig, built: BuiltPart, session: Session) -> Plan:
    """Return how one judge is asked."""
    run = loaded.config.run
    return Plan(
        defenses=(),
        repeats=run.repeats,
        concurrency=run.concurrency,
        concurrency_of=concurrency_of(loaded),
        budget=run.budget,
        spending=spending_of(loaded, [built.part], session.meter),
        max_errors=run.max_errors,
    )


def limit_session(loaded: LoadedConfig, session: Session) -> None:
    """Hold the command to the limits of its judges, and refuse those that cannot be measured."""
    require_measurable(loaded, loaded.config.run.budget)
    session.meter.limit(loaded.config.run.budget)


def tell_of_a_kill(writer: RecordWriter, session: Session, *, has_spent: bool) -> None:
    """Say what a command that was killed left behind."""
    if has_spent:
        session.announce(SPENT_NOTE)
    if writer.unanswered:
        session.announce(unanswered_note(writer.unanswered))
