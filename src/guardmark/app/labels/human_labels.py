"""Labels that people gave to answers: read from an audit file, stored as a layer of their own."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from guardmark.app.labels.audit_file import read_rows
from guardmark.core.errors import DatasetError
from guardmark.core.outcome import Evidence, Verdict, VerdictLabel
from guardmark.core.record import Stage
from guardmark.engine.plan import NO_GUARD

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from guardmark.store.reader import RecordReader
    from guardmark.store.records import RecordWriter

HUMAN_LAYER: Final = "human"
_LABELS: Final = {"safe": VerdictLabel.SAFE, "unsafe": VerdictLabel.UNSAFE}
_MOST_FAULTS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class HumanLabel:
    """What a person said of one answer."""

    position: int
    repeat: int
    label: VerdictLabel
    notes: str = ""


def audit_id(sample_id: str, repeat: int) -> str:
    """Return the name of an answer in an audit file."""
    return f"{sample_id}#{repeat}"


def read_labels(path: Path, reader: RecordReader) -> tuple[HumanLabel, ...]:
    """Read the labels of an audit file."""
    rows = read_rows(path)
    if not rows or not {"audit_id", "human_label"} <= set(rows[0]):
        raise DatasetError(
            f"{path} needs rows with the columns audit_id and human_label.\n"
            "To get such a file: guardmark audit RUN"
        )
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
    if faults:
        more = [f"and {len(faults) - _MOST_FAULTS} more"] if len(faults) > _MOST_FAULTS else []
        raise DatasetError("\n".join([*faults[:_MOST_FAULTS], *more]))
    if not found:
        raise DatasetError(f"{path} holds no label: every human_label is empty.")
    return tuple(found.values())


def store_labels(writer: RecordWriter, labels: tuple[HumanLabel, ...], *, source: Path) -> str:
    """Store labels as a layer of their own; the same file again changes nothing."""
    said = sorted((each.position, each.repeat, each.label.value, each.notes) for each in labels)
    digest = sha256(repr(said).encode()).hexdigest()
    layer = f"{HUMAN_LAYER}-{digest[:8]}"
    writer.add_layer(layer, {"kind": HUMAN_LAYER, "file": source.name, "sha256": digest})
    lane = writer.lane(NO_GUARD, Stage.JUDGE, layer=layer)
    if any(writer.stored.tally(lane)):
        return layer
    for each in labels:
        evidence = Evidence(reason=each.notes) if each.notes else None
        verdict = Verdict(label=each.label, evidence=evidence)
        place = writer.lane(NO_GUARD, Stage.JUDGE, layer=layer, repeat=each.repeat)
        place.add_verdict(each.position, verdict, latency_ns=None)
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
    if sample_id not in positions:
        # An id that begins like a formula stands behind an apostrophe in the file.
        sample_id = sample_id.removeprefix("'")
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
