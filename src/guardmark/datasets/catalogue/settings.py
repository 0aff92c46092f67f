"""Entries of the catalogue: what is known of a public data set, and how its rows are read."""

from __future__ import annotations

import tomllib
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from pydantic import Field, ValidationError, model_validator

from guardmark.config.settings import Settings
from guardmark.core.errors import ConfigError, UnknownName
from guardmark.datasets.catalogue import Use

if TYPE_CHECKING:
    from collections.abc import Iterator

Purpose = Literal[
    "prompt-injection", "jailbreak", "content-safety", "over-refusal", "benign-use", "judge"
]
"""What a detector is for; a set is only asked of detectors of its purposes."""
Kind = Literal[
    "attack", "harmful_request", "harmful_content", "benign", "over_refusal_probe", "judge_pair"
]

_FOLDER: Final = Path(__file__).parent
ENTRIES: Final = _FOLDER / "entries"
SUITES: Final = _FOLDER / "suites"


class FieldRule(Settings):
    """Where the value of a field comes from: a constant, a column, or several joined.

    A bare text is short for the name of a column.
    """

    constant: str = ""
    column: str = ""
    parts: tuple[FieldRule, ...] = ()
    join: str = ":"
    any_of: tuple[str, ...] = ()  # columns; "true" where one of them is true
    otherwise: FieldRule | None = None  # taken where the value is empty
    words: dict[str, str] = {}  # value to what it means
    unlisted: Literal["refuse", "keep"] = "refuse"
    lower: bool = False
    hash: bool = False  # eight hexadecimal digits that stand for the value
    prefix: str = ""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"column": value}
        return value

    @model_validator(mode="after")
    def _one_origin(self) -> FieldRule:
        origins = (self.constant, self.column, self.parts, self.any_of)
        if sum(map(bool, origins)) != 1:
            raise ValueError("needs one of constant, column, parts and any_of")
        return self

    def columns(self) -> Iterator[str]:
        """Yield the columns that the rule reads."""
        if self.column:
            yield self.column
        yield from filter(None, self.any_of)
        for part in self.parts:
            yield from part.columns()
        if self.otherwise is not None:
            yield from self.otherwise.columns()


class JoinRule(Settings):
    """Columns of another file of the entry, found by a common value."""

    file: str
    on: str
    take: dict[str, str]  # new column to the other file's


class InsertRule(Settings):
    """The text of a row put into documents of another file, at three places of each."""

    file: str
    column: str
    each: int = Field(1, ge=1)  # documents that each text is put into, dealt in order
    take: dict[str, str] = {}


class RowRules(Settings):
    """How rows are found in a file, and which of their columns become which field."""

    under: str = ""  # dotted path of the rows in a document
    above: dict[str, str] = {}  # new column to a dotted path of the document
    levels: tuple[str, ...] = ("number",)  # columns that keys and positions of a document become
    each: str = ""  # a column that holds a list: one row for each member
    join: JoinRule | None = None
    insert: InsertRule | None = None
    where: dict[str, tuple[str, ...]] = {}
    leave_out: dict[str, tuple[str, ...]] = {}
    unique: tuple[str, ...] = ()  # columns; rows that repeat an earlier one in them are left out
    optional: tuple[str, ...] = ()  # columns that not every row has
    text: FieldRule
    label: FieldRule
    kind: FieldRule
    category: FieldRule | None = None
    subcategory: FieldRule | None = None
    group: FieldRule | None = None
    language: FieldRule | None = None
    id: FieldRule | None = None
    keep: dict[str, FieldRule] = {}  # what else of a row is of use


class SourceFile(Settings):
    """One file at the home of a data set."""

    path: str = Field(min_length=1)
    sha256: str = Field("", pattern="^([0-9a-f]{64})?$")
    format: Literal["", "jsonl", "json", "csv", "tsv", "parquet", "yaml"] = ""
    add: dict[str, str] = {}  # columns that every row of the file gets
    beside: bool = False  # holds no rows of its own: others join it or are put into it
    optional: bool = False  # a local copy may lack it
    rows: dict[str, Any] = {}  # rules for this file in place of the common ones


class CatalogueEntry(Settings):
    """What is known of one public data set."""

    title: str = Field(min_length=1)
    about: str = Field(min_length=1)
    home: str = Field(pattern=r"^(github:|hub:|https://|http://127\.0\.0\.1[:/])\S+$")
    revision: str = ""  # empty: not known
    licence: str = Field(min_length=1)
    forbids: tuple[Use, ...] = ()
    gated: bool = False
    languages: tuple[str, ...] = Field(min_length=1)
    purposes: tuple[Purpose, ...] = Field(min_length=1)
    codes: dict[str, tuple[str, ...]] = {}  # framework to the items that the rows are about
    ask: str = Field(min_length=1)  # which detectors to ask, and which not
    groups: str = Field(min_length=1)  # which rows belong together
    faults: tuple[str, ...] = ()
    tried: Literal["original files", "documentation only"]
    differences: str = ""  # between our rows and another normalised copy
    files: tuple[SourceFile, ...] = ()
    rows: dict[str, Any] = {}
    unlabelled: Literal["refuse", "leave_out"] = "refuse"  # rows whose label comes out empty
    unread: str = ""  # why there are no rows to read, and what to do instead

    @model_validator(mode="after")
    def _readable(self) -> CatalogueEntry:
        if bool(self.files) == bool(self.unread):
            raise ValueError("needs files, or unread: why there are none")
        for file in self.row_files:
            self.rules(file)
        return self

    @property
    def row_files(self) -> tuple[SourceFile, ...]:
        """The files that hold rows."""
        return tuple(file for file in self.files if not file.beside)

    def rules(self, file: SourceFile) -> RowRules:
        """Return how the rows of a file are read."""
        return RowRules.model_validate({**self.rows, **file.rows})


class SuitePart(Settings):
    """What a suite takes of one entry."""

    entry: str
    kinds: tuple[Kind, ...] = ()
    quota: dict[str, int] = Field(min_length=1)  # category, or kind where there is none, to samples


class Suite(Settings):
    """A fixed mix of public data for detectors of one purpose."""

    version: str = Field(min_length=1)
    purposes: tuple[Purpose]
    title: str = Field(min_length=1)
    about: str = Field(min_length=1)
    seed: int = 0
    parts: tuple[SuitePart, ...] = Field(min_length=1)


_Model = TypeVar("_Model", bound=Settings)


def _names(folder: Path) -> tuple[str, ...]:
    """Name what lies in a folder of the catalogue."""
    return tuple(sorted(path.stem for path in folder.glob("*.toml")))


entry_names = partial(_names, ENTRIES)
suite_names = partial(_names, SUITES)


@cache
def find_entry(name: str) -> CatalogueEntry:
    """Return an entry by name, or the one in a file of one's own."""
    if name.endswith(".toml"):
        return _parsed(Path(name).expanduser(), CatalogueEntry)
    if name not in entry_names():
        raise UnknownName("public data set", name, entry_names())
    return _parsed(ENTRIES / f"{name}.toml", CatalogueEntry)


@cache
def find_suite(name: str) -> Suite:
    """Return a suite by name."""
    if name not in suite_names():
        raise UnknownName("suite", name, suite_names())
    suite = _parsed(SUITES / f"{name}.toml", Suite)
    for part in suite.parts:
        if suite.purposes[0] not in find_entry(part.entry).purposes:
            raise ConfigError(f"suites/{name}.toml: {part.entry} is not for {suite.purposes[0]}.")
    return suite


def _parsed(path: Path, model: type[_Model]) -> _Model:
    """Read an entry or a suite from a file."""
    try:
        return model.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"The entry {path} cannot be read as TOML: {error}.") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "it"
        raise ConfigError(f"The entry {path.name}: {where}: {first['msg']}.") from error
