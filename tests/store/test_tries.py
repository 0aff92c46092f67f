"""Tries of an attacker: rows of their own, and the same ones where an older version wrote them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from guardmark.core.errors import StorageError, StoreError
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
from guardmark.core.record import Stage
from guardmark.core.sample import Sample
from guardmark.core.usage import Usage
from guardmark.store import connect
from guardmark.store.reader import RecordReader
from guardmark.store.records import RecordWriter
from guardmark.store.sealing.integrity import check
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


def old_note(account: str, text: str) -> str:
    """What stood beside a try in version 2."""
    said = {"account": account, "round": "R2", "chain": "rot13 é", "tier": "V0", "text": text}
    return json.dumps({**said, "size": 7, "free": False}, separators=(",", ":"))


def write_version_2(path: Path, tries: list[tuple[int, str, str, Decision]]) -> None:
    """Write tries as version 2 did: among the records, with a note for a text."""
    with RecordWriter(path) as writer:
        for number, account, text, decision in tries:
            lane = writer.record_batch("words", Stage.TRY, layer="adaptive", repeat=number)
            bare = replace(decision, evidence=None)
            lane.add(0, bare, latency_ns=number + 1)
            said = '{"reason":"a rule"}' if decision is BLOCKED else None
            lane.details.append((0, old_note(account, text), said))
            if number % 3 == 2:
                writer.flush()
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            "DROP TABLE tries; DROP TABLE confirmations; PRAGMA user_version = 2"
        )


OLD = [
    (0, "baseline", "t", BLOCKED),
    (1, "search", "a", ALLOWED),
    (2, "confirm", "a", ALLOWED),
    (3, "confirm", "a", FAILED),
    (4, "confirm", "a", BLOCKED),
    (5, "confirm", "a", ALLOWED),
    (6, "battery", "b", ALLOWED),
    (7, "confirm", "b", BLOCKED),
    (8, "confirm", "b", BLOCKED),
    (9, "confirm", "b", ALLOWED),
    (10, "search", "c", ALLOWED),
]


def test_tries_of_version_2_are_the_same_after_the_migration(begun: Path) -> None:
    """Every field is found again, re-sends are told from what they repeat, the chain holds."""
    write_version_2(begun, OLD)
    assert check(begun) == []
    rows = tries_of(begun)
    assert [(r.number, r.subject.account, r.subject.digest) for r in rows] == [
        each[:3] for each in OLD
    ]
    assert [r.outcome for r in rows] == [each[3].outcome.value for each in OLD]
    assert [r.latency_ns for r in rows] == list(range(1, 12))
    assert [r.subject.resend_of for r in rows] == [None, None, 1, 1, 1, 1, None, 6, 6, 6, None]
    assert {r.number: r.is_confirmed for r in rows if r.is_confirmed is not None} == {
        1: True,
        6: False,
    }
    assert (rows[0].subject.chain, rows[0].subject.size) == ("rot13 é", 7)
    assert (rows[0].evidence, rows[3].error_kind) == (BLOCKED.evidence, ErrorKind.TIMEOUT)
    with RecordReader(begun) as reader:
        assert list(reader.records()) == []
    with RecordWriter(begun) as writer:
        writer.tries("words", "adaptive").add((11, 0), TRIED, BLOCKED, is_free=False)
    assert check(begun) == []
    assert len(tries_of(begun)) == len(OLD) + 1


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE tries SET tier = 'V4' WHERE number = 1",
        "UPDATE tries SET note = replace(note, 'V0', 'V1') WHERE number = 1",
        "UPDATE tries SET outcome = 1 WHERE number = 1",
        "UPDATE confirmations SET is_confirmed = 1",
        "DELETE FROM tries WHERE number = 10",
    ],
)
def test_a_migrated_try_stays_sealed(begun: Path, change: str) -> None:
    """What was derived from the notes is checked against them, and these by their old hashes."""
    write_version_2(begun, OLD)
    assert check(begun) == []
    with closing(sqlite3.connect(begun)) as connection:
        connection.execute(change)
        connection.commit()
    assert check(begun) != []


def test_old_tries_are_read_where_nothing_may_be_written(
    begun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An archive stays as it is."""
    write_version_2(begun, OLD)
    before = begun.read_bytes()

    def refuse(path: Path) -> sqlite3.Connection:
        raise StorageError(f"{path} cannot be written: it is read-only.")

    monkeypatch.setattr(connect, "open_to_write", refuse)
    assert len(tries_of(begun)) == len(OLD)
    assert check(begun) == []
    assert begun.read_bytes() == before


def test_an_old_try_that_cannot_be_read_is_said(begun: Path) -> None:
    """The file stays as it was."""
    write_version_2(begun, OLD)
    with closing(sqlite3.connect(begun)) as connection:
        connection.execute("UPDATE details SET text = 'no note' WHERE repeat = 3")
        connection.commit()
    with pytest.raises(StoreError, match="cannot be read"):
        tries_of(begun)
