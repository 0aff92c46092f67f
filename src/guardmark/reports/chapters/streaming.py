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

if TYPE_CHECKING:
    from guardmark.analysis.defense.streaming import Streaming
    from guardmark.analysis.run import RunAnalysis


class _Streamed(NamedTuple):
    """A defense that streams, and what had gone out."""

    defense: str
    streaming: Streaming


def write_streaming(analysis: RunAnalysis) -> Section | None:
    """Write the section on guards that stream or read answers that do; None without any."""
    rows = [
        _Streamed(each.name, each.streaming)
        for each in analysis.candidates
        if each.streaming is not None
    ]
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
    return section(
        "streaming",
        "Streamed answers",
        intro,
        _table(rows) if rows else None,
        growing_table(arms),
        warning(tuple(growing_warnings(arms))),
        *growing_charts(arms),
    )


def _table(rows: list[_Streamed]) -> Table:
    """Write what guards that stream themselves had let out."""
    milliseconds = Unit.MILLISECONDS
    return table_of(
        rows,
        {
            "Defense": lambda row: name(row.defense),
            "Anything out|of blocked attacks": lambda row: with_counts(row.streaming.shown),
            "Characters, median": lambda row: figure(row.streaming.characters[0], Unit.COUNT),
            "Characters, p95": lambda row: figure(row.streaming.characters[1], Unit.COUNT),
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
            "Characters and times to the block are those of blocked attacks; the part that blocks "
            "has not gone out. Times to the first chunk are those of all answers that had one. "
            "Limits count groups."
        ),
    )
