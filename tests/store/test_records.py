"""What is written into the records comes out again, once."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from guardmark.core.errors import DatasetError, StoreError
from guardmark.core.manifest import RunManifest
from guardmark.core.outcome import (
    ALLOWED,
    BLOCKED,
    AnswerMode,
    Attempt,
    CategoryFinding,
    Decision,
    ErrorKind,
    Evidence,
    Outcome,
    Response,
    ScoreKind,
    Verdict,
    VerdictLabel,
)
from guardmark.core.record import Record, RecordKey, Stage
from guardmark.core.sample import Label, Message, Prompt, Role, Sample
from guardmark.core.usage import Usage
from guardmark.store.codec import evidence_from_json, evidence_to_json
from guardmark.store.reader import RecordReader, RunState
from guardmark.store.records import RecordWriter

MakeSample = Callable[[int], Sample]
FULL_EVIDENCE = Evidence(
    reason="says so",
    native_action="redact",
    raw='{"a": "\ud800"}',
    message="",
    parse_method="direct",
    finish_reason="stop",
    categories=(CategoryFinding(name="S1", flagged=True, score=0.5), CategoryFinding(name="S2")),
    usage=Usage(prompt_tokens=3, completion_tokens=None, cost=0.25),
    attempts=(Attempt(service_ns=5, status=429, error="busy", wait_ns=7), Attempt(service_ns=1)),
    label_mass=0.75,
    truncated=True,
    from_cache=True,
)


def test_samples_come_back_in_full(writer: RecordWriter, path: Path, sample: MakeSample) -> None:
    """Reports and re-judging need nothing but the records."""
    with RecordReader(path) as reader:
        assert list(reader.samples()) == [sample(n) for n in range(30)]
        assert reader.sample_at(7) == sample(7)
        assert reader.sample_count() == 30
        assert reader.position_of("s-0011") == 11
        assert reader.position_of("nobody") is None
        with pytest.raises(IndexError):
            reader.sample_at(30)


def test_loading_twice_keeps_the_first_load(writer: RecordWriter) -> None:
    """Continuing a run does not read the data again."""
    seal = writer.connection.meta("samples")

    def untouched() -> None:
        raise AssertionError

    assert writer.load_samples(untouched() for _ in range(1)) == 30
    assert writer.connection.meta("samples") == seal


def test_a_load_that_was_cut_off_starts_again(path: Path, sample: MakeSample) -> None:
    """A kill while samples are stored leaves no half set behind."""

    def breaking() -> list[Sample]:
        raise KeyError("stopped")

    with RecordWriter(path) as writer:
        with pytest.raises(KeyError):
            writer.load_samples(s for part in ([sample(0)], None) for s in (part or breaking()))
        assert writer.connection.meta("samples") is None
        assert writer.load_samples([sample(n) for n in range(3)]) == 3


def test_samples_and_what_is_run_are_stored_together_or_not_at_all(
    path: Path, sample: MakeSample, manifest: RunManifest
) -> None:
    """Samples without a manifest could not be told from those of other data."""

    def unknown() -> RunManifest:
        raise KeyError("not known after all")

    with RecordWriter(path) as writer:
        with pytest.raises(KeyError):
            writer.load_samples([sample(0)], manifest=unknown)
        assert (writer.connection.meta("samples"), writer.manifest) == (None, None)
        writer.load_samples([sample(0)], manifest=lambda: manifest)
        assert writer.connection.meta("samples")
        assert writer.manifest == manifest


def test_equal_ids_are_refused_by_name(path: Path, sample: MakeSample) -> None:
    """Two samples with one id could not be told apart in any report."""
    with (
        RecordWriter(path) as writer,
        pytest.raises(DatasetError, match=r"'s-0001' \(samples 2 and 4\)"),
    ):
        writer.load_samples([sample(0), sample(1), sample(2), sample(1)])


def test_a_lone_surrogate_is_refused_by_name(path: Path) -> None:
    """What has no UTF-8 cannot be sent, so it is said before anything runs."""
    broken = Sample(id="bad", prompt=Prompt.of_text("a\ud800"), label=Label.ATTACK)
    with RecordWriter(path) as writer, pytest.raises(DatasetError, match=r"'bad'.*character 1"):
        writer.load_samples([broken])


@pytest.mark.parametrize(
    "text",
    ["{{7*7}}", "${HOME}", "%s", "a\x00b\x01\x7f", "\u202eabc\u2066", "x" * 1_000_000, "a\r\nb\n"],
)
def test_texts_survive_byte_for_byte(path: Path, text: str) -> None:
    """The attack that is read back is the attack that was stored."""
    both = (Message(role=Role.USER, content=text), Message(role=Role.TOOL, content=text))
    samples = [
        Sample(id="one", prompt=Prompt.of_text(text), label=Label.ATTACK),
        Sample(id="two", prompt=Prompt(messages=both, under_test=1), label=Label.BENIGN),
    ]
    with RecordWriter(path) as writer:
        writer.load_samples(samples)
    with RecordReader(path) as reader:
        assert list(reader.samples()) == samples


def test_the_manifest_comes_back_equal(
    writer: RecordWriter, path: Path, manifest: RunManifest
) -> None:
    """What was run is part of the records."""
    assert writer.manifest == manifest
    with RecordReader(path) as reader:
        assert reader.manifest() == manifest


def test_a_run_without_a_manifest_says_so(path: Path) -> None:
    """A run killed in its first second is not mistaken for damage."""
    RecordWriter(path).close()
    with RecordReader(path) as reader, pytest.raises(StoreError, match="holds no manifest"):
        reader.manifest()


def test_decisions_come_back_as_records(writer: RecordWriter, path: Path) -> None:
    """Every field of a decision has a place."""
    lane = writer.record_batch("granite", repeat=2)
    rich = Decision(
        outcome=Outcome.BLOCK,
        score=0.875,
        score_kind=ScoreKind.CLASS_PROB,
        latency_ns=99,
        amortised=True,
        evidence=FULL_EVIDENCE,
    )
    lane.add(3, rich, latency_ns=5)
    lane.add(1, ALLOWED, latency_ns=7)
    lane.add(2, Decision(outcome=Outcome.ERROR, error_kind=ErrorKind.TIMEOUT), latency_ns=None)
    writer.flush()
    with RecordReader(path) as reader:
        first, second, third = reader.records(defense="granite")
        assert first == Record(
            key=RecordKey(defense="granite", sample=1, repeat=2), outcome="allow", latency_ns=7
        )
        assert (second.outcome, second.error_kind, second.latency_ns) == (
            "error",
            ErrorKind.TIMEOUT,
            None,
        )
        assert third == Record(
            key=RecordKey(defense="granite", sample=3, repeat=2),
            outcome="block",
            score=0.875,
            score_kind=ScoreKind.CLASS_PROB,
            latency_ns=99,
            amortised=True,
            evidence=FULL_EVIDENCE,
        )


def test_responses_and_verdicts_come_back_as_records(writer: RecordWriter, path: Path) -> None:
    """Every stage of a pipeline has rows of its own."""
    answers = writer.record_batch("none", Stage.MODEL)
    answers.add(0, Response(text="Hello\n\u2028"), latency_ns=3)
    answers.add(1, Response(text=None, error_kind=ErrorKind.HTTP), latency_ns=None)
    answers.add(2, Response(text=None), latency_ns=None)
    verdicts = writer.record_batch("none", Stage.JUDGE, layer="second")
    verdicts.add(
        0,
        Verdict(label=VerdictLabel.SAFE, answer_mode=AnswerMode.INDIRECT, score=0.25),
        latency_ns=4,
    )
    writer.flush()
    with RecordReader(path) as reader:
        zero, one, two = reader.records(stage=Stage.MODEL)
        assert (zero.outcome, zero.text) == ("answered", "Hello\n\u2028")
        assert (one.outcome, one.error_kind) == ("error", ErrorKind.HTTP)
        assert (two.outcome, two.error_kind) == ("error", ErrorKind.CONTRACT)
        (verdict,) = reader.records(layer="second")
        assert (verdict.outcome, verdict.score) == ("safe", 0.25)
        assert verdict.answer_mode is AnswerMode.INDIRECT
        assert reader.layers() == ("run", "second")
        assert reader.recorded_stages() == (
            ("none", Stage.MODEL, "run"),
            ("none", Stage.JUDGE, "second"),
        )


@pytest.mark.parametrize("score", [float("nan"), -0.1, 1.5, float("inf")])
def test_a_score_that_is_no_risk_is_an_error(
    writer: RecordWriter, path: Path, score: float
) -> None:
    """A part that breaks its contract gives no decision."""
    lane = writer.record_batch("odd")
    lane.add(0, Decision(outcome=Outcome.ALLOW, score=score), latency_ns=1)
    lane.add(1, Verdict(label=VerdictLabel.SAFE, score=score), latency_ns=1)
    writer.flush()
    with RecordReader(path) as reader:
        for record in reader.records(defense="odd"):
            assert (record.outcome, record.error_kind) == ("error", ErrorKind.CONTRACT)
            assert record.evidence is not None
            assert "not in [0, 1]" in record.evidence.message


_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_SCORES = st.none() | st.floats(0, 1)
_KEYS = st.builds(
    RecordKey,
    defense=st.sampled_from(["a", "b"]),
    sample=st.integers(0, 29),
    repeat=st.integers(0, 3),
    stage=st.sampled_from(Stage),
    layer=st.sampled_from(["run", "later"]),
)
_LATENCIES = st.none() | st.integers(0, 2**62)
_ERRORS = st.none() | st.sampled_from(ErrorKind)
_EVIDENCE = st.none() | st.builds(Evidence, reason=_TEXTS.filter(bool), label_mass=_SCORES)
_DECISIONS = st.builds(
    Decision,
    outcome=st.sampled_from(Outcome),
    score=_SCORES,
    score_kind=st.sampled_from(ScoreKind),
    error_kind=_ERRORS,
    latency_ns=_LATENCIES,
    amortised=st.booleans(),
    evidence=_EVIDENCE,
)
_RESPONSES = st.builds(
    Response, text=_TEXTS, error_kind=st.none(), latency_ns=_LATENCIES, evidence=_EVIDENCE
)
_VERDICTS = st.builds(
    Verdict,
    label=st.sampled_from(VerdictLabel),
    answer_mode=st.none() | st.sampled_from(AnswerMode),
    score=_SCORES,
    error_kind=_ERRORS,
    latency_ns=_LATENCIES,
    evidence=_EVIDENCE,
)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(answers=st.dictionaries(_KEYS, st.one_of(_DECISIONS, _RESPONSES, _VERDICTS), max_size=20))
def test_any_answer_survives_the_way_to_disk_and_back(
    tmp_path_factory: pytest.TempPathFactory,
    sample: MakeSample,
    answers: dict[RecordKey, Decision | Response | Verdict],
) -> None:
    """Imports and runs lose nothing of what was observed."""
    path = tmp_path_factory.mktemp("law") / "records.sqlite"
    with RecordWriter(path) as writer:
        writer.load_samples(sample(n) for n in range(30))
        for key, answer in answers.items():
            batch = writer.record_batch(key.defense, key.stage, layer=key.layer, repeat=key.repeat)
            batch.add(key.sample, answer, latency_ns=None)
    with RecordReader(path) as reader:
        stored = {record.key: record for record in reader.records()}
    assert stored == {key: record_of(key, answer) for key, answer in answers.items()}


def record_of(key: RecordKey, answer: Decision | Response | Verdict) -> Record:
    """The record that an answer should become."""
    alike = Record(
        key=key,
        outcome="answered",
        error_kind=answer.error_kind,
        latency_ns=answer.latency_ns,
        evidence=answer.evidence,
    )
    if isinstance(answer, Response):
        return replace(alike, text=answer.text)
    if isinstance(answer, Decision):
        scored = replace(alike, score=answer.score, score_kind=answer.score_kind)
        return replace(scored, outcome=answer.outcome.value, amortised=answer.amortised)
    kind = ScoreKind.NONE if answer.score is None else ScoreKind.CLASS_PROB
    scored = replace(alike, score=answer.score, score_kind=kind)
    return replace(scored, outcome=answer.label.value, answer_mode=answer.answer_mode)


@given(evidence=st.builds(Evidence, raw=st.text(), message=st.text(), truncated=st.booleans()))
def test_evidence_survives_as_json(evidence: Evidence) -> None:
    """Even a native answer that is no valid Unicode is kept."""
    assert evidence_from_json(evidence_to_json(evidence)) == evidence


def test_a_record_is_stored_at_most_once(writer: RecordWriter, path: Path) -> None:
    """A doubled row would count a sample twice."""
    writer.record_batch("words").add(0, ALLOWED, latency_ns=1)
    writer.flush()
    writer.record_batch("words").add(1, BLOCKED, latency_ns=1)
    writer.record_batch("words").add(0, BLOCKED, latency_ns=1)
    with pytest.raises(StoreError, match="stored twice"):
        writer.flush()
    writer.close()
    with RecordReader(path) as reader:
        assert [record.outcome for record in reader.records()] == ["allow"]


def test_pending_names_exactly_what_is_missing(writer: RecordWriter) -> None:
    """A stopped run goes on where it was, whatever is missing."""
    lane = writer.record_batch("words")
    assert [p for c in writer.stored.pending(lane, size=7) for p in c.positions] == list(range(30))
    for position in (0, 3, 4, 29):
        lane.add(position, ALLOWED, latency_ns=1)
    writer.flush()
    left = [p for c in writer.stored.pending(lane, size=7) for p in c.positions]
    assert left == [n for n in range(30) if n not in {0, 3, 4, 29}]
    assert writer.stored.count(lane) == 4
    other = writer.record_batch("words", repeat=1)
    assert sum(len(c.positions) for c in writer.stored.pending(other)) == 30
    for position in left:
        lane.add(position, BLOCKED, latency_ns=1)
    writer.flush()
    assert list(writer.stored.pending(lane)) == []
    assert sum(writer.stored.count_by_outcome(lane)) == 30


def test_a_shuffled_order_holds_every_missing_sample_once(writer: RecordWriter) -> None:
    """A rule that stops early needs samples in random order."""
    lane = writer.record_batch("words")
    for position in (0, 3, 4, 29):
        lane.add(position, ALLOWED, latency_ns=1)
    writer.flush()
    order = [(7 * n + 5) % 30 for n in range(30)]
    found = [p for c in writer.stored.pending(lane, size=8, order=order) for p in c.positions]
    assert found == [n for n in order if n not in {0, 3, 4, 29}]


def test_outcomes_and_texts_of_single_samples_are_found(writer: RecordWriter) -> None:
    """A pipeline looks up which of its stages are stored."""
    lane = writer.record_batch("none", Stage.MODEL)
    lane.add(3, Response(text="yes"), latency_ns=1)
    lane.add(4, Response(text=None, error_kind=ErrorKind.HTTP), latency_ns=1)
    writer.flush()
    assert writer.stored.outcomes(lane, [2, 3, 4]) == {3: 6, 4: 3}
    assert writer.stored.texts(lane, [2, 3, 4]) == {3: "yes"}


def test_a_chunk_shows_prompts_and_labels(writer: RecordWriter, sample: MakeSample) -> None:
    """The engine gets what it sends, and nothing else."""
    (chunk,) = writer.stored.pending(writer.record_batch("words"))
    assert chunk.prompts == [sample(n).prompt for n in range(30)]
    assert chunk.attacks == [sample(n).is_attack for n in range(30)]


def test_batches_are_committed_by_count_and_by_time(writer: RecordWriter, path: Path) -> None:
    """A slow service does not leave its answers in memory."""
    lane = writer.record_batch("words")
    assert not writer.flush_if_due(1_000)
    lane.add(0, ALLOWED, latency_ns=1)
    assert not writer.flush_if_due(2_000, count=2)
    lane.add(1, ALLOWED, latency_ns=1)
    assert writer.flush_if_due(3_000, count=2)
    lane.add(2, ALLOWED, latency_ns=1)
    assert not writer.flush_if_due(4_000)
    assert writer.flush_if_due(4_000 + 400_000_000)
    assert writer.waiting == 0


def test_a_reader_sees_commits_while_a_run_writes(writer: RecordWriter, path: Path) -> None:
    """A report may be made of a run that is under way."""
    lane = writer.record_batch("words")
    with RecordReader(path) as reader:
        for position in range(3):
            lane.add(position, ALLOWED, latency_ns=1)
            assert len(list(reader.records())) == position
            writer.flush()
            assert len(list(reader.records())) == position + 1


def test_counts_group_in_the_database(writer: RecordWriter, path: Path) -> None:
    """Small questions need no columns."""
    lane = writer.record_batch("words")
    for position in range(30):
        lane.add(position, BLOCKED if position % 3 == 0 else ALLOWED, latency_ns=1)
    writer.flush()
    with RecordReader(path) as reader:
        assert reader.counts("words") == {
            (False, "allow"): 10,
            (False, "block"): 5,
            (True, "allow"): 10,
            (True, "block"): 5,
        }


def test_the_manifest_is_fixed_with_the_first_record(
    writer: RecordWriter, manifest: RunManifest
) -> None:
    """Records of two configurations never share a file."""
    writer.record_batch("words").add(0, ALLOWED, latency_ns=1)
    writer.flush()
    writer.put_manifest(manifest)
    with pytest.raises(StoreError, match="another configuration"):
        writer.put_manifest(replace(manifest, seed=8))


def test_a_later_judging_keeps_its_settings(writer: RecordWriter, path: Path) -> None:
    """Two judgings under one name would be confused for ever."""
    writer.add_layer("second", {"model": "judge-2"})
    writer.add_layer("second", {"model": "judge-2"})
    with pytest.raises(StoreError, match="other settings"):
        writer.add_layer("second", {"model": "judge-3"})
    with RecordReader(path) as reader:
        assert reader.layer_settings("second") == {"model": "judge-2"}
        assert reader.layer_settings("run") == {}


def test_the_state_tells_how_a_run_ended(writer: RecordWriter, path: Path) -> None:
    """A killed run says running in its file and nobody holds it: it was interrupted."""
    with RecordReader(path) as reader:
        assert reader.status().state is RunState.NEW
        writer.plan(30)
        writer.record_batch("words").add(0, ALLOWED, latency_ns=1)
        writer.record_batch("words", Stage.WARMUP).add(0, ALLOWED, latency_ns=1)
        writer.flush()
        status = reader.status()
        assert (status.state, status.planned, status.stored) == (RunState.INTERRUPTED, 30, 1)
    writer.finish(RunState.COMPLETE)
    with RecordReader(path) as reader:
        assert reader.status().state is RunState.COMPLETE


def test_the_view_reads_in_words(writer: RecordWriter, path: Path) -> None:
    """Any SQLite tool can read a run."""
    writer.record_batch("words").add(1, BLOCKED, latency_ns=2_500_000)
    writer.flush()
    connection = sqlite3.connect(path)
    row = connection.execute(
        "SELECT defense, stage, id, label, category, outcome, latency_ms FROM results"
    ).fetchone()
    connection.close()
    assert row == ("words", "defense", "s-0001", "attack", "jailbreak", "block", 2.5)


def test_reading_one_sample_costs_the_same_whatever_else_there_is(
    tmp_path: Path, sample: MakeSample
) -> None:
    """Also where every sample has facets of its own."""
    steps = []
    for count in (30, 3_000):
        path = tmp_path / f"{count}.sqlite"
        with RecordWriter(path) as writer:
            writer.load_samples(replace(sample(n), category=f"topic-{n}") for n in range(count))
        with RecordReader(path) as reader:
            clock = itertools.count()
            reader.connection.set_progress_handler(partial(_tick, clock), 1)
            assert reader.sample_at(17).category == "topic-17"
            steps.append(next(clock))
    assert steps[1] < 2 * steps[0]


def _tick(clock: Iterator[int]) -> None:
    next(clock)
