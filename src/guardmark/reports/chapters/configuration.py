"""What was run: defenses, data, date, evaluator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.reports.document.blocks import (
    Facts,
    Paragraph,
    Section,
    Table,
    TextCell,
    Tone,
)
from guardmark.reports.document.cells import columns, name, row, words
from guardmark.reports.document.wording import count_text, percent_text

if TYPE_CHECKING:
    from guardmark.analysis.run import RunAnalysis
    from guardmark.reports.document.blocks import Block

_HASH = 16


def write(analysis: RunAnalysis) -> Section:
    """Write the section on what was run."""
    blocks: list[Block] = [_facts(analysis), _defenses(analysis), _data(analysis)]
    status = analysis.status
    if status.stored < status.planned:
        text = (
            f"The run is {status.state.value}: {count_text(status.stored)} of "
            f"{count_text(status.planned)} planned records are stored. Every figure below "
            "stands on these alone."
        )
        blocks.insert(0, Paragraph(text=text, tone=Tone.WARNING))
    if status.retried:
        text = (
            f"{count_text(status.retried)} errors of earlier attempts were asked about again; the "
            "figures stand on the last attempt, and the earlier ones are kept in the records."
        )
        blocks.insert(0, Paragraph(text=text))
    return Section(id="configuration", title="Configuration", blocks=tuple(blocks))


def _facts(analysis: RunAnalysis) -> Facts:
    manifest, samples = analysis.manifest, analysis.samples
    pairs: list[tuple[str, TextCell]] = [
        ("Run", name(manifest.name)),
        ("Date (UTC)", words(manifest.created_utc)),
        ("Evaluator", words(manifest.evaluator or "not named")),
        ("guardmark", words(manifest.guardmark_version)),
        ("Configuration hash", name(manifest.config_sha256[:_HASH])),
        ("Data hash", name(manifest.data_sha256[:_HASH])),
        (
            "Samples",
            words(
                f"{count_text(samples.attacks)} attacks, {count_text(samples.benign)} benign, "
                f"in {count_text(samples.groups)} groups"
            ),
        ),
        ("Repeats", words(str(manifest.repeats))),
        ("Seed", words(str(manifest.seed))),
        (
            "Policies",
            words(
                f"on malformed: {manifest.on_malformed.value}; on error: {manifest.on_error.value}"
            ),
        ),
        ("Confidence", words(percent_text(analysis.settings.confidence))),
    ]
    if analysis.status.head:
        pairs.append(("Head of the records", name(analysis.status.head)))
    return Facts(title="The run", pairs=tuple(pairs))


def _defenses(analysis: RunAnalysis) -> Table:
    rows = []
    for defense in analysis.defenses:
        part = defense.part
        threshold = "" if defense.threshold is None else f"{defense.threshold:g}"
        rows.append(
            row(
                name(part.name),
                part.type or "unknown",
                part.version or "not stated",
                part.view or "not stated",
                threshold,
                name(part.fingerprint[:_HASH]),
            )
        )
    titles = ("Defense", "Type", "Version", "View", "Threshold", "Fingerprint")
    return Table(
        id="defenses",
        title="Defenses",
        columns=columns(*titles, texts=titles),
        rows=tuple(rows),
        note="The view is what of a prompt a defense is shown; the same defense may look good on "
        "one and be blind on another.",
    )


def _data(analysis: RunAnalysis) -> Table:
    rows = tuple(
        row(
            name(data.name),
            data.version or "not stated",
            ", ".join(data.files),
            data.attacks,
            data.benign,
            name(data.sha256[:_HASH]),
        )
        for data in analysis.manifest.data
    )
    return Table(
        id="data",
        title="Data",
        columns=columns(
            "Data set",
            "Version",
            "Files",
            "Attacks",
            "Benign",
            "Hash",
            texts=("Version", "Files", "Hash"),
        ),
        rows=rows,
    )
