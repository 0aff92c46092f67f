"""Samples and answers read straight from the tables, for the second path of `verify`.

Nothing here shares code with the readers that reports use: plain SQL, plain Python values.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.errors import StoreError

if TYPE_CHECKING:
    from pathlib import Path

Json = dict[str, Any]

OUTCOMES: Final = ("allow", "block", "malformed", "error", "safe", "unsafe", "answered")
_STAGES: Final = ("defense", "model", "judge", "try", "warmup")
_ERRORS: Final = (
    "timeout",
    "connection",
    "refused",
    "http",
    "crash",
    "skipped",
    "length",
    "contract",
)
_SCORES: Final = (
    "none",
    "class_prob",
    "two_token_softmax",
    "full_vocab_prob",
    "category_max",
    "ordinal",
    "severity",
    "self_reported",
)
_MODES: Final = ("answered", "refused_or_blocked", "indirect", "non_answer")

_SAMPLES: Final = (
    "SELECT s.position, s.id, coalesce(s.origin, s.id), s.length, lower(hex(s.digest)),"
    " k.is_attack, k.category, k.subcategory, k.severity, k.language, k.variant, k.technique,"
    " k.source, s.text, s.rest FROM samples s JOIN kinds k ON k.id = s.kind ORDER BY s.position"
)
_ANSWERS: Final = (
    "SELECT d.name, r.stage, l.name, r.repeat, r.sample, r.outcome, r.score, r.score_kind,"
    " r.error_kind, r.answer_mode, r.latency_ns, r.flags, x.text,"
    " ifnull(x.evidence, y.evidence) FROM records r"
    " JOIN defenses d ON d.id = r.defense JOIN layers l ON l.id = r.layer"
    " LEFT JOIN details x ON x.defense = r.defense AND x.stage = r.stage AND x.layer = r.layer"
    " AND x.repeat = r.repeat AND x.sample = r.sample LEFT JOIN sayings y ON y.id = r.said"
    " ORDER BY r.defense, r.stage, r.layer, r.repeat, r.sample"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One sample, as far as figures depend on it.

    Attributes:
        position: Its place in the data, from 0.
        id: Its id.
        group: Its origin, or its own id.
        length: Characters of the text under test.
        sha256: Content hash, hex.
        text_sha256: Hash (hex) of the text under test.
        is_attack: Its label.
        facets: Facet to value; the empty word where nothing is stated.
        label_source: How its label was come by, or the empty word.
    """

    position: int
    id: str
    group: str
    length: int
    sha256: str
    text_sha256: str
    is_attack: bool
    facets: dict[str, str]
    label_source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One record.

    Attributes:
        defense: Name of the defense or arm.
        stage: Where in the pipeline.
        layer: Which judging.
        repeat: Which repetition.
        subject: The sample it answers.
        outcome: What came out, in a word.
        score: Score, or None.
        score_kind: What the score means.
        error_kind: Why there is no answer, or None.
        answer_mode: A judge's word, or None.
        latency_ns: Service time, or None.
        flags: Bits: 1 amortised, 2 cold, 4 cached, 8 truncated, 16 from the plan.
        text: A model's answer, or None.
        evidence: What lies behind it, or None.
    """

    defense: str
    stage: str
    layer: str
    repeat: int
    subject: Subject
    outcome: str
    score: float | None
    score_kind: str
    error_kind: str | None
    answer_mode: str | None
    latency_ns: int | None
    flags: int
    text: str | None
    evidence: Any

    @property
    def is_answered(self) -> bool:
        """Whether it is a decision."""
        return self.outcome in {"allow", "block"}

    @property
    def is_timed(self) -> bool:
        """Whether its time counts: measured, warm, uncached; of errors only timeouts."""
        ended = self.outcome != "error" or self.error_kind == "timeout"
        return self.latency_ns is not None and ended and not self.flags & (2 | 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """All that a run stored.

    Attributes:
        manifest: What was run, as JSON.
        state: How far the run came.
        planned: Records that were planned.
        retried: Errors that were asked about again.
        subjects: The samples, in order.
        answers: The records, in the order of defense, stage, layer, repeat, sample.
        layers: Name of each later judging to what it was registered with; empty for the run's.
    """

    manifest: Json
    state: str
    planned: int
    retried: int
    subjects: list[Subject]
    answers: list[Answer]
    layers: dict[str, Json]

    def decisions(self, defense: str) -> list[Answer]:
        """Return what one defense decided, by repeat, then sample.

        Args:
            defense: Its name.
        """
        return [
            answer
            for answer in self.answers
            if answer.defense == defense and answer.stage == "defense" and answer.layer == "run"
        ]

    def guards(self) -> list[str]:
        """Return the names of the defenses, in the order of the run."""
        asked = [answer.defense for answer in self.answers if answer.stage == "defense"]
        return list(dict.fromkeys(asked))


def read_source(path: Path) -> Source:
    """Read everything a run stored.

    Args:
        path: Its `records.sqlite`.

    Returns:
        Samples and records as plain values; all of them in memory.

    Raises:
        StoreError: If the tables cannot be read.
    """
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            said = dict(connection.execute("SELECT key, value FROM meta").fetchall())
            subjects = [_subject(row) for row in connection.execute(_SAMPLES)]
            by_position = {subject.position: subject for subject in subjects}
            layers = connection.execute("SELECT name, settings FROM layers").fetchall()
            retried = _retried(connection)
            answers = [
                _answer(row, by_position[row[4]])
                for row in connection.execute(_ANSWERS)
                if row[4] in by_position
            ]
    except (sqlite3.DatabaseError, IndexError) as error:
        raise StoreError(
            f"{path} cannot be read ({error}).\nNext: restore it from a copy."
        ) from error
    return Source(
        manifest=json.loads(said.get("manifest", "{}")),
        state=said.get("state", "new"),
        planned=int(said.get("planned", 0)),
        retried=retried,
        subjects=subjects,
        answers=answers,
        layers={name: json.loads(settings) for name, settings in layers},
    )


def _retried(connection: sqlite3.Connection) -> int:
    if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'superseded'").fetchall():
        return 0
    kinds = connection.execute("SELECT error_kind FROM superseded").fetchall()
    return sum(kind is None or _ERRORS[kind] != "skipped" for (kind,) in kinds)


def _subject(row: tuple[Any, ...]) -> Subject:
    names = ("category", "subcategory", "severity", "language", "variant", "technique", "source")
    return Subject(
        position=row[0],
        id=row[1],
        group=row[2],
        length=row[3],
        sha256=row[4],
        text_sha256=sha256(row[13].encode(errors="surrogatepass")).hexdigest(),
        is_attack=bool(row[5]),
        facets=dict(zip(names, row[6:13], strict=True)),
        label_source=str(_rest(row[14]).get("metadata", {}).get("label_source", "")),
    )


def _rest(told: str | None) -> Json:
    rest = json.loads(told) if told else {}
    return rest if isinstance(rest, dict) else {}


def _answer(row: tuple[Any, ...], subject: Subject) -> Answer:
    return Answer(
        defense=row[0],
        stage=_STAGES[row[1]],
        layer=row[2],
        repeat=row[3],
        subject=subject,
        outcome=OUTCOMES[row[5]],
        score=row[6],
        score_kind=_SCORES[row[7]],
        error_kind=None if row[8] is None else _ERRORS[row[8]],
        answer_mode=None if row[9] is None else _MODES[row[9]],
        latency_ns=row[10],
        flags=row[11],
        text=row[12],
        evidence=None if row[13] is None else json.loads(row[13]),
    )
