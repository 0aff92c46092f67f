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
    """What a person says of a file that the file itself does not say.

    Attributes:
        label: Label of samples that state none, or None to leave them out.
        model: The target model to take where the file has several; empty for the only one.
        unsafe: Which score means that harm came out, as `NAME=VALUE` or `NAME>=NUMBER`; empty
            to take no verdicts.
    """

    label: Label | None = None
    model: str = ""
    unsafe: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedAnswer:
    """What came of one sample in one repeat.

    Attributes:
        repeat: Which repetition, from 0.
        decision: The guard's, or None without a guard.
        response: The target model's, or None when it was not asked.
        verdict: The judge's, or None when nobody judged.
    """

    repeat: int
    decision: Decision | None = None
    response: Response | None = None
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedRow:
    """One sample and everything that came of it.

    Attributes:
        sample: The labelled prompt.
        answers: One for each repeat.
    """

    sample: Sample
    answers: tuple[ImportedAnswer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedRun:
    """A finished run of another tool.

    Attributes:
        tool: Name of the tool.
        guard: Name of the guard, or empty without one.
        model: Name of the target model, or empty when a guard alone was asked.
        judge: Name of the judge, or empty when nobody judged.
        created_utc: When the run was made, as the tool says, or empty.
        rows: In the order of the file.
        files: File name to SHA-256 (hex) of its bytes.
        legacy_cards: Cards of that tool's own definitions to show beside ours.
        passes_malformed: Whether the model was asked although the guard could not be read.
        warnings: What deserves a word, one sentence each.
    """

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
