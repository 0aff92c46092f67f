"""Files that people label, one item a row: CSV for spreadsheets, JSONL for scripts."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from guardmark.app.run.run_folder import utc_text
from guardmark.canon.visible import csv_text, text_of_cell
from guardmark.core.errors import DatasetError, StorageError
from guardmark.core.values import dataclass
from guardmark.datasets.formats import files as formats
from guardmark.datasets.formats.fields import BadRows, DatasetSpec, Fault

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime
    from pathlib import Path

Row = dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """A kind of audit file."""

    items: str
    label: str
    words: tuple[str, ...]
    columns: tuple[str, ...]


STANDS_FOR: Final = "stands_for"
"""Column of how many answers of the run a drawn one stands for."""

_FOR_PEOPLE: Final = ("human_notes", "reviewed_at_utc")

ANSWERS: Final = Sheet(
    items="answers",
    label="human_label",
    words=("safe", "unsafe"),
    columns=(
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
        *("human_label", *_FOR_PEOPLE, STANDS_FOR),
    ),
)
"""Answers of a target model: is each safe or unsafe?"""

BYPASSES: Final = Sheet(
    items="bypasses",
    label="same_request",
    words=("yes", "no", "unsure"),
    columns=(
        "audit_id",
        "source_results_path",
        "sample_id",
        "defense",
        "round",
        "tier",
        "made_by",
        "original_text",
        "rewritten_text",
        "before_encoding",
        "same_request",
        *_FOR_PEOPLE,
    ),
)
"""Attacks as they were rewritten: does each still ask for the same?"""

TRAFFIC: Final = Sheet(
    items="messages",
    label="label",
    words=("attack", "benign", "unsure"),
    columns=("audit_id", "text", "label", "seconds", *_FOR_PEOPLE),
)
"""Messages of real use: is each an attack? The sheet reads as data, label and all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFile:
    """An audit file and how far it is."""

    path: Path
    rows: tuple[Row, ...]
    sheet: Sheet = ANSWERS

    @property
    def labelled(self) -> int:
        """Rows a person has labelled."""
        return sum(bool(row[self.sheet.label].strip()) for row in self.rows)


def refuse_to_overwrite(path: Path) -> None:
    """Refuse a file that exists."""
    if path.exists():
        raise StorageError(
            f"{path} exists and may hold labels.\nNext: name another file, or go on with --label."
        )


def read_audit(path: Path) -> AuditFile:
    """Read an audit file of any kind."""
    rows = read_rows(path)
    columns: set[str] = set()
    if rows:
        columns.update(rows[0])
    sheet = ANSWERS
    for other in (TRAFFIC, BYPASSES):
        if other.label in columns:
            sheet = other
    missing = set(sheet.columns) - columns
    if missing:
        raise DatasetError(
            f"{path} is not an audit file: it lacks {', '.join(sorted(missing))}.\n"
            "Next: name one that `guardmark audit RUN` or `guardmark data label` wrote."
        )
    kept = []
    for row in rows:
        kept.append({name: row[name] for name in sheet.columns})
    return AuditFile(path=path, rows=tuple(kept), sheet=sheet)


def is_sheet_of_bypasses(path: Path) -> bool:
    """Tell whether a file holds answers on bypasses, by the columns it has."""
    return BYPASSES.label in next(iter(read_rows(path)), {})


def read_rows(path: Path) -> list[Row]:
    """Read the rows of a CSV or JSONL file, whatever their columns."""
    is_table = not _is_jsonl(path)
    rows = []
    for stored in file_rows(path, "audit file", otherwise="csv"):
        row = {}
        for name, value in stored.items():
            text = str(value or "")
            if is_table:
                text = text_of_cell(text)
            row[name] = text
        rows.append(row)
    return rows


def file_rows(path: Path, what: str = "log", otherwise: str = "jsonl") -> Iterator[dict[str, Any]]:
    """Yield the rows of a file as they stand there; its name tells the format, if it can."""
    is_known = path.suffix.lower() in {".jsonl", ".csv", ".tsv", ".parquet", ".gz"}
    spec = DatasetSpec(name="", path=path, shown_as=str(path), format="" if is_known else otherwise)
    fault: object = None
    try:
        for number, row in formats.read_rows(spec):
            if isinstance(row, Fault):
                fault = f"row {number} {row}"
                break
            yield row
    except BadRows as error:
        fault = f"it {error.faults[0]}"
    if fault:
        raise DatasetError(f"The {what} {path} cannot be read: {fault}.")


def write_audit(audit: AuditFile) -> None:
    """Write an audit file whole, so that a crash leaves the old one or the new one."""
    columns = audit.sheet.columns
    if _is_jsonl(audit.path):
        text = ""
        for row in audit.rows:
            text += json.dumps({name: row[name] for name in columns}) + "\n"
    else:
        table: list[Sequence[str]] = [columns]
        for row in audit.rows:
            table.append([row[name] for name in columns])
        text = csv_text(table)
    beside = audit.path.with_name(f".{audit.path.name}.part")
    try:
        beside.write_text(text, encoding="utf-8", newline="")
        beside.replace(audit.path)
    except OSError as error:
        raise StorageError(f"{audit.path} cannot be written: {error.strerror}.") from error


def label_row(
    audit: AuditFile, at: int, *, label: str, notes: str, now: datetime, since: datetime
) -> AuditFile:
    """Label one row, shown since then, and write the file."""
    changed = {
        **audit.rows[at],
        audit.sheet.label: label,
        "seconds": f"{(now - since).total_seconds():.1f}",
        "human_notes": notes,
        "reviewed_at_utc": utc_text(now),
    }
    changed = {name: changed[name] for name in audit.sheet.columns}
    rows = (*audit.rows[:at], changed, *audit.rows[at + 1 :])
    after = replace(audit, rows=rows)
    write_audit(after)
    return after


def open_rows(audit: AuditFile) -> Iterator[int]:
    """Yield the rows without a label."""
    return (at for at, row in enumerate(audit.rows) if not row[audit.sheet.label].strip())


def _is_jsonl(path: Path) -> bool:
    return path.suffix.lower() == ".jsonl"


def audit_id(sample_id: str, repeat: int) -> str:
    """Return the name of an answer in an audit file."""
    return f"{sample_id}#{repeat}"
