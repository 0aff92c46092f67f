"""From data settings to validated samples, their hashes, and what a run says of them."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from guardmark.app.parts.loading import locate_error
from guardmark.core.errors import ConfigError, DatasetError
from guardmark.core.taxonomy import DEFAULT_TAXONOMY, Taxonomy
from guardmark.datasets.builtin import builtin_specs
from guardmark.datasets.formats.fields import DatasetSpec
from guardmark.datasets.loading import DataReading, LoadedData, file_sha256, load

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from guardmark.app.parts.loading import LoadedConfig
    from guardmark.app.settings import Config, DataSettings
    from guardmark.core.manifest import DataManifest, PartManifest


_GLOB = frozenset("*?[")


def load_data(loaded: LoadedConfig, *, limit: int | None = None) -> LoadedData:
    """Read and validate every data set of a configuration."""
    seed = loaded.config.run.seed
    return load(_specs(loaded), taxonomy_of(loaded.config), limit=limit, seed=seed)


def read_data(loaded: LoadedConfig, *, limit: int | None = None) -> DataReading | LoadedData:
    """Open every data set of a configuration, to be read once and handed on."""
    if limit is not None:
        return load_data(loaded, limit=limit)
    return DataReading(_specs(loaded), taxonomy_of(loaded.config))


def _specs(loaded: LoadedConfig) -> list[DatasetSpec]:
    specs: list[DatasetSpec] = []
    for index, entry in enumerate(loaded.config.data):
        try:
            specs.extend(dataset_specs(entry, loaded.folder))
        except ConfigError as error:
            raise locate_error(error, loaded, ("data", str(index))) from error
    return specs


def taxonomy_of(config: Config) -> Taxonomy:
    """Return the built-in taxonomy with the configuration's own categories."""
    return DEFAULT_TAXONOMY.extended(config.taxonomy.extend)


def dataset_specs(entry: DataSettings, folder: Path) -> tuple[DatasetSpec, ...]:
    """Return the files one data entry names."""
    wanted = {
        field: tuple(value) if isinstance(value, list) else (value,)
        for field, value in entry.filter.items()
    }
    include, exclude = frozenset(entry.include_variants), frozenset(entry.exclude_variants)
    if entry.builtin is not None:
        return tuple(
            replace(spec, filter=wanted, include_variants=include, exclude_variants=exclude)
            for spec in builtin_specs(entry.builtin)
        )
    stated = entry.path or ""
    paths = list(_paths(stated, folder))
    if entry.sha256 and (len(paths) != 1 or file_sha256(paths[0]) != entry.sha256.lower()):
        raise DatasetError(
            f"The data file {stated} is not the one the configuration states (sha256).\n"
            "Take the file of that hash, or state the new hash: guardmark data hash FILE."
        )
    return tuple(
        DatasetSpec(
            name=entry.name or path.name.split(".")[0],
            path=path,
            shown_as=stated if len(paths) == 1 else str(Path(stated).parent / path.name),
            version=entry.version,
            format=entry.format or "",
            label=entry.label,
            label_field=entry.label_field or "",
            labels={word: label.value for word, label in entry.labels.items()},
            map=entry.map,
            filter=wanted,
            include_variants=include,
            exclude_variants=exclude,
            defaults=entry.defaults,
            open_categories=entry.open_categories or entry.format == "prompt_pack",
        )
        for path in paths
    )


def merge_files(manifests: Sequence[DataManifest]) -> tuple[DataManifest, ...]:
    """Put the files of one data set together, so that reports name the set once."""
    merged = []
    for name in dict.fromkeys(manifest.name for manifest in manifests):
        files = [manifest for manifest in manifests if manifest.name == name]
        if len(files) == 1:
            merged.append(files[0])
            continue
        merged.append(
            replace(
                files[0],
                sha256=data_sha256(files),
                attacks=sum(manifest.attacks for manifest in files),
                benign=sum(manifest.benign for manifest in files),
                files={file: h for manifest in files for file, h in manifest.files.items()},
                mapping={f: path for manifest in files for f, path in manifest.mapping.items()},
            )
        )
    return tuple(merged)


def _paths(stated: str, folder: Path) -> Iterator[Path]:
    path = Path(stated).expanduser()
    whole = path if path.is_absolute() else folder / path
    if not _GLOB & set(stated) or whole.exists():
        yield whole
        return
    found = sorted(whole.parent.glob(whole.name))
    if not found:
        raise DatasetError(
            f"No data file fits {stated}.\nPaths are taken from the folder of the configuration."
        )
    yield from found


_NO_FIGURE_DEPENDS_ON = {"report", "gate", "services", "prices", "adaptive"}
"""Sections that change how a run is done or told, never what it observes."""


def resolved(config: Config) -> dict[str, Any]:
    """Return a configuration as JSON values, every default filled in."""
    return config.model_dump(mode="json", exclude_none=False)


def config_sha256(
    config: Config, parts: Sequence[PartManifest], *, only: Sequence[str], limit: int | None
) -> str:
    """Hash what is measured and how."""
    document = resolved(config)
    for section in _NO_FIGURE_DEPENDS_ON:
        document.pop(section, None)
    for budget in ("max_errors", "max_calls", "max_tokens", "max_cost", "max_time_s"):
        document["run"].pop(budget)
    document["parts"] = {part.name: part.fingerprint for part in parts}
    document["only"] = sorted(only)
    document["limit"] = limit
    text = json.dumps(document, sort_keys=True, ensure_ascii=False)
    return sha256(text.encode()).hexdigest()


def data_sha256(manifests: Sequence[DataManifest]) -> str:
    """Hash all data sets of a run, in order."""
    joined = "\n".join(f"{m.name} {m.version} {m.sha256}" for m in manifests)
    return sha256(joined.encode()).hexdigest()


def describe_data(manifests: Sequence[DataManifest], builtin: Collection[str]) -> Iterable[str]:
    """Say what was read and which field of a file was taken for what."""
    for name in dict.fromkeys(m.name for m in manifests if m.name in builtin):
        files = [m for m in manifests if m.name == name]
        yield f"Read {name} version {files[0].version}: {_counts(files)}"
    for manifest in manifests:
        if manifest.name in builtin:
            continue
        taken = ", ".join(
            f"{field} from {path}" if field != path else field
            for field, path in manifest.mapping.items()
        )
        rows = f"{_counts([manifest])} (taken: {taken})" if taken else "no row passes the filter"
        yield f"Read {', '.join(manifest.files)}: {rows}"


def _counts(manifests: Sequence[DataManifest]) -> str:
    attacks = sum(manifest.attacks for manifest in manifests)
    benign = sum(manifest.benign for manifest in manifests)
    return f"{attacks:,} attacks, {benign:,} benign"
