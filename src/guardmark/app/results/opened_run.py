"""A run folder opened: which run a path means, its configuration, and how it is to be read."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from guardmark.analysis.settings import AnalysisSettings, RelianceLimits
from guardmark.app.settings import Config
from guardmark.core.errors import ConfigError, StoreError, UnknownName
from guardmark.core.values import dataclass
from guardmark.datasets.settings import SAID_OF
from guardmark.interchange.records.parquet import TABLES, unpack_run
from guardmark.store.reader import RecordReader
from guardmark.store.run_dir import RunDir
from guardmark.store.seals import RECORDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from guardmark.core.manifest import RunManifest


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedRun:
    """A run whose records are open."""

    folder: RunDir
    reader: RecordReader

    @property
    def config(self) -> Config:
        """The configuration it was made with."""
        return run_config(self.reader.manifest())

    @property
    def settings(self) -> AnalysisSettings:
        """How its records are to be read."""
        return analysis_settings(self.reader)

    def require_defense(self, name: str) -> None:
        """Refuse a defense that the run has not."""
        known = self.reader.defenses()
        if name not in known:
            raise UnknownName("defense of this run", name, known)


@contextmanager
def open_run(path: Path) -> Iterator[OpenedRun]:
    """Open the run a person means by a path."""
    folder = find_run(path)
    with RecordReader(folder.records) as reader:
        yield OpenedRun(folder=folder, reader=reader)


ADAPTIVE_RUN: Final = "adaptive"
"""Folder of an attack on guards of agents, within that of the run of agents."""


@contextmanager
def open_attacked(path: Path) -> Iterator[OpenedRun]:
    """Open the run that holds tries: of agents the attack that lies within the run."""
    with open_run(path) as opened:
        if not opened.reader.holds_cases:
            yield opened
            return
        within = opened.folder.file(ADAPTIVE_RUN)
    if not (within / RECORDS).is_file():
        raise ConfigError(
            f"{path} is a run of agents, and no attack on their guards lies within it.\n"
            f"Next: guardmark adapt CONFIG -o {path}, then the same."
        )
    with open_run(within) as opened:
        yield opened


def find_run(path: Path) -> RunDir:
    """Return the run a person means by a path; `last` is the newest below `runs`."""
    if str(path) == LAST and not path.exists():
        return _newest(Path(RUNS_FOLDER))
    folder = path
    if path.is_file():
        folder = path.parent
    if (folder / TABLES).is_dir() and not (folder / "records.sqlite").exists():
        unpack_run(folder)  # what `export --to parquet` wrote
    if (folder / "records.sqlite").exists():
        return RunDir(path=folder).checked()
    below: list[Path] = []
    if not path.is_file():  # whoever names a file means no run that lies elsewhere
        below = _runs_in(folder, "*/records.sqlite", "*/*/records.sqlite")
    if len(below) == 1:
        return RunDir(path=below[0]).checked()
    if not below:
        lines = [f"There is no run in {path}: it holds no records.sqlite."]
        if (folder / "results.jsonl").exists():
            lines.append(f"For one of minor_bench: guardmark import minorbench {path}")
        lines.append("Name the folder that `guardmark run` printed.")
        raise StoreError("\n".join(lines))
    names = "\n".join(f"  {run}" for run in below[:_MOST_NAMED])
    raise StoreError(f"{path} holds {len(below)} runs; name one. The newest come first:\n{names}")


LAST: Final = "last"
RUNS_FOLDER: Final = "runs"
_MOST_NAMED: Final = 3  # an error has five lines


def _by_time(folders: Iterable[Path]) -> list[Path]:
    """Put the run that was written last first; by name where times are equal."""
    return sorted(
        folders,
        key=lambda each: ((each / "records.sqlite").stat().st_mtime_ns, str(each)),
        reverse=True,
    )


def runs_below(home: Path) -> list[Path]:
    """Return the folders of runs below a folder, the one that was written last first."""
    return _runs_in(home, "*/records.sqlite", "*/*/records.sqlite", "*/*/*/records.sqlite")


def _runs_in(home: Path, *levels: str) -> list[Path]:
    """Return the folders with records at some levels below, the one written last first."""
    folders: list[Path] = []
    for level in levels:
        folders.extend(records.parent for records in home.glob(level))
    return _by_time(folders)


def _newest(home: Path) -> RunDir:
    """Return the run below a folder that was written last."""
    below = runs_below(home)
    if not below:
        raise StoreError(
            f"There is no last run: {home} holds none.\n"
            "Next: name the folder that `guardmark run` printed."
        )
    return RunDir(path=below[0]).checked()


def label_runs(folders: Sequence[RunDir]) -> tuple[str, ...]:
    """Return what to call each run: as little of its path as tells them apart."""
    paths = [folder.path.resolve() for folder in folders]
    labels = [path.name for path in paths]
    for depth in (2, 3):
        taken = Counter(labels)
        for at, path in enumerate(paths):
            if taken[labels[at]] > 1:
                labels[at] = "/".join(path.parts[-depth:])
    taken = Counter(labels)
    for at, label in enumerate(labels):
        if taken[label] > 1:
            labels[at] = f"{label} #{at + 1}"
    return tuple(labels)


def run_config(manifest: RunManifest) -> Config:
    """Return the configuration a run was made with."""
    try:
        return Config.model_validate(_without_effect(manifest.settings))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise StoreError(
            f"The settings kept in run {manifest.name!r} are not those of this guardmark: "
            f"{where}: {first['msg']}.\n"
            f"Next: read it with the guardmark that wrote it, {manifest.guardmark_version}."
        ) from error


def _without_effect(kept: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out settings that once were accepted and never had an effect, refused by now."""
    settings = dict(kept)
    pipeline = settings.get("pipeline")
    if isinstance(pipeline, dict):
        settings["pipeline"] = dict(pipeline)
        settings["pipeline"].pop("system_prompt_name", None)
    data = settings.get("data")
    if isinstance(data, list):
        settings["data"] = list(map(_with_effect, data))
    return settings


def _with_effect(entry: object) -> object:
    """Return what an entry of the data states; of a built-in set what it can be told."""
    if not isinstance(entry, dict) or not entry.get("builtin"):
        return entry
    known = SAID_OF["builtin"] | {"builtin"}
    return {key: value for key, value in entry.items() if key in known}


def analysis_settings(reader: RecordReader, config: Config | None = None) -> AnalysisSettings:
    """Return how the records of a run are to be read."""
    config, weights = config or run_config(reader.manifest()), tuple[float, ...]()
    stats = config.stats
    if stats.deployment_mix:
        from guardmark.datasets.checks.mix import mix_weights, read_mix

        weights = mix_weights(list(reader.samples()), read_mix(stats.deployment_mix))
    return replace(
        AnalysisSettings.of(reader.manifest()),
        margin=stats.margin,
        prevalences=tuple(stats.prevalence),
        cost_missed_attack=stats.cost_missed_attack,
        cost_false_alarm=stats.cost_false_alarm,
        non_inferiority_margin=stats.non_inferiority_margin,
        replicates=stats.replicates,
        weights=weights,
        slices=tuple(stats.slices),
        category_map=stats.categories_meant,
        limits=_limits(config),
        system_limits=_system_limits(config),
        legacy_cards=tuple(config.pipeline.legacy_cards) if config.pipeline else (),
    )


def _limits(config: Config) -> RelianceLimits:
    """Return the limits of a defense: those of the run's gate, else the usual ones."""
    gate = config.gate
    if gate is None:
        return RelianceLimits()
    return _stated_limits(gate.asr_upper, gate.fpr_upper)


def _system_limits(config: Config) -> RelianceLimits:
    """Return the limits of what comes out of a pipeline, likewise."""
    if config.gate is None:
        return RelianceLimits()
    system = config.gate.system
    return _stated_limits(system.asr_upper, system.over_refusal_upper)


def _stated_limits(attacks: float | None, alarms: float | None) -> RelianceLimits:
    usual = RelianceLimits()
    return RelianceLimits(
        attacks=usual.attacks if attacks is None else attacks,
        alarms=usual.alarms if alarms is None else alarms,
        is_of_gate=attacks is not None or alarms is not None,
    )
