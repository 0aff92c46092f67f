"""Cases of agents as lines of JSON: ids, what was done, and every step."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from guardmark.analysis.agents.cases import planned_case, stated_arms
from guardmark.core.record import Stage
from guardmark.store.whole_files import whole_file

if TYPE_CHECKING:
    from pathlib import Path

    from guardmark.store.reader import RecordReader


def write_case_lines(reader: RecordReader, path: Path) -> int:
    """Write one JSON object a case and arm."""
    cases = [planned_case(position, sample) for position, sample in enumerate(reader.samples())]
    stated, count = stated_arms(reader.manifest()), 0
    with whole_file(path) as file:
        for record in reader.records(stage=Stage.CASE):
            case = cases[record.key.sample]
            subject = record.key.defense
            arm, agent = stated[subject][:2] if subject in stated else (subject, "")
            line = {
                "id": case.id,
                "arm": arm,
                "agent": agent,
                "suite": case.suite,
                "task": case.task,
                "injection": case.injection or None,
                "wording": case.wording or None,
                "repeat": record.key.repeat,
                "latency_ms": None if record.latency_ns is None else record.latency_ns / 1e6,
                **json.loads(record.text or "{}"),
            }
            file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
            count += 1
    return count
