"""Where a file says something else than what was computed again."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_RELATIVE: Final = 1e-7
_ABSOLUTE: Final = 1e-9
"""Two ways of adding up the same numbers differ in their last digits only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is not as it should be."""

    file: str
    place: str
    said: str
    found: str

    def __str__(self) -> str:
        """Return the finding on one line."""
        where = f"{self.file}: {self.place}" if self.place else self.file
        return f"{where}: says {self.said}; the records give {self.found}"


class Comparer:
    """Compares values, counts them and keeps what differs."""

    def __init__(self) -> None:
        self.compared = 0
        self.findings: list[Finding] = []

    def value(self, file: str, place: str, *, said: object, found: object) -> None:
        """Compare one value, numbers within rounding."""
        self.compared += 1
        if not _same(said, found):
            self.findings.append(
                Finding(file=file, place=place, said=_words(said), found=_words(found))
            )

    def tree(self, file: str, place: str, *, said: object, found: object) -> None:
        """Compare nested values; keys that only the file has are passed over."""
        if isinstance(found, dict) and isinstance(said, dict):
            for key, value in found.items():
                self.tree(file, f"{place}.{key}".lstrip("."), said=said.get(key), found=value)
        elif isinstance(found, list) and isinstance(said, list):
            self.value(file, f"{place} (entries)", said=len(said), found=len(found))
            for (name, one), two in zip(_named(said), found, strict=False):
                self.tree(file, f"{place}[{name}]", said=one, found=two)
        else:
            self.value(file, place, said=said, found=found)


def _named(entries: list[Any]) -> Iterator[tuple[object, Any]]:
    """Entries under their own name where they have one, so that a place can be found."""
    for number, entry in enumerate(entries):
        named = isinstance(entry, dict) and isinstance(entry.get("name"), str)
        yield (entry["name"] if named else number), entry


def _same(said: object, found: object) -> bool:
    if isinstance(said, bool) or isinstance(found, bool):
        return said is found
    if isinstance(said, int | float) and isinstance(found, int | float):
        return math.isclose(said, found, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE)
    return type(said) is type(found) and said == found


def _words(value: object) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
