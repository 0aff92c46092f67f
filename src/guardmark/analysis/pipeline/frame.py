"""Guard, model and judges of a run side by side, one place a sample and repeat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from guardmark.analysis.defense.frame import MISSING
from guardmark.core.record import FIRST_LAYER, Stage
from guardmark.store.columns import record_columns
from guardmark.store.schema import OUTCOME_CODE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from guardmark.analysis.defense.frame import Frame
    from guardmark.store.columns import RecordColumns
    from guardmark.store.reader import RecordReader

NO_GUARD: Final = "none"
"""Name of the arm without a guard; model and judges are stored under it."""

SAFE: Final = OUTCOME_CODE["safe"]
UNSAFE: Final = OUTCOME_CODE["unsafe"]
ANSWERED: Final = OUTCOME_CODE["answered"]
MALFORMED: Final = OUTCOME_CODE["malformed"]
ERROR: Final = OUTCOME_CODE["error"]
HUMAN: Final = "human"
"""Value of the setting `kind` of a layer that holds the labels of people."""

_MODES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineArm:
    """A guard, or `none`, with its decisions by place; those of `none` are all allow."""

    name: str
    decision: NDArray[np.int8]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeColumns:
    """Everything one judge said."""

    name: str
    layer: str  # Where its verdicts are stored.
    label: NDArray[np.int8]  # Outcome code of each place; `MISSING` where it was not asked.
    mode: NDArray[np.int8]  # Answer mode of each place; -1 where the judge did not say.


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """The verdicts of one judging: one judge, or the majority of several."""

    name: str  # `run`, or the name of a later judging
    judges: tuple[JudgeColumns, ...]
    label: NDArray[np.int8]  # Outcome code of the majority; malformed where valid verdicts tie.
    # Answer mode most judges of the majority named; -1 where none did or they tie.
    mode: NDArray[np.int8]
    tied: int  # Answers on which valid verdicts are tied.

    @property
    def is_valid(self) -> NDArray[np.bool_]:
        """Where the answer was called safe or unsafe."""
        return is_valid(self.label)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineFrame:
    """A pipeline run as columns; the repeats lie one after the other."""

    frame: Frame
    arms: tuple[PipelineArm, ...]  # In the order of the configuration.
    model: NDArray[np.int8]  # Outcome of the target model; `MISSING` where it was not asked.
    judgings: tuple[Judging, ...]  # Of the run first, then later ones in the order they were made.
    human: JudgeColumns | None  # Labels of people, or None without any.

    @property
    def judging(self) -> Judging | None:
        """The judging that the cards stand on: that of the run, or None without judges."""
        return self.judgings[0] if self.judgings else None


def read_pipeline(reader: RecordReader, frame: Frame) -> PipelineFrame | None:
    """Read model and judges of a run as columns."""
    stages = reader.recorded_stages()
    if (NO_GUARD, Stage.MODEL, FIRST_LAYER) not in stages:
        return None
    judgings: dict[str, list[JudgeColumns]] = {}
    layers = [layer for name, stage, layer in stages if (name, stage) == (NO_GUARD, Stage.JUDGE)]
    people = [each for each in layers if reader.layer_settings(each).get("kind") == HUMAN]
    # `run/one` and `run/two` are judges of the judging `run`, which stands first.
    for layer in sorted(layers, key=lambda name: name.split("/")[0] != FIRST_LAYER):
        if layer not in people:
            judgings.setdefault(layer.split("/")[0], []).append(_judge(reader, frame, layer))
    model = record_columns(reader, NO_GUARD, stage=Stage.MODEL)
    return PipelineFrame(
        frame=frame,
        arms=tuple(_arms(frame)),
        model=_places(frame, model, model.outcome),
        judgings=tuple(_judging(name, judges) for name, judges in judgings.items()),
        human=_judge(reader, frame, people[-1]) if people else None,
    )


def is_valid(label: NDArray[np.int8]) -> NDArray[np.bool_]:
    """Tell which verdicts say safe or unsafe."""
    return np.isin(label, (SAFE, UNSAFE))


def combine(labels: Sequence[NDArray[np.int8]]) -> tuple[NDArray[np.int8], NDArray[np.bool_]]:
    """Take the verdict of the majority."""
    table = np.stack(labels)
    unsafe, safe = (table == UNSAFE).sum(axis=0), (table == SAFE).sum(axis=0)
    tied = (unsafe == safe) & (unsafe > 0)
    spoken = np.select(
        [unsafe > safe, safe > unsafe, tied | (table == MALFORMED).any(axis=0)],
        [UNSAFE, SAFE, MALFORMED],
        np.where((table == ERROR).any(axis=0), ERROR, MISSING),
    )
    return spoken.astype(np.int8), tied


def _judging(name: str, judges: list[JudgeColumns]) -> Judging:
    label, tied = combine([judge.label for judge in judges])
    modes = np.stack([np.where(judge.label == label, judge.mode, -1) for judge in judges])
    votes = np.stack([(modes == code).sum(axis=0) for code in range(_MODES)])
    best = votes.max(axis=0)
    is_clear = (best > 0) & ((votes == best).sum(axis=0) == 1)
    mode = np.where(is_clear, votes.argmax(axis=0), -1).astype(np.int8)
    return Judging(
        name=name, judges=tuple(judges), label=label, mode=mode, tied=int(np.count_nonzero(tied))
    )


def _judge(reader: RecordReader, frame: Frame, layer: str) -> JudgeColumns:
    columns = record_columns(reader, NO_GUARD, stage=Stage.JUDGE, layer=layer)
    configured = [part.name for part in frame.manifest.parts if part.kind == "judge"]
    own = configured[0] if layer == FIRST_LAYER and len(configured) == 1 else layer
    name = layer.partition("/")[2] or str(reader.layer_settings(layer).get("judge") or own)
    return JudgeColumns(
        name=name,
        layer=layer,
        label=_places(frame, columns, columns.outcome),
        mode=_places(frame, columns, columns.answer_mode, missing=-1),
    )


def _arms(frame: Frame) -> Iterator[PipelineArm]:
    guards = {arm.name: arm for arm in frame.arms}
    stated = frame.manifest.settings.get("pipeline")
    named = stated.get("guards") if isinstance(stated, dict) else None
    for name in named if isinstance(named, list) else [NO_GUARD, *guards]:
        if name in guards:
            yield PipelineArm(name=name, decision=frame.matrix(guards[name]))
        elif name == NO_GUARD:
            places = frame.manifest.repeats * frame.sample_count
            yield PipelineArm(name=NO_GUARD, decision=np.zeros(places, dtype=np.int8))


def _places(
    frame: Frame, columns: RecordColumns, codes: NDArray[np.int8], *, missing: int = MISSING
) -> NDArray[np.int8]:
    wide = np.full(frame.manifest.repeats * frame.sample_count, missing, dtype=np.int8)
    at = columns.repeat.astype(np.int64) * frame.sample_count + columns.sample
    wide[at] = codes
    return wide
