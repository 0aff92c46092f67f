"""What code scanning shows of a run: bypasses and false alarms as SARIF."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import NAMESPACE_URL, uuid5

from guardmark.analysis.defense.bypasses import find_worst
from guardmark.analysis.defense.counted_run import read_for_report
from guardmark.analysis.gate import gated_arms
from guardmark.app.results.opened_run import find_run, label_runs, open_run
from guardmark.config.source import parse_yaml, read_text
from guardmark.core.errors import ConfigError
from guardmark.core.values import dataclass
from guardmark.interchange.sarif import (
    MOST_RESULTS,
    Analysed,
    DefenseLine,
    KnownFindings,
    Located,
    fingerprints_of,
    sarif_json,
)
from guardmark.store.layers import ADAPTIVE

if TYPE_CHECKING:
    from guardmark.analysis.defense.frame import Frame
    from guardmark.analysis.gate import GatePolicy
    from guardmark.analysis.run import RunAnalysis
    from guardmark.analysis.settings import AnalysisSettings
    from guardmark.app.results.opened_run import OpenedRun
    from guardmark.core.manifest import RunManifest
    from guardmark.store.reader import RecordReader

MOST_AT_A_GATE: Final = 50
"""Findings that somebody who looks at a pull request may be shown."""


def run_sarif(reader: RecordReader, analysis: RunAnalysis, *, texts: bool) -> str:
    """Write what the defenses of a run got wrong as SARIF."""
    manifest = analysis.manifest
    settings = replace(analysis.settings, listed_samples=MOST_RESULTS)
    located = _located(reader, read_for_report(reader, settings))
    baselines = frozenset(defense.name for defense in analysis.defenses if defense.is_baseline)
    if len(baselines) == len(analysis.defenses):
        baselines = frozenset()  # a run of baselines alone still has something to tell
    analysed = Analysed(
        run=manifest.name,
        version=manifest.guardmark_version,
        baselines=baselines,
        texts=texts,
    )
    return sarif_json(located, analysed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What a code host is to show of a run at a gate.

    Attributes:
        since: A run whose findings are left out, or None.
        config: The configuration whose lines findings point at, or None.
    """

    since: Path | None = None
    config: Path | None = None


def gate_sarif(run: OpenedRun, policy: GatePolicy, shown: Shown) -> str:
    """Write the worst findings of gated defenses as SARIF; texts stay in the run."""
    frame = _frame(run.reader, run.settings)
    gated = {arm.name for arm in gated_arms(frame, policy)}
    lines: dict[str, DefenseLine] = {}
    if shown.config is not None:
        lines = _lines(shown.config)
    analysed = Analysed(
        run=frame.manifest.name,
        version=frame.manifest.guardmark_version,
        baselines=frozenset(arm.name for arm in frame.arms if arm.name not in gated),
        texts=False,
        most=MOST_AT_A_GATE,
        guid=_identity(run.reader),
        lines=lines,
    )
    if shown.since is not None:
        analysed = replace(analysed, known=_known(shown.since, analysed))
        if frame.examples is not None:
            raise ConfigError(_counted(run.folder.path))
    return sarif_json(_located(run.reader, frame), analysed)


def _frame(reader: RecordReader, settings: AnalysisSettings) -> Frame:
    """Read a run so that every finding is listed."""
    count = sum(each.attacks + each.benign for each in reader.manifest().data)
    return read_for_report(reader, replace(settings, listed_samples=max(count, MOST_RESULTS)))


def _located(reader: RecordReader, frame: Frame) -> tuple[Located, ...]:
    """Return what defenses got wrong, worst first, and what an attacker found after it."""
    manifest, located = frame.manifest, []
    for listed in find_worst(reader, frame).listed:
        place = _place(manifest, reader.position_of(listed.sample.id) or 0)
        located.append(Located(listed=listed, place=place))
    if ADAPTIVE in reader.layers():
        from guardmark.app.results.transcripts import listed_bypasses  # loads the attacks

        for listed in listed_bypasses(reader):
            located.append(Located(listed=listed, place=manifest.name))
    return tuple(located)


def _known(path: Path, analysed: Analysed) -> KnownFindings:
    """Read what an earlier run had found of the same defenses."""
    folder = find_run(path)
    with open_run(path) as earlier:
        frame = _frame(earlier.reader, earlier.settings)
        if frame.examples is not None:
            raise ConfigError(_counted(folder.path))
        return KnownFindings(
            run=label_runs([folder])[0],
            guid=_identity(earlier.reader),
            fingerprints=fingerprints_of(_located(earlier.reader, frame), analysed),
        )


def _counted(path: Path) -> str:
    return (
        f"The run {path} is so large that its findings are counted and not listed one by one: "
        "what is new cannot be told.\nNext: leave out --since, or compare smaller runs."
    )


def _identity(reader: RecordReader) -> str:
    """Return an identity that follows from the records."""
    return str(uuid5(NAMESPACE_URL, f"guardmark:{reader.status().head}"))


def _lines(config: Path) -> dict[str, DefenseLine]:
    """Return where each defense stands in a configuration."""
    document, source = parse_yaml(
        read_text(config, f"The configuration {config}"), shown_as=str(config)
    )
    named: object = None
    if isinstance(document, dict):
        named = document.get("defenses")
    if not isinstance(named, dict):
        return {}
    path = config
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    lines = {}
    for name in map(str, named):
        line, *_ = source.nearest(("defenses", name))
        lines[name] = DefenseLine(path=path.as_posix(), line=line or 1)
    return lines


def _place(manifest: RunManifest, position: int) -> str:
    """Return the file a sample was read from, or its data set when that has several files."""
    run, end = manifest.settings.get("run"), 0
    if isinstance(run, dict) and run.get("shard") and len(manifest.data) > 1:
        return manifest.name  # its samples are not numbered as those of the files
    for data in manifest.data:
        end += data.attacks + data.benign
        if position < end:
            if len(data.files) == 1:
                return next(iter(data.files))
            return data.name
    return manifest.name
