"""After a run: its reports, and whether they can be trusted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING

from guardmark.app.artefacts import write_reports
from guardmark.core.outcome import Outcome
from guardmark.core.record import Stage
from guardmark.reports.summary import summary_json
from guardmark.reports.terminal import render_terminal
from guardmark.store.records import RecordReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from guardmark.analysis.run import RunAnalysis
    from guardmark.app.settings import Config
    from guardmark.store.run_dir import RunDir

_REASON = 160
"""Characters of a reason that are quoted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a finished run has to say.

    Attributes:
        terminal: Verdicts and the summary table, ready to print.
        analysis: The figures behind it.
        files: Label and path of what a person opens next.
        complaints: Why the figures are not to be trusted; empty when they are.
        gate: How the limits of the configuration stand, ready to print; empty without limits.
        gate_exit: 0 when they are held, 1 when one is broken, 5 when the data cannot decide.
    """

    terminal: str
    analysis: RunAnalysis
    files: tuple[tuple[str, Path], ...]
    complaints: tuple[str, ...]
    gate: str = ""
    gate_exit: int = 0

    @property
    def summary_json(self) -> str:
        """The summary as JSON, encoded when it is asked for."""
        return summary_json(self.analysis)


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
    gate, gate_exit = "", 0
    if config.gate is not None and not thresholds:
        gate, gate_exit = _own_gate(folder, analysis, config)
    paths = (("report", folder.report_html), ("summary", folder.summary_json))
    return Told(
        terminal=render_terminal(document),
        analysis=analysis,
        files=tuple((label, path) for label, path in paths if path.exists()),
        complaints=tuple(_complaints(analysis, config, folder)),
        gate=gate,
        gate_exit=gate_exit,
    )


def _own_gate(folder: RunDir, analysis: RunAnalysis, config: Config) -> tuple[str, int]:
    """Check the limits that a configuration sets; return what to print, and the exit code."""
    from guardmark.app.ci_artefacts import check_own_limits
    from guardmark.app.gate_policy import EXITS
    from guardmark.reports.gate_renderings import render_gate

    with RecordReader(folder.records) as reader:
        result = check_own_limits(reader, analysis, config)
    return ("", 0) if result is None else (render_gate(result), EXITS[result.standing])


def _complaints(analysis: RunAnalysis, config: Config, folder: RunDir) -> Iterator[str]:
    """Defenses that failed or mumbled more often than the configuration allows."""
    for defense in analysis.defenses:
        counts = defense.card.confusion
        for outcome, failed, kind, limit, setting in (
            (Outcome.ERROR, counts.errors, "errors", config.run.error_limit, "error_limit"),
            (
                Outcome.MALFORMED,
                counts.malformed,
                "malformed answers",
                config.run.malformed_limit,
                "malformed_limit",
            ),
        ):
            if counts.total and failed / counts.total > limit:
                option = "--errors" if outcome is Outcome.ERROR else "--malformed"
                yield (
                    f"Not to be trusted: {defense.name} gave {failed:,} {kind} for "
                    f"{counts.total:,} samples, over the limit of {limit:.0%} (run.{setting}).\n"
                    f"{_most_often(folder, defense.name, outcome)}"
                    f"To read them: guardmark show {quote(str(folder.path))} {option}"
                )


def _most_often(folder: RunDir, defense: str, outcome: Outcome) -> str:
    """The commonest reason a defense's records give, as a line; empty without any."""
    with RecordReader(folder.records) as reader:
        reasons = Counter(
            record.evidence.message.partition("\n")[0][:_REASON]
            for record in reader.records(defense=defense, stage=Stage.DEFENSE)
            if record.outcome == outcome.value and record.evidence and record.evidence.message
        )
    if not reasons:
        return ""
    ((reason, times),) = reasons.most_common(1)
    return f"Most often ({times:,}): {reason}\n"
