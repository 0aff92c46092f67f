"""A data set as a configuration names it, and as a run tells of it."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import field_validator, model_validator

from guardmark.config.settings import Settings
from guardmark.core.errors import DatasetError, did_you_mean
from guardmark.core.sample import Label
from guardmark.datasets.builtin import builtin_specs
from guardmark.datasets.formats.fields import SAMPLE_FIELDS, DatasetSpec
from guardmark.datasets.loading import file_sha256

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from guardmark.core.manifest import DataManifest


FOR_BUILTIN: Final = frozenset(
    {"builtin", "path", "filter", "include_variants", "exclude_variants"}
)
"""What may be said of a built-in set; all else about it is known."""


class DataSettings(Settings):
    """One data set: a file, several files by a pattern, or a built-in set."""

    path: str | None = None
    builtin: str | None = None
    name: str | None = None
    version: str = ""
    format: Literal["jsonl", "json", "csv", "tsv", "parquet", "prompt_pack"] | None = None
    label: Label | None = None
    label_field: str | None = None
    labels: dict[str, Label] = {}
    map: dict[str, str] = {}
    filter: dict[str, Any] = {}
    include_variants: list[str] = []
    exclude_variants: list[str] = []
    defaults: dict[str, str] = {}
    sha256: str | None = None
    open_categories: bool = False

    @model_validator(mode="after")
    def _one_origin(self) -> DataSettings:
        if (self.path is None) == (self.builtin is None):
            raise ValueError(
                "needs either path (a file) or builtin (a set that ships with guardmark)"
            )
        return self

    @model_validator(mode="after")
    def _nothing_passed_over(self) -> DataSettings:
        # Against the defaults: a run keeps its settings with every default written out.
        stated = (n for n, f in type(self).model_fields.items() if getattr(self, n) != f.default)
        passed_over = sorted(set(stated) - FOR_BUILTIN)
        if self.builtin is not None and passed_over:
            raise ValueError(
                f"a built-in set says itself how it is read: {', '.join(passed_over)} "
                "would be passed over. Leave it out, or name the file by path"
            )
        both = sorted(set(self.include_variants) & set(self.exclude_variants))
        if both:
            raise ValueError(f"the variant {both[0]!r} is both included and excluded")
        return self

    @field_validator("map", "defaults")
    @classmethod
    def _known_fields(cls, value: dict[str, str]) -> dict[str, str]:
        for field in value:
            if field not in SAMPLE_FIELDS:
                hint = did_you_mean(field, SAMPLE_FIELDS)
                raise ValueError(f"a sample has no field {field!r}.{hint}")
        return value


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


_GLOB: Final = frozenset("*?[")


def _paths(stated: str, folder: Path) -> Iterator[Path]:
    path = Path(stated).expanduser()
    whole = path if path.is_absolute() else folder / path
    if not _GLOB & set(stated) or whole.exists():
        yield whole
        return
    paths = sorted(whole.parent.glob(whole.name))
    if not paths:
        raise DatasetError(
            f"No data file fits {stated}.\nPaths are taken from the folder of the configuration."
        )
    yield from paths


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
