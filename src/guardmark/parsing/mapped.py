"""Rows of other tools' exports, by a mapping in a TOML file: no code for the next tool.

A mapping says where a document holds rows, which of them hold data and which a guard's decisions,
and where each field stands. Both rooms that read such files, data and runs, use it.
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import TypeAdapter, ValidationError

from guardmark.core.errors import ConfigError, UnknownName
from guardmark.core.limits import MOST_DESCRIPTION_BYTES
from guardmark.core.values import dataclass
from guardmark.parsing.foreign_text import limited_bytes
from guardmark.parsing.labels import read_is_blocked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_FOLDER: Final = Path(__file__).with_name("mappings")

FIELDS: Final = (
    "id",
    "text",
    "label",
    "category",
    "subcategory",
    "severity",
    "technique",
    "language",
    "variant",
    "group",
    "crossing",
    "source",
)
"""Fields of a sample that a mapping can fill."""

_OF_DECISION: Final = ("guard", "decision", "score", "error", "created")
_TEXT_KEYS: Final = ("text", "content", "prompt", "query", "question", "input", "message", "value")
"""Keys under which an object holds the one text that it is about, likeliest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowMapping:
    """Which rows are read, and where their fields stand.

    Attributes:
        where: Path to the values that it must have; rows of other values are passed over.
        fields: Field to the paths at which it may stand; the first that holds something counts.
        failed: Path to the values that say that no decision came.
        words: Word of a decision to `block`, `allow` or `malformed`, where it is no usual one.
    """

    fields: dict[str, tuple[str, ...]]
    where: dict[str, tuple[str, ...]] = field(default_factory=dict)
    failed: dict[str, tuple[str, ...]] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolMapping:
    """How the exports of a tool are read.

    Attributes:
        name: What people call the tool.
        source: Where its format is described.
        hint: What to name, for a person whose file is something else.
        noun: What one row of the tool is called.
        each: Path of the list of rows inside a document; empty where a document is a row.
        lists: Members of which a document may hold one in place of being a row, such as a page of
            an API.
        data: Rows that hold a text.
        decisions: Rows that hold what a guard decided of a text.
    """

    name: str
    source: str
    hint: str
    noun: str
    data: RowMapping
    decisions: RowMapping
    each: str = ""
    lists: tuple[str, ...] = ()

    def rows(self, document: object) -> Iterator[dict[str, Any]]:
        """Yield the rows of a document; what stands around a row is its member `above`."""
        documents = document if isinstance(document, list) else [document]
        for one in documents:
            if not isinstance(one, dict):
                continue
            members = self._members(one)
            if members is None:
                yield one
                continue
            for member in members:
                if isinstance(member, dict):
                    yield {**member, "above": one}

    def _members(self, document: dict[str, Any]) -> list[Any] | None:
        """Return the rows inside a document; None where it is a row itself."""
        if self.each:
            members = value_at(document, self.each)
            return members if isinstance(members, list) else []
        for name in self.lists:
            members = document.get(name)
            if isinstance(members, list):
                return members
        return None


def mapping_names() -> tuple[str, ...]:
    """Name the tools that are read by a mapping."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


def is_mapped(name: str) -> bool:
    """Tell whether a name is that of a mapping, or of a TOML file that holds one."""
    return name in mapping_names() or name.endswith(".toml")


@cache
def read_mapping(name: str) -> ToolMapping:
    """Read the mapping of a tool, or one of your own from a TOML file.

    Raises:
        UnknownName: There is none of that name.
        ConfigError: The file cannot be read, or is not built as a mapping.
    """
    path = Path(name).expanduser() if name.endswith(".toml") else _FOLDER / f"{name}.toml"
    if not name.endswith(".toml") and name not in mapping_names():
        raise UnknownName("mapping", name, mapping_names())
    try:
        tree = tomllib.loads(limited_bytes(path, most=MOST_DESCRIPTION_BYTES).decode())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"The mapping {path} cannot be read as TOML: {error}.") from error
    try:
        mapping = TypeAdapter(ToolMapping).validate_python(tree, extra="forbid")
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ConfigError(f"The mapping {path}: {where}: {first['msg']}.") from error
    for section, known in (
        (mapping.data, FIELDS),
        (mapping.decisions, (*FIELDS, *_OF_DECISION)),
    ):
        for name_of_field in section.fields:
            if name_of_field not in known:
                raise UnknownName(f"field of a mapping ({path})", name_of_field, known)
    return mapping


def is_wanted(row: Mapping[str, Any], rules: RowMapping) -> bool:
    """Tell whether a row is one of those that a mapping reads."""
    return all(_holds(row, path, values) for path, values in rules.where.items())


def has_failed(row: Mapping[str, Any], rules: RowMapping) -> bool:
    """Tell whether a row says that no decision came."""
    return any(_holds(row, path, values) for path, values in rules.failed.items())


def _holds(row: Mapping[str, Any], path: str, values: tuple[str, ...]) -> bool:
    word = str(value_at(row, path)).casefold()
    return word in {value.casefold() for value in values}


def field_at(row: Mapping[str, Any], rules: RowMapping, name: str) -> object:
    """Return a field of a row: what stands at the first of its paths that holds something."""
    return found_at(row, rules, name)[1]


def found_at(row: Mapping[str, Any], rules: RowMapping, name: str) -> tuple[str, object]:
    """Return the path at which a field of a row stands, and what stands there."""
    for path in rules.fields.get(name, ()):
        value = value_at(row, path)
        if value not in (None, "", [], {}):
            return path, value
    return "", None


def sample_fields(row: Mapping[str, Any], rules: RowMapping) -> dict[str, Any]:
    """Return the fields of a sample in guardmark's names: a text, or messages, and what it has."""
    fields: dict[str, Any] = {}
    for name in FIELDS:
        value = field_at(row, rules, name)
        if value is None:
            continue
        if name != "text":
            fields[name] = value
            continue
        messages = messages_in(value)
        if messages is not None:
            fields["messages"] = messages
        else:
            fields["text"] = text_in(value)
    return fields


def read_decision(value: object, rules: RowMapping, *, column: str = "") -> bool | None:
    """Read whether a guard blocked; None where its answer is neither."""
    opened = _opened(value)
    if isinstance(opened, dict):
        for key, inner in opened.items():
            if read_is_blocked(inner, column=str(key)) is not None and key != "score":
                return read_is_blocked(inner, column=str(key))
        return None
    word = rules.words.get(str(opened), "")
    if word:
        return {"block": True, "allow": False}.get(word)
    return read_is_blocked(opened, column=column)


def messages_in(value: object) -> list[dict[str, Any]] | None:
    """Return a conversation: a list of messages, or an object that holds one; else None."""
    opened = _opened(value)
    if isinstance(opened, dict) and isinstance(opened.get("messages"), list):
        opened = opened["messages"]
    if not isinstance(opened, list) or not opened:
        return None
    messages = []
    for each in opened:
        message = each.get("message", each) if isinstance(each, dict) else None
        if not isinstance(message, dict):
            return None
        # A frame of pandas has the names of both levels in one: `message.role`.
        role = message.get("role", message.get("message.role"))
        if role is None:
            return None
        content = message.get("content", message.get("message.content"))
        messages.append({"role": role, "content": text_in(content)})
    return messages


def text_in(value: object) -> str:
    """Return the text of a value: itself, or what an object or a list of parts holds."""
    opened = _opened(value)
    if isinstance(opened, str):
        return opened
    if isinstance(opened, list):
        return "\n".join(filter(None, (text_in(part) for part in opened)))
    if isinstance(opened, dict):
        for key in _TEXT_KEYS:
            if key in opened:
                return text_in(opened[key])
        if len(opened) == 1:
            return text_in(next(iter(opened.values())))
    return ""


def value_at(holder: object, path: str) -> object:
    """Follow a dotted path; JSON that stands in a text is opened on the way.

    A name may hold dots itself: the longest one that is there is taken. In a list a number is a
    place, counted from the end where it is negative, and `name=word` the first member whose `name`
    is `word`.
    """
    value = holder
    steps = path.split(".")
    while steps:
        value = _opened(value)
        if isinstance(value, dict):
            for length in range(len(steps), 0, -1):
                key = ".".join(steps[:length])
                if key in value:
                    value, steps = value[key], steps[length:]
                    break
            else:
                return None
        elif isinstance(value, list):
            value, steps = _member(value, steps[0]), steps[1:]
        else:
            return None
    return value


def _member(members: list[Any], step: str) -> object:
    name, is_named, word = step.partition("=")
    if is_named:
        for member in members:
            if isinstance(member, dict) and str(member.get(name)) == word:
                return member
        return None
    try:
        return members[int(step)]
    except (ValueError, IndexError):
        return None


def _opened(value: object) -> object:
    """Return what a text holds as JSON, where it is an object, a list or a text in quotes."""
    if not isinstance(value, str) or value.lstrip()[:1] not in {"{", "[", '"'}:
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value
