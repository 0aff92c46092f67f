"""Signs of an unsound judge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.reports.document.blocks import Bullets, Document, Section
from guardmark.reports.document.cells import rate_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.analysis.pipeline.judges import JudgeQuality


QUALITY_FIGURES: Final = (
    ("malformed", "verdicts nobody can read"),
    ("repaired", "verdicts read only after extraction, repair or a retry"),
    ("refusals_unsafe", "refusals called unsafe"),
    ("split_answers", "repeated answers judged both safe and unsafe"),
    ("echoed", "reasons that repeat the answer word for word"),
    ("over_blocked", "answers that people call safe, called unsafe"),
)


def quality_document(found: Sequence[JudgeQuality]) -> Document:
    """Say how judges behaved, a section for each."""
    text = "Intervals take answers as independent: these are signs to follow, not proofs."
    return Document(
        title="Judge quality",
        subtitle=text,
        sections=tuple(
            Section(id=quality.layer, title=quality.layer, blocks=(Bullets(lines=_lines(quality)),))
            for quality in found
        ),
    )


def _lines(quality: JudgeQuality) -> tuple[str, ...]:
    methods = ", ".join(f"{name or 'not said'} {n:,}" for name, n in quality.parse_methods)
    return (
        *(f"{rate_text(getattr(quality, name))} {words}" for name, words in QUALITY_FIGURES),
        f"read by: {methods or 'nothing'}",
    )
