"""What many records share is stored once, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from guardmark.core.manifest import RunManifest
from guardmark.core.outcome import Decision, ErrorKind, Evidence, Outcome
from guardmark.core.sample import Sample
from guardmark.store.reader import RecordReader
from guardmark.store.records import RecordWriter, SharedEvidence


def test_equal_reasons_share_a_number_whoever_made_them() -> None:
    """A part may build its evidence anew for every sample."""
    shared_evidence = SharedEvidence()
    shared = Evidence(reason="rule 1")
    assert [
        shared_evidence.number_of(shared),
        shared_evidence.number_of(Evidence(reason="rule 1")),
    ] == [0, 0]
    assert shared_evidence.number_of(Evidence(reason="rule 2")) == 1
    assert shared_evidence.fresh == [(0, '{"reason":"rule 1"}'), (1, '{"reason":"rule 2"}')]


def test_what_says_more_than_a_reason_is_not_shared() -> None:
    """Raw answers, usage and attempts belong to one call."""
    shared_evidence = SharedEvidence()
    assert shared_evidence.number_of(Evidence(reason="rule 1", raw="{}")) is None
    assert shared_evidence.number_of(Evidence(reason="rule 1", from_cache=True)) is None
    assert shared_evidence.number_of(Evidence(message="no answer")) is None
    assert shared_evidence.fresh == []


def test_a_part_that_always_finds_new_words_is_kept_row_by_row() -> None:
    """Otherwise a judge's reasons would fill the memory."""
    shared_evidence = SharedEvidence()
    found = [shared_evidence.number_of(Evidence(reason=f"because {n}")) for n in range(1000)]
    assert found[:256] == list(range(256))
    assert set(found[256:]) == {None}
    assert shared_evidence.number_of(Evidence(reason="because 3")) == 3


def test_a_stored_run_says_what_was_said(
    path: Path, manifest: RunManifest, sample: Callable[[int], Sample]
) -> None:
    """Shared, kept apart, or absent: the reader cannot tell, and a second writer goes on."""
    shared = Evidence(reason="rule 1")
    answers = [
        Decision(outcome=Outcome.BLOCK, evidence=shared),
        Decision(outcome=Outcome.ALLOW),
        Decision(outcome=Outcome.BLOCK, evidence=Evidence(reason="rule 2", raw="no")),
        Decision(outcome=Outcome.ERROR, error_kind=ErrorKind.HTTP, evidence=shared),
        Decision(outcome=Outcome.BLOCK, evidence=Evidence(reason="rule 1")),
        Decision(outcome=Outcome.BLOCK, evidence=Evidence(reason="rule 3")),
    ]
    for first, last in ((0, 4), (4, 6)):
        with RecordWriter(path) as writer:
            writer.put_manifest(manifest)
            writer.load_samples(sample(n) for n in range(6))
            for position in range(first, last):
                writer.record_batch("words").add(position, answers[position], latency_ns=1)
    with RecordReader(path) as reader:
        assert [record.evidence for record in reader.records()] == [a.evidence for a in answers]
        stored = reader.connection.execute("SELECT evidence FROM sayings ORDER BY id").fetchall()
    assert stored == [('{"reason":"rule 1"}',), ('{"reason":"rule 3"}',)]
