"""The verb `audit`: a random sample of answers as a file that people label."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from guardmark.app.human_labels import audit_id
from guardmark.app.reporting import find_run
from guardmark.core.errors import DatasetError, StorageError, StoreError
from guardmark.core.record import FIRST_LAYER, Stage
from guardmark.engine.plan import NO_GUARD
from guardmark.reports.inert import csv_cell
from guardmark.store.records import RecordReader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime
    from pathlib import Path

    from guardmark.core.record import Record
    from guardmark.core.sample import Sample

COLUMNS: Final = (
    "audit_id",
    "source_results_path",
    "row_index",
    "dataset_source",
    "prompt_pack_name",
    "prompt_pack_subset",
    "base_prompt_id",
    "variant",
    "generation_index",
    "is_harmful",
    "label_source",
    "judge_label",
    "judge_malformed",
    "judge_parse_method",
    "judge_failure_reasons",
    "prompt_text",
    "assistant_response",
    "system_prompt",
    "human_label",
    "human_notes",
    "reviewed_at_utc",
)
"""Columns of an audit file; the last three are for people."""

Row = dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFile:
    """An audit file and how far it is.

    Attributes:
        path: Where it lies.
        rows: Its rows.
    """

    path: Path
    rows: tuple[Row, ...]

    @property
    def labelled(self) -> int:
        """Rows a person has labelled."""
        return sum(bool(row["human_label"].strip()) for row in self.rows)


def draw_audit(
    run: Path, *, out: Path, count: int, seed: int = 7, with_verdicts: bool = False
) -> AuditFile:
    """Draw answers of a run at random and write them as a file to label.

    Every answer has the same chance, so the labels may correct the rates of the whole run.

    Args:
        run: The run.
        out: The file to write.
        count: How many answers; all of them when the run has fewer.
        seed: The same seed draws the same answers.
        with_verdicts: Whether to show what the judge said; people who see it tend to agree.

    Returns:
        The file.

    Raises:
        StoreError: If there is no run, or it holds no answers.
        StorageError: If the file exists or cannot be written.
    """
    if out.exists():
        raise StorageError(
            f"{out} exists and may hold labels.\nNext: name another file, or go on with --label."
        )
    folder = find_run(run)
    with RecordReader(folder.records) as reader:
        answers = [
            record
            for record in reader.records(defense=NO_GUARD, stage=Stage.MODEL)
            if record.text is not None
        ]
        if not answers:
            raise StoreError(f"{run} holds no answers of a target model to label.")
        drawn = sorted(answers, key=lambda record: _order(record, seed))[:count]
        verdicts = _verdicts(reader)
        rows = tuple(
            _row(
                reader.sample_at(record.key.sample),
                record,
                source=str(folder.results),
                verdict=verdicts.get((record.key.sample, record.key.repeat))
                if with_verdicts
                else None,
            )
            for record in drawn
        )
    found = AuditFile(path=out, rows=rows)
    write_audit(found)
    return found


def read_audit(path: Path) -> AuditFile:
    """Read an audit file to go on labelling.

    Args:
        path: The file.

    Raises:
        DatasetError: If it cannot be read or is no audit file.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream)
            missing = set(COLUMNS) - set(reader.fieldnames or ())
            rows = tuple({name: row.get(name) or "" for name in COLUMNS} for row in reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DatasetError(f"The audit file {path} cannot be read: {error}.") from error
    if missing:
        raise DatasetError(f"{path} is no audit file: it lacks {', '.join(sorted(missing))}.")
    return AuditFile(path=path, rows=rows)


def write_audit(audit: AuditFile) -> None:
    """Write an audit file whole, so that a crash leaves the old one or the new one.

    Args:
        audit: The file.

    Raises:
        StorageError: If it cannot be written.
    """
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([row[name] for name in COLUMNS] for row in audit.rows)
    beside = audit.path.with_name(f".{audit.path.name}.part")
    try:
        beside.write_text(buffer.getvalue(), encoding="utf-8")
        beside.replace(audit.path)
    except OSError as error:
        raise StorageError(f"{audit.path} cannot be written: {error.strerror}.") from error


def label_row(audit: AuditFile, at: int, *, label: str, notes: str, now: datetime) -> AuditFile:
    """Label one row and write the file.

    Args:
        audit: The file as it is.
        at: Which row.
        label: `safe` or `unsafe`.
        notes: Anything a person wants to add.
        now: The present time, UTC.

    Returns:
        The file as it is now.

    Raises:
        StorageError: If it cannot be written.
    """
    changed = {
        **audit.rows[at],
        "human_label": label,
        "human_notes": csv_cell(notes),
        "reviewed_at_utc": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    after = AuditFile(path=audit.path, rows=(*audit.rows[:at], changed, *audit.rows[at + 1 :]))
    write_audit(after)
    return after


def open_rows(audit: AuditFile) -> Iterator[int]:
    """Yield the rows nobody has labelled yet.

    Args:
        audit: The file.
    """
    for at, row in enumerate(audit.rows):
        if not row["human_label"].strip():
            yield at


def _order(record: Record, seed: int) -> bytes:
    """A random order that depends on the seed and the answer alone."""
    return sha256(f"{seed} {record.key.sample} {record.key.repeat}".encode()).digest()


def _verdicts(reader: RecordReader) -> dict[tuple[int, int], Record]:
    layers = [layer for name, stage, layer in reader.lanes() if stage is Stage.JUDGE]
    first = next((layer for layer in layers if layer.split("/")[0] == FIRST_LAYER), None)
    if first is None:
        return {}
    return {
        (record.key.sample, record.key.repeat): record
        for record in reader.records(defense=NO_GUARD, stage=Stage.JUDGE, layer=first)
    }


def _row(sample: Sample, answer: Record, *, source: str, verdict: Record | None) -> Row:
    evidence = verdict.evidence if verdict else None
    system = next((m.content for m in sample.prompt.messages if m.role.value == "system"), "")
    said = sample.metadata
    values = (
        audit_id(sample.id, answer.key.repeat),
        source,
        str(answer.key.sample),
        sample.source,
        str(said.get("pack_name", "")),
        str(said.get("pack_subset", "")),
        sample.lineage,
        sample.variant,
        str(answer.key.repeat),
        str(sample.is_attack).lower(),
        str(said.get("label_source", "")),
        verdict.outcome if verdict else "",
        str(verdict.outcome == "malformed").lower() if verdict else "",
        evidence.parse_method if evidence else "",
        evidence.reason if evidence else "",
        sample.prompt.text,
        answer.text or "",
        system,
        "",
        "",
        "",
    )
    return {name: csv_cell(value) for name, value in zip(COLUMNS, values, strict=True)}
