"""Samples and stores for the tests of this room."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from guardmark.core.manifest import DataManifest, LatencyMode, PartManifest, Policy, RunManifest
from guardmark.core.outcome import ALLOWED
from guardmark.core.sample import Label, Message, Prompt, Role, Sample, Severity
from guardmark.store.reader import RunState
from guardmark.store.records import RecordWriter


def make_sample(number: int) -> Sample:
    """One of a varied, endless set of samples."""
    if number % 5 == 4:
        prompt = Prompt(
            messages=(
                Message(role=Role.SYSTEM, content="be kind"),
                Message(role=Role.DOCUMENT, content=f"document {number} \u2028 end"),
                Message(role=Role.USER, content="sum it up"),
            ),
            under_test=1,
        )
    else:
        prompt = Prompt.of_text(f"text {number} äöü 🦔")
    is_attack = number % 2 == 1
    return Sample(
        id=f"s-{number:04d}",
        prompt=prompt,
        label=Label.ATTACK if is_attack else Label.BENIGN,
        category="jailbreak" if is_attack else "cooking",
        subcategory="persona_based" if number % 3 else "",
        severity=Severity.HIGH if is_attack else None,
        expected="block" if number % 4 == 0 else "",
        language="en" if number % 2 else "de",
        group=f"g-{number // 3}" if number % 3 else "",
        source="made here",
        must_keep=("text",) if number % 7 == 0 else (),
        metadata={"age": number, "tags": ["a", None, 1.5]} if number % 6 == 0 else {},
    )


def make_manifest(**changes: object) -> RunManifest:
    """A manifest of a small run."""
    values: dict[str, object] = {
        "name": "small",
        "guardmark_version": "0.1.0",
        "config_sha256": "c" * 64,
        "data_sha256": "d" * 64,
        "created_utc": "2026-11-21T00:00:00Z",
        "seed": 7,
        "repeats": 1,
        "confidence": 0.95,
        "min_per_category": 100,
        "on_malformed": Policy.RECORD,
        "on_error": Policy.BLOCK,
        "latency_mode": LatencyMode.ISOLATED,
        "concurrency": 16,
        "warmup": 20,
        "evaluator": "Platform security",
        "parts": (
            PartManifest(
                name="words", kind="defense", type="pattern", view="text", settings={"flags": ["I"]}
            ),
        ),
        "data": (
            DataManifest(
                name="core", version="1", sha256="e" * 64, attacks=2, benign=2, files={"a": "f"}
            ),
        ),
        "categories": {"jailbreak": ("persona_based", "multi_turn"), "own": ()},
        "settings": {"gate": {"asr_upper": 0.1}, "names": ("a", "b")[:0] or ["ü"]},
    }
    values.update(changes)
    return RunManifest(**values)  # type: ignore[arg-type]


@pytest.fixture
def sample() -> Callable[[int], Sample]:
    """Make one of a varied, endless set of samples."""
    return make_sample


@pytest.fixture
def manifest() -> RunManifest:
    """A manifest of a small run."""
    return make_manifest()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the records of a test lie."""
    return tmp_path / "records.sqlite"


@pytest.fixture
def writer(path: Path, manifest: RunManifest) -> Iterator[RecordWriter]:
    """A writer with thirty samples and a manifest."""
    with RecordWriter(path) as writer:
        writer.put_manifest(manifest)
        writer.load_samples(make_sample(n) for n in range(30))
        yield writer


@pytest.fixture
def finished(writer: RecordWriter, path: Path) -> Path:
    """A whole run."""
    writer.plan(1)
    writer.record_batch("words").add(0, ALLOWED, latency_ns=1)
    writer.finish(RunState.COMPLETE)
    writer.close()
    return path
