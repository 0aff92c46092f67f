"""Tries of an adaptive attacker: what was sent in place of a sample, and what came of it."""

from __future__ import annotations

import json
from operator import attrgetter, itemgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from guardmark.store.codec import (
    ILL_TYPED,
    decode,
    encode,
    encode_mistake,
    evidence_text,
    stored_object,
)
from guardmark.store.connect import insert, values_of
from guardmark.store.schema import FLAG_CACHED

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Mapping

    from guardmark.core.outcome import AnswerMode, ErrorKind, Evidence, ScoreKind
    from guardmark.core.usage import Usage
    from guardmark.store.codec import Answer
    from guardmark.store.reader import RecordReader

_SUBJECT: Final = ("account", "round", "chain", "tier", "digest", "size", "decoded", "resend_of")
COLUMNS: Final = (
    f"number, sample, {', '.join(_SUBJECT)}, is_free,"
    " outcome, score, score_kind, error_kind, answer_mode, latency_ns, flags, details, evidence"
)
"""Columns of a try after those of its batch, in the order in which they are hashed."""
CONFIRMATION_COLUMNS: Final = "number, sample, sent, passed, is_confirmed"
"""Columns of an outcome of re-sends, in the order in which they are hashed."""
_SELECT: Final = (
    f"SELECT d.name, l.name, c.is_confirmed, {COLUMNS} FROM tries t"  # noqa: S608 - constants of ours
    " JOIN defenses d ON d.id = t.defense JOIN layers l ON l.id = t.layer"
    " LEFT JOIN confirmations c USING (defense, layer, number, sample)"
)
_DECODED: Final = _SUBJECT.index("decoded")
_BY_PLACE: Final = itemgetter(0, 1)
_of_subject: Final = attrgetter(*_SUBJECT)

Row = tuple[Any, ...]


class TrySubject(NamedTuple):
    """What a try is about.

    Attributes:
        account: Who pays for it.
        round: In which part of the search it was made.
        digest: Hash of the text, or of the question to a model.
        chain: Operators used, empty for the text as it is; None where there are none.
        tier: Proved tier, empty where a pass is no bypass; None without a text.
        size: Characters of the text, where that is kept.
        decoded: Whether the shipped decoders read it; None where nobody looked.
        resend_of: Number of the try whose text is sent again.
        details: What else is known, as JSON values.
    """

    account: str
    round: str
    digest: str
    chain: str | None = None
    tier: str | None = None
    size: int | None = None
    decoded: bool | None = None
    resend_of: int | None = None
    details: Mapping[str, object] = MappingProxyType({})


class TryRecord(NamedTuple):
    """One try, as it is stored; the fields from `outcome` to `evidence` are those of a `Record`.

    Attributes:
        defense: Whom it went to.
        layer: Arm and seed, or which model was asked.
        sample: Position of the sample.
        number: Which try at the sample in this layer, from 0.
        subject: What it is about.
        is_free: Whether nothing was called for it.
        outcome: The word of its outcome.
        score: The score, or None.
        score_kind: What the score means.
        error_kind: What failed, or None.
        answer_mode: How a model answered, or None.
        latency_ns: The time it took, or None.
        evidence: What stands behind it, or None.
        is_confirmed: Whether the pass held when it was sent again; None where it was not.
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

    @property
    def usage(self) -> Usage | None:
        """What its call used, as far as the service reported."""
        if self.evidence is None:
            return None
        return self.evidence.usage

    @property
    def requests(self) -> int:
        """How many requests were sent for it."""
        if self.evidence is None:
            return 1
        usage = self.evidence.usage
        if usage is not None and usage.requests:
            return usage.requests
        return max(1, len(self.evidence.attempts))


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
        key: tuple[int, int],
        subject: TrySubject,
        answer: Answer,
        *,
        is_free: bool,
        latency_ns: int | None = None,
    ) -> None:
        """Take a try by its number and the position of its sample."""
        flags = FLAG_CACHED if is_free else 0
        try:
            row = encode(answer, latency_ns, flags)
            evidence = evidence_text(answer.evidence)
        except ILL_TYPED as mistake:
            row, evidence = encode_mistake(answer, mistake, latency_ns, flags)
        head = list(_of_subject(subject))
        if subject.decoded is not None:
            head[_DECODED] = int(subject.decoded)
        details = None
        if subject.details:
            details = json.dumps(subject.details, ensure_ascii=False, separators=(",", ":"))
        self.rows.append((*key, *head, int(is_free), *row, details, evidence))

    def confirm(self, key: tuple[int, int], *, sent: int, passed: int, is_confirmed: bool) -> None:
        """Take what re-sends of a try came to."""
        self.confirmations.append((*key, sent, passed, int(is_confirmed)))

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


def read_tries(
    reader: RecordReader, *, defense: str | None = None, layer: str | None = None
) -> Iterator[TryRecord]:
    """Yield tries in the order defense, layer, number, sample."""
    query = f"{_SELECT} WHERE 1"
    names: list[str] = []
    if defense is not None:
        query += " AND t.defense = (SELECT id FROM defenses WHERE name = ?)"
        names.append(defense)
    if layer is not None:
        query += " AND t.layer = (SELECT id FROM layers WHERE name = ?)"
        names.append(layer)
    query += " ORDER BY t.defense, t.layer, t.number, t.sample"
    with values_of(reader.path):
        for rows in reader.connection.chunks(query, names):
            yield from map(_record_of, rows)


def _record_of(row: Row) -> TryRecord:
    defense, layer, is_confirmed, number, sample, *about, decoded, resend_of, is_free = row[:14]
    account, round_, chain, tier, digest, size = about
    *observed, _, details, evidence = row[14:]
    if decoded is not None:
        decoded = bool(decoded)
    if is_confirmed is not None:
        is_confirmed = bool(is_confirmed)
    more = stored_object(details, "details", layer)
    return TryRecord(
        defense=defense,
        layer=layer,
        sample=sample,
        number=number,
        subject=TrySubject(account, round_, digest, chain, tier, size, decoded, resend_of, more),
        is_free=bool(is_free),
        is_confirmed=is_confirmed,
        **decode((*observed, evidence)),
    )
