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
        """What the data come from; a path of a hub is none of this folder."""
        stated = [name for name in _ORIGINS if getattr(self, name) is not None]
        return "hub" if stated == ["path", "hub"] else " and ".join(stated)

    @property
    def is_public(self) -> bool:
        """Whether the data are of the catalogue or of a hub, and may have to be fetched."""
        return any(name is not None for name in (self.catalogue, self.hub, self.suite))

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

    @field_validator("format")
    @classmethod
    def _known_format(cls, value: str | None) -> str | None:
        return None if value is None else known_format(value)

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
                unlabelled=sum(manifest.unlabelled for manifest in files),
                by_source=_summed(manifest.by_source for manifest in files),
                by_variant=_summed(manifest.by_variant for manifest in files),
                files={file: h for manifest in files for file, h in manifest.files.items()},
                mapping={f: path for manifest in files for f, path in manifest.mapping.items()},
            )
        )
    return tuple(merged)


def _summed(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Add counts by name."""
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return dict(total)


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
    *,
    needs_benign: bool = True,
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
        is_needed = side == "attacks" or needs_benign
        if is_needed and not any(getattr(each, side.split()[0]) for each in manifests):
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
    """Say how many samples of each label some data sets have."""
    attacks = sum(manifest.attacks for manifest in manifests)
    benign = sum(manifest.benign for manifest in manifests)
    unlabelled = sum(manifest.unlabelled for manifest in manifests)
    counts = f"{counted(attacks, 'attack')}, {benign:,} benign"
    if unlabelled:
        counts += f", {unlabelled:,} without a label (answered and judged, in no rate)"
    return counts
