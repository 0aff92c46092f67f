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
class Finding:
    """What one defense did with a listed sample.

    Attributes:
        defense: Its name.
        outcome: Allow, block, malformed or error.
        kind: Why that is listed, or None when the defense was right.
        score: In [0, 1], or None.
        threshold: Score from which the defense blocks, or None.
        detail: Kind of an error, or empty.
    """

    defense: str
    outcome: str
    kind: SampleKind | None = None
    score: float | None = None
    threshold: float | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleEntry:
    """One listed sample.

    Attributes:
        sample_id: Its id.
        is_attack: Its label.
        facets: Name and value of what is known of it (category, severity, language ...).
        kinds: Every reason it is listed.
        findings: What each defense did, in the order of the run.
        excerpt: Start of the text under test, as it stands in the data; hostile.
        characters: Length of the whole text.
        cut: Whether the excerpt is shorter than the text.
        sha256: Content hash (hex) of the prompt; stands in for the text on request.
    """

    sample_id: str
    is_attack: bool
    facets: tuple[tuple[str, str], ...]
    kinds: tuple[SampleKind, ...]
    findings: tuple[Finding, ...]
    excerpt: str
    characters: int
    cut: bool
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleCount:
    """How many samples of one kind there are, and how many are listed.

    Attributes:
        kind: Which kind.
        total: In the run.
        listed: In the browser.
        command: The command that lists all of them.
    """

    kind: SampleKind
    total: int
    listed: int
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleBrowser:
    """Samples to read, worst first.

    Attributes:
        id: Unique in the document; letters, digits and hyphens.
        title: Its caption.
        entries: Worst first.
        counts: One for each kind that occurs.
    """

    id: str
    title: str
    entries: tuple[SampleEntry, ...]
    counts: tuple[SampleCount, ...]
