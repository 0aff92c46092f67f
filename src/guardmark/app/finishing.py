"""After a run: its reports, and whether they can be trusted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from guardmark.app.artefacts import write_reports
from guardmark.reports.summary import summary_json
from guardmark.reports.terminal import render_terminal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from guardmark.analysis.run import RunAnalysis
    from guardmark.app.settings import Config
    from guardmark.store.run_dir import RunDir


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a finished run has to say.

    Attributes:
        terminal: Verdicts and the summary table, ready to print.
        summary_json: The summary as JSON.
        files: Label and path of what a person opens next.
        complaints: Why the figures are not to be trusted; empty when they are.
    """

    terminal: str
    summary_json: str
    files: tuple[tuple[str, Path], ...]
    complaints: tuple[str, ...]


def finish(
    folder: RunDir,
    config: Config,
    *,
    formats: Sequence[str],
    thresholds: tuple[tuple[str, float], ...] = (),
    texts: bool = True,
) -> Told:
    """Write the reports of a run and say what came out.

    Args:
        folder: Folder of the run.
        config: Its settings.
        formats: What to write.
        thresholds: Defenses to decide anew from stored scores.
        texts: Whether reports may show prompt texts.

    Returns:
        What to print.

    Raises:
        StoreError: If the records cannot be read.
        StorageError: If a report cannot be written.
    """
    analysis, document = write_reports(
        folder, config, formats=formats, thresholds=thresholds, texts=texts
    )
    paths = (("report", folder.report_html), ("summary", folder.summary_json))
    return Told(
        terminal=render_terminal(document),
        summary_json=summary_json(analysis),
        files=tuple((label, path) for label, path in paths if path.exists()),
        complaints=tuple(_complaints(analysis, config)),
    )


def _complaints(analysis: RunAnalysis, config: Config) -> Iterator[str]:
    """Defenses that failed or mumbled more often than the configuration allows."""
    for defense in analysis.defenses:
        counts = defense.card.confusion
        for failed, kind, limit, setting in (
            (counts.errors, "errors", config.run.error_limit, "error_limit"),
            (counts.malformed, "malformed answers", config.run.malformed_limit, "malformed_limit"),
        ):
            if counts.total and failed / counts.total > limit:
                yield (
                    f"Not to be trusted: {defense.name} gave {failed:,} {kind} for "
                    f"{counts.total:,} samples, over the limit of {limit:.0%} (run.{setting}).\n"
                    f"To read them: guardmark show RUN --errors"
                )
