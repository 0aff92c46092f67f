"""A threshold chosen from stored scores, written out as a fragment of a configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import yaml

from guardmark.analysis.defense.frame import read_frame
from guardmark.analysis.defense.scorecard import complement
from guardmark.analysis.defense.scores import choose_within
from guardmark.app.results.opened_run import open_run
from guardmark.app.results.reporting import parse_thresholds
from guardmark.core.errors import ConfigError
from guardmark.reports.document.cells import figure_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from guardmark.analysis.defense.frame import DefenseColumn, Frame
    from guardmark.analysis.defense.scores import LimitedPoint

FRAGMENT = "thresholds.yaml"
"""Name of the file in the folder of the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragment:
    """Thresholds as they stand in a configuration."""

    path: Path
    text: str


def choose_thresholds(run: Path, said: Sequence[str]) -> Fragment:
    """Choose thresholds within limits on false alarms; nothing is called.

    Each threshold is chosen on the calibration half of the groups; the rates told beside it are
    those of the other half.
    """
    with open_run(run) as opened:
        limits = parse_thresholds(said, option="--choose", meaning="FPR")
        folder, config, settings = opened.folder, opened.config, opened.settings
        frame = read_frame(opened.reader, settings)
    entries = config.model_dump(mode="json")["defenses"]
    parts = [
        f"# Chosen on the calibration half of the groups of {folder.path.name}",
        f"# (data {frame.manifest.data_sha256[:12]}); the rates are those of the other half.",
        "defenses:",
    ]
    for name, limit in limits:
        point = _point(frame, frame.arm(name), limit=limit)
        parts.append(_entry(name, entries.get(name, {}), point))
    text = "\n".join(parts) + "\n"
    return Fragment(path=folder.write_text(FRAGMENT, text), text=text)


def _point(frame: Frame, arm: DefenseColumn, *, limit: float) -> LimitedPoint:
    (point,) = choose_within(frame, arm, limits=(limit,))
    if point.threshold is None or point.rates is None or not point.is_resolvable:
        reason = point.reason or "it gave no scores that keep the limit"
        raise ConfigError(
            f"No threshold of {arm.name!r} for a false positive rate of {100 * limit:g} % can be "
            f"shown: {reason}.\nNext: a higher limit, or more benign samples; "
            "`guardmark report RUN` lists what scores can do."
        )
    return point


def _entry(name: str, said: Mapping[str, object], point: LimitedPoint) -> str:
    """Write the settings a defense was run with, with the threshold in its place."""
    if point.rates is None:
        return ""
    hits = figure_text(complement(point.rates.attack_success_rate))
    alarms = figure_text(point.rates.false_positive_rate)
    settings = {key: value for key, value in said.items() if value is not None}
    entry = yaml.safe_dump(
        {name: {**settings, "threshold": point.threshold}}, sort_keys=False, allow_unicode=True
    )
    remark = f"# FPR at most {100 * point.max_fpr:g} %: TPR {hits}, FPR {alarms}"
    return "\n".join(f"  {line}" for line in (remark, *entry.splitlines()))
