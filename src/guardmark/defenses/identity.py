"""What can be known of a function or an object of the user's: version, configuration, source."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from functools import partial
from hashlib import sha256
from pathlib import PurePath
from types import CodeType, FunctionType, MethodType
from typing import TYPE_CHECKING, Final, cast

from guardmark.core.values import dataclass
from guardmark.net.redaction import KNOWN

if TYPE_CHECKING:
    from collections.abc import Iterator

_SECRET: Final = re.compile(
    r"(?:^|_)(?:api_?key|key|token|secret|password|passwd|credentials?|auth|authorization)$"
)
"""Of a name in small letters: to compile it for both sizes takes longer than all its searches."""
_HIDDEN: Final = "(hidden)"
_MOST_SHOWN: Final = 2_000
"""Characters of a value in a report; a longer one stands there as its length and hash."""
_MOST_DEEP: Final = 6
_MOST_NAMED: Final = 5
_STATED: Final = frozenset({"name", "version", "config", "view"})
"""Attributes that have a place of their own in a manifest."""


class _Unknown(Exception):
    """A value that says nothing about itself that would be the same tomorrow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What tells one defense of the user's from another.

    Attributes:
        version: What its attribute `version` says, or empty.
        config: What its attribute `config` says, as JSON values, or None.
        attributes: Its other public attributes of plain values, closed-over values and defaults.
        unknown: Names of what it holds besides, with the type or as private: another one looks the
            same.
        source: Text of its source, or its byte code.
    """

    version: str = ""
    config: object = None
    attributes: Mapping[str, object] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    source: str = ""

    @property
    def settings(self) -> dict[str, object]:
        """What a report shows as its configuration."""
        shown: dict[str, object] = {}
        if self.config is not None:
            shown["config"] = _shortened(self.config)
        if self.attributes:
            shown["attributes"] = {
                name: _shortened(value) for name, value in self.attributes.items()
            }
        if self.unknown:
            shown["not_known"] = list(self.unknown)
        return shown

    @property
    def fingerprint(self) -> str:
        """SHA-256 (hex) of all that is known."""
        known = [self.source, self.version, self.config, dict(self.attributes)]
        return sha256(_text(known).encode("utf-8", "surrogatepass")).hexdigest()


def identity_of(subject: object, *, version: str = "", config: object = None) -> Identity:
    """Find out what can be known; a version or configuration that is given comes first."""
    owner = subject
    if isinstance(subject, MethodType):
        owner = subject.__self__
    stated = getattr(owner, "version", "")
    if not version and isinstance(stated, str | int | float) and not isinstance(stated, bool):
        version = str(stated)
    if config is None:
        config = getattr(owner, "config", None)
    unknown: list[str] = []
    values: dict[str, object] = {}
    for name, value in _parts_of(subject):
        try:
            values[name] = _plain_member(name, value)
        except _Unknown:
            unknown.append(f"{name} ({type(value).__name__})")
    private = _private_names(owner)
    if private:
        unknown.append(f"private: {', '.join(private)}")
    settings = None
    if config is not None and not callable(config):
        try:
            settings = _plain(config)
        except _Unknown:
            unknown.append(f"config ({type(config).__name__})")
    return Identity(
        version=KNOWN.text(version),
        config=settings,
        attributes=values,
        unknown=tuple(unknown),
        source=_source(subject),
    )


def _parts_of(subject: object) -> Iterator[tuple[str, object]]:
    """Yield by name what a function closes over, or what an object holds in public."""
    if isinstance(subject, partial):
        yield from _parts_of(subject.func)
        for number, value in enumerate(subject.args, start=1):
            yield f"argument {number}", value
        yield from subject.keywords.items()
    elif isinstance(subject, MethodType):
        if not isinstance(subject.__self__, type):
            yield from _parts_of(subject.__self__)
    elif isinstance(subject, FunctionType):
        yield from _closed_over(subject)
    elif not isinstance(subject, type) and not inspect.isroutine(subject):
        for name, value in _attributes(subject):
            if not name.startswith("_") and name not in _STATED:
                yield name, value


def _private_names(owner: object) -> list[str]:
    """Name the private attributes of an object: state such as a count of calls, or a setting."""
    if isinstance(owner, type | FunctionType | partial) or inspect.isroutine(owner):
        return []
    private = []
    for name, _ in _attributes(owner):
        if name.startswith("_") and not name.startswith("__"):
            private.append(name)
    private.sort()
    if len(private) > _MOST_NAMED:
        return [*private[:_MOST_NAMED], f"{len(private) - _MOST_NAMED} more"]
    return private


def _closed_over(function: FunctionType) -> Iterator[tuple[str, object]]:
    """Yield the variables that a function closes over, and its default arguments."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            value = cell.cell_contents
        except ValueError:  # not bound yet
            continue
        yield name, value
    defaults = function.__defaults__ or ()
    arguments = function.__code__.co_varnames[: function.__code__.co_argcount]
    yield from zip(arguments[len(arguments) - len(defaults) :], defaults, strict=True)
    yield from (function.__kwdefaults__ or {}).items()


def _attributes(subject: object) -> Iterator[tuple[str, object]]:
    yield from getattr(subject, "__dict__", {}).items()
    for kind in type(subject).__mro__:
        slots = getattr(kind, "__slots__", ())
        if isinstance(slots, str):  # Python takes a single name for a tuple of one
            slots = (slots,)
        for name in slots:
            if hasattr(subject, name):
                yield name, getattr(subject, name)


def _plain(value: object, depth: int = 0) -> object:
    """Return a value as JSON holds it, keys of services hidden."""
    named = _named(value)
    if named is not None:
        return named
    if value is None or isinstance(value, bool | int | float):
        return value
    if depth > _MOST_DEEP:
        raise _Unknown
    if hasattr(type(value), "__dataclass_fields__") or hasattr(value, "model_fields_set"):
        value = dict(_attributes(value))
    if isinstance(value, Mapping):
        members = {}
        for key, member in value.items():
            members[str(key)] = _plain_member(str(key), member, depth + 1)
        return members
    if isinstance(value, list | tuple):
        return [_plain(member, depth + 1) for member in value]
    if isinstance(value, set | frozenset):
        return sorted((_plain(member, depth + 1) for member in value), key=_text)
    raise _Unknown


def _plain_member(name: str, value: object, depth: int = 0) -> object:
    """Return the value of an attribute or a key as JSON holds it; what is named as a secret not."""
    if _SECRET.search(name.lower()):
        return _HIDDEN
    return _plain(value, depth)


def _named(value: object) -> str | None:
    """Return the words that stand for a value, or None where it has none."""
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, str):
        return KNOWN.text(value)
    if isinstance(value, PurePath):
        return value.as_posix()
    if isinstance(value, re.Pattern):
        return f"/{value.pattern!s}/ flags {value.flags}"
    if isinstance(value, FunctionType):
        return f"function {sha256(_source(value).encode()).hexdigest()[:16]}"
    return None


def _source(subject: object) -> str:
    """Return the source of what is called; of what was typed without a file, its byte code."""
    described = subject
    while isinstance(described, partial):
        described = described.func
    if isinstance(described, MethodType):
        described = described.__self__
    if not inspect.isroutine(described) and not isinstance(described, type):
        described = type(described)
    try:
        return inspect.getsource(cast("type", described))
    except (OSError, TypeError):
        pass
    name = f"{getattr(described, '__module__', '')}.{getattr(described, '__qualname__', '')}"
    functions: list[object] = [described]
    if isinstance(described, type):
        functions = list(vars(described).values())
    lines = [name]
    for function in functions:
        code = getattr(function, "__code__", None)
        if code is not None:
            lines.append(_code_text(code))
    return "\n".join(lines)


def _code_text(code: CodeType) -> str:
    """Write byte code, its names and constants as text, which is the same for the same source."""
    constants = []
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            constants.append(_code_text(constant))
        else:
            constants.append(repr(constant))
    return f"{code.co_name} {code.co_code.hex()} {code.co_names} {constants}"


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _shortened(value: object) -> object:
    """Return a value for a report; a long one as its length and hash."""
    text = _text(value)
    if len(text) <= _MOST_SHOWN:
        return value
    digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{len(text):,} characters of JSON, SHA-256 {digest}"
