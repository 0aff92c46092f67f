"""Whether a defense says the same when it is asked again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from guardmark.analysis.defense.frame import BLOCK
from guardmark.stats.rates.means import RepeatVariance, decompose_repeats

if TYPE_CHECKING:
    from guardmark.analysis.defense.frame import DefenseColumn, Frame


@dataclass(frozen=True, slots=True, kw_only=True)
class Stability:
    """How the answers of one defense vary over repeats, counting blocks.

    Attributes:
        attacks: On attacks that were answered every time.
        benign: On benign samples that were answered every time.
        left_out: Samples that were not answered every time.
    """

    attacks: RepeatVariance
    benign: RepeatVariance
    left_out: int


def measure_stability(frame: Frame, arm: DefenseColumn) -> Stability | None:
    """Measure how often a defense changes its mind."""
    repeats = frame.manifest.repeats
    if repeats < 2:
        return None
    outcomes = frame.matrix(arm).reshape(repeats, frame.sample_count)
    complete = ((outcomes >= 0) & (outcomes <= BLOCK)).all(axis=0)
    blocks = (outcomes == BLOCK).sum(axis=0)
    attack = frame.samples.is_attack
    return Stability(
        attacks=decompose_repeats(blocks[complete & attack], repeats=repeats),
        benign=decompose_repeats(blocks[complete & ~attack], repeats=repeats),
        left_out=int(np.count_nonzero(~complete)),
    )
