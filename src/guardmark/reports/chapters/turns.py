"""Conversations that were asked about turn by turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from guardmark.reports.chapters.sessions import session_text
from guardmark.reports.document.blocks import Section, Unit, section
from guardmark.reports.document.cells import figure, name, table_of, with_counts
from guardmark.reports.document.wording import value_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.analysis.defense.turns import SplitPairs, TalkRates, TurnFigures
    from guardmark.analysis.run import RunAnalysis
    from guardmark.reports.document.blocks import Table


class _OfDefense(NamedTuple):
    """A defense, and what became of the conversations."""

    defense: str
    turns: TurnFigures


def write_turns(analysis: RunAnalysis) -> Section | None:
    """Write the section on whole conversations; None where none was asked about by turn."""
    rows = []
    for defense in analysis.defenses:
        if defense.turns is not None:
            rows.append(_OfDefense(defense.name, defense.turns))
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
            "them failed or went on as another text. Unfinished: not every turn was asked about. "
            "Limits count groups."
        ),
    )
    return section(
        "turns",
        "Turn by turn",
        "The guard was asked at each turn of the user, with what was said so far. The replies "
        "between are those of the data: an assistant that answers otherwise may lead elsewhere. "
        "Rates of single texts count an attack by the turn that asks for the harm, and each turn "
        "of a benign conversation.",
        session_text(analysis),
        table,
        _write_bounds(rows),
        _write_joined(rows),
    )


class _Reading(NamedTuple):
    """A defense, and its rates under one reading of turns without a decision."""

    defense: str
    label: str
    rates: TalkRates


def _write_bounds(rows: Sequence[_OfDefense]) -> Table | None:
    """Write between what the rates lie where turns had no decision; None where each had one."""
    readings = []
    for defense, turns in rows:
        if _is_open(turns):
            readings += [
                _Reading(defense, "each of these turns let pass", turns.fail_open),
                _Reading(defense, "each of these turns blocked", turns.fail_closed),
            ]
    if not readings:
        return None
    return table_of(
        readings,
        {
            "Defense": lambda row: name(row.defense),
            "Reading": lambda row: row.label,
            "Stopped in time|of attacks": lambda row: with_counts(row.rates.stopped),
            "Stopped earlier|of attacks": lambda row: with_counts(row.rates.before),
            "Interrupted|of benign conversations": lambda row: with_counts(row.rates.interrupted),
        },
        table_id="turns-bounds",
        title="Whole conversations: how far the rates could move",
        texts=("Reading",),
        note=(
            "Some turns failed or went on as another text. Here every conversation counts: once "
            "as if each of these turns had been let pass, once as if each had been blocked."
        ),
    )


def _is_open(turns: TurnFigures) -> bool:
    """Tell whether a conversation stands outside one of the rates."""
    pairs = (
        (turns.stopped, turns.fail_open.stopped),
        (turns.before, turns.fail_open.before),
        (turns.interrupted, turns.fail_open.interrupted),
    )
    return any(known.trials < every.trials for known, every in pairs)


class _Split(NamedTuple):
    """A defense, a kind of conversations, and what became of them both ways."""

    defense: str
    kind: str
    pairs: SplitPairs


def _write_joined(rows: Sequence[_OfDefense]) -> Table | None:
    """Write the table of conversations against the same words in one message."""
    pairs, single, unfinished = [], 0, 0
    for defense, turns in rows:
        joined = turns.joined
        if joined is None:
            continue
        pairs.append(_Split(defense, "attacks", joined.attacks))
        pairs.append(_Split(defense, "benign", joined.benign))
        single = max(single, joined.single_turn)
        unfinished = max(unfinished, joined.unfinished)
    if not pairs:
        return None
    left_out = ""
    if single or unfinished:
        left_out = (
            f" In no pair: {single:,} of one turn, {unfinished:,} of which something was not asked."
        )
    return table_of(
        pairs,
        {
            "Defense": lambda row: name(row.defense),
            "Kind": lambda row: row.kind,
            "Over turns|of pairs": lambda row: with_counts(row.pairs.conversation),
            "In one message|of them": lambda row: with_counts(row.pairs.one_message),
            "Difference": lambda row: figure(row.pairs.difference),
            "Undecided": lambda row: row.pairs.undecided,
            "With these: where all of them fall one way, and the other": lambda row: _bounds(
                row.pairs
            ),
        },
        table_id="split",
        title="Blocked where split over turns, and in one message",
        note=(
            "Each conversation beside the same words of the user in one message. A difference "
            "below zero: what is split over turns is blocked less often. It is paired, and its "
            "limits count groups. Undecided: one of the two failed or went on as another text."
            f"{left_out}"
        ),
        texts=("Kind", "With these"),
    )


def _bounds(pairs: SplitPairs) -> str:
    """Say between what the difference lies over all pairs; nothing where each is decided."""
    if not pairs.undecided or pairs.lowest is None or pairs.highest is None:
        return ""
    lowest = value_text(pairs.lowest, Unit.POINTS).removesuffix(" points")
    return f"{lowest} to {value_text(pairs.highest, Unit.POINTS)}"
