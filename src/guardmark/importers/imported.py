"""What an importer hands over: samples with what each part said about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guardmark.core.outcome import Decision, Response, Verdict
    from guardmark.core.sample import Label, Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Statements:
    """What a person says of a file that the file itself does not say."""

    label: Label | None = None
    model: str = ""
    unsafe: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedAnswer:
    """What came of one sample in one repeat."""

    repeat: int
    decision: Decision | None = None
    response: Response | None = None
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedRow:
    """One sample and everything that came of it."""

    sample: Sample
    answers: tuple[ImportedAnswer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedRun:
    """A finished run of another tool."""

    tool: str
    guard: str
    model: str
    judge: str
    created_utc: str
    rows: tuple[ImportedRow, ...]
    files: Mapping[str, str]
    legacy_cards: tuple[str, ...] = ()
    passes_malformed: bool = False
    warnings: tuple[str, ...] = ()
