"""Tries of an adaptive attacker: what was sent in place of a sample, and what came of it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.outcome import Decision, Evidence, Response, Verdict
from guardmark.store import connect
from guardmark.store.codec import evidence_from_json, evidence_to_json
from guardmark.store.connect import insert
from guardmark.store.record_batch import ILL_TYPED, whole_ns
from guardmark.store.schema import (
    ANSWER_MODE_CODE,
    ANSWER_MODES,
    ERROR_KIND_CODE,
    ERROR_KINDS,
    FLAG_AMORTISED,
    FLAG_CACHED,
    FLAG_TRUNCATED,
    OUTCOME_CODE,
    OUTCOME_NAMES,
    SCORE_KIND_CODE,
    SCORE_KINDS,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Mapping

    from guardmark.core.outcome import AnswerMode, ErrorKind, ScoreKind
    from guardmark.store.reader import RecordReader

_CHUNK: Final = 2000
COLUMNS: Final = (
    "number, sample, account, round, chain, tier, digest, size, decoded, resend_of, is_free,"
    " outcome, score, score_kind, error_kind, answer_mode, latency_ns, flags, details, evidence"
)
"""Columns of a try after those of its batch, in the order in which they are hashed."""
CONFIRMATION_COLUMNS: Final = "number, sample, sent, passed, is_confirmed"
"""Columns of an outcome of re-sends, in the order in which they are hashed."""
_SELECT: Final = (
    "SELECT d.name, l.name, t.number, t.sample, t.account, t.round, t.chain, t.tier, t.digest,"
    " t.size, t.decoded, t.resend_of, t.is_free, t.outcome, t.score, t.score_kind, t.error_kind,"
    " t.answer_mode, t.latency_ns, t.details, t.evidence, c.is_confirmed"
    " FROM tries t JOIN defenses d ON d.id = t.defense JOIN layers l ON l.id = t.layer"
    " LEFT JOIN confirmations c ON c.defense = t.defense AND c.layer = t.layer"
    " AND c.number = t.number AND c.sample = t.sample"
)
_BY_PLACE: Final = itemgetter(0, 1)

Row = tuple[Any, ...]
TryLane = tuple[str, str, list[Row], list[Row]]
"""Name of the defense and of the layer, tries, and outcomes of re-sends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrySubject:
    """What a try is about.

    Attributes:
        account: Who pays.
        round: In which round.
        digest: Hash of the text, or of the question to a model.
        chain: Operators used, empty for the text as it is; None where there are none to name.
        tier: Proved tier, empty where a pass is no bypass; None where no text is sent.
        size: Characters of the text, or None where that is not kept.
        decoded: Whether the shipped decoders read the words in it; None where nobody looked.
        resend_of: Number of the try whose text is sent again, or None.
        details: What else is said of it, as JSON values.
    """

    account: str
    round: str
    digest: str
    chain: str | None = None
    tier: str | None = None
    size: int | None = None
    decoded: bool | None = None
    resend_of: int | None = None
    details: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TryRecord:
    """One try, as it is stored.

    Attributes:
        defense: Name of the defense that was attacked.
        layer: Arm and seed, or whom a question went to.
        sample: Position of the sample.
        number: Which try at the sample in this layer, from 0.
        subject: What the try is about.
        is_free: Whether nothing was called for it.
        outcome: Word of the outcome.
        score: In [0, 1], or None.
        score_kind: What the score means.
        error_kind: Why there is no answer, or None.
        answer_mode: A judge's word on how a response met the request, or None.
        latency_ns: Service time, or None when nothing was timed.
        evidence: What lies behind the answer, or None.
        is_confirmed: Whether the pass held when its text was sent again; None where it was not.
    """

    defense: str
    layer: str
    sample: int
    number: int
    subject: TrySubject
    is_free: bool
    outcome: str
    score: float | None
    score_kind: ScoreKind
    error_kind: ErrorKind | None
    answer_mode: AnswerMode | None
    latency_ns: int | None
    evidence: Evidence | None
    is_confirmed: bool | None = None


class TryBatch:
    """Tries at one defense in one layer that their writer has not yet committed."""

    __slots__ = ("confirmations", "defense", "layer", "rows")

    def __init__(self, defense: int, layer: int) -> None:
        self.defense, self.layer = defense, layer
        self.rows: list[Row] = []
        self.confirmations: list[Row] = []

    @property
    def waiting(self) -> int:
        """Number of rows taken and not committed."""
        return len(self.rows) + len(self.confirmations)

    def add(
        self,
        place: tuple[int, int],
        subject: TrySubject,
        answer: Decision | Response | Verdict,
        *,
        is_free: bool,
        latency_ns: int | None = None,
    ) -> None:
        """Take a try by its number and the position of its sample."""
        s = subject
        decoded = None if s.decoded is None else int(s.decoded)
        details = _compact(s.details) if s.details else None
        head = (s.account, s.round, s.chain, s.tier, s.digest, s.size, decoded, s.resend_of)
        *said, evidence = _coded(answer, latency_ns, FLAG_CACHED if is_free else 0)
        self.rows.append((*place, *head, int(is_free), *said, details, evidence))

    def confirm(
        self, place: tuple[int, int], *, sent: int, passed: int, is_confirmed: bool
    ) -> None:
        """Take what re-sends of a try came to."""
        self.confirmations.append((*place, sent, passed, int(is_confirmed)))

    def sort(self) -> None:
        """Bring what is taken into the order in which it is committed."""
        self.rows.sort(key=_BY_PLACE)
        self.confirmations.sort(key=_BY_PLACE)

    def store(self, connection: sqlite3.Connection, batch: int) -> None:
        """Write what is taken, in the transaction that is open."""
        key = f"{self.defense}, {self.layer}, ?"
        for table, columns, rows in (
            ("tries", COLUMNS, self.rows),
            ("confirmations", CONFIRMATION_COLUMNS, self.confirmations),
        ):
            chosen = ", ".join(f"column{at}" for at in range(1, columns.count(",") + 2))
            into = f"{table} (defense, layer, batch, {columns})"
            insert(connection, into, chosen=f"{key}, {chosen}", rows=rows, shared=(batch,))

    def clear(self) -> None:
        """Forget what was committed."""
        self.rows.clear()
        self.confirmations.clear()


def _coded(answer: Decision | Response | Verdict, latency_ns: int | None, flags: int) -> Row:
    """Encode an answer; one whose fields have the wrong types becomes an error."""
    try:
        return _coded_as_told(answer, latency_ns, flags)
    except ILL_TYPED as ill:
        name = type(answer).__name__.lower()
        message = f"the {name} cannot be stored, a field has the wrong type: {ill!r}"
        evidence = evidence_to_json(Evidence(message=message))
        error, kind = OUTCOME_CODE["error"], ERROR_KIND_CODE["contract"]
        return error, None, SCORE_KIND_CODE["none"], kind, None, latency_ns, flags, evidence


def _coded_as_told(
    answer: Decision | Response | Verdict, latency_ns: int | None, flags: int
) -> Row:
    score, mode, score_kind = None, None, SCORE_KIND_CODE["none"]
    error = None if answer.error_kind is None else ERROR_KIND_CODE[answer.error_kind]
    evidence = answer.evidence
    if isinstance(answer, Response):
        has_text = answer.text is not None and answer.error_kind is None
        outcome = OUTCOME_CODE["answered" if has_text else "error"]
        if not has_text and error is None:
            error = ERROR_KIND_CODE["contract"]
        if evidence is not None:
            flags |= FLAG_CACHED if evidence.from_cache else 0
            flags |= FLAG_TRUNCATED if evidence.truncated else 0
    else:
        score = None if answer.score is None else float(answer.score)
        if isinstance(answer, Decision):
            outcome, score_kind = OUTCOME_CODE[answer.outcome], SCORE_KIND_CODE[answer.score_kind]
            flags |= FLAG_AMORTISED if answer.amortised else 0
        else:
            outcome = OUTCOME_CODE[answer.label]
            mode = None if answer.answer_mode is None else ANSWER_MODE_CODE[answer.answer_mode]
            score_kind = SCORE_KIND_CODE["none" if score is None else "class_prob"]
    took = latency_ns if answer.latency_ns is None else whole_ns(answer.latency_ns)
    said = "{}" if evidence is None else evidence_to_json(evidence)
    return outcome, score, score_kind, error, mode, took, flags, None if said == "{}" else said


def read_tries(
    reader: RecordReader, *, defense: str | None = None, layer: str | None = None
) -> Iterator[TryRecord]:
    """Yield tries in the order defense, layer, number, sample."""
    clauses, values = ["1"], list[str]()
    for table, column, value in (("defenses", "defense", defense), ("layers", "layer", layer)):
        if value is not None:
            clauses.append(f"t.{column} = (SELECT id FROM {table} WHERE name = ?)")  # noqa: S608 - names of ours
            values.append(value)
    where = " AND ".join(clauses)
    query = f"{_SELECT} WHERE {where} ORDER BY t.defense, t.layer, t.number, t.sample"
    with connect.errors_of(reader.path):
        cursor = reader.connection.execute(query, values)
        while rows := cursor.fetchmany(_CHUNK):
            for row in rows:
                yield _record_of(row)


def _record_of(row: Row) -> TryRecord:
    defense, layer, number, sample, account, round_, chain, tier, digest, size, decoded = row[:11]
    resend_of, is_free, outcome, score, score_kind, error_kind, answer_mode, latency = row[11:19]
    details, evidence, is_confirmed = row[19:]
    return TryRecord(
        defense=defense,
        layer=layer,
        sample=sample,
        number=number,
        subject=TrySubject(
            account=account,
            round=round_,
            digest=digest,
            chain=chain,
            tier=tier,
            size=size,
            decoded=None if decoded is None else bool(decoded),
            resend_of=resend_of,
            details=json.loads(details) if details else {},
        ),
        is_free=bool(is_free),
        outcome=OUTCOME_NAMES[outcome],
        score=score,
        score_kind=SCORE_KINDS[score_kind],
        error_kind=None if error_kind is None else ERROR_KINDS[error_kind],
        answer_mode=None if answer_mode is None else ANSWER_MODES[answer_mode],
        latency_ns=latency,
        evidence=None if evidence is None else evidence_from_json(evidence),
        is_confirmed=None if is_confirmed is None else bool(is_confirmed),
    )


def _compact(value: Mapping[str, object]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
