"""Tries of an attacker: rows of their own, and the same ones where an older version wrote them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from guardmark.core.errors import StoreError
from guardmark.core.manifest import RunManifest
from guardmark.core.outcome import (
    AnswerMode,
    Decision,
    ErrorKind,
    Evidence,
    Outcome,
    Response,
    Verdict,
    VerdictLabel,
)
from guardmark.core.sample import Sample
from guardmark.core.usage import Usage
from guardmark.store.integrity import check
from guardmark.store.reader import RecordReader
from guardmark.store.records import RecordWriter
from guardmark.store.tries import TryRecord, TrySubject, read_tries

ALLOWED = Decision(outcome=Outcome.ALLOW, score=0.25)
BLOCKED = Decision(outcome=Outcome.BLOCK, evidence=Evidence(reason="a rule"))
FAILED = Decision(outcome=Outcome.ERROR, error_kind=ErrorKind.TIMEOUT)
TRIED = TrySubject(
    account="search", round="R2", digest="d0", chain="rot13", tier="V0", size=7, decoded=True
)


@pytest.fixture
def begun(path: Path, manifest: RunManifest, sample: Callable[[int], Sample]) -> Path:
    """A run with samples and nothing else."""
    with RecordWriter(path) as writer:
        writer.put_manifest(manifest)
        writer.load_samples(sample(n) for n in range(4))
        writer.plan(0)
    return path


def tries_of(path: Path) -> list[TryRecord]:
    """Every try, in order."""
    with RecordReader(path) as reader:
        return list(read_tries(reader))


def test_a_try_comes_back_as_it_was_taken(begun: Path) -> None:
    """Decisions, responses and verdicts alike, with everything that is said of them."""
    used = Evidence(raw="words", usage=Usage(prompt_tokens=3, completion_tokens=4, cost=0.5))
    asked = TrySubject(
        account="attacker",
        round="R5",
        digest="q",
        details={"stream": 1, "depth": 0, "repair": False, "kind": "refused"},
    )
    verdict = Verdict(
        label=VerdictLabel.UNSAFE, score=0.75, answer_mode=AnswerMode.ANSWERED, latency_ns=5
    )
    with RecordWriter(begun) as writer:
        tries = writer.tries("words", "adaptive")
        tries.add((1, 2), TRIED._replace(resend_of=0), BLOCKED, is_free=True)
        tries.add((0, 2), TRIED, ALLOWED, is_free=False, latency_ns=9)
        tries.confirm((0, 2), sent=3, passed=2, is_confirmed=True)
        answer = Response(text="words", evidence=used)
        writer.tries("words", "adaptive/attacker").add((0, 1), asked, answer, is_free=False)
        writer.tries("none", "adaptive/verdict").add((0, 0), asked, verdict, is_free=False)
    first, again, said, judged = tries_of(begun)
    assert (first.sample, first.number, first.subject, first.outcome) == (2, 0, TRIED, "allow")
    assert (first.score, first.latency_ns, first.is_free) == (0.25, 9, False)
    assert (first.is_confirmed, again.is_confirmed) == (True, None)
    assert (again.subject.resend_of, again.evidence, again.is_free) == (0, BLOCKED.evidence, True)
    assert (said.subject, said.evidence, said.outcome) == (asked, used, "answered")
    assert (judged.outcome, judged.score, judged.answer_mode) == ("unsafe", 0.75, "answered")
    assert judged.latency_ns == 5
    assert check(begun) == []


def test_an_answer_of_wrong_types_is_an_error_that_says_so(begun: Path) -> None:
    """What a foreign part returns may end no run."""
    with RecordWriter(begun) as writer:
        tries = writer.tries("words", "adaptive")
        wrong = Decision(outcome=Outcome.ALLOW, score="much")  # type: ignore[arg-type]
        tries.add((0, 0), TRIED, wrong, is_free=False)
    (row,) = tries_of(begun)
    assert (row.outcome, row.error_kind, row.score) == ("error", ErrorKind.CONTRACT, None)
    assert row.evidence is not None
    assert "wrong type" in row.evidence.message


def test_a_try_is_stored_once(begun: Path) -> None:
    """The same number twice is a mistake of ours, and loud."""
    with RecordWriter(begun) as writer:
        writer.tries("words", "adaptive").add((0, 0), TRIED, ALLOWED, is_free=False)
        writer.flush()
        writer.tries("words", "adaptive").add((0, 0), TRIED, BLOCKED, is_free=False)
        with pytest.raises(StoreError, match="stored twice"):
            writer.flush()
    assert [row.outcome for row in tries_of(begun)] == ["allow"]


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE tries SET tier = 'V1'",
        "UPDATE tries SET outcome = 1 WHERE number = 0",
        "UPDATE tries SET resend_of = NULL",
        "UPDATE confirmations SET is_confirmed = 0",
        "DELETE FROM confirmations",
        "DELETE FROM tries WHERE number = 1",
        "UPDATE tries SET batch = 9",
    ],
)
def test_a_changed_try_breaks_the_chain(begun: Path, change: str) -> None:
    """Tries are sealed as records are."""
    with RecordWriter(begun) as writer:
        tries = writer.tries("words", "adaptive")
        tries.add((0, 0), TRIED, ALLOWED, is_free=False)
        tries.add((1, 0), TRIED._replace(resend_of=0), ALLOWED, is_free=False)
        tries.confirm((0, 0), sent=3, passed=3, is_confirmed=True)
    assert check(begun) == []
    with closing(sqlite3.connect(begun)) as connection:
        connection.execute(change)
        connection.commit()
    assert check(begun) != []
