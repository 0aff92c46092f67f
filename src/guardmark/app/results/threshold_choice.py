"""A threshold chosen from stored scores, written out as a fragment of a configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import yaml

from guardmark.analysis.defense.frame import read_frame
from guardmark.analysis.defense.scorecard import complement
from guardmark.analysis.defense.scores import choose_within
from guardmark.app.results.artefacts import analysis_settings
from guardmark.app.results.reporting import find_run, parse_thresholds, run_config
from guardmark.core.errors import ConfigError, UnknownName
from guardmark.reports.document.cells import of_estimate
from guardmark.reports.document.wording import measure_text
from guardmark.store.records import RecordReader

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from guardmark.analysis.defense.frame import DefenseColumn, Frame
    from guardmark.analysis.defense.scores import LimitedPoint
    from guardmark.analysis.settings import AnalysisSettings

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
    folder = find_run(run)
    limits = parse_thresholds(said, option="--choose", meaning="FPR")
    with RecordReader(folder.records) as reader:
        config = run_config(reader.manifest())
        settings = analysis_settings(config, reader)
        frame = read_frame(reader, settings)
    arms = {arm.name: arm for arm in frame.arms}
    entries = config.model_dump(mode="json")["defenses"]
    parts = [
        f"# Chosen on the calibration half of the groups of {folder.path.name}",
        f"# (data {frame.manifest.data_sha256[:12]}); the rates are those of the other half.",
        "defenses:",
    ]
    for name, limit in limits:
        if name not in arms:
            raise UnknownName("defense of this run", name, arms)
        point = _point(frame, arms[name], settings, limit=limit)
        parts.append(_entry(name, entries.get(name, {}), point))
    text = "\n".join(parts) + "\n"
    return Fragment(path=folder.write_text(FRAGMENT, text), text=text)


def _point(
    frame: Frame, arm: DefenseColumn, settings: AnalysisSettings, *, limit: float
) -> LimitedPoint:
    (point,) = choose_within(frame, arm, settings, limits=(limit,))
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
    hits = measure_text(of_estimate(complement(point.rates.attack_success_rate)))
    alarms = measure_text(of_estimate(point.rates.false_positive_rate))
    settings = {key: value for key, value in said.items() if value is not None}
    entry = yaml.safe_dump(
        {name: {**settings, "threshold": point.threshold}}, sort_keys=False, allow_unicode=True
    )
    remark = f"# FPR at most {100 * point.max_fpr:g} %: TPR {hits}, FPR {alarms}"
    return "\n".join(f"  {line}" for line in (remark, *entry.splitlines()))
