"""A data set as a configuration names it, and as a run tells of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from hashlib import sha256
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
from guardmark.core.errors import counted, did_you_mean
from guardmark.core.sample import Label
from guardmark.datasets.catalogue import Use
from guardmark.datasets.formats.fields import SAMPLE_FIELDS
from guardmark.datasets.formats.turns import AskedTurns
from guardmark.parsing.mapped import mapping_names

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from guardmark.core.manifest import DataManifest


_CHOICE: Final = frozenset({"filter", "include_variants", "exclude_variants", "turns"})
_PUBLIC: Final = _CHOICE | {"from_", "use"}
SAID_OF: Final = {"builtin": _CHOICE, "catalogue": _PUBLIC | {"revision"}, "suite": _PUBLIC}
"""What may be said of data that say themselves how they are read."""
_OF_PUBLIC: Final = frozenset(
    {"catalogue", "hub", "suite", "revision", "subset", "split", "from_", "use"}
)
_OPTIONAL: Final = _OF_PUBLIC | {"encoding", "images", "turns", "unlabelled"}
_ORIGINS: Final = ("path", "builtin", "catalogue", "hub", "suite")


def _split_groups(stated: object) -> object:
    """Read `group: [task, injection]` as the group and what crosses it."""
    if not isinstance(stated, dict):
        return stated
    both = stated.get("group")
    if not isinstance(both, list):
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


_FORMATS: Final = ("jsonl", "json", "csv", "tsv", "parquet", "prompt_pack", "croissant")
_FORMAT_SCHEMA: Final = WithJsonSchema(
    {
        "anyOf": [
            {"enum": [*_FORMATS, *mapping_names()]},
            {"type": "string", "pattern": r"\.toml$"},
        ]
    }
)


def known_format(name: str) -> str:
    """Return the name of a format if it is one.

    Raises:
        ValueError: No format and no mapping is called so.
    """
    known = (*_FORMATS, *mapping_names())
    if name in known or name.endswith(".toml"):
        return name
    raise ValueError(
        f"no format is called {name!r}.{did_you_mean(name, known)} Known: {', '.join(known)}, or "
        "a mapping of your own (a .toml file)"
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
    format: Annotated[str, _FORMAT_SCHEMA] | None = None
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
    unlabelled: Literal["refuse", "keep", "leave_out"] = "refuse"
    turns: AskedTurns = "last"

    @property
    def origin(self) -> str:
        """Where the data come from, by name; with `hub`, `path` names files of the repository."""
        stated = [name for name in _ORIGINS if getattr(self, name) is not None]
        if stated == ["path", "hub"]:
            return "hub"
        return " and ".join(stated)

    @property
    def is_public(self) -> bool:
        """Whether the data are of the catalogue or of a hub, and may have to be fetched."""
        return not (self.catalogue is None and self.hub is None and self.suite is None)

    @model_validator(mode="before")
    @classmethod
    def _one_spelling(cls, stated: Any) -> Any:
        """Take `{builtin: core, version: 2}` as `{builtin: core@2}`, and `core@1` as `core`."""
        if not isinstance(stated, dict):
            return stated
        name = stated.get("builtin")
        if not isinstance(name, str):
            return stated
        settings = dict(stated)
        version = settings.get("version")
        if isinstance(version, int | str) and version and "@" not in name:
            del settings["version"]
            name = f"{name}@{version}"
        settings["builtin"] = name.removesuffix("@1")
        return settings

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
        stated = set()
        for name, field in type(self).model_fields.items():
            if getattr(self, name) != field.default:
                stated.add(name)
        known = SAID_OF.get(self.origin)
        if known is not None:
            passed_over = stated - known - {self.origin}
        elif self.origin == "path":
            passed_over = stated & _OF_PUBLIC
        else:
            passed_over = stated & (_OF_PUBLIC - {"hub", "revision", "subset", "split"})
        if passed_over:
            words = ", ".join(sorted(name.rstrip("_") for name in passed_over))
            kind = f"data named by {self.origin}"
            if self.origin == "builtin":
                kind = "a built-in set"
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
        stated = {}
        for name, value in write(self).items():
            if name not in _OPTIONAL or value != fields[name].default:
                stated[name] = value
        return stated

    @field_validator("format")
    @classmethod
    def _known_format(cls, value: str | None) -> str | None:
        if value is None:
            return None
        return known_format(value)

    @field_validator("map", "defaults")
    @classmethod
    def _known_fields(cls, value: dict[str, str]) -> dict[str, str]:
        for field in value:
            if field not in SAMPLE_FIELDS:
                hint = did_you_mean(field, SAMPLE_FIELDS)
                raise ValueError(f"a sample has no field {field!r}.{hint}")
        return value


def merge_files(manifests: Sequence[DataManifest]) -> tuple[DataManifest, ...]:
    """Put the files of one data set together, so that reports name the set once."""
    by_name: dict[str, list[DataManifest]] = {}
    for manifest in manifests:
        by_name.setdefault(manifest.name, []).append(manifest)
    return tuple(map(_merged, by_name.values()))


def _merged(files: Sequence[DataManifest]) -> DataManifest:
    """Put the files of one data set together."""
    if len(files) == 1:
        return files[0]
    by_source: Counter[str] = Counter()
    by_variant: Counter[str] = Counter()
    hashes: dict[str, str] = {}
    mapping: dict[str, str] = {}
    for file in files:
        by_source.update(file.by_source)
        by_variant.update(file.by_variant)
        hashes.update(file.files)
        mapping.update(file.mapping)
    return replace(
        files[0],
        sha256=data_sha256(files),
        attacks=sum(file.attacks for file in files),
        benign=sum(file.benign for file in files),
        unlabelled=sum(file.unlabelled for file in files),
        by_source=dict(by_source),
        by_variant=dict(by_variant),
        files=hashes,
        mapping=mapping,
    )


def data_sha256(manifests: Sequence[DataManifest]) -> str:
    """Hash all data sets of a run, in order."""
    lines = [f"{file.name} {file.version} {file.sha256}" for file in manifests]
    return sha256("\n".join(lines).encode()).hexdigest()


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
    *,
    needs_benign: bool = True,
) -> Iterable[str]:
    """Say what was read, which field of a file was taken for what, and what was not used."""
    by_name: dict[str, list[DataManifest]] = {}
    for manifest in manifests:
        if manifest.name in builtin:
            by_name.setdefault(manifest.name, []).append(manifest)
    for name, files in by_name.items():
        yield f"Read {name} version {files[0].version}: {_counts(files)}"
    for manifest in manifests:
        if manifest.name not in builtin:
            yield _file_line(manifest, unused or {})
    if not any(manifest.attacks for manifest in manifests):
        yield "Note: no attacks: add some, else allow-all looks perfect."
    if needs_benign and not any(manifest.benign for manifest in manifests):
        yield "Note: no benign samples: add some, else block-all looks perfect."


def _file_line(manifest: DataManifest, unused: Mapping[str, Sequence[str]]) -> str:
    """Say what was read of the files of a data set, by which columns, and what was not used."""
    names = ", ".join(manifest.files)
    taken = []
    for field, path in manifest.mapping.items():
        taken.append(field if field == path else f"{field} from {path}")
    if not taken:
        return f"Read {names}: no row passes the filter"
    left: dict[str, None] = {}  # each column once, in order
    for file in manifest.files:
        left.update(dict.fromkeys(unused.get(file, ())))
    more = _unused_text(list(left), manifest.mapping)
    return f"Read {names}: {_counts([manifest])} (taken: {', '.join(taken)}{more})"


def _unused_text(columns: Sequence[str], mapping: Mapping[str, str]) -> str:
    """Name columns that are no field of a sample, and the field that one of them may be."""
    if not columns:
        return ""
    shown = []
    for name in columns[:_MOST_UNUSED]:
        field = _field_often_called(name)
        if field and field not in mapping:
            shown.append(f"{name} (could be `map: {{{field}: {name}}}`)")
        else:
            shown.append(name)
    text = f"; not used: {', '.join(shown)}"
    if len(columns) > _MOST_UNUSED:
        text += f" and {len(columns) - _MOST_UNUSED} more"
    return text


def _field_often_called(column: str) -> str:
    """Return the field of a sample that a column of this name often holds, or nothing."""
    for field, names in _OFTEN_CALLED.items():
        if column.lower() in names:
            return field
    return ""


def _counts(manifests: Sequence[DataManifest]) -> str:
    """Say how many samples of each label some data sets have."""
    attacks = sum(manifest.attacks for manifest in manifests)
    benign = sum(manifest.benign for manifest in manifests)
    unlabelled = sum(manifest.unlabelled for manifest in manifests)
    counts = f"{counted(attacks, 'attack')}, {benign:,} benign"
    if unlabelled:
        counts += f", {unlabelled:,} without a label (answered and judged, in no rate)"
    return counts
