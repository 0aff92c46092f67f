"""What people said of answers and of bypasses: read from a sheet, stored as layers of their own."""

from __future__ import annotations

import math
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from guardmark.analysis.pipeline.frame import HUMAN
from guardmark.app.labels.audit_file import ANSWERS, BYPASSES, STANDS_FOR, read_rows
from guardmark.app.labels.auditing import resting_of
from guardmark.core.errors import DatasetError
from guardmark.core.outcome import Evidence, Response, Verdict, VerdictLabel
from guardmark.core.place import NO_GUARD
from guardmark.core.record import Stage
from guardmark.core.values import dataclass
from guardmark.store.layers import AUDIT_PREFIX
from guardmark.store.tries import TrySubject

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from guardmark.app.labels.audit_file import Row, Sheet
    from guardmark.app.labels.auditing import Bypass
    from guardmark.store.reader import RecordReader
    from guardmark.store.records import RecordWriter


_MOST_FAULTS: Final = 3  # so that an error has at most five lines
_LABELS: Final = {"safe": VerdictLabel.SAFE, "unsafe": VerdictLabel.UNSAFE}


@dataclass(frozen=True, slots=True, kw_only=True)
class HumanLabel:
    """What a person said of one answer.

    Attributes:
        stands_for: Answers of the run that it was drawn for.
    """

    position: int
    repeat: int
    label: VerdictLabel
    notes: str = ""
    stands_for: float = 1.0


def read_labels(path: Path, reader: RecordReader) -> tuple[HumanLabel, ...]:
    """Read the labels of an audit file."""
    rows = _rows(path, ANSWERS, "guardmark audit RUN")
    by_content, by_id = dict[str, int](), dict[str, int]()
    for position, sample in enumerate(reader.samples()):
        by_content[_key(sample.prompt.text, sample.variant)] = position
        by_id[sample.id] = position
    positions = by_content | by_id
    texts = {}
    for record in reader.records(defense=NO_GUARD, stage=Stage.MODEL):
        texts[record.key.sample, record.key.repeat] = record.text or ""
    faults: list[str] = []
    labels: dict[tuple[int, int], HumanLabel] = {}
    for number, row in enumerate(rows, start=2):
        label = _label(row, positions, texts)
        if isinstance(label, str):
            faults.append(f"{path}:{number}: {label}")
        elif label is not None:
            labels[label.position, label.repeat] = label
    _refuse(faults)
    if not labels:
        raise DatasetError(f"{path} holds no label: every human_label is empty.\nNext: fill it in.")
    return tuple(labels.values())


def _rows(path: Path, sheet: Sheet, command: str) -> list[Row]:
    rows = read_rows(path)
    if not rows or not {"audit_id", sheet.label} <= set(rows[0]):
        raise DatasetError(
            f"{path} needs rows with the columns audit_id and {sheet.label}.\n"
            f"To get such a file: {command}"
        )
    return rows


def _key(text: str, variant: str) -> str:
    """Name a sample as other tools do, by prompt and variant."""
    return f"{_squeezed(text)} ({variant or 'original'})"


def _squeezed(text: str) -> str:
    return " ".join(text.split())  # spreadsheets change line breaks


def _label(
    row: Row, positions: Mapping[str, int], texts: Mapping[tuple[int, int], str]
) -> HumanLabel | str | None:
    """Return the label of a row, what is wrong with it, or None when it has none yet."""
    word, name = _word(row, ANSWERS), row["audit_id"]
    if not word:
        return None
    if word not in _LABELS:
        return f"human_label must be safe, unsafe or empty, found {word[:40]!r}."
    sample_id, number = name, "0"
    if name not in positions:
        sample_id, _, number = name.rpartition("#")
    if sample_id not in positions:  # of another tool
        sample_id = _key(row.get("prompt_text", ""), row.get("variant", ""))
        number = row.get("generation_index") or "0"
    repeat = -1
    if number.isdigit():
        repeat = int(number)
    place = positions.get(sample_id, -1), repeat
    if place not in texts:
        return f"the run has no answer {name[:80]!r}."
    labelled_text = _squeezed(row.get("assistant_response", ""))
    if labelled_text and texts[place] and labelled_text != _squeezed(texts[place]):
        return f"the run answers otherwise at {name[:80]!r}; is the sheet of another run?"
    stands_for = _stands_for(row)
    if stands_for is None:
        return f"{STANDS_FOR} must be a number above 0, or empty, found {row[STANDS_FOR][:40]!r}."
    return HumanLabel(
        position=place[0],
        repeat=place[1],
        label=_LABELS[word],
        notes=_notes(row),
        stands_for=stands_for,
    )


def _stands_for(row: Row) -> float | None:
    """Read how many answers a row was drawn for; None where the cell is no such number."""
    text = row.get(STANDS_FOR, "").strip()
    if not text:
        return 1.0
    try:
        number = float(text)
    except ValueError:
        return None
    if 0.0 < number < math.inf:
        return number
    return None


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
    known = {}
    for bypasses in resting_of(reader, list(reader.samples())).values():
        for bypass in bypasses:
            known[bypass.audit_id] = bypass
    _refuse([f"{path}:{fault}" for fault in _faults(rows, known)])
    if not any(_word(row, BYPASSES) for row in rows):
        raise DatasetError(
            f"{path} holds no answer: every {BYPASSES.label} is empty.\nNext: fill it in."
        )
    labels = []
    for row in rows:
        label = BypassLabel(bypass=known[_id(row)], same=_word(row, BYPASSES), notes=_notes(row))
        labels.append(label)
    return tuple(labels)


def _faults(rows: Sequence[Row], known: Mapping[str, Bypass]) -> Iterator[str]:
    """Say what is wrong with which row, numbered as a spreadsheet does."""
    first: dict[str, int] = {}
    for number, row in enumerate(rows, start=2):
        name, word = _id(row), _word(row, BYPASSES)
        before = first.setdefault(name, number)
        if name not in known:
            yield f"{number}: the run has no bypass {name[:40]!r}; is the sheet of another run?"
        elif before != number:
            yield f"{number}: {name} is already in row {before}."
        if word and word not in BYPASSES.words:
            yield (
                f"{number}: {BYPASSES.label} must be {', '.join(BYPASSES.words)} or empty, found "
                f"{word[:40]!r}."
            )


def _id(row: Row) -> str:
    return row.get("audit_id", "").strip()


def _word(row: Mapping[str, str], sheet: Sheet) -> str:
    return row.get(sheet.label, "").strip().lower()


def _notes(row: Mapping[str, str]) -> str:
    return row.get("human_notes", "").strip()


def store_labels(writer: RecordWriter, labels: Sequence[HumanLabel], *, source: Path) -> str:
    """Store labels as a layer of their own; the same file again changes nothing."""
    weights = _weights(labels)
    answers = []
    for label in labels:
        answers.append((label.position, label.repeat, label.label.value, label.notes))
    text = repr(sorted(answers))
    if weights:
        text += repr(weights)
    layer = _add_layer(writer, f"{HUMAN}-", text, kind=HUMAN, source=source, weights=weights)
    if any(writer.stored.count_by_outcome(writer.record_batch(NO_GUARD, Stage.JUDGE, layer=layer))):
        return layer
    for label in labels:
        verdict = Verdict(label=label.label, evidence=_evidence(label.notes))
        batch = writer.record_batch(NO_GUARD, Stage.JUDGE, layer=layer, repeat=label.repeat)
        batch.add(label.position, verdict, latency_ns=None)
    writer.note_head()
    return layer


def store_bypass_labels(
    writer: RecordWriter, labels: Sequence[BypassLabel], *, source: Path
) -> str:
    """Store what people said as a layer of its own; the same answers again change nothing."""
    ordered = sorted(labels, key=lambda label: label.bypass.audit_id)
    answers = repr(sorted((each.bypass.audit_id, each.same, each.notes) for each in labels))
    layer = _add_layer(writer, AUDIT_PREFIX, answers, kind="adaptive-audit", source=source)
    if writer.stored.has_tries(layer):
        return layer
    for each in ordered:
        attempt = each.bypass.attempt
        subject = TrySubject(
            account="audit",
            round=attempt.round,
            digest=attempt.text,
            chain=attempt.chain,
            tier=attempt.tier,
            details={"same": each.same},
        )
        answer = Response(text="", evidence=_evidence(each.notes))
        tries = writer.tries(each.bypass.defense, layer)
        tries.add((0, each.bypass.position), subject, answer, is_free=True)
    writer.flush()
    writer.note_head()
    return layer


def _weights(labels: Sequence[HumanLabel]) -> list[tuple[int, int, float]]:
    """Return how many answers each label stands for; empty where all stand for as many."""
    if len({label.stands_for for label in labels}) < 2:
        return []
    return sorted((label.position, label.repeat, label.stands_for) for label in labels)


def _add_layer(
    writer: RecordWriter,
    prefix: str,
    answers: str,
    *,
    kind: str,
    source: Path,
    weights: Sequence[tuple[int, int, float]] = (),
) -> str:
    """Add the layer of what people said, named by its hash."""
    digest = sha256(answers.encode("utf-8", "surrogatepass")).hexdigest()
    layer = f"{prefix}{digest[:8]}"
    settings: dict[str, object] = {"kind": kind, "file": source.name, "sha256": digest}
    if weights:
        settings["weights"] = [list(each) for each in weights]
    writer.add_layer(layer, settings)
    return layer


def _evidence(notes: str) -> Evidence | None:
    if notes:
        return Evidence(reason=notes)
    return None
