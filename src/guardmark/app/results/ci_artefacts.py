"""What a run leaves for other programs: JUnit XML, SARIF, its comparison as JSON."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from guardmark.analysis.compare.compared import Wanted, compare_matched
from guardmark.analysis.compare.runs_compared import OpenRun, match_runs
from guardmark.analysis.defense.bypasses import find_worst
from guardmark.analysis.defense.frame import read_frame
from guardmark.analysis.gate.checks import check_complete, check_limits
from guardmark.analysis.gate.limits import GateResult
from guardmark.app.results.gate_policy import gate_policy
from guardmark.reports.cells import rate_text
from guardmark.reports.ci_junit import Unlimited, figures_junit, gate_junit
from guardmark.reports.ci_sarif import MOST_RESULTS, Analysed, Located, sarif_json
from guardmark.reports.compared_json import comparison_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guardmark.analysis.run import RunAnalysis
    from guardmark.app.settings import Config
    from guardmark.core.manifest import RunManifest
    from guardmark.store.reader import RecordReader

_LISTED: Final = 10


def run_junit(reader: RecordReader, analysis: RunAnalysis, config: Config) -> str:
    """Write a run as JUnit XML: its limits, or its figures when none are set."""
    manifest = analysis.manifest
    result = check_own_limits(reader, analysis, config)
    if result is None:
        return figures_junit(
            tuple(_figures(analysis)), run=manifest.name, created_utc=manifest.created_utc
        )
    return gate_junit(result, run=manifest.name, created_utc=manifest.created_utc)


def check_own_limits(
    reader: RecordReader, analysis: RunAnalysis, config: Config
) -> GateResult | None:
    """Check the limits that the configuration of a run sets."""
    if config.gate is None:
        return None
    policy = replace(gate_policy(config.gate), regression_margin=None)
    if policy.is_empty:
        return None
    settings = analysis.settings
    checks = check_complete(analysis.status)
    checks += check_limits(read_frame(reader, settings), policy, settings)
    return GateResult(checks=checks, confidence=settings.confidence)


def run_comparison(reader: RecordReader, analysis: RunAnalysis) -> str:
    """Write the defenses of a run against each other as `comparison.json`."""
    opened = [OpenRun(label=analysis.manifest.name, reader=reader)]
    matched = match_runs(opened, analysis.settings)
    compared = compare_matched(
        matched, Wanted(listed=_LISTED, latency=False), reader=reader, settings=analysis.settings
    )
    return comparison_json(compared, texts=False, timing=False)


def run_sarif(reader: RecordReader, analysis: RunAnalysis, *, texts: bool) -> str:
    """Write what the defenses of a run got wrong as SARIF."""
    manifest = analysis.manifest
    settings = replace(analysis.settings, listed_samples=MOST_RESULTS)
    worst = find_worst(reader, read_frame(reader, settings), settings)
    found = tuple(
        Located(listed=each, place=_place(manifest, reader.position_of(each.sample.id) or 0))
        for each in worst.listed
    )
    baselines = frozenset(each.name for each in analysis.defenses if each.is_baseline)
    analysed = Analysed(
        run=manifest.name,
        version=manifest.guardmark_version,
        # A run of baselines alone still has something to tell.
        baselines=baselines if len(baselines) < len(analysis.defenses) else frozenset(),
        texts=texts,
    )
    return sarif_json(found, analysed)


def _figures(analysis: RunAnalysis) -> Iterator[Unlimited]:
    for defense in analysis.defenses:
        for figure, estimate in (
            ("ASR", defense.card.attack_success_rate),
            ("FPR", defense.card.false_positive_rate),
            ("answered", defense.card.answered),
        ):
            text = f"{figure} {rate_text(estimate)}"
            yield Unlimited(defense=defense.name, figure=figure, text=text)


def _place(manifest: RunManifest, position: int) -> str:
    """Return the file a sample was read from, or its data set when that has several files."""
    end = 0
    for data in manifest.data:
        end += data.attacks + data.benign
        if position < end:
            return next(iter(data.files)) if len(data.files) == 1 else data.name
    return manifest.name
