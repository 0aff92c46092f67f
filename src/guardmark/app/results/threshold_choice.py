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

    from guardmark.analysis.defense.frame import Frame

FRAGMENT = "thresholds.yaml"
"""Name of the file in the folder of the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragment:
    """Thresholds as they stand in a configuration."""

    path: Path
    text: str


def choose_thresholds(run: Path, words: Sequence[str]) -> Fragment:
    """Choose thresholds within limits on false alarms, on one half of the groups."""
    with open_run(run) as opened:
        limits = parse_thresholds(words, option="--choose", meaning="FPR")
        folder, config, settings = opened.folder, opened.config, opened.settings
        frame = read_frame(opened.reader, settings)
    entries = config.model_dump(mode="json")["defenses"]
    lines = [
        f"# Chosen on the calibration half of the groups of {folder.path.name}",
        f"# (data {frame.manifest.data_sha256[:12]}); the rates are those of the other half.",
        "defenses:",
    ]
    for name, limit in limits:
        lines += (f"  {line}" for line in _entry(frame, name, limit, entries.get(name, {})))
    text = "\n".join(lines) + "\n"
    return Fragment(path=folder.write_text(FRAGMENT, text), text=text)


def _entry(frame: Frame, name: str, limit: float, stated: Mapping[str, object]) -> list[str]:
    """Write the settings a defense was run with, with a threshold within a limit in its place."""
    (point,) = choose_within(frame, frame.arm(name), limits=(limit,))
    if point.threshold is None or point.rates is None or not point.is_resolvable:
        reason = point.reason or "it gave no scores that keep the limit"
        raise ConfigError(
            f"No threshold of {name!r} for a false positive rate of {100 * limit:g} % can be "
            f"shown: {reason}.\nNext: a higher limit, or more benign samples; "
            "`guardmark report RUN` lists what scores can do."
        )
    hits = figure_text(complement(point.rates.attack_success_rate))
    alarms = figure_text(point.rates.false_positive_rate)
    settings = {key: value for key, value in stated.items() if value is not None}
    entry = {name: {**settings, "threshold": point.threshold}}
    remark = f"# FPR at most {100 * point.max_fpr:g} %: TPR {hits}, FPR {alarms}"
    return [remark, *yaml.safe_dump(entry, sort_keys=False, allow_unicode=True).splitlines()]
