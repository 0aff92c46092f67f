"""Guards that are asked while an answer grows: what had gone out, and what asking often costs."""

from __future__ import annotations

from itertools import groupby
from math import inf
from typing import TYPE_CHECKING

from guardmark.core.chunks import WHOLE
from guardmark.reports.document.blocks import IntervalChart, IntervalMark, Table, Unit
from guardmark.reports.document.cells import figure, name, slug, table_of, with_counts
from guardmark.reports.document.wording import count_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guardmark.analysis.pipeline.arms import ArmAnalysis, PipelineAnalysis
    from guardmark.analysis.pipeline.streaming import ArmStreaming
    from guardmark.core.estimate import Estimate

    _Arm = tuple[ArmAnalysis, ArmStreaming]


def streaming_arms(pipeline: PipelineAnalysis | None) -> list[_Arm]:
    """Return the arms whose guard is asked while answers grow, the most often asked first."""
    rows: list[_Arm] = []
    if pipeline is not None:
        for arm in pipeline.arms:
            if arm.streaming is not None:
                rows.append((arm, arm.streaming))
    return sorted(rows, key=lambda row: (_guards(row), row[1].every or inf))


def _guards(row: _Arm) -> str:
    return " -> ".join(f"{each.place.value} {each.guard}" for each in row[0].stopped)


def growing_table(arms: Sequence[_Arm]) -> Table | None:
    """Write what each of these arms let out, and how often it asked; nothing without any."""
    if not arms:
        return None
    return table_of(
        arms,
        {
            "Arm": lambda row: name(row[0].name),
            "Asked again each: characters of the answer": lambda row: _every(row[1]),
            "Anything out|of unsafe answers": lambda row: with_counts(row[1].shown),
            "Unsafe part out|of unsafe answers judged": lambda row: with_counts(
                row[1].unsafe_shown
            ),
            "Characters, median: that had gone out before the block": lambda row: figure(
                row[1].characters[0], Unit.COUNT
            ),
            "Characters, p95: that had gone out before the block": lambda row: figure(
                row[1].characters[1], Unit.COUNT
            ),
            "To the block, median": lambda row: figure(row[1].block_ms[0], Unit.MILLISECONDS),
            "To the block, p95": lambda row: figure(row[1].block_ms[1], Unit.MILLISECONDS),
            "Calls an answer, median": lambda row: figure(row[1].calls[0], Unit.COUNT),
            "Calls an answer, p95": lambda row: figure(row[1].calls[1], Unit.COUNT),
            "Calls|for answers": lambda row: (
                figure(row[1].all_calls, Unit.COUNT),
                figure(row[1].answers, Unit.COUNT),
            ),
            "Benign blocked|of answers": lambda row: with_counts(row[1].false_blocks),
        },
        table_id="growing-answers",
        title="Asked while the answer grows: exposure, calls and false blocks",
        texts=("Asked again each",),
        note=(
            "The guard is asked about the first N characters of an answer, the first 2N and so on, "
            "and about all of it; the first block ends it. A chunk goes out when the call that "
            "shows it lets it pass: a block at the third call comes after 2N characters. Anything "
            "out: of unsafe answers, blocked ones of which something had gone out and those that "
            "passed. Unsafe part out: of these, the judges call what had gone out unsafe. "
            "Characters, and the time that the calls up to the block took, are those of blocked "
            "answers to attacks. Tokens are not told: a model counts those of a whole answer, and "
            "no count says how many of them stand in its first characters. Limits count groups."
        ),
    )


def _every(streaming: ArmStreaming) -> str:
    if streaming.every is None:
        return WHOLE
    return count_text(streaming.every)


def growing_warnings(arms: Sequence[_Arm]) -> Iterator[str]:
    """Say which answers these arms did not decide, and what of them nobody judged."""
    for arm, streaming in arms:
        if streaming.too_long:
            yield (
                f"{arm.name}: {count_text(streaming.too_long)} answers are too long to be asked "
                f"about each {_every(streaming)} characters (most_calls): they have no decision, "
                "stand in no rate, and both bounds hold them."
            )
        rest = streaming.undecided - streaming.too_long
        if rest:
            yield (
                f"{arm.name}: of {count_text(rest)} answers the calls end without a decision "
                "(malformed, failed, or rewritten): they stand in no figure of this table."
            )
        if streaming.unjudged:
            yield (
                f"{arm.name}: of {count_text(streaming.unjudged)} unsafe answers something had "
                "gone out before the block that no judge could tell: their outcome is unknown."
            )


def growing_charts(arms: Sequence[_Arm]) -> Iterator[IntervalChart]:
    """Draw what asking more often changes, for each guard that is asked at several distances."""
    for key, group in groupby(arms, key=_guards):
        rows = list(group)
        if len(rows) < 2:
            continue
        guard = rows[0][0].stopped[-1].guard
        marks = []
        for _, streaming in rows:
            marks.append(_mark("Anything out", streaming.shown, streaming))
        for _, streaming in rows:
            marks.append(_mark("Unsafe part out", streaming.unsafe_shown, streaming))
        for _, streaming in rows:
            marks.append(_mark("Benign blocked", streaming.false_blocks, streaming))
        yield IntervalChart(
            id=f"growing-answers-{slug(key)}",
            title=f"{guard}: exposure, false blocks and calls an answer, by how often it is asked",
            axis="Share of unsafe answers, or of benign ones; lower is better",
            marks=tuple(marks),
        )


def _mark(label: str, rate: Estimate, streaming: ArmStreaming) -> IntervalMark:
    return IntervalMark(
        label=f"{label}, {_how_often(streaming)}",
        measure=figure(rate),
        note=f"{_mean_calls(streaming):,.1f} calls",
    )


def _how_often(streaming: ArmStreaming) -> str:
    """Say how often a guard is asked about an answer."""
    if streaming.every is None:
        return "asked once"
    if streaming.every == 1:
        return "each character"
    return f"each {count_text(streaming.every)} characters"


def _mean_calls(streaming: ArmStreaming) -> float:
    if not streaming.answers:
        return 0.0
    return streaming.all_calls / streaming.answers
