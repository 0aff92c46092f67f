"""Which answers two judgings see differently."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from guardmark.analysis.defense.frame import MISSING, read_frame
from guardmark.analysis.pipeline.frame import read_pipeline
from guardmark.analysis.settings import AnalysisSettings
from guardmark.core.errors import UnknownName
from guardmark.store.codes import OUTCOME_NAMES

if TYPE_CHECKING:
    from guardmark.store.reader import RecordReader


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """One answer that two judgings label differently.

    Attributes:
        sample_id: Id of the sample.
        repeat: Which repetition.
        is_attack: Label of the sample.
        before: Label by the first judging.
        after: Label by the second.
    """

    sample_id: str
    repeat: int
    is_attack: bool
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Flips:
    """Two judgings of the same answers.

    Attributes:
        first: Name of the first judging.
        second: Name of the second.
        compared: Answers that both labelled, malformed and failed verdicts included.
        flips: Those they label differently, in the order of the data.
    """

    first: str
    second: str
    compared: int
    flips: tuple[Flip, ...]


def find_flips(reader: RecordReader, second: str, *, first: str = "") -> Flips | None:
    """Find the answers that two judgings label differently."""
    frame = read_frame(reader, AnalysisSettings.of(reader.manifest()))
    pipeline = read_pipeline(reader, frame)
    judgings = {each.name: each for each in pipeline.judgings} if pipeline else {}
    others = [name for name in judgings if name != second]
    if second in judgings and not others and not first:
        return None
    for name in (second, first or next(iter(others), second)):
        if name not in judgings:
            raise UnknownName("judging of this run", name, judgings)
    one, two = judgings[first or others[0]], judgings[second]
    both = (one.label != MISSING) & (two.label != MISSING)
    samples = frame.sample_count
    places = np.flatnonzero(both & (one.label != two.label)).tolist()
    return Flips(
        first=one.name,
        second=two.name,
        compared=int(np.count_nonzero(both)),
        flips=tuple(
            Flip(
                sample_id=frame.samples.ids[place % samples],
                repeat=place // samples,
                is_attack=bool(frame.samples.is_attack[place % samples]),
                before=OUTCOME_NAMES[one.label[place]],
                after=OUTCOME_NAMES[two.label[place]],
            )
            for place in sorted(places, key=lambda place: (place % samples, place))
        ),
    )
