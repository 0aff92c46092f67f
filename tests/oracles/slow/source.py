"""Samples and answers read straight from the tables, for slow references.

Nothing here shares code with the readers that reports use: plain SQL, plain Python values. Rows
come one at a time, so that a run of a million samples needs no more memory than its columns.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.errors import StoreError
from guardmark.store.connect import close_reading

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Json = dict[str, Any]

OUTCOMES: Final = ("allow", "block", "malformed", "error", "safe", "unsafe", "answered")
STAGES: Final = ("defense", "model", "judge", "try", "warmup")
ERRORS: Final = (
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

_FACETS: Final = (
    "category",
    "subcategory",
    "severity",
    "language",
    "variant",
    "technique",
    "source",
)
_SAMPLES: Final = (
    "SELECT s.position, s.id, coalesce(s.origin, s.id), s.length, lower(hex(s.digest)), s.kind,"
    " s.rest FROM samples s JOIN kinds k ON k.id = s.kind ORDER BY s.position"
)
_ANSWERS: Final = (
    "SELECT s.position, s.id, coalesce(s.origin, s.id), s.length, lower(hex(s.digest)), s.kind,"
    " s.rest, d.name, r.stage, l.name, r.repeat, r.outcome, r.score, r.score_kind, r.error_kind,"
    " r.answer_mode, r.latency_ns, r.flags, x.text, ifnull(x.evidence, y.evidence) FROM records r"
    " JOIN samples s ON s.position = r.sample JOIN kinds k ON k.id = s.kind"
    " JOIN defenses d ON d.id = r.defense JOIN layers l ON l.id = r.layer"
    " LEFT JOIN details x ON x.defense = r.defense AND x.stage = r.stage AND x.layer = r.layer"
    " AND x.repeat = r.repeat AND x.sample = r.sample LEFT JOIN sayings y ON y.id = r.said"
)
_TRIES: Final = (
    "SELECT s.position, s.id, coalesce(s.origin, s.id), s.length, lower(hex(s.digest)), s.kind,"
    " s.rest, d.name, 3, l.name, t.number, t.outcome, t.score, t.score_kind, t.error_kind,"
    " t.answer_mode, t.latency_ns, t.flags, rtrim(json_patch('{}', json_object('account',"
    " t.account, 'round', t.round, 'chain', t.chain, 'tier', t.tier, 'text', t.digest, 'size',"
    " t.size, 'decoded', json(iif(t.decoded, 'true', iif(t.decoded = 0, 'false', 'null'))),"
    " 'free', json(iif(t.is_free, 'true', 'false')))), '}') || ifnull(',' || substr(t.details, 2),"
    " '}'), t.evidence FROM tries t JOIN samples s ON s.position = t.sample"
    " JOIN defenses d ON d.id = t.defense JOIN layers l ON l.id = t.layer"
    " ORDER BY t.defense, t.layer, t.number, t.sample"
)
_BY_KEY: Final = " ORDER BY r.defense, r.stage, r.layer, r.repeat, r.sample"
_GROUPS: Final = (
    "SELECT coalesce(s.origin, s.id) FROM samples s JOIN kinds k ON k.id = s.kind"
    " ORDER BY s.position"
)
_DECIDED: Final = (
    "SELECT repeat, sample, outcome, flags FROM records JOIN samples ON position = sample"
    " WHERE defense = (SELECT id FROM defenses WHERE name = ?) AND stage = 0"
    " AND layer = (SELECT id FROM layers WHERE name = 'run') ORDER BY repeat, sample"
)
_REWRITTEN: Final = 64  # flag of a decision that lets another text go on
_GUARDS: Final = (
    "SELECT d.name, EXISTS (SELECT 1 FROM records r WHERE r.defense = d.id AND r.stage = 0)"
    " FROM defenses d ORDER BY d.id"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One sample, as far as figures depend on it."""

    position: int
    id: str
    group: str
    length: int
    sha256: str
    is_attack: bool
    facets: dict[str, str]
    label_source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One record."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What samples have in common."""

    is_attack: bool
    facets: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """All that a run stored: little of it in memory, the rest read as often as it is asked for."""

    connection: sqlite3.Connection
    manifest: Json
    state: str
    planned: int
    retried: int
    kinds: dict[int, Kind]
    layers: dict[str, Json]
    kept: dict[str, list[Answer]] = field(default_factory=dict)
    met: dict[int, Subject] = field(default_factory=dict)
    named: list[str] = field(default_factory=list)

    def subjects(self) -> Iterator[Subject]:
        """Read the samples, in order."""
        for row in self.connection.execute(_SAMPLES):
            yield self.met.get(row[0]) or self._subject(row)

    def groups(self) -> list[str]:
        """Return the group of every sample, in order, and hold on to them."""
        if not self.named:
            self.named.extend(name for (name,) in self.connection.execute(_GROUPS))
        return self.named

    def texts(self) -> Iterator[tuple[str, str]]:
        """Read id and text under test of every sample, in order."""
        yield from self.connection.execute("SELECT id, text FROM samples ORDER BY position")

    def lines(self) -> Iterator[Answer]:
        """Read every record but tries, by defense, stage, layer, repeat and sample."""
        for row in self.connection.execute(_ANSWERS + _BY_KEY):
            yield self._answer(row, self._subject(row))

    def answers(self, stage: str) -> list[Answer]:
        """Return the records of a stage in the order of `lines`, and hold on to them.

        A defense in process is asked a million times; models, judges and attackers are not, and
        what they said is read again and again.
        """
        if stage not in self.kept:
            query = _ANSWERS + f" WHERE r.stage = {STAGES.index(stage)}" + _BY_KEY
            self.kept[stage] = [
                self._answer(row, self.met.setdefault(row[0], self._subject(row)))
                for row in self.connection.execute(_TRIES if stage == "try" else query)
            ]
        return self.kept[stage]

    def guards(self) -> list[str]:
        """Return the names of the defenses, in the order of the run.

        One that was not asked yet counts, too: its figures are undefined, not absent.
        """
        known = {part["name"] for part in self.manifest["parts"] if part["kind"] == "defense"}
        rows = self.connection.execute(_GUARDS)
        behind = {f"{name}@output" for name in known} - known  # what guards say of answers
        names = [name for name, has_decided in rows if has_decided or name in known]
        return [
            name
            for name in names
            if name not in behind and (name in known or " after " not in name)
        ]

    def decided(self, defense: str) -> dict[tuple[int, int], str]:
        """Return what one defense decided in the run itself, by repeat and position."""
        return {
            (repeat, position): "rewritten" if flags & _REWRITTEN else word(OUTCOMES, outcome)
            for repeat, position, outcome, flags in self.connection.execute(_DECIDED, (defense,))
        }

    def stored(self) -> int:
        """Return how many records the run itself has, later judgings apart."""
        layers = self.connection.execute("SELECT id, name FROM layers").fetchall()
        own = {number for number, name in layers if name.partition("/")[0] == "run"}
        stages = {STAGES.index(stage) for stage in ("defense", "model", "judge")}
        query = "SELECT stage, layer, count(*) FROM records GROUP BY stage, layer"
        counted = self.connection.execute(query)
        return sum(count for stage, layer, count in counted if stage in stages and layer in own)

    def _subject(self, row: tuple[Any, ...]) -> Subject:
        kind = self.kinds[row[5]]
        return Subject(
            position=row[0],
            id=row[1],
            group=row[2],
            length=row[3],
            sha256=row[4],
            is_attack=kind.is_attack,
            facets=kind.facets,
            label_source=_label_source(row[6]),
        )

    def _answer(self, row: tuple[Any, ...], subject: Subject) -> Answer:
        return Answer(
            subject=subject,
            defense=row[7],
            stage=word(STAGES, row[8]),
            layer=row[9],
            repeat=row[10],
            outcome=word(OUTCOMES, row[11]),
            score=row[12],
            score_kind=word(_SCORES, row[13]),
            error_kind=None if row[14] is None else word(ERRORS, row[14]),
            answer_mode=None if row[15] is None else word(_MODES, row[15]),
            latency_ns=row[16],
            flags=row[17],
            text=row[18],
            evidence=None if row[19] is None else json.loads(row[19]),
        )


def word(words: tuple[str, ...], code: int) -> str:
    """Return what a small number in the tables means."""
    if not 0 <= code < len(words):
        raise StoreError(
            f"A record says {code} where 0 to {len(words) - 1} have a meaning.\n"
            "Next: restore records.sqlite from a copy."
        )
    return words[code]


@contextmanager
def open_source(path: Path) -> Iterator[Source]:
    """Open everything a run stored, as it is at this moment."""
    try:
        connection = sqlite3.connect(
            f"{path.resolve().as_uri()}?mode=ro", uri=True, isolation_level=None
        )
        try:
            # What a run that is under way adds meanwhile is not seen by half of the checks.
            connection.execute("BEGIN")
            yield _read_head(connection)
        finally:
            close_reading(connection, path)
    except sqlite3.DatabaseError as error:
        raise StoreError(
            f"{path} cannot be read ({error}).\nNext: restore it from a copy."
        ) from error


def _read_head(connection: sqlite3.Connection) -> Source:
    said = dict(connection.execute("SELECT key, value FROM meta").fetchall())
    return Source(
        connection=connection,
        manifest=json.loads(said.get("manifest", "{}")),
        state=said.get("state", "new"),
        planned=int(said.get("planned", 0)),
        retried=_retried(connection),
        kinds={
            number: Kind(is_attack=bool(label), facets=dict(zip(_FACETS, facets, strict=True)))
            for number, label, *facets in connection.execute(
                "SELECT id, is_attack, category, subcategory, severity, language, variant,"
                " technique, source FROM kinds"
            )
        },
        layers={
            name: json.loads(settings)
            for name, settings in connection.execute("SELECT name, settings FROM layers")
        },
    )


def _label_source(told: str | None) -> str:
    rest = json.loads(told) if told else None
    return str(rest.get("metadata", {}).get("label_source", "")) if isinstance(rest, dict) else ""


def _retried(connection: sqlite3.Connection) -> int:
    if not has_superseded(connection):
        return 0
    kinds = connection.execute("SELECT error_kind FROM superseded").fetchall()
    return sum(kind is None or word(ERRORS, kind) != "skipped" for (kind,) in kinds)


def has_superseded(connection: sqlite3.Connection) -> bool:
    """Tell whether errors were ever asked about again."""
    query = "SELECT 1 FROM sqlite_schema WHERE name = 'superseded'"
    return connection.execute(query).fetchone() is not None
