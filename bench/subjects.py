"""guardmark doing the same work as a floor, with all its duties.

Run as `python bench/subjects.py NAME ARGUMENT...` in a process of its own.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from guardmark.core.manifest import DataManifest, LatencyMode, Policy, RunManifest
from guardmark.core.outcome import ALLOWED, BLOCKED
from guardmark.core.sample import Label, Prompt, Sample, Severity, View
from guardmark.engine.plan import Plan
from guardmark.engine.runner import run
from guardmark.store.json_lines import write_jsonl
from guardmark.store.reader import RecordReader
from guardmark.store.records import RecordWriter
from guardmark.store.run_dir import RunDir

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guardmark.core.outcome import Decision
    from guardmark.engine.plan import AnyDefense

PATTERN = r"\b(ignore|disregard|forget)\b.{0,40}\b(previous|prior|above|earlier|all)\b"
MANIFEST = RunManifest(
    name="bench",
    guardmark_version="0",
    config_sha256="",
    data_sha256="",
    created_utc="",
    seed=0,
    repeats=1,
    confidence=0.95,
    min_per_category=100,
    on_malformed=Policy.RECORD,
    on_error=Policy.RECORD,
    latency_mode=LatencyMode.LOADED,
    concurrency=64,
    warmup=0,
    evaluator="",
    parts=(),
    data=(DataManifest(name="bench", version="", sha256="", attacks=0, benign=0),),
    categories={},
)


class Pattern:
    """One fixed regular expression."""

    name = "words"
    view = View.TEXT

    def __init__(self) -> None:
        self._search = re.compile(PATTERN, re.IGNORECASE | re.DOTALL).search

    def decide(self, prompt: Prompt) -> Decision:
        """Block what matches."""
        return ALLOWED if self._search(prompt.text) is None else BLOCKED


def samples(data: str) -> Iterator[Sample]:
    """Read the samples one by one."""
    with Path(data).open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            severity = row.get("severity")
            yield Sample(
                id=row["id"],
                prompt=Prompt.of_text(row["text"]),
                label=Label.ATTACK if row["label"] == "attack" else Label.BENIGN,
                category=row["category"],
                severity=Severity(severity) if severity else None,
                language=row["language"],
            )


def _measure(data: str, out: str, *, defense: AnyDefense) -> None:
    folder = RunDir(path=Path(out)).create()
    with folder.lock():
        with RecordWriter(folder.records) as writer:
            writer.load_samples(samples(data))
            writer.put_manifest(MANIFEST)
            asyncio.run(run(Plan(defenses=(defense,)), writer))
        with RecordReader(folder.records) as reader:
            write_jsonl(reader, folder.results)


def in_process(data: str, out: str) -> None:
    """T6: samples in full, decisions, hash chain, results.jsonl."""
    _measure(data, out, defense=Pattern())


def continue_run(data: str, out: str) -> None:
    """T11: the same command over a run that is complete."""
    folder = RunDir(path=Path(out))
    with folder.lock(), RecordWriter(folder.records) as writer:
        writer.load_samples(samples(data))
        asyncio.run(run(Plan(defenses=(Pattern(),)), writer))


def rescore(out: str) -> None:
    """T11: read everything an analysis needs of a stored run."""
    from guardmark.store.columns import record_columns, sample_columns

    with RecordReader(RunDir(path=Path(out)).records) as reader:
        reader.manifest()
        sample_columns(reader)
        for name in reader.defenses():
            record_columns(reader, name)


SUBJECTS = {f.__name__: f for f in (in_process, continue_run, rescore)}

if __name__ == "__main__":
    SUBJECTS[sys.argv[1]](*sys.argv[2:])
