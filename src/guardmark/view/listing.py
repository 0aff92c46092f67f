"""The list of runs: filtered, in pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.view.entries import RunEntry

PAGE: Final = 50
"""Runs on one page of the list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Which runs are wanted."""

    words: str = ""
    state: str = ""
    defense: str = ""

    @property
    def is_set(self) -> bool:
        """Whether anything is asked for."""
        return bool(self.words.strip() or self.state or self.defense)

    def query(self, number: int) -> str:
        """Return the query that shows a page of these runs."""
        pairs = {"words": self.words, "state": self.state, "defense": self.defense}
        said = {key: value for key, value in pairs.items() if value}
        return urlencode({**said, "page": number}, errors="replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunListing:
    """One page of the list."""

    runs: tuple[RunEntry, ...]
    total: int
    known: int
    number: int
    pages: int
    states: tuple[str, ...]
    defenses: tuple[str, ...]


def list_runs(entries: Sequence[RunEntry], wanted: RunFilter, *, number: int = 1) -> RunListing:
    """Choose the runs of one page."""
    words = wanted.words.casefold().split()
    found = [entry for entry in entries if _passes(entry, wanted, words)]
    pages = max(1, -(-len(found) // PAGE))
    here = min(max(1, number), pages)
    return RunListing(
        runs=tuple(found[(here - 1) * PAGE : here * PAGE]),
        total=len(found),
        known=len(entries),
        number=here,
        pages=pages,
        states=tuple(sorted({entry.state for entry in entries})),
        defenses=tuple(sorted({each.name for entry in entries for each in entry.defenses})),
    )


def _passes(entry: RunEntry, wanted: RunFilter, words: list[str]) -> bool:
    if wanted.state and entry.state != wanted.state:
        return False
    names = [each.name for each in entry.defenses]
    if wanted.defense and wanted.defense not in names:
        return False
    if not words:
        return True
    held = " ".join((entry.name, entry.place, *entry.data, *names)).casefold()
    return all(word in held for word in words)
