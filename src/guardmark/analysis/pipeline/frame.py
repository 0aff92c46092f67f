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
    from collections.abc import Iterator, Mapping, Sequence

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
    """One guard, or none.

    Attributes:
        name: Name of the guard, or `none`.
        decision: Outcome of the guard, shape (repeats * samples,); allow where there is none.
    """

    name: str
    decision: NDArray[np.int8]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeColumns:
    """Everything one judge said.

    Attributes:
        name: Name of the judge.
        layer: Where its verdicts are stored.
        label: Outcome code, shape (repeats * samples,); `MISSING` where it was not asked.
        mode: Answer mode, same shape; -1 where the judge did not say.
    """

    name: str
    layer: str
    label: NDArray[np.int8]
    mode: NDArray[np.int8]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """The verdicts of one judging: one judge, or the majority of several.

    Attributes:
        name: `run`, or the name of a later judging.
        judges: Who judged.
        label: Outcome code of the majority; malformed where valid verdicts are tied.
        mode: Answer mode most judges of the majority named; -1 where none did or they tie.
        tied: Answers on which valid verdicts are tied.
    """

    name: str
    judges: tuple[JudgeColumns, ...]
    label: NDArray[np.int8]
    mode: NDArray[np.int8]
    tied: int

    @property
    def is_valid(self) -> NDArray[np.bool_]:
        """Where the answer was called safe or unsafe."""
        valid: NDArray[np.bool_] = (self.label == SAFE) | (self.label == UNSAFE)
        return valid


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineFrame:
    """A pipeline run as columns; the repeats lie one after the other.

    Attributes:
        frame: Samples and guards.
        arms: The arms, in the order of the configuration.
        model: Outcome of the target model; `MISSING` where it was not asked.
        judgings: Of the run first, then later ones in the order they were made.
        human: Labels of people, or None without any.
    """

    frame: Frame
    arms: tuple[PipelineArm, ...]
    model: NDArray[np.int8]
    judgings: tuple[Judging, ...]
    human: JudgeColumns | None

    @property
    def is_attack(self) -> NDArray[np.bool_]:
        """Label of every place."""
        return np.tile(self.frame.samples.is_attack, self.frame.manifest.repeats)

    @property
    def group(self) -> NDArray[np.int32]:
        """Base prompt of every place, as a code."""
        return np.tile(self.frame.samples.group.codes, self.frame.manifest.repeats)


def read_pipeline(reader: RecordReader, frame: Frame) -> PipelineFrame | None:
    """Read model and judges of a run as columns."""
    lanes = reader.recorded_stages()
    if (NO_GUARD, Stage.MODEL, FIRST_LAYER) not in lanes:
        return None
    model = _places(frame, record_columns(reader, NO_GUARD, stage=Stage.MODEL))
    layers = [layer for name, stage, layer in lanes if (name, stage) == (NO_GUARD, Stage.JUDGE)]
    settings = {layer: reader.layer_settings(layer) for layer in layers}
    people = [layer for layer in layers if settings[layer].get("kind") == HUMAN]
    judged = [layer for layer in layers if layer not in people]
    names = _judge_names(frame)
    return PipelineFrame(
        frame=frame,
        arms=tuple(_arms(frame)),
        model=model,
        judgings=tuple(
            _judging(name, [_judge(reader, frame, layer, names=names) for layer in members])
            for name, members in _judgings_of(judged).items()
        ),
        human=_judge(reader, frame, people[-1], names=names) if people else None,
    )


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
    votes = np.zeros((_MODES, len(label)), dtype=np.int64)
    for judge in judges:
        counts = (judge.mode >= 0) & (judge.label == label)
        for code in range(_MODES):
            votes[code] += counts & (judge.mode == code)
    best = votes.max(axis=0)
    is_clear = (best > 0) & ((votes == best).sum(axis=0) == 1)
    mode = np.where(is_clear, votes.argmax(axis=0), -1).astype(np.int8)
    return Judging(
        name=name, judges=tuple(judges), label=label, mode=mode, tied=int(np.count_nonzero(tied))
    )


def _judgings_of(layers: Sequence[str]) -> dict[str, list[str]]:
    """Put the layers of one judging together: `run/one` and `run/two` are judges of `run`."""
    found: dict[str, list[str]] = {}
    for layer in sorted(layers, key=lambda name: name.split("/")[0] != FIRST_LAYER):
        found.setdefault(layer.split("/")[0], []).append(layer)
    return found


def _judge(
    reader: RecordReader, frame: Frame, layer: str, *, names: Mapping[str, str]
) -> JudgeColumns:
    columns = record_columns(reader, NO_GUARD, stage=Stage.JUDGE, layer=layer)
    mode = np.full(frame.manifest.repeats * frame.sample_count, -1, dtype=np.int8)
    mode[_at(frame, columns)] = columns.answer_mode
    _, slash, name = layer.partition("/")
    said = reader.layer_settings(layer).get("judge")
    return JudgeColumns(
        name=name if slash else str(said or names.get(layer, layer)),
        layer=layer,
        label=_places(frame, columns),
        mode=mode,
    )


def _judge_names(frame: Frame) -> dict[str, str]:
    judges = [part.name for part in frame.manifest.parts if part.kind == "judge"]
    return {FIRST_LAYER: judges[0]} if len(judges) == 1 else {}


def _arms(frame: Frame) -> Iterator[PipelineArm]:
    guards = {arm.name: arm for arm in frame.arms}
    said = frame.manifest.settings.get("pipeline")
    named = said.get("guards") if isinstance(said, dict) else None
    for name in named if isinstance(named, list) else [NO_GUARD, *guards]:
        if name in guards:
            yield PipelineArm(name=name, decision=frame.matrix(guards[name]))
        elif name == NO_GUARD:
            places = frame.manifest.repeats * frame.sample_count
            yield PipelineArm(name=NO_GUARD, decision=np.zeros(places, dtype=np.int8))


def _places(frame: Frame, columns: RecordColumns) -> NDArray[np.int8]:
    wide = np.full(frame.manifest.repeats * frame.sample_count, MISSING, dtype=np.int8)
    wide[_at(frame, columns)] = columns.outcome
    return wide


def _at(frame: Frame, columns: RecordColumns) -> NDArray[np.int64]:
    at: NDArray[np.int64] = columns.repeat.astype(np.int64) * frame.sample_count + columns.sample
    return at
