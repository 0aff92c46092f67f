"""The list of samples of a report, before it has a format: why each is listed, what it is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class SampleKind(StrEnum):
    """Why a sample is listed."""

    BYPASS = "bypass"
    FALSE_ALARM = "false_alarm"
    ERROR = "error"
    MALFORMED = "malformed"
    DIFFERENT = "different"


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleFinding:
    """What one defense did with a listed sample."""

    defense: str
    outcome: str
    kind: SampleKind | None = None
    score: float | None = None
    threshold: float | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleEntry:
    """One listed sample."""

    sample_id: str
    is_attack: bool
    facets: tuple[tuple[str, str], ...]
    kinds: tuple[SampleKind, ...]
    findings: tuple[SampleFinding, ...]
    excerpt: str
    characters: int
    cut: bool
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleCount:
    """How many samples of one kind there are, and how many are listed."""

    kind: SampleKind
    total: int
    listed: int
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleBrowser:
    """Samples to read, worst first."""

    id: str
    title: str
    entries: tuple[SampleEntry, ...]
    counts: tuple[SampleCount, ...]
