"""JSONPath, compiled once: plain paths by hand, all others by the library."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from guardmark.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

_PLAIN = re.compile(r"\$(?:\.[A-Za-z_]\w*|\[\d+\]|\['[^'\\]*'\])*", re.ASCII)
_STEP = re.compile(r"\.(?P<name>\w+)|\[(?P<index>\d+)\]|\['(?P<quoted>[^'\\]*)'\]", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonPath:
    """A path into JSON values."""

    text: str
    find: Callable[[object], list[object]]
    is_singular: bool


def compile_path(text: str, *, where: str) -> JsonPath:
    """Read a JSONPath."""
    if _PLAIN.fullmatch(text):
        return JsonPath(text=text, find=_plain(text), is_singular=True)
    from jsonpath import JSONPath, JSONPathError
    from jsonpath import compile as compile_any

    try:
        if not text.startswith("$"):
            raise ConfigError(f"{where}: {text!r} is no JSONPath: it must begin with $.")
        path = compile_any(text)
    except JSONPathError as error:
        reason = (str(error).splitlines() or [""])[0]
        raise ConfigError(f"{where}: {text!r} is no JSONPath: {reason}.") from error

    def find(value: object) -> list[object]:
        try:
            return list(path.findall(value))  # type: ignore[arg-type]
        except JSONPathError as error:
            raise ValueError(str(error)) from error

    singular = isinstance(path, JSONPath) and path.singular_query()
    return JsonPath(text=text, find=find, is_singular=singular)


def _plain(text: str) -> Callable[[object], list[object]]:
    steps: list[str | int] = [
        int(match["index"]) if match["index"] else match["name"] or match["quoted"] or ""
        for match in _STEP.finditer(text)
    ]

    def find(value: object) -> list[object]:
        for step in steps:
            if isinstance(step, str):
                if not isinstance(value, dict) or step not in value:
                    return []
                value = value[step]
            else:
                if not isinstance(value, list) or step >= len(value):
                    return []
                value = value[step]
        return [value]

    return find
