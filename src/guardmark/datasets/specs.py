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
    from collections.abc import Iterator

    from guardmark.datasets.settings import DataSettings


def dataset_specs(entry: DataSettings, folder: Path) -> tuple[DatasetSpec, ...]:
    """Return the files one data entry names."""
    wanted = {
        field: tuple(value) if isinstance(value, list) else (value,)
        for field, value in entry.filter.items()
    }
    include, exclude = frozenset(entry.include_variants), frozenset(entry.exclude_variants)
    if entry.origin in SAID_OF:
        return tuple(
            replace(
                spec,
                filter=wanted,
                include_variants=include,
                exclude_variants=exclude,
                turns=entry.turns,
            )
            for spec in _named_specs(entry, folder)
        )
    stated = entry.path or ""
    if entry.hub is not None:
        from guardmark.datasets.public_sets import hub_files  # on use: most data are files

        revision, files = hub_files(entry, folder)
        version = entry.version or revision
        shown = {f"{entry.hub}/{path}": where for path, where in files.items()}
    else:
        version, paths = entry.version, list(_paths(stated, folder))
        beside = Path(stated).parent
        shown = {address_of(path) or str(beside / path.name): path for path in paths}
        if len(paths) == 1:
            shown = {stated: paths[0]}
    first = next(iter(shown.values()))
    if entry.sha256 and (len(shown) != 1 or file_sha256(first) != entry.sha256.lower()):
        raise DatasetError(
            f"The data file {stated} is not the one the configuration states (sha256).\n"
            "Take the file of that hash, or state the new hash: guardmark data hash FILE."
        )
    own_name = entry.name or (entry.hub or "").rpartition("/")[2]
    specs = tuple(
        DatasetSpec(
            name=own_name or path.name.split(".")[0],
            path=path,
            shown_as=shown_as,
            version=version,
            format=entry.format or "",
            encoding=entry.encoding,
            label=entry.label,
            label_field=entry.label_field or "",
            labels={word: label.value for word, label in entry.labels.items()},
            map=entry.map,
            filter=wanted,
            images=folder / entry.images if entry.images else None,
            include_variants=include,
            exclude_variants=exclude,
            defaults=entry.defaults,
            open_categories=entry.open_categories or entry.format == "prompt_pack",
            unlabelled=entry.unlabelled,
            turns=entry.turns,
        )
        for shown_as, path in shown.items()
    )
    if entry.format == "croissant":
        from guardmark.datasets.formats.croissant import croissant_specs  # on use, as below

        return tuple(file for spec in specs for file in croissant_specs(spec))
    if entry.format and is_mapped(entry.format):
        from guardmark.datasets.formats.mapped import mapped_spec

        return tuple(mapped_spec(_with_own_mapping(spec, folder)) for spec in specs)
    return specs


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
    path = Path(stated).expanduser()
    whole = path if path.is_absolute() else folder / path
    if not (is_object := "://" in stated) and (not _GLOB & set(stated) or whole.exists()):
        yield whole
        return
    found = list_objects(ObjectPath(stated)) if is_object else whole.parent.glob(whole.name)
    paths = sorted(found)
    if not paths:
        raise DatasetError(
            f"No data file fits {stated}.\nPaths are taken from the folder of the configuration."
        )
    yield from paths
