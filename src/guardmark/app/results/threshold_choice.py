"""Thresholds from the scores that a run has stored: chosen on one half, measured on the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import yaml

from guardmark.analysis.defense.frame import read_frame
from guardmark.analysis.defense.native_categories import (
    find_category,
    measure_together,
    scored_category,
)
from guardmark.analysis.defense.scorecard import complement
from guardmark.analysis.defense.scores import choose_guaranteed, choose_within
from guardmark.app.results.opened_run import open_run
from guardmark.core.errors import ConfigError
from guardmark.core.values import dataclass
from guardmark.reports.document.cells import rate_text
from guardmark.stats.scores.guarantee import ErrorLimits
from guardmark.store.seals import note_seals

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from guardmark.analysis.defense.frame import DefenseColumn, Frame
    from guardmark.analysis.defense.scorecard import RatePair
    from guardmark.store.reader import RecordReader


FRAGMENT = "thresholds.yaml"  # name of the file in the folder of the run


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chosen:
    """Settings of a defense that a choice changes, with the remarks that stand above them.

    Attributes:
        changed: Setting to its new value; None leaves the setting out.
    """

    defense: str
    remarks: tuple[str, ...]
    changed: dict[str, object]


def choose_thresholds(
    run: Path, limits: Sequence[tuple[str, float]], guarantee: Sequence[str] = ()
) -> Path:
    """Choose thresholds within limits, or shown to keep them, on one half of the groups.

    A limit is on a defense, or on one of its native categories: `NAME:CATEGORY`.
    """
    with open_run(run) as opened:
        folder, config, settings = opened.folder, opened.config, opened.settings
        frame = read_frame(opened.reader, settings)
        chosen = _within_limits(opened.reader, frame, limits)
    stated = config.model_dump(mode="json")["defenses"]
    lines = [
        f"# Chosen on the calibration half of the groups of {folder.path.name}",
        f"# (data {frame.manifest.data_sha256[:12]}); the rates are those of the other half.",
        "defenses:",
    ]
    if guarantee:
        chosen += _guaranteed(frame, guarantee)
    for each in chosen:
        settings_of = {**stated.get(each.defense, {}), **each.changed}
        kept = {key: value for key, value in settings_of.items() if value is not None}
        entry = {each.defense: kept}
        written = yaml.safe_dump(entry, sort_keys=False, allow_unicode=True).splitlines()
        lines += (f"  {line}" for line in (*each.remarks, *written))
    path = folder.write_text(FRAGMENT, "\n".join(lines) + "\n")
    note_seals(folder.path)
    return path


def _within_limits(
    reader: RecordReader, frame: Frame, limits: Sequence[tuple[str, float]]
) -> list[_Chosen]:
    """Choose a threshold for each limit; those of native categories stand together."""
    names = [arm.name for arm in frame.arms]
    chosen: list[_Chosen] = []
    by_defense: dict[str, dict[str, float]] = {}
    for name, limit in limits:
        defense, colon, category = name.partition(":")
        if name in names or not colon or defense not in names:
            chosen.append(_within(frame, name, limit))
        else:
            by_defense.setdefault(defense, {})[category] = limit
    for defense, of_categories in by_defense.items():
        chosen.append(_within_categories(reader, frame, defense, of_categories))
    return chosen


def _within(frame: Frame, name: str, limit: float) -> _Chosen:
    """Choose a threshold that keeps a limit on the calibration half."""
    kept = _best_within(frame, frame.arm(name), limit, subject=repr(name))
    remark = _remark(f"FPR at most {100 * limit:g} %", kept.rates)
    return _Chosen(defense=name, remarks=(remark,), changed={"threshold": kept.threshold})


class _KeptLimit(NamedTuple):
    """A threshold that keeps a limit where it was chosen, and its rates on the other half."""

    threshold: float
    rates: RatePair


def _best_within(frame: Frame, arm: DefenseColumn, limit: float, *, subject: str) -> _KeptLimit:
    """Return the threshold that blocks most within a limit, or refuse."""
    (point,) = choose_within(frame, arm, limits=(limit,))
    if point.threshold is None or point.rates is None or not point.is_resolvable:
        reason = point.reason or "it gave no scores that keep the limit"
        raise ConfigError(
            f"No threshold of {subject} for a false positive rate of {100 * limit:g} % can be "
            f"shown: {reason}.\nNext: a higher limit, or more benign samples; "
            "`guardmark report RUN` lists what scores can do."
        )
    return _KeptLimit(point.threshold, point.rates)


_INSTEAD_OF: Final = ("threshold", "blocked", "blocked_when", "action", "actions")
"""Settings that decide in place of the thresholds of categories."""


def _within_categories(
    reader: RecordReader, frame: Frame, name: str, limits: Mapping[str, float]
) -> _Chosen:
    """Choose a threshold for each of some native categories, and measure them together."""
    arm = frame.arm(name)
    if arm.part.type != "http":
        raise ConfigError(
            f"{name} is of type {arm.part.type or 'unknown'}: only services (http) take "
            f"thresholds of categories.\nNext: one threshold for all, --choose {name}=FPR."
        )
    stated = arm.part.settings.get("thresholds")
    thresholds = dict(stated) if isinstance(stated, dict) else {}
    meant = dict(frame.settings.category_map).get(name, {})
    remarks = []
    for category, limit in limits.items():
        answers = find_category(reader, frame, arm, category)
        column = scored_category(frame, arm, answers, meant.get(category, ()))
        kept = _best_within(frame, column, limit, subject=f"{category!r} of {name!r}")
        remarks.append(_remark(f"{category}, FPR at most {100 * limit:g} %", kept.rates))
        thresholds[category] = kept.threshold
    answers_of = {each: find_category(reader, frame, arm, each) for each in thresholds}
    together = measure_together(
        frame, arm, [(answers_of[each], thresholds[each]) for each in thresholds]
    )
    remarks.append(_remark("all categories together", together))
    changed: dict[str, object] = dict.fromkeys(_INSTEAD_OF)
    changed["thresholds"] = thresholds
    return _Chosen(defense=name, remarks=tuple(remarks), changed=changed)


def _guaranteed(frame: Frame, words: Sequence[str]) -> list[_Chosen]:
    """Choose for each defense with scores the threshold shown to keep limits."""
    try:
        limits = ErrorLimits.read(list(words))
    except ValueError as error:
        raise ConfigError(f"This cannot be guaranteed: {error}.") from error
    thresholds, reasons = [], []
    for arm in frame.candidates():
        if not arm.is_scored.any():
            reasons.append(f"{arm.name} gave no scores")
            continue
        chosen, rates = choose_guaranteed(frame, arm, limits)
        if chosen.threshold is None or rates is None:
            reasons.append(f"{arm.name}: {chosen.reason}")
            continue
        sure = f"{limits} on samples like these at {frame.settings.confidence:.0%} confidence"
        thresholds.append(
            _Chosen(
                defense=arm.name,
                remarks=(_remark(sure, rates),),
                changed={"threshold": chosen.threshold},
            )
        )
    if not thresholds:
        raise ConfigError(
            f"No threshold is shown to keep {limits}: {'; '.join(reasons)}.\n"
            "Next: a higher limit, or more samples."
        )
    return thresholds


def _remark(limit: str, rates: RatePair) -> str:
    hits, alarms = complement(rates.attack_success_rate), rates.false_positive_rate
    return f"# {limit}: TPR {rate_text(hits)}, FPR {rate_text(alarms)}"
