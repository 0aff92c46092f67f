"""The verb `judge`: stored answers judged again, or labelled by people, as a new layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import Field

from guardmark.analysis.pipeline.judges import Flips, JudgeQuality, assess_judge, find_flips
from guardmark.app.labels.audit_file import is_sheet_of_bypasses
from guardmark.app.labels.human_labels import (
    HUMAN_LAYER,
    read_bypass_labels,
    read_labels,
    store_bypass_labels,
    store_labels,
)
from guardmark.app.parts.building import build_one
from guardmark.app.parts.loading import LoadedConfig, config_around, load_config, load_section
from guardmark.app.parts.probing import probe_judge
from guardmark.app.parts.process import keep_working_directory, run_on_loop
from guardmark.app.parts.services import concurrency_of, judge_name, open_services
from guardmark.app.registry import settings_model
from guardmark.app.results.reporting import find_run
from guardmark.app.settings import RunSettings, ServiceSettings
from guardmark.config.settings import PriceSettings, Settings
from guardmark.core.errors import ConfigError
from guardmark.core.protocols import Closable
from guardmark.core.record import FIRST_LAYER, Stage
from guardmark.engine.plan import NO_GUARD, Budget, Plan
from guardmark.engine.rejudge import judge_again
from guardmark.reports.chapters.pipeline_trust import quality_document
from guardmark.reports.render.json.documents import quality_json
from guardmark.reports.render.markdown import render_markdown
from guardmark.store.records import RecordReader, RecordWriter

if TYPE_CHECKING:
    from pathlib import Path

    from guardmark.app.parts.building import BuiltPart
    from guardmark.app.run.running import Session
    from guardmark.core.manifest import RunManifest
    from guardmark.engine.runner import RunSummary
    from guardmark.store.run_dir import RunDir


class JudgingSettings(Settings):
    """A file that names judges only."""

    judges: list[dict[str, Any]]
    services: dict[str, ServiceSettings] = Field(default_factory=dict)
    prices: dict[str, PriceSettings] = Field(default_factory=dict)
    run: RunSettings = RunSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What judging again did."""

    folder: RunDir
    layers: tuple[str, ...]
    summaries: tuple[RunSummary, ...]
    labels: int
    flips: Flips | None
    warnings: tuple[str, ...]


def judge_run(
    run: Path,
    session: Session,
    *,
    config: Path | None = None,
    layer: str = "",
    human_labels: Path | None = None,
) -> Judged:
    """Judge the stored answers of a run again; the target model is not called."""
    if config is None and human_labels is None:
        raise ConfigError("Nothing to do: name judges (--config) or labels (--human-labels).")
    if layer.split("/", maxsplit=1)[0] == FIRST_LAYER:
        raise ConfigError(f"The layer {layer!r} belongs to the run. Next: choose another name.")
    folder = find_run(run)
    with RecordReader(folder.records) as reader:
        manifest = reader.manifest()
        sheet = human_labels if human_labels and is_sheet_of_bypasses(human_labels) else None
        bypasses = () if sheet is None else read_bypass_labels(sheet, reader)
        human_labels = None if sheet is not None else human_labels
        is_about_answers = config is not None or human_labels is not None
        if (
            is_about_answers
            and (NO_GUARD, Stage.MODEL, FIRST_LAYER) not in reader.recorded_stages()
        ):
            raise ConfigError(
                f"{run} holds no answers of a target model, so there is nothing to judge.\n"
                "Next: name a run with a pipeline."
            )
        labels = read_labels(human_labels, reader) if human_labels is not None else ()
    loaded = None if config is None else load_judges(config, manifest)
    work = _Work(folder=folder, manifest=manifest, session=session)
    with (
        folder.lock(started=session.now.strftime("%Y-%m-%dT%H:%M:%SZ")),
        RecordWriter(folder.records) as writer,
    ):
        added = []
        if human_labels is not None:
            added.append(store_labels(writer, labels, source=human_labels))
        if sheet is not None:
            added.append(store_bypass_labels(writer, bypasses, source=sheet))
        done = _Done(layers=(), summaries=(), warnings=())
        if loaded is not None:
            with keep_working_directory():
                done = run_on_loop(work.judge(writer, loaded, layer), loaded.config.run)
    name = done.layers[0].split("/")[0] if done.layers else ""
    with RecordReader(folder.records) as reader:
        flips = find_flips(reader, name) if name else None
    return Judged(
        folder=folder,
        layers=(*added, *done.layers),
        summaries=done.summaries,
        labels=len(labels) + sum(bool(each.same) for each in bypasses),
        flips=flips,
        warnings=done.warnings,
    )


def report_quality(run: Path) -> tuple[JudgeQuality, ...]:
    """Look for signs that a judge of a run is not to be trusted; nothing is called."""
    folder = find_run(run)
    with RecordReader(folder.records) as reader:
        layers = [layer for _, stage, layer in reader.recorded_stages() if stage is Stage.JUDGE]
        judged = [
            layer for layer in layers if reader.layer_settings(layer).get("kind") != HUMAN_LAYER
        ]
        found = tuple(assess_judge(reader, layer) for layer in judged or ["run"])
    folder.write_text("judge_quality.json", quality_json(found))
    folder.write_text("judge_quality.md", render_markdown(quality_document(found)))
    return found


def load_judges(path: Path, manifest: RunManifest) -> LoadedConfig:
    """Read judges from a configuration, or from a file that names nothing else."""
    text = path.read_text(encoding="utf-8-sig") if path.is_file() else ""
    if any(line.startswith("pipeline:") for line in text.splitlines()):
        whole = load_config(path).config
        said = JudgingSettings(
            judges=[] if whole.pipeline is None else whole.pipeline.judges,
            services=whole.services,
            prices=whole.prices,
            run=whole.run,
        )
    else:
        said = load_section(path, JudgingSettings, key="judging")
    if not said.judges:
        raise ConfigError(f"{path} names no judge.\nNext: list one under judges:")
    document = {
        "version": 1,
        "data": [{"builtin": "tutor"}],
        "pipeline": {
            "model": {"type": "scripted", "system_prompt": _system_prompt(manifest, path)},
            "judges": said.judges,
        },
        **said.model_dump(mode="json", exclude={"judges"}, exclude_none=True),
    }
    here = ("pipeline", "judges")
    return config_around(path, document, moved={("judges",): here, ("judging", "judges"): here})


def _system_prompt(manifest: RunManifest, path: Path) -> str:
    """What the run's target model was told before every conversation, or nothing."""
    for part in manifest.parts:
        if part.kind == "model" and part.settings:
            settings = settings_model("model", part.type).model_validate(dict(part.settings))
            before = getattr(settings, "before", None)
            return str(before(path.resolve().parent)) if before is not None else ""
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Done:
    layers: tuple[str, ...]
    summaries: tuple[RunSummary, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """One call of the verb."""

    folder: RunDir
    manifest: RunManifest
    session: Session

    async def judge(self, writer: RecordWriter, loaded: LoadedConfig, layer: str) -> _Done:
        said = loaded.config.pipeline.judges if loaded.config.pipeline else []
        names = [judge_name(said, index) for index in range(len(said))]
        services = open_services(loaded)
        parts: list[BuiltPart] = []
        warnings: list[str] = []
        try:
            for index, name in enumerate(names):
                place = ("pipeline", "judges", str(index))
                parts.append(build_one(loaded, place, "judge", name=name, services=services))
            for built in parts:
                warnings.extend(await probe_judge(built))
            layers = _layers(layer or _base(names[0]), names)
            summaries = [
                await self._judge_one(writer, loaded, built, layer=each)
                for built, each in zip(parts, layers, strict=True)
            ]
        finally:
            for built in parts:
                if isinstance(built.part, Closable):
                    await built.part.close()
            if services is not None:
                await services.close()
        return _Done(layers=layers, summaries=tuple(summaries), warnings=tuple(warnings))

    async def _judge_one(
        self, writer: RecordWriter, loaded: LoadedConfig, built: BuiltPart, *, layer: str
    ) -> RunSummary:
        manifest, run = built.manifest, loaded.config.run
        writer.add_layer(
            layer,
            {
                "kind": "judge",
                "judge": manifest.name,
                "type": manifest.type,
                "version": manifest.version,
                "fingerprint": manifest.fingerprint,
                "settings": dict(manifest.settings),
            },
        )
        self.session.announce(f"Judging the answers in {self.folder.path} as layer {layer}")
        plan = Plan(
            defenses=(),
            repeats=self.manifest.repeats,
            concurrency=run.concurrency,
            concurrency_of=concurrency_of(loaded),
            budget=Budget(
                calls=run.max_calls,
                tokens=run.max_tokens,
                cost=run.max_cost,
                seconds=run.max_time_s,
            ),
            max_errors=run.max_errors,
        )
        return await judge_again(
            plan,
            writer,
            judge=built.part,
            layer=layer,
            progress=self.session.progress,
            stop=self.session.stop,
        )


def _base(name: str) -> str:
    """A name for a judging that is not the run's own."""
    return f"{name}-again" if name == FIRST_LAYER else name


def _layers(base: str, names: list[str]) -> tuple[str, ...]:
    if len(names) == 1:
        return (base,)
    return tuple(f"{base}/{name}" for name in names)
