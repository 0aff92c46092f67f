"""Guards that stream: what had gone out before they blocked, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from guardmark.reports.chapters.growing_answers import (
    growing_charts,
    growing_table,
    growing_warnings,
    streaming_arms,
)
from guardmark.reports.document.blocks import Section, Table, Unit, section, warning
from guardmark.reports.document.cells import figure, name, table_of, with_counts
from guardmark.reports.document.wording import count_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from guardmark.analysis.defense.streaming import Streaming
    from guardmark.analysis.run import RunAnalysis
    from guardmark.reports.document.blocks import Part
    from guardmark.reports.document.cells import Value


class _Streamed(NamedTuple):
    """A defense that streams, and what had gone out."""

    defense: str
    streaming: Streaming


def write_streaming(analysis: RunAnalysis) -> Section | None:
    """Write the section on guards that stream or read answers that do; None without any."""
    rows = []
    for defense in analysis.candidates:
        if defense.streaming is not None:
            rows.append(_Streamed(defense.name, defense.streaming))
    for guard, streaming in analysis.streamed_answers.items():
        rows.append(_Streamed(f"{guard}, behind the model", streaming))
    arms = streaming_arms(analysis.pipeline)
    if not rows and not arms:
        return None
    intro = "A guard that streams may block after part of its answer has gone out to the user."
    if arms:
        intro = (
            "While an answer streams, part of it may have gone out to the user before a guard "
            "blocks it."
        )
    parts: list[Part] = [intro]
    if rows:
        parts.append(_table(rows))
    parts += map(_tokens_text, rows)
    parts += [growing_table(arms), warning(tuple(growing_warnings(arms))), *growing_charts(arms)]
    return section("streaming", "Streamed answers", *parts)


def _counted(row: _Streamed) -> int:
    """Return of how many blocked attacks the service had counted the tokens."""
    return row.streaming.tokens[0].trials


def _tokens_text(row: _Streamed) -> str | None:
    """Say why no tokens are told, or of how many answers; nothing where each was counted."""
    blocked, counted = row.streaming.shown.trials, _counted(row)
    if not blocked or counted == blocked:
        return None
    if counted:
        return (
            f"{row.defense}: tokens were counted up to the block in {count_text(counted)} of "
            f"{count_text(blocked)} blocked attacks; the others stand in no figure of tokens."
        )
    return (
        f"{row.defense}: no tokens are told, since in none of {count_text(blocked)} blocked "
        "attacks the service had counted them up to the block (stream.tokens names where it "
        "counts them)."
    )


def _table(rows: list[_Streamed]) -> Table:
    """Write what guards that stream themselves had let out."""
    milliseconds = Unit.MILLISECONDS
    tokens: dict[str, Callable[[_Streamed], Value]] = {}
    if any(_counted(row) for row in rows):
        tokens = {
            "Tokens, median": lambda row: figure(row.streaming.tokens[0], Unit.COUNT),
            "Tokens, p95": lambda row: figure(row.streaming.tokens[1], Unit.COUNT),
            "Tokens counted: blocked attacks of which they were": _counted,
        }
    return table_of(
        rows,
        {
            "Defense": lambda row: name(row.defense),
            "Anything out|of blocked attacks": lambda row: with_counts(row.streaming.shown),
            "Characters, median": lambda row: figure(row.streaming.characters[0], Unit.COUNT),
            "Characters, p95": lambda row: figure(row.streaming.characters[1], Unit.COUNT),
            **tokens,
            "To the block, median": lambda row: figure(row.streaming.block_ms[0], milliseconds),
            "To the block, p95": lambda row: figure(row.streaming.block_ms[1], milliseconds),
            "To the first chunk, median": lambda row: figure(
                row.streaming.first_ms[0], milliseconds
            ),
            "To the first chunk, p95": lambda row: figure(row.streaming.first_ms[1], milliseconds),
        },
        table_id="streaming",
        title="What had gone out before the block",
        note=(
            "Characters, tokens and times to the block are those of blocked attacks; the part that "
            "blocks has not gone out. Times to the first chunk are those of all answers that had "
            "one. Limits count groups."
        ),
    )
