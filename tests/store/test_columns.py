"""Columns say the same as the records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from guardmark.core.errors import StoreError
from guardmark.core.outcome import (
    BLOCKED,
    AnswerMode,
    Decision,
    ErrorKind,
    Outcome,
    Verdict,
    VerdictLabel,
)
from guardmark.core.record import Stage
from guardmark.core.sample import Sample
from guardmark.store.columns import record_columns, sample_columns
from guardmark.store.reader import RecordReader
from guardmark.store.records import RecordWriter
from guardmark.store.schema import ANSWER_MODES, ERROR_KINDS, OUTCOME_NAMES


def test_sample_columns_say_the_same_as_the_samples(
    writer: RecordWriter, path: Path, sample: Callable[[int], Sample]
) -> None:
    """Analysis by columns and by objects must agree."""
    samples = [sample(n) for n in range(30)]
    with RecordReader(path) as reader:
        columns = sample_columns(reader)
    assert list(columns.ids) == [s.id for s in samples]
    assert columns.is_attack.tolist() == [s.is_attack for s in samples]
    assert columns.length.tolist() == [len(s.prompt.text) for s in samples]
    for name in ("category", "subcategory", "language", "variant", "technique", "source"):
        facet = getattr(columns, name)
        assert [facet.names[code] for code in facet.codes] == [getattr(s, name) for s in samples]
        assert set(facet.codes.tolist()) == set(range(len(facet.names)))
    assert [columns.severity.names[c] for c in columns.severity.codes] == [
        s.severity or "" for s in samples
    ]
    assert [columns.group.names[c] for c in columns.group.codes] == [s.lineage for s in samples]


def test_record_columns_say_the_same_as_the_records(writer: RecordWriter, path: Path) -> None:
    """Codes, gaps and flags have their documented meaning."""
    for repeat in range(2):
        lane = writer.record_batch("words", repeat=repeat)
        lane.add(2, Decision(outcome=Outcome.BLOCK, score=0.5, amortised=True), latency_ns=9)
        lane.add(0, Decision(outcome=Outcome.ERROR, error_kind=ErrorKind.HTTP), latency_ns=None)
    judge = Verdict(label=VerdictLabel.UNSAFE, answer_mode=AnswerMode.INDIRECT)
    writer.record_batch("words", Stage.JUDGE).add(1, judge, latency_ns=3)
    writer.flush()
    with RecordReader(path) as reader:
        columns = record_columns(reader, "words")
        verdicts = record_columns(reader, "words", stage=Stage.JUDGE)
    assert columns.sample.tolist() == [0, 2, 0, 2]
    assert columns.repeat.tolist() == [0, 0, 1, 1]
    assert [OUTCOME_NAMES[code] for code in columns.outcome] == ["error", "block"] * 2
    assert np.isnan(columns.score).tolist() == [True, False] * 2
    assert columns.latency_ns.tolist() == [-1, 9] * 2
    assert ERROR_KINDS[columns.error_kind[0]] is ErrorKind.HTTP
    assert columns.error_kind[1] == -1
    assert columns.flags.tolist() == [0, 1] * 2
    assert OUTCOME_NAMES[verdicts.outcome[0]] == "unsafe"
    assert ANSWER_MODES[verdicts.answer_mode[0]] is AnswerMode.INDIRECT
    assert columns.score.dtype == np.float64


def test_a_column_of_one_value_takes_no_room(writer: RecordWriter, path: Path) -> None:
    """Ten million decisions without a score hold no ten million gaps."""
    lane = writer.record_batch("words")
    for position in range(9):
        score = 0.5 if position else None
        writer.record_batch("scored").add(
            position, Decision(outcome=Outcome.BLOCK, score=score), latency_ns=9
        )
        lane.add(position, BLOCKED, latency_ns=position)
    writer.flush()
    with RecordReader(path) as reader:
        columns, scored = record_columns(reader, "words"), record_columns(reader, "scored")
        samples = sample_columns(reader)
    for name in ("repeat", "score", "error_kind", "answer_mode", "flags"):
        assert getattr(columns, name).strides == (0,), name
    assert np.isnan(columns.score).all()
    assert (columns.repeat.tolist(), columns.error_kind.tolist()) == ([0] * 9, [-1] * 9)
    assert columns.latency_ns.tolist() == list(range(9))
    assert np.isnan(scored.score).tolist() == [True, *[False] * 8]
    assert samples.category.places is samples.source.places
    assert samples.category.of(np.array([3, 1])).codes.tolist() == (
        samples.category.codes[[3, 1]].tolist()
    )


def test_nothing_stored_is_empty_columns_and_an_unknown_name_an_error(
    writer: RecordWriter, path: Path
) -> None:
    """A typo is not a defense without records."""
    writer.record_batch("words").add(0, BLOCKED, latency_ns=1)
    writer.flush()
    with RecordReader(path) as reader:
        assert len(record_columns(reader, "words", stage=Stage.JUDGE).outcome) == 0
        with pytest.raises(StoreError, match=r"no defense 'wrods'\. It has: words"):
            record_columns(reader, "wrods")
        with pytest.raises(StoreError, match="no layer"):
            record_columns(reader, "words", layer="second")


def test_a_run_without_samples_has_empty_columns(path: Path) -> None:
    """An empty run is read, not crashed on."""
    RecordWriter(path).close()
    with RecordReader(path) as reader:
        columns = sample_columns(reader)
    assert list(columns.ids) == []
    assert columns.category.names == ()
