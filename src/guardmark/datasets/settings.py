"""A data set as a configuration names it, and as a run tells of it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import (
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    field_validator,
    model_serializer,
    model_validator,
)

from guardmark.config.settings import Settings
from guardmark.core.errors import ConfigError, DatasetError, counted, did_you_mean
from guardmark.core.sample import DEFAULT_TAXONOMY, Label
from guardmark.datasets.builtin import builtin_specs
from guardmark.datasets.catalogue.cache import (
    fetch,
    home_page,
    hub_entry,
    local_files,
    store_copies,
    stored,
)
from guardmark.datasets.catalogue.mapping import mapped_rows
from guardmark.datasets.catalogue.settings import Use, find_entry, find_suite
from guardmark.datasets.catalogue.suite import suite_specs
from guardmark.datasets.formats.fields import SAMPLE_FIELDS, BadRows, DatasetSpec
from guardmark.datasets.formats.files import ObjectPath, address_of, list_objects
from guardmark.datasets.loading import file_sha256, load

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from guardmark.core.manifest import DataManifest
    from guardmark.datasets.catalogue.settings import CatalogueEntry


_CHOICE: Final = frozenset({"filter", "include_variants", "exclude_variants"})
_PUBLIC: Final = _CHOICE | {"from_", "use"}
SAID_OF: Final = {"builtin": _CHOICE, "catalogue": _PUBLIC | {"revision"}, "suite": _PUBLIC}
"""What may be said of data that say themselves how they are read."""
_OF_PUBLIC: Final = frozenset(
    {"catalogue", "hub", "suite", "revision", "subset", "split", "from_", "use"}
)
_OPTIONAL: Final = _OF_PUBLIC | {"encoding", "images"}
_ORIGINS: Final = ("path", "builtin", "catalogue", "hub", "suite")


def _split_groups(stated: object) -> object:
    """Read `group: [task, injection]` as the group and what crosses it."""
    if not isinstance(stated, dict) or not isinstance(both := stated.get("group"), list):
        return stated
    if len(both) != 2 or not all(isinstance(name, str) and name for name in both):
        raise ValueError(
            "group names one column, or two that cross each other, such as [task, injection]"
        )
    if both[0] == both[1]:
        raise ValueError(f"group names {both[0]!r} twice; crossed rows have two columns")
    if "crossing" in stated:
        raise ValueError("group with two columns already says what crosses it: leave crossing out")
    return {**stated, "group": both[0], "crossing": both[1]}


_MAP_SCHEMA: Final = WithJsonSchema(
    {
        "type": "object",
        "additionalProperties": {"type": "string"},
        "properties": {
            "group": {
                "anyOf": [
                    {"type": "string"},
                    {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 2},
                ]
            }
        },
    }
)


class DataSettings(Settings):
    """One data set: files, a built-in set, a public one, one of a hub, or a suite of them."""

    path: str | None = None
    builtin: str | None = None
    catalogue: str | None = None
    hub: str | None = Field(None, pattern=r"^[\w.-]+/[\w.-]+$")
    suite: str | None = None
    revision: str = ""
    subset: str = ""
    split: str = ""
    from_: str = Field("", alias="from")
    use: Use | None = None
    name: str | None = None
    version: str = ""
    format: Literal["jsonl", "json", "csv", "tsv", "parquet", "prompt_pack"] | None = None
    encoding: str = ""
    label: Label | None = None
    label_field: str | None = None
    labels: dict[str, Label] = {}
    map: Annotated[dict[str, str], BeforeValidator(_split_groups), _MAP_SCHEMA] = {}
    filter: dict[str, Any] = {}
    include_variants: list[str] = []
    exclude_variants: list[str] = []
    defaults: dict[str, str] = {}
    sha256: str | None = None
    images: str = ""
    open_categories: bool = False

    @property
    def origin(self) -> str:
        """What the data come from; a path of a hub is none of this folder."""
        stated = [name for name in _ORIGINS if getattr(self, name) is not None]
        return "hub" if stated == ["path", "hub"] else " and ".join(stated)

    @model_validator(mode="before")
    @classmethod
    def _one_spelling(cls, stated: Any) -> Any:
        """Take `{builtin: core, version: 2}` as `{builtin: core@2}`, and `core@1` as `core`."""
        if not isinstance(stated, dict) or not isinstance(name := stated.get("builtin"), str):
            return stated
        version = stated.get("version")
        if isinstance(version, int | str) and version and "@" not in name:
            stated = {k: v for k, v in stated.items() if k != "version"}
            name = f"{name}@{version}"
        return {**stated, "builtin": name.removesuffix("@1")}

    @model_validator(mode="after")
    def _one_origin(self) -> DataSettings:
        if self.origin not in _ORIGINS:
            raise ValueError(
                "needs one of path (a file), builtin (a set that ships with guardmark), catalogue "
                "(a public set), suite (a mix of them) and hub"
            )
        return self

    @model_validator(mode="after")
    def _nothing_passed_over(self) -> DataSettings:
        # Against the defaults: a run keeps its settings with every default written out.
        stated = {n for n, f in type(self).model_fields.items() if getattr(self, n) != f.default}
        known = SAID_OF.get(self.origin)
        if known is not None:
            passed_over = stated - known - {self.origin}
        else:
            passed_over = stated & _OF_PUBLIC - {"hub", "revision", "subset", "split"}
            passed_over |= stated & _OF_PUBLIC if self.origin == "path" else set()
        if passed_over:
            words = ", ".join(sorted(name.rstrip("_") for name in passed_over))
            kind = "a built-in set" if self.origin == "builtin" else f"data named by {self.origin}"
            raise ValueError(
                f"{kind} already says how it is read: {words} would be ignored. Leave it out, "
                "or name the file by path"
            )
        both = sorted(set(self.include_variants) & set(self.exclude_variants))
        if both:
            raise ValueError(f"the variant {both[0]!r} is both included and excluded")
        return self

    @model_serializer(mode="wrap")
    def _written(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Only what is stated: the hash of a run that states none of it stays the same.
        fields = type(self).model_fields
        written = write(self).items()
        return {n: v for n, v in written if n not in _OPTIONAL or v != fields[n].default}

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
    if entry.origin in SAID_OF:
        name = entry.builtin
        specs = public_specs(entry, folder) if name is None else builtin_specs(name)
        return tuple(
            replace(spec, filter=wanted, include_variants=include, exclude_variants=exclude)
            for spec in specs
        )
    stated = entry.path or ""
    if entry.hub is not None:
        ((name, known),) = _named(entry, folder)
        here = stored(name, known.revision)
        version = entry.version or (here.revision if here else "")
        files = _files(name, known, entry, folder)
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
    return tuple(
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
        )
        for shown_as, path in shown.items()
    )


def public_specs(entry: DataSettings, folder: Path) -> tuple[DatasetSpec, ...]:
    """Return the files of a public set, or of all sets of a suite; raise what is not here."""
    specs = {}
    for name, known in _named(entry, folder):
        if known.unread:
            raise ConfigError(f"{name} has no rows to read.\n{known.unread}")
        specs[name] = _spec(name, known, _files(name, known, entry, folder))
    if entry.suite is None:
        return tuple(specs.values())
    return suite_specs(entry.suite, find_suite(entry.suite), specs.__getitem__)


def _files(
    name: str, known: CatalogueEntry, entry: DataSettings, folder: Path
) -> Mapping[str, Path]:
    if entry.from_:
        return local_files(name, known, folder / Path(entry.from_).expanduser())
    if here := stored(name, known.revision):
        return here.files
    wanted = f"suite:{entry.suite}" if entry.suite else name
    raise DatasetError(
        f"{name} is not on this machine (licence {known.licence or 'stated at its source'}; "
        f"{home_page(known.home)}).\n"
        f"Fetch it: guardmark data get {wanted}; or name a local copy with from: FOLDER."
    )


def _named(entry: DataSettings, folder: Path) -> list[tuple[str, CatalogueEntry]]:
    """Return the entries of the catalogue that data name, or what is asked of a hub."""
    if entry.hub is not None:
        split = f"*{entry.split}*" if entry.split else "*"
        path = entry.path or (f"*{entry.subset}/{split}" if entry.subset else split)
        return [(f"hub:{entry.hub} {path}", hub_entry(entry.hub, entry.revision, [path]))]
    names = [entry.catalogue] if entry.catalogue else []
    if entry.suite is not None:
        names = [part.entry for part in find_suite(entry.suite).parts]
    return [(name, _entry(name, entry, folder)) for name in names]


def _entry(name: str, entry: DataSettings, folder: Path) -> CatalogueEntry:
    known = find_entry(str(folder / name) if name.endswith(".toml") else name)
    if entry.use in known.forbids:
        raise ConfigError(
            f"The licence of {name} ({known.licence}) forbids {entry.use} use.\n"
            f"Take another set (guardmark data list), or ask its authors: {home_page(known.home)}"
        )
    if entry.revision and entry.revision != known.revision:
        # Checksums are known of one revision only.
        files = tuple(file.model_copy(update={"sha256": ""}) for file in known.files)
        known = known.model_copy(update={"revision": entry.revision, "files": files})
    return known


def fetch_missing(
    entry: DataSettings, folder: Path, announce: Callable[[str], None], *, anew: bool = False
) -> None:
    """Fetch what data name and this machine lacks, or copy it; licences are announced before."""
    for name, known in _named(entry, folder):
        check = partial(_check_rows, name, known)
        if not anew and (entry.from_ or stored(name, known.revision)):
            continue
        if entry.from_:
            announce(f"Reading {name} from {entry.from_}. Licence: {known.licence}.")
            store_copies(name, known, folder / Path(entry.from_).expanduser(), check)
        else:
            fetch(name, known, check, announce)


def _check_rows(name: str, entry: CatalogueEntry, files: Mapping[str, Path]) -> None:
    """Read every row once, so that what cannot be used is not stored."""
    if not entry.licence:
        return  # of a hub, whose columns nobody knows yet
    try:
        load([_spec(name, entry, files)], DEFAULT_TAXONOMY)
    except BadRows as error:
        rows = "\n".join(str(error).splitlines()[1:-1])
        raise DatasetError(
            f"{name} is not as its entry describes it; nothing was stored.\n{rows}\n"
            "Take the revision that the entry names, or read it by path: with a map: of your own."
        ) from error


def _spec(name: str, entry: CatalogueEntry, files: Mapping[str, Path]) -> DatasetSpec:
    own = Path(name).stem
    return DatasetSpec(
        name=own,
        path=next(iter(files.values())),
        shown_as=own,
        version=entry.revision,
        files={f"{own}/{path}": where for path, where in files.items()},
        rows=partial(mapped_rows, entry, own, files),
    )


_GLOB: Final = frozenset("*?[")


def _paths(stated: str, folder: Path) -> Iterator[Path]:
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


_OFTEN_CALLED: Final = {
    "category": ("type", "kind", "class", "attack_type", "attack_category", "theme", "domain"),
    "group": ("group_id", "parent", "parent_id", "origin", "family", "template", "seed_id"),
    "severity": ("level", "risk_level", "harm_level"),
    "language": ("locale", "lang_code"),
    "technique": ("method", "attack_method", "strategy"),
}
"""Fields of a sample to columns that often hold them and are not taken unasked."""
_MOST_UNUSED: Final = 5  # columns that are named


def describe_data(
    manifests: Sequence[DataManifest],
    builtin: Collection[str],
    unused: Mapping[str, Sequence[str]] | None = None,
) -> Iterable[str]:
    """Say what was read, which field of a file was taken for what, and what was not used."""
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
        if not taken:
            yield f"Read {', '.join(manifest.files)}: no row passes the filter"
            continue
        left = [name for file in manifest.files for name in (unused or {}).get(file, ())]
        more = _unused_text(list(dict.fromkeys(left)), manifest.mapping)
        yield f"Read {', '.join(manifest.files)}: {_counts([manifest])} (taken: {taken}{more})"
    for side, extreme in (("attacks", "allow-all"), ("benign samples", "block-all")):
        if not any(getattr(manifest, side.split()[0]) for manifest in manifests):
            yield f"Note: no {side}: add some, else {extreme} looks perfect."


def _unused_text(columns: Sequence[str], mapping: Mapping[str, str]) -> str:
    """Name columns that are no field of a sample, and the field that one of them may be."""
    if not columns:
        return ""
    shown = []
    for name in columns[:_MOST_UNUSED]:
        near = [f for f, often in _OFTEN_CALLED.items() if name.lower() in often]
        is_free = bool(near) and near[0] not in mapping
        shown.append(f"{name} (could be `map: {{{near[0]}: {name}}}`)" if is_free else name)
    more = f" and {len(columns) - _MOST_UNUSED} more" if len(columns) > _MOST_UNUSED else ""
    return f"; not used: {', '.join(shown)}{more}"


def _counts(manifests: Sequence[DataManifest]) -> str:
    attacks = sum(manifest.attacks for manifest in manifests)
    benign = sum(manifest.benign for manifest in manifests)
    return f"{counted(attacks, 'attack')}, {benign:,} benign"
