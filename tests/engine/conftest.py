"""Small defenses, models and judges, and a store with samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from guardmark.core.manifest import DataManifest, LatencyMode, Policy, RunManifest
from guardmark.core.sample import Label, Prompt, Sample
from guardmark.store.records import RecordWriter

MakeSample = Callable[[int], Sample]


@pytest.fixture
def sample() -> MakeSample:
    """Odd samples are attacks; the text names the number."""

    def make(number: int) -> Sample:
        return Sample(
            id=f"s-{number:05d}",
            prompt=Prompt.of_text(f"text {number} " + "word " * (number % 7)),
            label=Label.ATTACK if number % 2 else Label.BENIGN,
            category="jailbreak" if number % 2 else "cooking",
        )

    return make


@pytest.fixture
def manifest() -> RunManifest:
    """A manifest of a small run."""
    return RunManifest(
        name="small",
        guardmark_version="0.1.0",
        config_sha256="c" * 64,
        data_sha256="d" * 64,
        created_utc="2026-11-21T00:00:00Z",
        seed=7,
        repeats=1,
        confidence=0.95,
        min_per_category=100,
        on_malformed=Policy.RECORD,
        on_error=Policy.RECORD,
        latency_mode=LatencyMode.LOADED,
        concurrency=16,
        warmup=0,
        evaluator="",
        parts=(),
        data=(DataManifest(name="x", version="", sha256="e" * 64, attacks=1, benign=1),),
        categories={"jailbreak": ()},
    )


@pytest.fixture
def open_writer(
    tmp_path: Path, manifest: RunManifest, sample: MakeSample
) -> Iterator[Callable[..., RecordWriter]]:
    """Open the store of this test, again as often as wanted; the last one is closed."""
    opened: list[RecordWriter] = []

    def open_it(count: int = 40, name: str = "records.sqlite") -> RecordWriter:
        while opened:
            opened.pop().close()
        writer = RecordWriter(tmp_path / name)
        opened.append(writer)
        writer.load_samples(sample(n) for n in range(count))
        writer.put_manifest(manifest)
        return writer

    yield open_it
    while opened:
        opened.pop().close()
