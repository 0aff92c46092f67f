"""The verb `report`: the reports of a finished run, written again from its records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from guardmark.app.results.finishing import RunOutput, finish
from guardmark.app.settings import FOR_BUILTIN, Config
from guardmark.core.errors import ConfigError, StoreError, UnknownName
from guardmark.store.records import RecordReader
from guardmark.store.run_dir import RunDir

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from guardmark.core.manifest import RunManifest


def find_run(path: Path) -> RunDir:
    """Return the run a person means by a path."""
    folder = path.parent if path.is_file() else path
    if (folder / "records.sqlite").exists():
        return RunDir(path=folder)
    below = sorted(found.parent for found in folder.glob("*/records.sqlite"))
    below += sorted(found.parent for found in folder.glob("*/*/records.sqlite"))
    if len(below) == 1:
        return RunDir(path=below[0])
    if not below:
        raise StoreError(
            f"There is no run in {path}: it holds no records.sqlite.\n"
            "Name the folder that `guardmark run` printed."
        )
    names = "\n".join(f"  {found}" for found in below[-2:])
    raise StoreError(f"{path} holds {len(below)} runs; name one. The newest:\n{names}")


def run_config(manifest: RunManifest) -> Config:
    """Return the configuration a run was made with."""
    try:
        return Config.model_validate(_without_effect(manifest.settings))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(step) for step in first["loc"])
        raise StoreError(
            f"The settings kept in run {manifest.name!r} are not those of this guardmark: "
            f"{where}: {first['msg']}.\n"
            f"Next: read it with the guardmark that wrote it, {manifest.guardmark_version}."
        ) from error


def _without_effect(kept: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out settings that once were accepted and never had an effect, refused by now."""
    settings = dict(kept)
    pipeline, data = settings.get("pipeline"), settings.get("data")
    if isinstance(pipeline, dict):
        settings["pipeline"] = {
            key: value for key, value in pipeline.items() if key != "system_prompt_name"
        }
    if isinstance(data, list):
        settings["data"] = [
            {key: value for key, value in entry.items() if key in FOR_BUILTIN}
            if isinstance(entry, dict) and entry.get("builtin")
            else entry
            for entry in data
        ]
    return settings


def parse_thresholds(
    said: Sequence[str], *, option: str = "--threshold", meaning: str = "X"
) -> tuple[tuple[str, float], ...]:
    """Read thresholds, or limits for them, written as NAME=X."""
    found = []
    for word in said:
        name, equals, number = word.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            value = -1.0
        if not equals or not name or not 0 <= value <= 1:
            raise ConfigError(
                f"{option} {word!r} is not of the form NAME={meaning} with {meaning} in [0, 1].\n"
                f"For example: {option} granite={0.01 if meaning == 'FPR' else 0.8}"
            )
        found.append((name, value))
    return tuple(found)


def report(
    path: Path,
    *,
    formats: Sequence[str] = (),
    thresholds: Sequence[tuple[str, float]] = (),
    texts: bool = True,
) -> RunOutput:
    """Write the reports of a run again; nothing is called."""
    folder = find_run(path)
    with RecordReader(folder.records) as reader:
        manifest = reader.manifest()
        known = reader.defenses()
    for name, _ in thresholds:
        if name not in known:
            raise UnknownName("defense of this run", name, known)
    config = run_config(manifest)
    return finish(
        folder,
        config,
        formats=tuple(formats) or tuple(config.report),
        thresholds=tuple(thresholds),
        texts=texts,
    )
