"""Conversations that were asked about turn by turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from guardmark.reports.document.blocks import Section, Unit, section
from guardmark.reports.document.cells import figure, name, table_of, with_counts

if TYPE_CHECKING:
    from guardmark.analysis.defense.turns import TurnFigures
    from guardmark.analysis.run import RunAnalysis


class _Met(NamedTuple):
    """A defense, and what became of the conversations."""

    defense: str
    turns: TurnFigures


def write_turns(analysis: RunAnalysis) -> Section | None:
    """Write the section on whole conversations; None where none was asked about by turn."""
    rows = [_Met(each.name, each.turns) for each in analysis.defenses if each.turns is not None]
    if not rows:
        return None
    table = table_of(
        rows,
        {
            "Defense": lambda row: name(row.defense),
            "Stopped in time|of attacks": lambda row: with_counts(row.turns.stopped),
            "Stopped earlier|of attacks": lambda row: with_counts(row.turns.before),
            "First blocked turn, median": lambda row: figure(row.turns.first_turn[0], Unit.COUNT),
            "Interrupted|of benign conversations": lambda row: with_counts(row.turns.interrupted),
            "Undecided": lambda row: row.turns.undecided,
            "Unfinished": lambda row: row.turns.unfinished,
        },
        table_id="turns",
        title="Whole conversations",
        note=(
            "A conversation ends with its first block. In time: at the turn that asks for the "
            "harm, or before it; earlier: before it. Undecided: no turn was blocked, and one of "
            "them failed. Unfinished: not every turn was asked about. Limits count groups."
        ),
    )
    return section(
        "turns",
        "Turn by turn",
        "The guard was asked at each turn of the user, with what was said so far. The replies "
        "between are those of the data: an assistant that answers otherwise may lead elsewhere. "
        "Rates of single texts count an attack by the turn that asks for the harm, and each turn "
        "of a benign conversation.",
        table,
    )
