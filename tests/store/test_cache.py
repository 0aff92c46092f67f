"""Kept answers come back marked, and only to the very same question."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from guardmark.core.errors import StoreError
from guardmark.core.outcome import (
    AnswerMode,
    Attempt,
    Decision,
    ErrorKind,
    Evidence,
    Outcome,
    Response,
    ScoreKind,
    Verdict,
    VerdictLabel,
)
from guardmark.store.cache import AnswerCache, key_of
from guardmark.store.codec import Answer

KEY = key_of("f" * 64, repeat=0, asked=("p",))


@pytest.mark.parametrize(
    "answer",
    [
        Decision(outcome=Outcome.BLOCK, score=0.5, score_kind=ScoreKind.CLASS_PROB, latency_ns=5),
        Response(text="hello\n", evidence=Evidence(finish_reason="stop"), latency_ns=5),
        Verdict(label=VerdictLabel.SAFE, answer_mode=AnswerMode.INDIRECT, score=0.25),
        Verdict(label=VerdictLabel.UNSAFE, evidence=Evidence(attempts=(Attempt(service_ns=1),))),
    ],
)
def test_a_kept_answer_comes_back_marked_and_untimed(tmp_path: Path, answer: Answer) -> None:
    """Its latency was measured elsewhere, so it counts for none here."""
    with closing(AnswerCache(tmp_path / "cache.sqlite")) as cache:
        assert cache.recall(KEY) is None
        assert cache.keep(KEY, answer)
    with closing(AnswerCache(tmp_path / "cache.sqlite")) as cache:
        found = cache.recall(KEY)
    assert type(found) is type(answer)
    assert found is not None
    assert found.latency_ns is None
    assert found.evidence is not None
    assert found.evidence.from_cache
    assert found.evidence.attempts == ()
    for name in ("outcome", "score", "score_kind", "text", "label", "answer_mode"):
        assert getattr(found, name, None) == getattr(answer, name, None)


@pytest.mark.parametrize(
    "answer",
    [
        Decision(outcome=Outcome.ERROR, error_kind=ErrorKind.HTTP),
        Decision(outcome=Outcome.MALFORMED),
        Response(text=None, error_kind=ErrorKind.HTTP),
        Response(text="cut", error_kind=ErrorKind.LENGTH),
        Verdict(label=VerdictLabel.MALFORMED),
        Verdict(label=VerdictLabel.ERROR, error_kind=ErrorKind.CRASH),
    ],
)
def test_what_is_no_answer_is_not_kept(tmp_path: Path, answer: Answer) -> None:
    """A dead service is asked again."""
    with closing(AnswerCache(tmp_path / "cache.sqlite")) as cache:
        assert not cache.keep(KEY, answer)
        assert cache.recall(KEY) is None


def test_every_part_of_a_question_makes_it_another() -> None:
    """Another model, repeat, prompt or response is another question."""
    keys = {
        key_of(identity, repeat=repeat, asked=asked)
        for identity in ("a", "b")
        for repeat in (0, 1)
        for asked in (("p",), ("q",), ("p", "r"), ("pr",))
    }
    assert len(keys) == 16


def test_a_foreign_file_is_no_cache(tmp_path: Path) -> None:
    """It is refused and not written into."""
    connection = sqlite3.connect(tmp_path / "x.sqlite")
    connection.execute("CREATE TABLE theirs (a)")
    connection.commit()
    connection.close()
    with pytest.raises(StoreError, match="not a cache"):
        AnswerCache(tmp_path / "x.sqlite")
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
    for planted in (
        "CREATE TRIGGER planted BEFORE INSERT ON answers BEGIN DELETE FROM answers; END",
        f"DROP TABLE answers; CREATE VIEW answers AS {endless} SELECT i AS key, 'x' AS answer FROM n",  # noqa: S608 - made here
    ):
        (tmp_path / "z.sqlite").unlink(missing_ok=True)
        AnswerCache(tmp_path / "z.sqlite").close()
        with closing(sqlite3.connect(tmp_path / "z.sqlite")) as connection:
            connection.executescript(planted)
        with pytest.raises(StoreError, match="not a cache"):
            AnswerCache(tmp_path / "z.sqlite")
    (tmp_path / "y.sqlite").write_text("hello " * 100)
    with pytest.raises(StoreError, match="damaged"):
        AnswerCache(tmp_path / "y.sqlite")
