"""Small real runs, written through the store's own writer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from guardmark.core.manifest import DataManifest, LatencyMode, PartManifest, Policy, RunManifest
from guardmark.core.outcome import Decision, ErrorKind, Outcome, ScoreKind
from guardmark.core.sample import DEFAULT_TAXONOMY, Label, Prompt, Sample, Severity
from guardmark.store.reader import RecordReader, RunState
from guardmark.store.records import RecordWriter

Answers = Callable[[int, Sample], Decision]


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A defense to be written into a run."""

    name: str
    answers: Answers
    type: str = "pattern"
    threshold: float | None = None
    settings: Mapping[str, object] = field(default_factory=dict)


def attack(number: int, **changes: object) -> Sample:
    """An attack with every facet set."""
    names = list(DEFAULT_TAXONOMY)
    category = names[number % len(names)]
    values: dict[str, object] = {
        "id": f"a-{number:05d}",
        "prompt": Prompt.of_text(f"attack {number} <script>x</script> " + "la " * (number % 90)),
        "label": Label.ATTACK,
        "category": category,
        "subcategory": DEFAULT_TAXONOMY[category][number % 3],
        "severity": list(Severity)[number % 4],
        "technique": ("fake_authority", "payload_split")[number % 2],
        "language": ("en", "en", "de")[number % 3],
        "variant": "original",
        "source": "made here",
    }
    values.update(changes)
    return Sample(**values)  # type: ignore[arg-type]


def benign(number: int, **changes: object) -> Sample:
    """A benign sample."""
    values: dict[str, object] = {
        "id": f"b-{number:05d}",
        "prompt": Prompt.of_text(f"benign {number}"),
        "label": Label.BENIGN,
        "category": ("cooking", "code_help")[number % 2],
        "language": "en",
        "source": "made here",
    }
    values.update(changes)
    return Sample(**values)  # type: ignore[arg-type]


def allow(score: float | None = None) -> Decision:
    """An allow, with or without a score."""
    kind = ScoreKind.NONE if score is None else ScoreKind.CLASS_PROB
    return Decision(outcome=Outcome.ALLOW, score=score, score_kind=kind)


def block(score: float | None = None) -> Decision:
    """A block, with or without a score."""
    kind = ScoreKind.NONE if score is None else ScoreKind.CLASS_PROB
    return Decision(outcome=Outcome.BLOCK, score=score, score_kind=kind)


def failed(kind: ErrorKind = ErrorKind.TIMEOUT) -> Decision:
    """No answer."""
    return Decision(outcome=Outcome.ERROR, error_kind=kind)


def garbled() -> Decision:
    """An answer nobody can read."""
    return Decision(outcome=Outcome.MALFORMED)


def make_manifest(
    planned: Sequence[Planned], samples: Sequence[Sample], **changes: object
) -> RunManifest:
    """The manifest of a small run."""
    attacks = sum(1 for sample in samples if sample.is_attack)
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
        "on_error": Policy.RECORD,
        "latency_mode": LatencyMode.ISOLATED,
        "concurrency": 1,
        "warmup": 3,
        "evaluator": "Platform security",
        "parts": tuple(
            PartManifest(
                name=each.name,
                kind="defense",
                type=each.type,
                version="1",
                fingerprint="f" * 64,
                view="text",
                threshold=each.threshold,
                settings=each.settings,
            )
            for each in planned
        ),
        "data": (
            DataManifest(
                name="made",
                version="1",
                sha256="e" * 64,
                attacks=attacks,
                benign=len(samples) - attacks,
            ),
        ),
        "categories": dict(DEFAULT_TAXONOMY),
    }
    values.update(changes)
    return RunManifest(**values)  # type: ignore[arg-type]


def write_run(
    path: Path, samples: Sequence[Sample], planned: Sequence[Planned], **changes: object
) -> Path:
    """Write a whole run and return the file."""
    manifest = make_manifest(planned, samples, **changes)
    with RecordWriter(path) as writer:
        writer.put_manifest(manifest)
        writer.load_samples(samples)
        writer.plan(len(samples) * len(planned) * manifest.repeats)
        for each in planned:
            for repeat in range(manifest.repeats):
                lane = writer.record_batch(each.name, repeat=repeat)
                for position, sample in enumerate(samples):
                    latency = 1_000_000 + 1_000 * ((position * 7919) % 997)
                    lane.add(position, each.answers(position, sample), latency_ns=latency)
        writer.flush()
        writer.finish(RunState.COMPLETE)
    return path


Answer = tuple[Decision, int | None, int]
"""A decision, how many nanoseconds it took, and the flags of its record."""


def write_answers(path: Path, samples: Sequence[Sample], answers: Sequence[Answer]) -> Path:
    """Write a run of one defense, `one`, whose answers are given; the last may lack."""
    with RecordWriter(path) as writer:
        writer.put_manifest(
            make_manifest([Planned(name="one", answers=lambda *_: allow())], samples)
        )
        writer.load_samples(samples)
        writer.plan(len(answers))
        batch = writer.record_batch("one")
        for position, (decision, latency, flags) in enumerate(answers):
            batch.add(position, decision, latency_ns=latency, flags=flags)
        writer.finish(RunState.COMPLETE)
    return path


@dataclass(frozen=True, kw_only=True)
class Runs:
    """Writes runs into a folder of the test and opens them."""

    folder: Path

    @contextmanager
    def opened(
        self, samples: Sequence[Sample], planned: Sequence[Planned], **changes: object
    ) -> Iterator[RecordReader]:
        """Write a run and open it."""
        number = len(list(self.folder.iterdir()))
        home = self.folder / f"run-{number}"
        home.mkdir()
        path = write_run(home / "records.sqlite", samples, planned, **changes)
        with RecordReader(path) as reader:
            yield reader
