"""A changed, missing or doubled row is found."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from guardmark.core.manifest import RunManifest
from guardmark.core.outcome import (
    ALLOWED,
    BLOCKED,
    Decision,
    ErrorKind,
    Evidence,
    Outcome,
    Response,
)
from guardmark.core.record import Stage
from guardmark.core.sample import Sample
from guardmark.store.integrity import check
from guardmark.store.reader import RunState
from guardmark.store.records import RecordWriter


@pytest.fixture
def finished(path: Path, manifest: RunManifest, sample: Callable[[int], Sample]) -> Path:
    """A finished run of several batches, stages and outcomes."""
    with RecordWriter(path) as writer:
        writer.put_manifest(manifest)
        writer.load_samples(sample(n) for n in range(30))
        writer.plan(90)
        words, other = writer.record_batch("words"), writer.record_batch("other")
        for position in reversed(range(30)):
            words.add(position, BLOCKED if position % 3 else ALLOWED, latency_ns=position)
            failed = Decision(outcome=Outcome.ERROR, error_kind=ErrorKind.HTTP)
            scored = Decision(
                outcome=Outcome.BLOCK, score=position / 30, evidence=Evidence(reason="x")
            )
            other.add(position, failed if position % 5 == 0 else scored, latency_ns=None)
            if position % 7 == 0:
                writer.flush()
        answers = writer.record_batch("none", Stage.MODEL)
        for position in range(30):
            answers.add(position, Response(text=f"answer {position}"), latency_ns=1)
        writer.record_batch("words", Stage.WARMUP).add(0, ALLOWED, latency_ns=1)
        writer.finish(RunState.COMPLETE)
    return path


def test_an_untouched_run_is_sound(finished: Path) -> None:
    """No false alarm."""
    assert check(finished) == []


def test_a_run_under_way_is_sound(path: Path, writer: RecordWriter) -> None:
    """An interrupted run has not been tampered with."""
    writer.plan(30)
    writer.record_batch("words").add(0, ALLOWED, latency_ns=1)
    writer.flush()
    assert check(path) == []


def test_the_seal_of_equal_samples_is_that_of_earlier_versions(
    path: Path, sample: Callable[[int], Sample]
) -> None:
    """A seal that changes with our code would call every earlier run tampered with."""
    with RecordWriter(path) as writer:
        writer.load_samples(sample(n) for n in range(1100))
        seal = writer.connection.meta("samples")
    assert seal == "a3819a7b37586f97c18102e73ef6fecc8328d169cc4f0b4eaf35a30170f6752d"


TAMPERING = {
    "a decision turned": (
        "UPDATE records SET outcome = 1 WHERE outcome = 0 AND sample = 3",
        "batch",
    ),
    "a latency polished": (
        "UPDATE records SET latency_ns = 1 WHERE defense = 0 AND sample = 9",
        "batch",
    ),
    "a score moved": ("UPDATE records SET score = 0.5 WHERE defense = 1 AND sample = 11", "batch"),
    "an error hidden": (
        "UPDATE records SET outcome = 1, error_kind = NULL WHERE defense = 1 AND sample = 5",
        "batch",
    ),
    "a record taken away": ("DELETE FROM records WHERE defense = 0 AND sample = 4", "committed"),
    "a record added": (
        (
            "INSERT INTO records SELECT defense, stage, layer, 1, sample, outcome, score, score_kind,"
            " error_kind, answer_mode, latency_ns, flags, batch, said FROM records WHERE defense = 0 AND sample = 4"
        ),
        "committed",
    ),
    "a record of no batch": (
        "UPDATE records SET batch = 99 WHERE defense = 0 AND sample = 4",
        "no batch",
    ),
    "a batch taken away": ("DELETE FROM batches WHERE id = 2", "Batch 2 is missing"),
    "the last batch taken away": (
        "DELETE FROM batches WHERE id = 6; DELETE FROM records WHERE batch = 6; DELETE FROM details WHERE batch = 6",
        "ended with batch 6",
    ),
    "defenses exchanged": (
        (
            "UPDATE defenses SET name = 'x' WHERE id = 0; UPDATE defenses SET name = 'words' WHERE id = 1;"
            " UPDATE defenses SET name = 'other' WHERE id = 0"
        ),
        "batch",
    ),
    "an answer rewritten": (
        "UPDATE details SET text = 'harmless' WHERE text = 'answer 7'",
        "batch",
    ),
    "evidence taken away": (
        "UPDATE records SET said = NULL WHERE said IS NOT NULL AND sample = 11",
        "batch",
    ),
    "a reason reworded": (
        'UPDATE sayings SET evidence = \'{"reason":"another"}\'',
        "batch",
    ),
    "a reason lost": ("DELETE FROM sayings", "rest on words that are not stored"),
    "a detail added": (
        "INSERT INTO details VALUES (0, 0, 0, 0, 3, 1, 'invented', NULL)",
        "batch",
    ),
    "a text exchanged": ("UPDATE samples SET text = 'other' WHERE position = 3", "'s-0003'"),
    "many texts exchanged": ("UPDATE samples SET text = 'other'", "texts of 30 samples"),
    "a label turned": ("UPDATE kinds SET is_attack = 1 - is_attack", "samples are not those"),
    "a sample moved": ("UPDATE samples SET kind = 0 WHERE position = 7", "samples are not those"),
    "a sample taken away": ("DELETE FROM samples WHERE position = 29", "samples are not those"),
    "the manifest changed": (
        "UPDATE meta SET value = replace(value, '\"seed\": 7', '\"seed\": 8') WHERE key = 'manifest'",
        "manifest",
    ),
    "words exchanged": (
        "UPDATE words SET name = 'allow' WHERE kind = 'outcome' AND id = 1",
        "words",
    ),
    "the plan shortened": ("UPDATE meta SET value = '80' WHERE key = 'planned'", "of 80 records"),
    "the seal removed": ("DELETE FROM meta WHERE key = 'samples'", "never stored completely"),
}


@pytest.mark.parametrize("name", TAMPERING)
def test_tampering_is_found(finished: Path, name: str) -> None:
    """Every kind of change leaves a trace."""
    statements, said = TAMPERING[name]
    connection = sqlite3.connect(finished)
    connection.executescript(statements)
    connection.commit()
    connection.close()
    findings = check(finished)
    assert any(said in finding for finding in findings), findings


def test_a_damaged_page_is_found(finished: Path) -> None:
    """A bit that fell over on the disk does not pass for a result."""
    content = bytearray(finished.read_bytes())
    at = content.index(b"answer 17")
    content[at : at + 6] = b"ANSWER"
    finished.write_bytes(content)
    assert any("batch" in finding for finding in check(finished))
