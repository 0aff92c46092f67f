"""The verb `gate`: may this release go out, by limits fixed beforehand."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from guardmark.analysis.compare.comparison import compare_arms
from guardmark.analysis.compare.runs_compared import OpenRun, match_runs
from guardmark.analysis.defense.frame import read_frame
from guardmark.analysis.gate.checks import (
    check_complete,
    check_limits,
    check_regression,
    gated_arms,
)
from guardmark.analysis.gate.limits import GateCheck, GateResult
from guardmark.app.results.artefacts import analysis_settings
from guardmark.app.results.comparing import label_runs
from guardmark.app.results.gate_policy import read_policy
from guardmark.app.results.reporting import find_run, run_config
from guardmark.core.errors import ConfigError, StorageError, StoreError
from guardmark.reports.chapters.comparison import run_caveats
from guardmark.reports.exports.junit import gate_junit
from guardmark.store.records import RecordReader
from guardmark.store.run_dir import whole_file

if TYPE_CHECKING:
    from pathlib import Path

    from guardmark.analysis.compare.runs_compared import MatchedRuns
    from guardmark.analysis.defense.frame import DefenseColumn
    from guardmark.analysis.gate.limits import GatePolicy
    from guardmark.analysis.settings import AnalysisSettings
    from guardmark.store.run_dir import RunDir


@dataclass(frozen=True, slots=True, kw_only=True)
class Gated:
    """The answer of a gate."""

    run: str
    baseline: str
    created_utc: str
    result: GateResult
    caveats: tuple[str, ...]
    head: str = ""


def gate(path: Path, *, policy: Path | None = None, baseline: Path | None = None) -> Gated:
    """Check a run against the limits of a policy."""
    folder = find_run(path)
    base = None if baseline is None else _find_baseline(baseline)
    with RecordReader(folder.records) as reader:
        config = run_config(reader.manifest())
    limits = read_policy(policy, config, has_baseline=base is not None)
    return check_run(folder, limits, baseline=base)


def check_run(folder: RunDir, limits: GatePolicy, *, baseline: RunDir | None = None) -> Gated:
    """Check a run against limits."""
    base = baseline
    with ExitStack() as stack:
        reader = stack.enter_context(RecordReader(folder.records))
        settings = analysis_settings(run_config(reader.manifest()), reader)
        frame = read_frame(reader, settings)
        status = reader.status()
        checks = check_complete(status)
        checks += check_limits(frame, limits, settings)
        caveats: tuple[str, ...] = ()
        labels = label_runs([folder, base] if base else [folder])
        if base is not None:
            other = stack.enter_context(RecordReader(base.records))
            opened = [
                OpenRun(label=labels[0], reader=reader),
                OpenRun(label=labels[1], reader=other),
            ]
            matched = match_runs(opened, settings)
            arms = gated_arms(frame, limits)
            checks += _regressions(matched, arms, limits=limits, settings=settings)
            caveats = tuple(run_caveats(matched.runs, matched.remarks))
            checks += check_complete(other.status(), subject="baseline")
    return Gated(
        run=labels[0],
        baseline=labels[1] if base is not None else "",
        created_utc=frame.manifest.created_utc,
        head=status.head,
        result=GateResult(checks=checks, confidence=settings.confidence),
        caveats=caveats,
    )


def write_junit(gated: Gated, path: Path) -> None:
    """Write the answer of a gate as JUnit XML."""
    text = gate_junit(gated.result, run=gated.run, created_utc=gated.created_utc, head=gated.head)
    if path.exists() and not path.is_file():
        try:
            path.write_text(text, encoding="utf-8")  # a pipe or a device
        except OSError as error:
            raise StorageError(f"{path} cannot be written: {error.strerror}.") from error
        return
    with whole_file(path) as file:
        file.write(text.encode())


def _find_baseline(path: Path) -> RunDir:
    """A missing baseline is a mistake of the caller and never a pass."""
    try:
        return find_run(path)
    except StoreError as error:
        raise ConfigError(f"The baseline cannot be used. {error}") from error


def _regressions(
    matched: MatchedRuns,
    arms: tuple[DefenseColumn, ...],
    *,
    limits: GatePolicy,
    settings: AnalysisSettings,
) -> tuple[GateCheck, ...]:
    """Compare each gated defense with itself in the baseline run."""
    run, base = (each.label for each in matched.runs)
    now = {each.defense: each.name for each in matched.origins if each.run == run}
    before = {each.defense: each.name for each in matched.origins if each.run == base}
    for arm in arms:
        if arm.name not in before:
            raise ConfigError(
                f"The baseline {base} has no defense {arm.name!r}; it has: {', '.join(before)}.\n"
                "Next: name another baseline, or the defenses to check (`defenses:`)."
            )
    pairs = [(now[arm.name], before[arm.name]) for arm in arms]
    comparison = compare_arms(matched.frame, settings, chosen=pairs)
    return check_regression(
        () if comparison is None else comparison.pairs,
        limits.regression_margin or 0.0,
        alpha=1 - settings.confidence,
        names={name: defense for defense, name in now.items()},
    )
