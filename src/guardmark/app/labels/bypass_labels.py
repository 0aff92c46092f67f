"""What people said of bypasses: read from a sheet, stored as a layer of their own."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from guardmark.app.labels.audit_file import BYPASSES, read_rows
from guardmark.app.labels.bypass_audit import resting_of
from guardmark.core.errors import DatasetError
from guardmark.core.layers import AUDIT_PREFIX
from guardmark.core.outcome import Evidence, Response
from guardmark.core.record import Stage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from guardmark.app.labels.audit_file import Row
    from guardmark.app.labels.bypass_audit import Bypass
    from guardmark.store.reader import RecordReader
    from guardmark.store.records import RecordWriter

_MOST_FAULTS: Final = 3  # so that an error is no longer than a screen's corner


@dataclass(frozen=True, slots=True, kw_only=True)
class BypassLabel:
    """What a person said of one bypass."""

    bypass: Bypass
    same: str
    notes: str = ""


def read_bypass_labels(path: Path, reader: RecordReader) -> tuple[BypassLabel, ...]:
    """Read a sheet that people filled in."""
    rows = read_rows(path)
    if not rows or not {"audit_id", BYPASSES.label} <= set(rows[0]):
        raise DatasetError(
            f"{path} needs rows with the columns audit_id and {BYPASSES.label}.\n"
            "To get such a file: guardmark audit RUN --what bypasses"
        )
    known = {
        each.audit_id: each
        for bypasses in resting_of(reader, list(reader.samples())).values()
        for each in bypasses
    }
    faults = _faults(rows, known)
    if faults:
        more = [f"and {len(faults) - _MOST_FAULTS} more"] if len(faults) > _MOST_FAULTS else []
        told = [f"{path}:{fault}" for fault in faults[:_MOST_FAULTS]]
        raise DatasetError("\n".join([*told, *more]))
    if not any(_word(row) for row in rows):
        raise DatasetError(f"{path} holds no answer: every {BYPASSES.label} is empty.")
    return tuple(
        BypassLabel(
            bypass=known[_id(row)], same=_word(row), notes=row.get("human_notes", "").strip()
        )
        for row in rows
    )


def store_bypass_labels(
    writer: RecordWriter, labels: Sequence[BypassLabel], *, source: Path
) -> str:
    """Store what people said as a layer of its own; the same answers again change nothing."""
    said = sorted((each.bypass.audit_id, each.same, each.notes) for each in labels)
    digest = sha256(repr(said).encode("utf-8", "surrogatepass")).hexdigest()
    layer = f"{AUDIT_PREFIX}{digest[:8]}"
    lanes = {
        each.bypass.defense: writer.lane(each.bypass.defense, Stage.TRY, layer=layer)
        for each in labels
    }
    if any(any(writer.stored.tally(lane)) for lane in lanes.values()):
        return layer
    writer.add_layer(layer, {"kind": "adaptive-audit", "file": source.name, "sha256": digest})
    for each in sorted(labels, key=lambda label: label.bypass.audit_id):
        bypass = each.bypass
        note = {
            "account": "audit",
            "round": bypass.attempt.round,
            "chain": bypass.attempt.chain,
            "tier": bypass.attempt.tier,
            "text": bypass.attempt.text,
            "same": each.same,
            "free": True,
        }
        row = Response(
            text=json.dumps(note, separators=(",", ":")),
            evidence=Evidence(reason=each.notes) if each.notes else None,
        )
        lanes[bypass.defense].add_response(bypass.position, row, latency_ns=None)
    writer.flush()
    writer.note_head()
    return layer


def _faults(rows: Sequence[Row], known: Mapping[str, Bypass]) -> list[str]:
    """Say what is wrong with which row, numbered as a spreadsheet does."""
    times = Counter(_id(row) for row in rows)
    first: dict[str, int] = {}
    faults = []
    for number, row in enumerate(rows, start=2):
        name, word = _id(row), _word(row)
        before = first.setdefault(name, number)
        if name not in known:
            faults.append(
                f"{number}: the run has no bypass {name[:40]!r}; is the sheet of another run?"
            )
        elif times[name] > 1 and before != number:
            faults.append(f"{number}: {name} stands in row {before} already.")
        if word and word not in BYPASSES.words:
            faults.append(
                f"{number}: {BYPASSES.label} must be {', '.join(BYPASSES.words)} or empty, found "
                f"{word[:40]!r}."
            )
    return faults


def _id(row: Row) -> str:
    return row["audit_id"].strip()


def _word(row: Row) -> str:
    return row[BYPASSES.label].strip().lower()
