"""What people said of answers and of bypasses: read from a sheet, stored as layers of their own."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from guardmark.app.labels.audit_file import ANSWERS, BYPASSES, read_rows
from guardmark.app.labels.auditing import resting_of
from guardmark.core.errors import DatasetError
from guardmark.core.outcome import Evidence, Response, Verdict, VerdictLabel
from guardmark.core.record import Stage
from guardmark.engine.plan import NO_GUARD
from guardmark.store.layers import AUDIT_PREFIX
from guardmark.store.tries import TrySubject

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from guardmark.app.labels.audit_file import Row, Sheet
    from guardmark.app.labels.auditing import Bypass
    from guardmark.store.reader import RecordReader
    from guardmark.store.records import RecordWriter


HUMAN_LAYER: Final = "human"
_MOST_FAULTS: Final = 3  # so that an error has at most five lines
_LABELS: Final = {"safe": VerdictLabel.SAFE, "unsafe": VerdictLabel.UNSAFE}


@dataclass(frozen=True, slots=True, kw_only=True)
class HumanLabel:
    """What a person said of one answer."""

    position: int
    repeat: int
    label: VerdictLabel
    notes: str = ""


def read_labels(path: Path, reader: RecordReader) -> tuple[HumanLabel, ...]:
    """Read the labels of an audit file."""
    rows = _rows(path, ANSWERS, "guardmark audit RUN")
    positions = {sample.id: position for position, sample in enumerate(reader.samples())}
    repeats = reader.manifest().repeats
    faults: list[str] = []
    found: dict[tuple[int, int], HumanLabel] = {}
    for number, row in enumerate(rows, start=2):
        label = _label(row, positions, repeats)
        if isinstance(label, str):
            faults.append(f"{path}:{number}: {label}")
        elif label is not None:
            found[label.position, label.repeat] = label
    _refuse(faults)
    if not found:
        raise DatasetError(f"{path} holds no label: every human_label is empty.")
    return tuple(found.values())


def _rows(path: Path, sheet: Sheet, command: str) -> list[Row]:
    rows = read_rows(path)
    if not rows or not {"audit_id", sheet.label} <= set(rows[0]):
        raise DatasetError(
            f"{path} needs rows with the columns audit_id and {sheet.label}.\n"
            f"To get such a file: {command}"
        )
    return rows


def store_labels(writer: RecordWriter, labels: tuple[HumanLabel, ...], *, source: Path) -> str:
    """Store labels as a layer of their own; the same file again changes nothing."""
    said = sorted((each.position, each.repeat, each.label.value, each.notes) for each in labels)
    digest = sha256(repr(said).encode()).hexdigest()
    layer = f"{HUMAN_LAYER}-{digest[:8]}"
    writer.add_layer(layer, {"kind": HUMAN_LAYER, "file": source.name, "sha256": digest})
    lane = writer.record_batch(NO_GUARD, Stage.JUDGE, layer=layer)
    if any(writer.stored.count_by_outcome(lane)):
        return layer
    for each in labels:
        evidence = Evidence(reason=each.notes) if each.notes else None
        verdict = Verdict(label=each.label, evidence=evidence)
        place = writer.record_batch(NO_GUARD, Stage.JUDGE, layer=layer, repeat=each.repeat)
        place.add(each.position, verdict, latency_ns=None)
    writer.note_head()
    return layer


def _label(
    row: Mapping[str, str | None], positions: Mapping[str, int], repeats: int
) -> HumanLabel | str | None:
    """Return the label of a row, what is wrong with it, or None when it has none yet."""
    word = (row.get("human_label") or "").strip().lower()
    if not word:
        return None
    if word not in _LABELS:
        return f"human_label must be safe, unsafe or empty, found {word[:40]!r}."
    name = row.get("audit_id") or ""
    sample_id, _, number = name.rpartition("#")
    if name in positions:
        sample_id, number = name, "0"
    if sample_id not in positions or not number.isdigit() or int(number) >= repeats:
        return f"the run has no answer {name[:80]!r}."
    return HumanLabel(
        position=positions[sample_id],
        repeat=int(number),
        label=_LABELS[word],
        notes=(row.get("human_notes") or "").strip(),
    )


def _refuse(faults: Sequence[str]) -> None:
    """Refuse a sheet with faults; the first few are named, the rest counted."""
    if faults:
        more = [f"and {len(faults) - _MOST_FAULTS} more"] if len(faults) > _MOST_FAULTS else []
        raise DatasetError("\n".join([*faults[:_MOST_FAULTS], *more]))


@dataclass(frozen=True, slots=True, kw_only=True)
class BypassLabel:
    """What a person said of one bypass."""

    bypass: Bypass
    same: str
    notes: str = ""


def read_bypass_labels(path: Path, reader: RecordReader) -> tuple[BypassLabel, ...]:
    """Read a sheet that people filled in."""
    rows = _rows(path, BYPASSES, "guardmark audit RUN --what bypasses")
    known = {
        each.audit_id: each
        for bypasses in resting_of(reader, list(reader.samples())).values()
        for each in bypasses
    }
    faults = _faults(rows, known)
    _refuse([f"{path}:{fault}" for fault in faults])
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
    if writer.stored.has_tries(layer):
        return layer
    writer.add_layer(layer, {"kind": "adaptive-audit", "file": source.name, "sha256": digest})
    for each in sorted(labels, key=lambda label: label.bypass.audit_id):
        attempt, defense = each.bypass.attempt, each.bypass.defense
        subject = TrySubject(
            account="audit",
            round=attempt.round,
            digest=attempt.text,
            chain=attempt.chain,
            tier=attempt.tier,
            details={"same": each.same},
        )
        evidence = Evidence(reason=each.notes) if each.notes else None
        row = Response(text="", evidence=evidence)
        writer.tries(defense, layer).add((0, each.bypass.position), subject, row, is_free=True)
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
