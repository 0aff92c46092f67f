"""The verb `audit`: a random sample of answers as a file that people label."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

from guardmark.app.labels.audit_file import (
    ANSWERS,
    AuditFile,
    inert_row,
    refuse_to_overwrite,
    write_audit,
)
from guardmark.app.labels.human_labels import audit_id
from guardmark.app.results.reporting import find_run
from guardmark.core.errors import StoreError
from guardmark.core.record import FIRST_LAYER, Stage
from guardmark.engine.plan import NO_GUARD
from guardmark.store.records import RecordReader

if TYPE_CHECKING:
    from pathlib import Path

    from guardmark.app.labels.audit_file import Row
    from guardmark.core.record import Record
    from guardmark.core.sample import Sample


def draw_audit(
    run: Path, *, out: Path, count: int, seed: int = 7, with_verdicts: bool = False
) -> AuditFile:
    """Draw answers of a run at random and write them as a file to label.

    Every answer has the same chance, so the labels may correct the rates of the whole run.
    """
    refuse_to_overwrite(out)
    folder = find_run(run)
    with RecordReader(folder.records) as reader:
        answers = [
            record
            for record in reader.records(defense=NO_GUARD, stage=Stage.MODEL)
            if record.text is not None
        ]
        if not answers:
            raise StoreError(
                f"{run} holds no answers of a target model to label.\n"
                "Next: name a run with a pipeline, or label bypasses: --what bypasses."
            )
        drawn = sorted(answers, key=lambda record: _order(record, seed))[:count]
        verdicts = _verdicts(reader)
        rows = tuple(
            inert_row(
                out,
                _row(
                    reader.sample_at(record.key.sample),
                    record,
                    source=str(folder.results),
                    verdict=verdicts.get((record.key.sample, record.key.repeat))
                    if with_verdicts
                    else None,
                ),
            )
            for record in drawn
        )
    found = AuditFile(path=out, rows=rows)
    write_audit(found)
    return found


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
    return dict(zip(ANSWERS.columns, values, strict=True))
