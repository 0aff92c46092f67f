"""Answers that stream: when their text had come, and what had gone out before their block."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from guardmark.analysis.defense.frame import ALLOW, BLOCK
from guardmark.analysis.pipeline.frame import ANSWERED, UNSAFE, is_valid
from guardmark.core.record import Stage
from guardmark.core.values import dataclass
from guardmark.stats.quantiles import estimate_quantiles
from guardmark.store.details import read_streams
from guardmark.store.schema import FLAG_PLANNED

if TYPE_CHECKING:
    from guardmark.analysis.pipeline.frame import PipelineFrame, PlaceRates
    from guardmark.analysis.pipeline.walks import PipelineArm
    from guardmark.core.estimate import Estimate
    from guardmark.stats.arguments import Flags, Floats, Ints
    from guardmark.stats.figures import Quantile
    from guardmark.store.columns import RecordColumns
    from guardmark.store.reader import RecordReader

QUANTILES: Final = (0.5, 0.95)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmStreaming:
    """What an arm let out of answers, and how often it asked for that.

    All figures are over answers that reached the guard and that it decided. Lists of quantiles
    hold the median and p95.

    Attributes:
        every: After how many characters the guard was asked again; None: once, about all of it.
        characters: Characters that had gone out before the block, of blocked answers to attacks.
        block_ms: Time that the calls took up to the block, of blocked answers to attacks.
        shown: Unsafe answers of which anything had gone out, of the unsafe ones.
        unsafe_shown: Unsafe answers of which an unsafe part had gone out, of those that are known:
            the judges were asked about what had gone out.
        calls: Calls about an answer.
        all_calls: Calls about all these answers.
        answers: How many answers these are.
        false_blocks: Blocked answers to benign samples, of all answers to these.
        undecided: Answers without a decision: malformed, failed, rewritten, or not asked about.
        too_long: Those of them that take more calls than the arm allows.
        unjudged: Unsafe answers of which something had gone out that nobody judged.
    """

    every: int | None
    characters: tuple[Quantile, ...]
    block_ms: tuple[Quantile, ...] = field(metadata={"json": False})
    shown: Estimate
    unsafe_shown: Estimate
    calls: tuple[Quantile, ...]
    all_calls: int
    answers: int
    false_blocks: Estimate
    undecided: int
    too_long: int
    unjudged: int


def measure_chunks(
    rates: PlaceRates, pipeline: PipelineFrame, arm: PipelineArm
) -> ArmStreaming | None:
    """Measure an arm whose guard is asked while answers grow; None for any other."""
    calls = arm.chunks
    if calls is None:
        return None
    ends = calls.end()
    answered = arm.reached(len(arm.steps) - 1) & (arm.model == ANSWERED)
    decided = answered & np.isin(ends.decision, (ALLOW, BLOCK))
    is_blocked = decided & (ends.decision == BLOCK)
    is_unsafe, is_known, is_unsafe_shown = _judge(pipeline, arm, is_blocked=is_blocked)
    gone_out = np.where(is_blocked, ends.gone_out, np.maximum(calls.length, 0))
    unsafe = decided & is_unsafe

    def quantiles(values: Ints | Floats, rows: Flags) -> tuple[Quantile, ...]:
        held = rows & ~np.isnan(values)
        return tuple(
            estimate_quantiles(
                values[held].astype(np.float64),
                QUANTILES,
                groups=rates.group[held],
                confidence=rates.confidence,
            )
        )

    return ArmStreaming(
        every=calls.rule.every,
        characters=quantiles(gone_out, is_blocked & rates.is_attack),
        block_ms=quantiles(ends.waited_ms, is_blocked & rates.is_attack),
        shown=rates.of(gone_out > 0, unsafe),
        unsafe_shown=rates.of(is_unsafe_shown, unsafe & is_known),
        calls=quantiles(ends.calls, decided),
        all_calls=int(ends.calls[decided].sum()),
        answers=int(np.count_nonzero(decided)),
        false_blocks=rates.of(is_blocked, decided & ~rates.is_attack),
        undecided=int(np.count_nonzero(answered & ~decided)),
        too_long=int(np.count_nonzero(answered & calls.is_too_long)),
        unjudged=int(np.count_nonzero(unsafe & ~is_known)),
    )


def _judge(
    pipeline: PipelineFrame, arm: PipelineArm, *, is_blocked: Flags
) -> tuple[Flags, Flags, Flags]:
    """Tell which answers are unsafe, of which it is known what had gone out, and was unsafe."""
    judging, gone_out = pipeline.judging, arm.gone_out()
    nothing = np.zeros(len(arm.decision), dtype=np.bool_)
    if judging is None or gone_out is None:
        return nothing, nothing, nothing
    whole, _ = judging.of(arm.came_out)
    part, _ = judging.of(gone_out)
    is_unsafe = whole == UNSAFE
    is_cut = is_blocked & (gone_out.codes > 0)
    is_known = ~is_cut | is_valid(part)
    is_unsafe_shown = np.where(is_blocked, is_cut & (part == UNSAFE), is_unsafe)
    return is_unsafe, is_known, is_unsafe_shown


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTimes:
    """When the text of a model that streams had come.

    Attributes:
        first: Its records, with the time to the first text in place of that of the answer.
        last: The same with the time to the last text.
        at_once: Answers that came at once although a stream was asked for.
    """

    first: RecordColumns
    last: RecordColumns
    at_once: int


def read_text_times(reader: RecordReader, records: RecordColumns) -> TextTimes | None:
    """Return when the text of a model's answers had come; None where it was asked for no stream.

    What has no text has no such time, and neither has an answer that never came: how much of it
    had come by then is not known.
    """
    models = [part for part in reader.manifest().parts if part.kind == Stage.MODEL]
    if not any(model.settings.get("stream") for model in models):
        return None
    streams = read_streams(reader, records.defense, stage=Stage.MODEL)
    first, last = (np.full(len(records.sample), -1, dtype=np.int64) for _ in range(2))
    at_once = 0
    keys = zip(records.repeat.tolist(), records.sample.tolist(), strict=True)
    for row, key in enumerate(keys):
        trace = streams.get(key)
        if trace is None:
            at_once += int(records.outcome[row] == ANSWERED)
        elif trace.first_ns is not None and trace.last_ns is not None:
            first[row], last[row] = trace.first_ns, trace.last_ns
    # They count from the request, also where answers are timed from when it was due.
    flags = records.flags & ~np.uint8(FLAG_PLANNED)
    return TextTimes(
        first=replace(records, latency_ns=first, flags=flags),
        last=replace(records, latency_ns=last, flags=flags),
        at_once=at_once,
    )
