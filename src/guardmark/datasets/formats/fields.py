"""Which field of a row means what, and what is wrong with rows, all of it at once."""

from __future__ import annotations

import tomllib
from dataclasses import field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from guardmark.core.errors import DatasetError, counted
from guardmark.core.sample import Label, Role
from guardmark.core.values import dataclass
from guardmark.parsing.labels import read_is_attack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from guardmark.datasets.formats.turns import AskedTurns


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetSpec:
    """One data set as named by the user.

    Attributes:
        name: What the data set is called.
        path: The file; of several files the first.
        shown_as: What messages and the manifest call the file.
        version: The version that is stated, or empty.
        format: How the file is read; empty where its name tells.
        encoding: Of a text that is not UTF-8; else empty.
        label: The label of every row, where it is stated for the whole file.
        label_field: The column of the label, where it is not the usual one.
        labels: Words of the file to `attack` or `benign`.
        map: Fields of a sample to columns.
        filter: Fields of rows to the values that are taken.
        include_variants: The only variants that are taken; empty for all.
        exclude_variants: Variants that are left out.
        defaults: What a field is where a row does not state it.
        open_categories: Whether categories that are not declared are taken.
        unlabelled: What becomes of rows without a label.
        turns: What of a conversation is asked about.
        images: Folder of images, where it is not that of the file.
        files: Files behind `rows`, by the names that a run notes; empty where `path` is read
            itself.
        rows: What yields the rows, where the file is not read as its format says.
    """

    name: str
    path: Path
    shown_as: str = ""
    version: str = ""
    format: str = ""
    encoding: str = ""
    label: Label | None = None
    label_field: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    map: Mapping[str, str] = field(default_factory=dict)
    filter: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    include_variants: frozenset[str] = frozenset()
    exclude_variants: frozenset[str] = frozenset()
    defaults: Mapping[str, str] = field(default_factory=dict)
    open_categories: bool = False
    unlabelled: Literal["refuse", "keep", "leave_out"] = "refuse"
    turns: AskedTurns = "last"
    images: Path | None = None
    files: Mapping[str, Path] = field(default_factory=dict)
    rows: Callable[[], Iterator[tuple[int, dict[str, object] | Fault]]] | None = None

    @property
    def sources(self) -> Mapping[str, Path]:
        """The files that are read, by the names under which a run notes them."""
        return self.files or {self.shown_as: self.path}

    @property
    def is_filtered(self) -> bool:
        """Whether rows may be left out."""
        return bool(self.filter or self.include_variants or self.exclude_variants)


_WORDS = tomllib.loads(Path(__file__).with_name("fields.toml").read_text(encoding="utf-8"))
USUAL_NAMES: dict[str, tuple[str, ...]] = {f: tuple(n) for f, n in _WORDS["names"].items()}
"""Field of a sample to the names it usually has, best first; looked up in the row, then in
its `metadata`."""

SAMPLE_FIELDS = tuple(USUAL_NAMES)

ROLE_WORDS = {word: Role(role) for role, of in _WORDS["roles"].items() for word in of}


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldPlan:
    """Where each field of a sample is found in rows of one shape.

    Attributes:
        paths: Each field of a sample to the dotted path where a row has it.
        taken: Columns that are read as fields; the others become metadata.
    """

    paths: Mapping[str, str]
    taken: frozenset[str]


def _metadata_of(row: Mapping[str, object]) -> Mapping[str, object]:
    """Return the object `metadata` of a row; an empty one where it has none."""
    metadata = row.get("metadata")
    if isinstance(metadata, dict):
        return metadata
    return {}


def plan_fields(row: Mapping[str, object], spec: DatasetSpec) -> FieldPlan:
    """Decide where each field of a sample is found."""
    metadata = _metadata_of(row)
    paths: dict[str, str] = {}
    for target, names in USUAL_NAMES.items():
        path = spec.map.get(target) or _usual_path(names, row, metadata)
        if target == "label" and spec.label_field:
            path = spec.label_field
        if path:
            paths[target] = path
    return FieldPlan(paths=paths, taken=frozenset(path.split(".")[0] for path in paths.values()))


def _usual_path(
    names: tuple[str, ...], row: Mapping[str, object], metadata: Mapping[str, object]
) -> str:
    """Return where a row has the first of some names: in itself, else in its metadata."""
    for name in names:
        if name in row:
            return name
    for name in names:
        if name in metadata:
            return f"metadata.{name}"
    return ""


def near_column(field: str, row: Iterable[str]) -> str:
    """Return the column that is called nearly as a field usually is, or nothing."""
    columns = {str(name).strip().lower().replace(" ", "_"): str(name) for name in row}
    for usual in USUAL_NAMES[field]:
        near = get_close_matches(usual, columns, n=1, cutoff=0.8)
        if near:
            return columns[near[0]]
    return ""


def getter(path: str) -> Callable[[Mapping[str, object]], object]:
    """Return a function that follows a dotted path into a row."""
    if "." not in path:
        return lambda row: row.get(path)
    steps = path.split(".")

    def follow(row: Mapping[str, object]) -> object:
        if path in row:
            return row[path]
        value: object = row
        for step in steps:
            if isinstance(value, list) and step.isdigit():
                if int(step) >= len(value):
                    return None
                value = value[int(step)]
            elif isinstance(value, dict):
                value = value.get(step)
            else:
                return None
        return value

    return follow


def read_label(value: object, own_words: Mapping[str, str], *, column: str = "") -> Label | None:
    """Read a label in the file's or the usual words; a column may turn true into benign."""
    word = str(value).strip()
    if word in own_words:
        return Label(own_words[word])
    is_attack = read_is_attack(value, column=column)
    if is_attack is None:
        return None
    if is_attack:
        return Label.ATTACK
    return Label.BENIGN


PACK_MARK = "pack_name"  # field that tells the rows of a prompt pack from other rows

LABEL_SOURCE = "label_source"
STATED = "configuration"
INFERRED = "inferred_hateful"
_TELLING_WORD = "hateful"


class PackLabel(NamedTuple):
    """Where the label of an item stands.

    Attributes:
        value: What stands there; None where nothing tells.
        source: Which of the rules found it.
        field: The dotted path of it, or empty.
    """

    value: object
    source: str
    field: str


def resolve_label(row: Mapping[str, object]) -> PackLabel:
    """Find the label of an item of a prompt pack.

    The order is that of the tutor benchmarks whose packs these are: `metadata.is_harmful`;
    `metadata.label`; an original category "hateful"; the word "hateful" anywhere in the
    source, the name or the subset of the pack. The last two only infer: they call a benign
    item harmful when it stands in such a pack, so whoever reads it must be warned.
    """
    metadata = _metadata_of(row)
    for name, source in (("is_harmful", "explicit_is_harmful"), ("label", "metadata_label")):
        for holder, prefix in ((metadata, "metadata."), (row, "")):
            if holder.get(name) is not None:
                return PackLabel(holder[name], source, prefix + name)
    if str(metadata.get("original_category", "")).strip().lower() == _TELLING_WORD:
        return PackLabel(Label.ATTACK.value, INFERRED, "metadata.original_category")
    for name in ("source", PACK_MARK, "pack_subset"):
        if _TELLING_WORD in str(row.get(name) or "").lower():
            return PackLabel(Label.ATTACK.value, INFERRED, "")
    return PackLabel(None, "unknown", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing wrong with one row.

    Attributes:
        file: The file, as messages call it.
        row: The row, counted from 1; 0 for the file as a whole.
        field: The field, or empty.
        message: What is wrong; `{value}` stands for what the row says.
        value: What the row says, cut to a length.
    """

    file: str
    row: int
    field: str
    message: str
    value: str = ""

    def __str__(self) -> str:
        """Return the message in full."""
        return self.message.replace("{value}", self.value)


_MOST_VALUES = 8
_MOST_SPANS = 12  # whoever has more has one mistake, and the line must stay readable
_NEXT = "Fix these rows, or say which columns hold what: map: in the configuration, or --map."


class BadRows(DatasetError):
    """Rows that cannot be used; the message names the first of each kind and counts the others."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults: tuple[Fault, ...] = tuple(faults)
        rows = {(fault.file, fault.row) for fault in self.faults if fault.row}
        lines = ["The data cannot be used. Nothing was run.", *_lines(self.faults)]
        if rows:
            count = counted(len(rows), "bad row")
            lines[0] = f"The data cannot be used: {count}. Nothing was run."
            lines.append(_NEXT)
        super().__init__("\n".join(lines))


def _lines(faults: Sequence[Fault]) -> list[str]:
    """Return one line for each (file, field, kind of fault), naming every row it holds for."""
    grouped: dict[tuple[str, str, str], list[Fault]] = {}
    for fault in faults:
        grouped.setdefault((fault.file, fault.field, fault.message), []).append(fault)
    lines = []
    for (file, path, template), alike in grouped.items():
        rows = [fault.row for fault in alike]
        values = list(dict.fromkeys(fault.value for fault in alike))
        words = ", ".join(values[:_MOST_VALUES])
        if len(values) > _MOST_VALUES:
            words += f" and {len(values) - _MOST_VALUES:,} more"
        where = f"  {file}"
        if len(rows) > 1:
            where += f" rows {_ranges(rows)}"
        elif rows != [0]:
            where += f" row {_ranges(rows)}"
        if path:
            where += f", field {path}"
        lines.append(f"{where}: {template.replace('{value}', words)}")
    return lines


def _ranges(rows: Sequence[int]) -> str:
    """Write row numbers compactly: 3, 7, 9-12."""
    spans: list[list[int]] = []
    for row in sorted(set(rows)):
        if spans and row == spans[-1][1] + 1:
            spans[-1][1] = row
        else:
            spans.append([row, row])
    words = []
    for first, last in spans[:_MOST_SPANS]:
        if first == last:
            words.append(str(first))
        else:
            words.append(f"{first}-{last}")
    shown = ", ".join(words)
    left = sum(last - first + 1 for first, last in spans[_MOST_SPANS:])
    if left:
        shown += f" and {left:,} more"
    return shown
