"""A frozen value as JSON, by its fields.

A dataclass becomes an object with one key for each field. What differs is declared in the class:

* `field(metadata={"json": False})`: the field does not travel.
* `field(metadata={"json": "other"})`: its key is `other`.
* `field(metadata={"json": "*"})`: the keys of its value stand beside those of the object.
* `field(metadata={"json": {"key": "attribute"}})`: only these attributes of its value do; a tuple
  of attributes where keys are equal to them.
* `DERIVED = ("value",)`: these properties travel with the fields.

Tuples are lists; a tuple of pairs that begin with a name or a number is an object keyed by these.
None is null, an enum its value. A number that is not finite is a mistake and raises `ValueError`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from json.encoder import encode_basestring
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Tree = dict[str, "Tree"] | list["Tree"] | str | float | int | bool | None
    Sentences = Mapping[str, Mapping[str, Callable[[Any], object]]]

BESIDE: Final = "*"  # key of an entry whose own keys stand beside those of the object

_PLAIN: Final = frozenset({str, int, float, bool, type(None)})
_TABLE: Final = re.compile(r"tuple\[tuple\[(str|int), .+\], \.\.\.\]", re.DOTALL)
_WRITER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
_WIDEST: Final = 400  # an estimate, all of its fields, is some 350 characters


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One key of an object.

    Attributes:
        key: As JSON has it; `*` where the keys of the value stand for it.
        name: Field or property that holds the value.
        within: Attribute of this value that is meant; empty for the value itself.
        annotation: Type of the field, as it is written in the class.
    """

    key: str
    name: str
    within: str
    annotation: str

    @property
    def is_table(self) -> bool:
        """Whether the value is a tuple of pairs that becomes an object."""
        return not self.within and is_table(self.annotation)

    def reader(self) -> Callable[[Any], object]:
        """Return what reads the value that stands under the key."""
        outer: Callable[[Any], object] = attrgetter(self.name)
        if not self.within:
            return outer
        inner: Callable[[Any], object] = attrgetter(self.within)

        def read(value: Any) -> object:
            held = outer(value)
            if held is None:
                return None
            return inner(held)

        return read


def is_table(annotation: str) -> bool:
    """Tell whether values of a type are tuples of pairs that begin with a name or a number."""
    return _TABLE.fullmatch(annotation) is not None


@cache
def entries_of(kind: type) -> tuple[Entry, ...]:
    """Return the keys of the objects that values of a dataclass become."""
    entries = []
    for name in getattr(kind, "DERIVED", ()):
        annotation = _returned(getattr(kind, name).fget)
        entries.append(Entry(key=name, name=name, within="", annotation=annotation))
    for each in fields(kind):
        declared = each.metadata.get("json", each.name)
        if declared is False:
            continue
        within_of_key = declared
        if isinstance(declared, str):
            within_of_key = {declared: ""}
        elif isinstance(declared, tuple):
            within_of_key = dict(zip(declared, declared, strict=True))
        for key, within in within_of_key.items():
            entry = Entry(key=key, name=each.name, within=within, annotation=str(each.type))
            entries.append(entry)
    return tuple(entries)


@cache
def _readers(kind: type) -> tuple[tuple[str, Callable[[Any], Any], bool], ...]:
    """Return key, reader and whether it is a table, for each key of a dataclass."""
    return tuple((entry.key, entry.reader(), entry.is_table) for entry in entries_of(kind))


def encode(value: object, sentences: Sentences | None = None) -> Tree:
    """Turn a value into plain JSON; sentences name a class, a key and who puts it into words."""
    return _encode(value, sentences or {})


def _encode(value: object, sentences: Sentences) -> Tree:
    """Turn any value of an analysis into plain JSON, or raise TypeError."""
    kind = type(value)
    if kind in _PLAIN:
        return value  # type: ignore[return-value]  # one of the five, which no narrowing sees
    if isinstance(value, tuple | list):
        return [_encode(each, sentences) for each in value]
    if is_dataclass(kind):
        return _object(value, sentences)
    if isinstance(value, Enum):
        plain: Tree = value.value
        return plain
    if isinstance(value, Mapping):
        return _table(value.items(), sentences)
    if hasattr(value, "item"):  # a number of NumPy
        number: Tree = value.item()
        return number
    raise TypeError(f"{kind.__name__} has no JSON form")


def _object(value: object, sentences: Sentences) -> dict[str, Tree]:
    """Turn a dataclass into an object: its keys, then its sentences."""
    kind: type = type(value)
    tree: dict[str, Tree] = {}
    for key, read, table in _readers(kind):
        held = read(value)
        if type(held) in _PLAIN:
            tree[key] = held
        elif key == BESIDE:
            tree |= _object(held, sentences)
        elif table:
            tree[key] = _table(held, sentences)
        else:
            tree[key] = _encode(held, sentences)
    for key, write in sentences.get(kind.__name__, {}).items():
        text: Any = write(value)
        if is_table(_returned(write)):
            text = dict(text)
        tree[key] = _encode(text, sentences)
    return tree


def _table(pairs: Iterable[tuple[object, object]], sentences: Sentences) -> dict[str, Tree]:
    return {_key(key): _encode(value, sentences) for key, value in pairs}


def _key(key: object) -> str:
    if isinstance(key, tuple):
        return ":".join(map(_key, key))
    if isinstance(key, Enum):
        return str(key.value)
    return str(key)


def _returned(function: Callable[..., object]) -> str:
    return str(function.__annotations__["return"])


def lay_out(value: Tree) -> str:
    """Write a value as JSON, flat lists and objects as wide as an estimate on one line each."""
    pieces: list[str] = []
    _write(value, "", pieces)
    pieces.append("\n")
    return "".join(pieces)


def _write(value: Tree, indent: str, pieces: list[str]) -> None:
    """Add a value to the pieces of a text; each line after a break begins with the indent."""
    if not isinstance(value, dict | list):
        pieces.append(_WRITER.encode(value))
        return
    if _is_flat(value):
        line = _WRITER.encode(value)
        if isinstance(value, list) or len(line) <= _WIDEST:
            pieces.append(line)
            return
    inner = f"{indent}  "
    separator = "["
    if isinstance(value, list):
        for entry in value:
            pieces.append(f"{separator}\n{inner}")
            _write(entry, inner, pieces)
            separator = ","
        pieces.append(f"\n{indent}]")
        return
    separator = "{"
    for key, entry in value.items():
        pieces.append(f"{separator}\n{inner}{encode_basestring(key)}: ")
        _write(entry, inner, pieces)
        separator = ","
    pieces.append(f"\n{indent}}}")


def _is_flat(value: dict[str, Tree] | list[Tree]) -> bool:
    for entry in value.values() if isinstance(value, dict) else value:
        if isinstance(entry, dict | list):
            return False
    return True
