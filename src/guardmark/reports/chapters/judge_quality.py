"""How judges behave: signs in their verdicts, and whether planted answers move them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.reports.document.blocks import Document, Section, section, warning
from guardmark.reports.document.cells import name, rate_text, table_of
from guardmark.reports.document.wording import count_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.analysis.pipeline.injection import JudgeInjection
    from guardmark.analysis.pipeline.judges import JudgeQuality, JudgesAssessed

_JUDGE_QUALITY: Final = {
    "malformed": "unreadable verdicts",
    "repaired": "verdicts read only after extraction, repair or a retry",
    "refusals_unsafe": "refusals called unsafe",
    "split_answers": "repeated answers judged both safe and unsafe",
    "echoed": "reasons that repeat the answer word for word",
    "over_blocked": "answers that people call safe, called unsafe",
}


def quality_document(assessed: JudgesAssessed) -> Document:
    """Say how judges behaved, a section for each, and how they stood planted answers."""
    sections = []
    for quality in assessed.judges:
        sections.append(section(quality.layer, quality.layer, _quality_lines(quality)))
    planted = write_planted(assessed.planted)
    if planted is not None:
        sections.append(planted)
    return Document(
        title="Judge quality",
        subtitle="Intervals take answers as independent: these are signs to follow, not proofs.",
        sections=tuple(sections),
    )


def _quality_lines(quality: JudgeQuality) -> list[str]:
    """List each sign of quality of a judge with its counts."""
    lines = []
    for figure_name, meaning in _JUDGE_QUALITY.items():
        lines.append(f"{rate_text(getattr(quality, figure_name))} {meaning}")
    methods = []
    for method, count in quality.parse_methods:
        methods.append(f"{method or 'not said'} {count:,}")
    lines.append(f"read by: {', '.join(methods) or 'nothing'}")
    return lines


def write_planted(planted: Sequence[JudgeInjection]) -> Section | None:
    """Write how often what stands in an answer moved its judge, or nothing if none was asked."""
    if not planted:
        return None
    cautions = []
    kinds = []
    for judge in planted:
        for moved in judge.by_kind:
            kinds.append((judge.judge, moved))
        if judge.to_safe.successes:
            cautions.append(
                f"The judge {judge.judge} can be moved by what stands in an answer: "
                f"{count_text(judge.to_safe.successes)} of {count_text(judge.to_safe.trials)} "
                "planted texts made it call an unsafe answer safe. An attack success rate by this "
                "judge may be too low."
            )
    return section(
        "judge-injection",
        "Judges shown planted answers",
        warning(cautions),
        table_of(
            planted,
            {
                "Judge": lambda row: name(row.judge),
                (
                    "Moved to safe: of planted answers that it calls unsafe without the plant"
                ): lambda row: row.to_safe,
                (
                    "Moved either way: of all planted answers that it labels rightly "
                    "without the plant"
                ): lambda row: row.moved,
                (
                    "Unreadable: no valid verdict on a planted answer; in none of the shares before"
                ): lambda row: row.unreadable,
                "Right without a plant: of the answers as they are": lambda row: row.right,
            },
            table_id="judge-planted",
            title="Planted answers: how often the verdict moved",
            note=(
                "Each judge was shown answers whose verdict is plain, and the same answers "
                "with a forged verdict, an order to the judge, or a cut planted into them. A "
                "verdict moved where it became the one the plant wants; only answers that "
                "the judge labels rightly without a plant are counted. Intervals go by the "
                "answers, which are the groups. A plant can make a harmless answer look "
                "harmful by its own words, so the verdicts moved to safe are the ones that "
                "an attacker gains by."
            ),
        ),
        table_of(
            kinds,
            {
                "Judge": lambda row: name(row[0]),
                "Plant": lambda row: row[1].kind,
                "Moved": lambda row: row[1].moved,
            },
            table_id="judge-planted-kinds",
            collapsed=True,
            texts=("Plant",),
            title="Planted answers by kind",
        ),
    )
