"""From the figures of a run to its report, free of any format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.reports.chapters import (
    advice,
    comparison,
    configuration,
    coverage,
    latency,
    method,
    pipeline,
    slices,
    summary,
    thresholds,
    worst,
)
from guardmark.reports.chapters.candidates import empty_section
from guardmark.reports.chapters.headlines import write_verdicts
from guardmark.reports.document.blocks import Document, Section
from guardmark.reports.document.wording import count_text

if TYPE_CHECKING:
    from guardmark.analysis.run import RunAnalysis
    from guardmark.core.manifest import RunManifest

_MOST_NAMES = 3


def build_document(analysis: RunAnalysis) -> Document:
    """Write the report of a run."""
    manifest, samples = analysis.manifest, analysis.samples
    data = _data_words(manifest)
    subtitle = (
        f"{data}: {count_text(samples.attacks)} attacks, {count_text(samples.benign)} benign; "
        f"{manifest.created_utc}"
    )
    if manifest.evaluator:
        subtitle += f"; {manifest.evaluator}"
    return Document(
        title=f"Defense report: {manifest.name}",
        subtitle=subtitle,
        run=manifest.name,
        created_utc=manifest.created_utc,
        version=manifest.guardmark_version,
        confidence=analysis.settings.confidence,
        verdicts=write_verdicts(analysis),
        sections=(
            configuration.write(analysis),
            summary.write(analysis),
            *([through] if (through := pipeline.write(analysis)) else []),
            slices.write_categories(analysis),
            slices.write_slices(analysis),
            coverage.write(analysis),
            latency.write(analysis),
            comparison.write(analysis),
            thresholds.write(analysis),
            _adaptive(analysis),
            worst.write(analysis),
            advice.write(analysis),
            method.write(analysis),
        ),
    )


def _adaptive(analysis: RunAnalysis) -> Section:
    if not analysis.adaptive:
        text = "No adaptive rounds were run; an attacker who adapts may do better than these rates."
        return empty_section("adaptive", "Adaptive rounds", text)
    # Most runs were not attacked, and these pages take a twentieth of a short run to load.
    from guardmark.reports.chapters.adaptive import chapter

    return chapter.write(analysis)


def _data_words(manifest: RunManifest) -> str:
    """Name the data sets that gave samples, each once, the first few of many."""
    names = [
        f"{each.name} {each.version}".strip()
        for each in manifest.data
        if each.attacks or each.benign
    ]
    distinct = list(dict.fromkeys(names))
    more = len(distinct) - _MOST_NAMES
    if more > 1:
        return f"{', '.join(distinct[:_MOST_NAMES])} and {more} more"
    return ", ".join(distinct) or "no data"
