"""What does not agree in a run folder: one value for each place, and a list that ends."""

from __future__ import annotations

import math
from dataclasses import field
from enum import StrEnum
from reprlib import Repr
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_LISTED: Final = 1_000
_RELATIVE: Final = 1e-7
_ABSOLUTE: Final = 1e-9  # two ways of adding up the same numbers differ in their last digits only
_SHOWN: Final = 80


class MismatchKind(StrEnum):
    """Which check a mismatch comes from."""

    FILE = "file"
    RECORDS = "records"
    SEAL = "seal"
    EXPECTED_HEAD = "expected head"
    SIGNATURE = "signature"
    HEADLINE = "headline"
    REPORT = "report written again"
    DESCRIPTION = "description"
    DATA = "data"


_OF_FILES: Final = frozenset(
    (MismatchKind.FILE, MismatchKind.RECORDS, MismatchKind.SEAL, MismatchKind.SIGNATURE)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """One place at which a file says something else than it should.

    Attributes:
        what: Two checks of one place find one difference.
    """

    what: MismatchKind = field(compare=False)
    file: str
    place: str
    stated: str
    counted: str

    @property
    def where(self) -> str:
        """The file, and the place in it where one can be named."""
        if self.place:
            return f"{self.file}: {self.place}"
        return self.file

    def __str__(self) -> str:
        """Return the mismatch on one line."""
        if self.what in _OF_FILES:
            return f"{self.where}: {self.stated}; {self.counted}"
        source = "the data file has" if self.what is MismatchKind.DATA else "the records give"
        if self.what is MismatchKind.EXPECTED_HEAD:
            source = "expected was"
        return f"{self.where}: says {self.stated}; {source} {self.counted}"


class Mismatches:
    """Compares values, counts them, and keeps the first of those that differ."""

    def __init__(self) -> None:
        self.compared = self.total = 0
        self.met = 0  # as the total, but what two checks found counts twice
        self.listed: dict[Mismatch, None] = {}

    def differ(
        self, what: MismatchKind, file: str, place: str, *, stated: str, counted: str
    ) -> None:
        """Keep a mismatch, unless it is known or the list is full."""
        mismatch = Mismatch(what=what, file=file, place=place, stated=stated, counted=counted)
        self.met += 1
        if mismatch not in self.listed:
            self.total += 1
            if len(self.listed) < MOST_LISTED:
                self.listed[mismatch] = None

    def value(
        self, what: MismatchKind, file: str, place: str, *, stated: object, counted: object
    ) -> None:
        """Compare one value, numbers within rounding."""
        self.compared += 1
        if not _is_same(stated, counted):
            self.differ(what, file, place, stated=_shown(stated), counted=_shown(counted))

    def tree(
        self, what: MismatchKind, file: str, place: str, *, stated: object, counted: object
    ) -> None:
        """Compare nested values, the keys of both sides."""
        if isinstance(counted, dict) and isinstance(stated, dict):
            for key in [*counted, *(key for key in stated if key not in counted)]:
                below = f"{place}.{key}".lstrip(".")
                self.tree(what, file, below, stated=stated.get(key), counted=counted.get(key))
        elif isinstance(counted, list) and isinstance(stated, list):
            entries = f"{place} (entries)"
            self.value(what, file, entries, stated=len(stated), counted=len(counted))
            for (name, one), two in zip(_named(stated), counted, strict=False):
                self.tree(what, file, f"{place}[{name}]", stated=one, counted=two)
        else:
            self.value(what, file, place, stated=stated, counted=counted)


def _named(entries: list[Any]) -> Iterator[tuple[object, Any]]:
    """Yield entries under their own name where they have one, so that a place can be found."""
    for number, entry in enumerate(entries):
        is_named = isinstance(entry, dict) and isinstance(entry.get("name"), str)
        yield (entry["name"] if is_named else number), entry


def _is_same(stated: object, counted: object) -> bool:
    if isinstance(stated, bool) or isinstance(counted, bool):
        return stated is counted
    if isinstance(stated, int | float) and isinstance(counted, int | float):
        return math.isclose(stated, counted, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE)
    return type(stated) is type(counted) and stated == counted


def _shown(value: object) -> str:
    short = Repr()  # a few bytes of YAML can stand for a tree of gigabytes
    short.maxstring = short.maxother = short.maxlist = short.maxdict = _SHOWN
    short.maxlevel = 3
    text = "nothing" if value is None else short.repr(value)
    if len(text) <= _SHOWN:
        return text
    return f"{text[: _SHOWN - 3]}..."
