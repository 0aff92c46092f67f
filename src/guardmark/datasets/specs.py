"""From an entry of a configuration to the files of a data set, and how each is read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from guardmark.core.errors import DatasetError
from guardmark.datasets.builtin import builtin_specs
from guardmark.datasets.formats.fields import DatasetSpec
from guardmark.datasets.formats.files import ObjectPath, address_of, list_objects
from guardmark.datasets.loading import file_sha256
from guardmark.datasets.settings import SAID_OF
from guardmark.parsing.mapped import is_mapped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guardmark.datasets.settings import DataSettings


def dataset_specs(entry: DataSettings, folder: Path) -> tuple[DatasetSpec, ...]:
    """Return the files one data entry names."""
    if entry.origin in SAID_OF:
        return tuple(_chosen(spec, entry) for spec in _named_specs(entry, folder))
    version, files = _stated_files(entry, folder)
    _require_stated_hash(entry, list(files.values()))
    specs: list[DatasetSpec] = []
    for shown_as, path in files.items():
        spec = _file_spec(entry, folder, path)
        spec = replace(_chosen(spec, entry), shown_as=shown_as, version=version)
        specs.extend(_inner_specs(spec, folder))
    return tuple(specs)


def _chosen(spec: DatasetSpec, entry: DataSettings) -> DatasetSpec:
    """Return a file of which what an entry chooses is read: rows, variants, turns."""
    wanted: dict[str, tuple[object, ...]] = {}
    for field, value in entry.filter.items():
        wanted[field] = tuple(value) if isinstance(value, list) else (value,)
    return replace(
        spec,
        filter=wanted,
        include_variants=frozenset(entry.include_variants),
        exclude_variants=frozenset(entry.exclude_variants),
        turns=entry.turns,
    )


def _stated_files(entry: DataSettings, folder: Path) -> tuple[str, dict[str, Path]]:
    """Return the version of the files of an entry, and the files by the names that are shown."""
    if entry.hub is not None:
        from guardmark.datasets.public_sets import hub_files  # on use: most data are files

        revision, stored = hub_files(entry, folder)
        files = {f"{entry.hub}/{path}": where for path, where in stored.items()}
        return entry.version or revision, files
    stated = entry.path or ""
    paths = list(_paths(stated, folder))
    if len(paths) == 1:
        return entry.version, {stated: paths[0]}
    files = {}
    for path in paths:
        shown_as = address_of(path) or str(Path(stated).parent / path.name)
        files[shown_as] = path
    return entry.version, files


def _require_stated_hash(entry: DataSettings, paths: Sequence[Path]) -> None:
    """Refuse a file that is not the one whose hash an entry states."""
    if not entry.sha256:
        return
    if len(paths) != 1 or file_sha256(paths[0]) != entry.sha256.lower():
        raise DatasetError(
            f"The data file {entry.path or ''} is not the one the configuration states (sha256).\n"
            "Take the file of that hash, or state the new hash: guardmark data hash FILE."
        )


def _file_spec(entry: DataSettings, folder: Path, path: Path) -> DatasetSpec:
    """Return how one file of an entry is read."""
    repository = (entry.hub or "").rpartition("/")[2]
    return DatasetSpec(
        name=entry.name or repository or path.name.split(".")[0],
        path=path,
        format=entry.format or "",
        encoding=entry.encoding,
        label=entry.label,
        label_field=entry.label_field or "",
        labels={word: label.value for word, label in entry.labels.items()},
        map=entry.map,
        images=folder / entry.images if entry.images else None,
        defaults=entry.defaults,
        open_categories=entry.open_categories or entry.format == "prompt_pack",
        unlabelled=entry.unlabelled,
    )


def _inner_specs(spec: DatasetSpec, folder: Path) -> tuple[DatasetSpec, ...]:
    """Return what a file stands for: the files that it describes, or itself."""
    if spec.format == "croissant":
        from guardmark.datasets.formats.croissant import croissant_specs  # on use, as below

        return croissant_specs(spec)
    if spec.format and is_mapped(spec.format):
        from guardmark.datasets.formats.mapped import mapped_spec

        return (mapped_spec(_with_own_mapping(spec, folder)),)
    return (spec,)


def _with_own_mapping(spec: DatasetSpec, folder: Path) -> DatasetSpec:
    """Take the path of a mapping of one's own from the folder of the configuration."""
    if not spec.format.endswith(".toml"):
        return spec
    return replace(spec, format=str(folder / Path(spec.format).expanduser()))


def _named_specs(entry: DataSettings, folder: Path) -> tuple[DatasetSpec, ...]:
    """Return the files of data that are named: a built-in set, a public one, or a suite."""
    if entry.builtin is not None:
        return builtin_specs(entry.builtin)
    from guardmark.datasets.public_sets import public_specs  # on use: most data are files

    return public_specs(entry, folder)


_GLOB: Final = frozenset("*?[")


def _paths(stated: str, folder: Path) -> Iterator[Path]:
    """Yield the files that a path stands for: itself, or what fits its pattern."""
    if "://" in stated:
        paths = sorted(list_objects(ObjectPath(stated)))
    else:
        whole = folder / Path(stated).expanduser()
        if not _GLOB & set(stated) or whole.exists():
            yield whole
            return
        paths = sorted(whole.parent.glob(whole.name))
    if not paths:
        raise DatasetError(
            f"No data file fits {stated}.\nPaths are taken from the folder of the configuration."
        )
    yield from paths
