"""Answers of earlier runs, kept for who asks for it: equal question, part and repeat only."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Self

from guardmark.core.errors import StoreError
from guardmark.core.outcome import (
    AnswerMode,
    Decision,
    Evidence,
    Outcome,
    Response,
    ScoreKind,
    Verdict,
    VerdictLabel,
)
from guardmark.store.codec import evidence_from_json, evidence_to_json
from guardmark.store.connect import errors_of

if TYPE_CHECKING:
    from pathlib import Path

_APPLICATION_ID: Final = 0x474D4341  # GMCA
_VERSION: Final = 1

Answer = Decision | Response | Verdict


def key_of(identity: str, *, repeat: int, asked: tuple[str, ...]) -> bytes:
    """Return the key of one question."""
    return sha256(json.dumps([_VERSION, identity, repeat, asked]).encode()).digest()


class AnswerCache:
    """A file of answers by key. Close it, or use it as a context manager."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with errors_of(path):
            self._connection = sqlite3.connect(path, isolation_level=None, timeout=10)
            try:
                self._prepare()
            except BaseException:
                self._connection.close()
                raise

    def _prepare(self) -> None:
        connection = self._connection
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        found = connection.execute("PRAGMA application_id").fetchone()[0]
        if tables and found != _APPLICATION_ID:
            raise StoreError(f"{self._path} is no cache of guardmark. Next: name another file.")
        connection.executescript(
            "BEGIN IMMEDIATE;"
            "CREATE TABLE IF NOT EXISTS answers (key BLOB PRIMARY KEY, answer TEXT) WITHOUT ROWID;"
            f"PRAGMA application_id = {_APPLICATION_ID}; COMMIT;"
        )

    def __enter__(self) -> Self:
        """Return the cache itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def recall(self, key: bytes) -> Answer | None:
        """Return a kept answer."""
        with errors_of(self._path):
            query = "SELECT answer FROM answers WHERE key = ?"
            row = self._connection.execute(query, (key,)).fetchone()
        try:
            return None if row is None else _answer_of(json.loads(row[0]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreError(
                f"{self._path} is damaged: an answer in it cannot be read.\n"
                "Next: remove the file; what it held is asked again."
            ) from error

    def keep(self, key: bytes, answer: Answer) -> bool:
        """Keep an answer, unless it is none: errors and malformed answers are asked again."""
        said = _said(answer)
        if said is None:
            return False
        with errors_of(self._path):
            self._connection.execute(
                "INSERT OR REPLACE INTO answers VALUES (?, ?)", (key, json.dumps(said))
            )
        return True


def _said(answer: Answer) -> dict[str, Any] | None:
    evidence = None if answer.evidence is None else evidence_to_json(answer.evidence)
    if isinstance(answer, Decision):
        if answer.outcome not in {Outcome.ALLOW, Outcome.BLOCK}:
            return None
        said: dict[str, Any] = {
            "outcome": answer.outcome,
            "score": answer.score,
            "score_kind": answer.score_kind,
        }
    elif isinstance(answer, Response):
        if answer.text is None or answer.error_kind is not None:
            return None
        said = {"text": answer.text}
    else:
        if answer.label not in {VerdictLabel.SAFE, VerdictLabel.UNSAFE}:
            return None
        said = {"label": answer.label, "mode": answer.answer_mode, "score": answer.score}
    return {**said, "evidence": evidence}


def _answer_of(said: dict[str, Any]) -> Answer:
    kept = Evidence() if said["evidence"] is None else evidence_from_json(said["evidence"])
    evidence = replace(kept, from_cache=True, attempts=())
    if "outcome" in said:
        return Decision(
            outcome=Outcome(said["outcome"]),
            score=said["score"],
            score_kind=ScoreKind(said["score_kind"]),
            evidence=evidence,
        )
    if "text" in said:
        return Response(text=said["text"], evidence=evidence)
    mode = said["mode"]
    return Verdict(
        label=VerdictLabel(said["label"]),
        answer_mode=None if mode is None else AnswerMode(mode),
        score=said["score"],
        evidence=evidence,
    )
