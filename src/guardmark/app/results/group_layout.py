"""How the samples of a finished run fall into groups, and how alike a group's outcomes are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from guardmark.analysis.defense.frame import read_frame
from guardmark.analysis.defense.scorecard import estimate_rates
from guardmark.analysis.settings import AnalysisSettings
from guardmark.app.results.opened_run import open_run
from guardmark.core.errors import StoreError
from guardmark.stats.planning import Layout

if TYPE_CHECKING:
    from pathlib import Path


def read_layout(path: Path, *, is_attack: bool) -> Layout:
    """Return the sizes of the groups of a run's attacks, or benign samples, and their ICC.

    Of several defenses it is the largest ICC: a plan for the least favourable one holds for all.
    Repeats are rows of their group.
    """
    with open_run(path) as opened:
        settings = AnalysisSettings.of(opened.reader.manifest())
        frame = read_frame(opened.reader, settings)
    of_label = frame.samples.is_attack == is_attack
    what = "benign samples"
    if is_attack:
        what = "attacks"
    if not of_label.any():
        raise StoreError(f"{path} holds no {what} to take the sizes of groups from.")
    sizes = np.bincount(frame.samples.group.codes[of_label]) * frame.manifest.repeats
    sizes = sizes[sizes > 0]
    known = []
    for arm in frame.candidates():
        rates = estimate_rates(frame, arm)
        rate = rates.false_positive_rate
        if is_attack:
            rate = rates.attack_success_rate
        if rate.icc is not None:
            known.append(rate.icc)
    if not known and sizes.max() > 1:
        raise StoreError(
            f"{path} does not show how alike the {what} of a group are: nothing varies.\n"
            "Next: name sizes and correlation, such as --variants 1-9 --icc 0.5."
        )
    icc = min(1.0, max([0.0, *known]))
    return Layout(icc=icc, sizes=tuple(sizes.tolist()))
