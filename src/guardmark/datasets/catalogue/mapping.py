"""Rows of a public data set in the form of guardmark, by the rules of its entry."""

from __future__ import annotations

import fnmatch
import json
from hashlib import sha256
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any, Final

import yaml

from guardmark.core.errors import DatasetError, listed
from guardmark.core.sample import Label
from guardmark.datasets.formats.fields import BadRows, DatasetSpec, Fault, getter
from guardmark.datasets.formats.files import file_format, read_class_names, read_rows
from guardmark.parsing.labels import read_is_attack, read_truth

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from guardmark.datasets.catalogue.settings import (
        CatalogueEntry,
        FieldRule,
        InsertRule,
        JoinRule,
        RowRules,
        SourceFile,
    )
    from guardmark.datasets.formats.files import RawRow

    Row = dict[str, Any]
    _Numbered = tuple[int, Row]

_FIELDS: Final = ("text", "label", "category", "subcategory", "language", "group", "kind")
_PARSERS: Final[Mapping[str, Callable[[str], Any]]] = {"json": json.loads, "yaml": yaml.safe_load}
"""Formats of documents that are read whole and walked down to their rows."""
_PLACES: Final = ("start", "middle", "end")


def mapped_rows(entry: CatalogueEntry, name: str, files: Mapping[str, Path]) -> Iterator[RawRow]:
    """Yield the rows of an entry from its files, which are named by their paths at home."""
    seen: set[bytes] = set()
    ids: dict[bytes, int] = {}
    for file in entry.row_files:
        rules = entry.rules(file)
        for path in fnmatch.filter(files, file.path):
            compiled = _Compiled(rules, path, name, class_columns=_class_columns(file, files[path]))
            rows = _raw(file, files[path], rules)
            for number, row in _with_others(rows, rules, entry, files):
                compiled.require_columns(row)
                if compiled.wants(row, seen):
                    yield number, compiled.mapped(number, row, ids)


def _with_others(
    rows: Iterator[_Numbered], rules: RowRules, entry: CatalogueEntry, files: Mapping[str, Path]
) -> Iterator[_Numbered]:
    """Yield rows with what they take from lists and from other files of the entry."""
    sources = {file.path: file for file in entry.files}

    def other(path: str) -> list[Row]:
        return [row for _, row in _raw(sources[path], files[path], None)]

    if rules.each:
        rows = _members(rows, rules.each)
    if rules.join is not None:
        rows = _joined(rows, rules.join, other(rules.join.file))
    if rules.insert is not None:
        rows = _inserted(rows, rules.insert, other(rules.insert.file))
    return rows


def _raw(file: SourceFile, path: Path, rules: RowRules | None) -> Iterator[_Numbered]:
    """Yield the rows of a file as they stand there, numbered, with what the entry adds."""
    spec = _spec_of(file, path)
    kind = file_format(spec)
    if kind in _PARSERS:
        yield from _document_rows(file, path, rules, parse=_PARSERS[kind])
        return
    for number, row in read_rows(spec):
        if isinstance(row, Fault):
            raise BadRows([row])
        yield number, {**row, **file.add, "number": number}


def _spec_of(file: SourceFile, path: Path) -> DatasetSpec:
    """Return a file of an entry as the readers of data take it."""
    kind = file.format
    if path.suffix in {".yaml", ".yml"}:
        kind = "yaml"
    return DatasetSpec(name="", path=path, shown_as=path.name, format=kind)


def _class_columns(file: SourceFile, path: Path) -> Mapping[str, list[str]]:
    """Return the columns of a file whose numbers have names, with the names in order."""
    spec = _spec_of(file, path)
    if file_format(spec) != "parquet":
        return {}
    return read_class_names(spec)


def _document_rows(
    file: SourceFile, path: Path, rules: RowRules | None, *, parse: Callable[[str], Any]
) -> Iterator[_Numbered]:
    """Walk a document of JSON or YAML down to its rows."""
    try:
        document = parse(path.read_text(encoding="utf-8-sig"))
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        kind = "JSON or YAML"
        if isinstance(error, UnicodeDecodeError):
            kind = "UTF-8"
        raise DatasetError(
            f"The data file {path.name} is not {kind}.\nFetch it again; it is cut off, "
            "or not what its name says."
        ) from error
    under = ""
    levels: tuple[str, ...] = ("number",)
    common: dict[str, object] = {}
    if rules is not None:
        under, levels = rules.under, rules.levels
        for name, source in rules.above.items():
            common[name] = getter(source)(document)
    top = document
    if under:
        top = getter(under)(document)
    number = 0
    for keys, leaf in _leaves(top, levels):
        number += 1
        columns: dict[str, Any] = {"value": leaf}
        if isinstance(leaf, dict):
            columns = leaf
        yield number, {**common, **keys, **columns, **file.add}
    if not number:
        where = ""
        if under:
            where = f" under {under!r}"
        raise DatasetError(
            f"The data file {path.name} holds no rows{where}: its source has changed."
        )


def _leaves(value: object, levels: tuple[str, ...]) -> Iterator[tuple[dict[str, object], object]]:
    """Yield what lies some levels down, with the keys and positions that lead there."""
    if not levels:
        yield {}, value
        return
    pairs: Iterable[tuple[object, object]] = ()
    if isinstance(value, dict):
        pairs = value.items()
    elif isinstance(value, list):
        pairs = enumerate(value)
    for key, inner in pairs:
        for keys, leaf in _leaves(inner, levels[1:]):
            yield {levels[0]: key, **keys}, leaf


def _members(rows: Iterator[_Numbered], column: str) -> Iterator[_Numbered]:
    """Make a row of each member of a list."""
    for number, row in rows:
        for index, member in enumerate(row.get(column) or ()):
            yield number, {**row, column: member, f"{column}_number": index}


def _joined(rows: Iterator[_Numbered], rule: JoinRule, others: list[Row]) -> Iterator[_Numbered]:
    """Add columns of another file's row to each row, found by a value that both have."""
    by_value = {_word(row.get(rule.on)): row for row in others}
    for number, row in rows:
        other = by_value.get(_word(row.get(rule.on)), {})
        yield number, row | _taken(other, rule.take)


def _taken(row: Row, take: Mapping[str, str]) -> Row:
    """Return some columns of a row under new names; empty where it lacks one."""
    return {new: row.get(old, "") for new, old in take.items()}


def _inserted(
    rows: Iterator[_Numbered], rule: InsertRule, documents: list[Row]
) -> Iterator[_Numbered]:
    """Put each text into documents, dealt in order, at the start, in the middle and at the end."""
    deal = cycle(documents)
    for number, row in rows:
        for document in islice(deal, rule.each):
            taken = _taken(document, rule.take)
            for place in _PLACES:
                text = insert_text(str(document[rule.column]), str(row["value"]), place)
                yield number, {**row, **taken, "document": text, "place": place}


def insert_text(document: str, text: str, place: str) -> str:
    """Put a text on a line of its own into a document; the middle is the first gap after half."""
    if place == "start":
        return f"{text}\n{document}"
    if place == "end":
        return f"{document}\n{text}"
    half = len(document) // 2
    gap = half
    for position in range(half, len(document)):
        if document[position].isspace():
            gap = position
            break
    return f"{document[:gap]}\n{text}\n{document[gap + 1 :]}"


class _UnlistedWord(Exception):
    """A value that no word of a rule translates."""

    message = "says {value}, which the entry does not translate: a new word at home"


class _OtherMeaning(Exception):
    """The name of a class says the opposite of what the entry takes its number for."""

    message = (
        "says {value} by the names in the file, where the entry takes the number for the opposite: "
        "the numbers have changed at home"
    )


def _needed_columns(rules: RowRules) -> tuple[str, ...]:
    """Return the columns at the top of a row that the rules read and that every row has."""
    used = [*rules.where, *rules.leave_out, *rules.unique]
    of_fields = [getattr(rules, field) for field in _FIELDS]
    for rule in (*of_fields, *rules.keep.values()):
        if rule:
            used += rule.columns()
    tops: dict[str, None] = {}
    for column in used:
        top = column.split(".")[0]
        if top not in rules.optional:
            tops[top] = None
    return tuple(tops)


class _Compiled:
    """The rules of one file, ready for many rows."""

    def __init__(
        self, rules: RowRules, path: str, name: str, *, class_columns: Mapping[str, list[str]]
    ) -> None:
        self._file = path.rsplit("/", 1)[-1]
        self._tops = _needed_columns(rules)
        self._name = name
        self._fields: dict[str, Callable[[Row], str]] = {}
        for field in _FIELDS:
            rule = getattr(rules, field)
            if rule:
                self._fields[field] = _compiled(rule, class_columns)
        self._id = None
        if rules.id:
            self._id = _compiled(rules.id, class_columns)
        self._keep = {field: _compiled(rule, class_columns) for field, rule in rules.keep.items()}
        self._where: list[tuple[Callable[[Mapping[str, object]], object], frozenset[str], bool]]
        self._where = []
        for wanted, conditions in ((True, rules.where), (False, rules.leave_out)):
            for column, words in conditions.items():
                names = class_columns.get(column, [])
                known = {names[int(word)] for word in words if _is_number_of(word, names)}
                self._where.append((getter(column), frozenset(known).union(words), wanted))
        self._unique = [getter(column) for column in rules.unique]

    def require_columns(self, row: Row) -> None:
        """Raise what the first row of a file lacks; later ones are like it."""
        tops, self._tops = self._tops, ()
        missing = [top for top in tops if top not in row]
        if missing:
            raise DatasetError(
                f"{self._file} has no column {', '.join(map(repr, missing))}: its home has changed "
                "since the entry was written.\n"
                f"It has: {listed(str(name) for name in row if name != 'number')}.\n"
                "Take the revision that the entry names, or read it by path: with a map: of your "
                "own."
            )

    def wants(self, row: Row, seen: set[bytes]) -> bool:
        """Tell whether the rules take a row."""
        for read, words, is_wanted in self._where:
            if (_word(read(row)) in words) is not is_wanted:
                return False
        if not self._unique:
            return True
        key = _key("\x1f".join(_word(read(row)) for read in self._unique))
        if key in seen:
            return False
        seen.add(key)
        return True

    def mapped(self, number: int, row: Row, ids: dict[bytes, int]) -> dict[str, object] | Fault:
        """Return a row in the form of guardmark, or what is wrong with it."""
        mapped: dict[str, object] = {"source": self._name}
        for field, read in (*self._fields.items(), *self._keep.items()):
            try:
                mapped[field] = read(row)
            except (_UnlistedWord, _OtherMeaning) as unusable:
                message, value = unusable.message, repr(str(unusable)[:40])
                return Fault(file=self._file, row=number, field=field, message=message, value=value)
        mapped["id"] = self._sample_id(row, str(mapped["text"]), ids)
        return mapped

    def _sample_id(self, row: Row, text: str, ids: dict[bytes, int]) -> str:
        """Name a sample by its text, so that other versions of the data name it alike."""
        if self._id:
            given = self._id(row)
        else:
            given = sha256(text.encode()).hexdigest()[:12]
        sample_id = f"{self._name}-{given}"
        key = _key(sample_id)
        ids[key] = ids.get(key, 0) + 1
        if ids[key] == 1:
            return sample_id
        return f"{sample_id}-{ids[key]}"


def _compiled(rule: FieldRule, class_columns: Mapping[str, list[str]]) -> Callable[[Row], str]:
    """Turn a rule into a function from a row to the value of a field."""
    otherwise = None
    if rule.otherwise is not None:
        otherwise = _compiled(rule.otherwise, class_columns)
    base = _base(rule, class_columns)
    words = _with_class_names(rule.words, class_columns.get(rule.column, []))

    def read(row: Row) -> str:
        value = base(row)
        if rule.lower:
            value = value.strip().lower()
        is_unknown = bool(rule.any_of) and not value
        if words and not is_unknown:
            if value not in words and rule.unlisted == "refuse":
                raise _UnlistedWord(value)
            meaning = words.get(value, value)
            if value not in rule.words and _contradicts(value, meaning):
                raise _OtherMeaning(value)
            value = meaning
        if not value:
            if otherwise is None:
                return ""
            return otherwise(row)
        if rule.hash:
            value = sha256(value.encode()).hexdigest()[:8]
        return rule.prefix + value

    return read


def _base(rule: FieldRule, class_columns: Mapping[str, list[str]]) -> Callable[[Row], str]:
    """Turn where a rule finds its value into a function of a row."""
    if rule.constant:
        return lambda _row: rule.constant
    if rule.column:
        get = getter(rule.column)
        return lambda row: _word(get(row))
    if rule.any_of:
        columns = [getter(column) for column in rule.any_of]
        return lambda row: _any_true([read_truth(get(row)) for get in columns])
    parts = [_compiled(part, class_columns) for part in rule.parts]

    def joined(row: Row) -> str:
        words = [part(row) for part in parts]
        return rule.join.join(filter(None, words))

    return joined


def _any_true(values: list[bool | None]) -> str:
    """Return whether any value is true; nothing where none is and one is not known.

    A cell that is missing means that nobody looked: the row is not known to be benign.
    """
    if True in values:
        return "true"
    if None in values:
        return ""
    return "false"


def _with_class_names(words: Mapping[str, str], names: list[str]) -> dict[str, str]:
    """Return what words mean, those of an entry's numbers also by their names in the file."""
    known = dict(words)
    for word, meaning in words.items():
        if _is_number_of(word, names):
            known.setdefault(names[int(word)], meaning)
    return known


def _is_number_of(word: str, names: list[str]) -> bool:
    """Tell whether a word is the number of a class that has a name."""
    return word.isdecimal() and int(word) < len(names)


def _contradicts(word: str, meaning: str) -> bool:
    """Tell whether the name of a class says attack where its number means benign, or so."""
    is_attack = read_is_attack(word)
    if is_attack is None or meaning not in set(Label):
        return False
    return is_attack != (meaning == Label.ATTACK)


def _key(text: str) -> bytes:
    """Return eight bytes that stand for a text."""
    return sha256(text.encode(errors="replace")).digest()[:8]


def _word(value: object) -> str:
    """Write a cell as text: nothing for null, JSON's words for booleans."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)
