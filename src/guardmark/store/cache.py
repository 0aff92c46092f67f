"""Answers of earlier runs, kept for who asks for it: equal question, part and repeat only."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from guardmark.core import outcome
from guardmark.core.errors import StoreError
from guardmark.store.codec import evidence_from_json, evidence_to_json
from guardmark.store.connect import closed_on_error, errors_of, open_database
from guardmark.store.schema import transaction

if TYPE_CHECKING:
    from pathlib import Path

    from guardmark.store.codec import Answer

_APPLICATION_ID: Final = 0x474D4341  # GMCA
_VERSION: Final = 1
_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS answers (key BLOB PRIMARY KEY, answer TEXT) WITHOUT ROWID"
)


def key_of(identity: str, *, repeat: int, asked: tuple[str, ...]) -> bytes:
    """Return the key of one question."""
    return sha256(json.dumps([_VERSION, identity, repeat, asked]).encode()).digest()


class AnswerCache:
    """A file of answers by key. Close it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with errors_of(path), closed_on_error(open_database(path, "mode=rwc")) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            is_ours = connection.value("PRAGMA application_id") == _APPLICATION_ID
            made = connection.rows("SELECT sql FROM sqlite_schema LIMIT 2")
            if made and not (is_ours and made == [(_TABLE.replace("IF NOT EXISTS ", ""),)]):
                raise StoreError(f"{path} is not a cache of guardmark. Next: name another file.")
            with transaction(connection):
                connection.execute(_TABLE)
                connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        self._connection = connection

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def recall(self, key: bytes) -> Answer | None:
        """Return a kept answer."""
        text = self._connection.value("SELECT answer FROM answers WHERE key = ?", (key,))
        try:
            return None if text is None else _answer_of(json.loads(text))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise StoreError(
                f"{self._path} is damaged: an answer in it cannot be read.\n"
                "Next: remove the file; what it held is asked again."
            ) from error

    def keep(self, key: bytes, answer: Answer) -> bool:
        """Keep an answer, unless it is none: errors and malformed answers are asked again."""
        kept = _kept(answer)
        if kept is not None:
            query = "INSERT OR REPLACE INTO answers VALUES (?, ?)"
            self._connection.rows(query, (key, json.dumps(kept)))
        return kept is not None


def _kept(answer: Answer) -> dict[str, Any] | None:
    """Return what is kept of an answer."""
    evidence = None if answer.evidence is None else evidence_to_json(answer.evidence)
    if isinstance(answer, outcome.Decision):
        named = ("outcome", "score", "score_kind", "text")
        kept: dict[str, Any] = {name: getattr(answer, name) for name in named}
        is_answer = answer.outcome in {outcome.Outcome.ALLOW, outcome.Outcome.BLOCK}
    elif isinstance(answer, outcome.Response):
        kept = {"text": answer.text}
        is_answer = answer.text is not None and answer.error_kind is None
    else:
        kept = {"label": answer.label, "mode": answer.answer_mode, "score": answer.score}
        is_answer = answer.label in {outcome.VerdictLabel.SAFE, outcome.VerdictLabel.UNSAFE}
    return {**kept, "evidence": evidence} if is_answer else None


def _answer_of(kept: dict[str, Any]) -> Answer:
    text = kept["evidence"]
    evidence = replace(evidence_from_json(text or "{}"), from_cache=True, attempts=())
    if "outcome" in kept:
        return outcome.Decision(
            outcome=outcome.Outcome(kept["outcome"]),
            score=kept["score"],
            score_kind=outcome.ScoreKind(kept["score_kind"]),
            evidence=evidence,
            text=kept.get("text"),
        )
    if "text" in kept:
        return outcome.Response(text=kept["text"], evidence=evidence)
    return outcome.Verdict(
        label=outcome.VerdictLabel(kept["label"]),
        answer_mode=None if kept["mode"] is None else outcome.AnswerMode(kept["mode"]),
        score=kept["score"],
        evidence=evidence,
    )
