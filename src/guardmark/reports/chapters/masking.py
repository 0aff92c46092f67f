"""Guards that rewrite: what survived of marked data, and what was changed for nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from guardmark.reports.document.blocks import Section, Table, section
from guardmark.reports.document.cells import name, table_of, with_counts
from guardmark.reports.document.wording import count_text, percent_text

if TYPE_CHECKING:
    from guardmark.analysis.defense.defense_analysis import DefenseAnalysis
    from guardmark.analysis.defense.masking import Masking
    from guardmark.analysis.run import RunAnalysis
    from guardmark.core.estimate import Estimate


class _Masked(NamedTuple):
    """A defense that rewrote, and how well."""

    defense: DefenseAnalysis
    masking: Masking


class _KindRow(NamedTuple):
    """One kind of marked data at one defense."""

    defense: str
    kind: str
    leaked: Estimate


def write_masking(analysis: RunAnalysis) -> Section | None:
    """Write the section on guards that rewrite; None where none did."""
    rows = []
    for defense in analysis.candidates:
        if defense.masking is not None:
            rows.append(_Masked(defense, defense.masking))
    if not rows:
        return None
    return section(
        "masking",
        "Rewritten texts",
        (
            "Where a guard lets another text go on, the input was neither let through nor blocked, "
            "so it stands in no attack success rate and in no false positive rate. A model behind "
            "the guard and a judge of its answers would tell what the new text still does."
        ),
        _shares(rows),
        _kinds(rows),
    )


def _shares(rows: list[_Masked]) -> Table:
    """List how much each guard rewrites, how much marked data goes on, and what it spoils."""
    return table_of(
        rows,
        {
            "Defense": lambda row: name(row.defense.name),
            "Attacks rewritten|of decided": lambda row: with_counts(row.masking.rewritten_attacks),
            "Benign rewritten|of decided": lambda row: with_counts(row.masking.rewritten_benign),
            "Marked data that went on|of places": lambda row: with_counts(row.masking.leaked),
            "Words changed for nothing|of words": lambda row: with_counts(
                row.masking.changed_words
            ),
        },
        table_id="masking",
        title="What went on as another text",
        note=(
            "Marked data: places that the samples name under spans or secrets. They went on where "
            "their text, capitals and spacing aside, stands in what the guard let through. Words "
            "changed for nothing: outside of marked places, in texts that were not blocked. Limits "
            "count groups, since places of one text are not independent."
        ),
    )


def _kinds(rows: list[_Masked]) -> Table | None:
    by_kind = []
    for row in rows:
        for kind in row.masking.kinds:
            by_kind.append(_KindRow(row.defense.name, kind.kind, kind.leaked))
    if not by_kind:
        return None
    return table_of(
        by_kind,
        {
            "Defense": lambda row: name(row.defense),
            "Kind": lambda row: name(row.kind),
            "Went on|of places": lambda row: with_counts(row.leaked),
        },
        table_id="masking-kinds",
        title="Marked data that went on, by kind",
        texts=("Kind",),
    )


_ANSWERED: Final = "the verdict of its arm holds what the model made of them"
_NOT_ANSWERED: Final = "a model behind the guard and a judge would tell"


def rewriting_note(defense: DefenseAnalysis, *, is_answered: bool = False) -> str:
    """Say beside a verdict how many samples stand in neither rate, and how far that could move it.

    Empty where the defense rewrote nothing. `is_answered`: the model was asked with its texts.
    """
    card = defense.card
    if not card.confusion.rewritten:
        return ""
    low = percent_text(card.fail_closed.attack_success_rate.value)
    high = percent_text(card.fail_open.attack_success_rate.value)
    further = _NOT_ANSWERED
    if is_answered:
        further = _ANSWERED
    return (
        f"{count_text(card.confusion.attacks.rewritten)} attacks and "
        f"{count_text(card.confusion.benign.rewritten)} benign inputs went on as another text and "
        f"stand in neither rate: attacks get through in {low} (if rewriting stops them) to {high} "
        f"(if it does not) of all; {further}"
    )
