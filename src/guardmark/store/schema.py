"""The tables of `records.sqlite`, their version, and the integers that stand for words in them.

::

    meta      key, value                       manifest, state, planned, seals
    words     kind, id, name                   what the small integers mean
    kinds     id, label, category, ...         what samples have in common
    samples   position, id, kind, text, ...    every sample in full
    defenses  id, name        layers  id, name, settings
    batches   id, rows, hash                   one row a commit; a hash chain
    records   (defense, stage, layer, repeat, sample) -> what was observed, lean
    tries     (defense, layer, number, sample) -> what an adaptive attacker sent, and the answer
    confirmations  the same key -> what came of a pass when its text was sent again
    sayings   id, evidence, batch              evidence that many records share (records.said)
    details   the same key -> text, evidence   only where there is more to say
    superseded  errors that were asked about again (--retry-errors); made when first needed
    results   a view with words in place of integers
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.core.outcome import AnswerMode, ErrorKind, ScoreKind
from guardmark.core.record import Stage

if TYPE_CHECKING:
    import sqlite3

SCHEMA_VERSION: Final = 3
APPLICATION_ID: Final = 0x474D524B
"""`GMRK`: lies in the header of the file, so that a foreign database is recognised."""

# The tuples are part of the file format: a word keeps its place for ever, new words are appended
# together with a new schema version.

OUTCOME_NAMES: Final = ("allow", "block", "malformed", "error", "safe", "unsafe", "answered")
"""Word of each outcome code; `malformed` and `error` serve decisions and verdicts alike."""

STAGES: Final = (Stage.DEFENSE, Stage.MODEL, Stage.JUDGE, Stage.TRY, Stage.WARMUP)
SCORE_KINDS: Final = (
    ScoreKind.NONE,
    ScoreKind.CLASS_PROB,
    ScoreKind.TWO_TOKEN_SOFTMAX,
    ScoreKind.FULL_VOCAB_PROB,
    ScoreKind.CATEGORY_MAX,
    ScoreKind.ORDINAL,
    ScoreKind.SEVERITY,
    ScoreKind.SELF_REPORTED,
)
ERROR_KINDS: Final = (
    ErrorKind.TIMEOUT,
    ErrorKind.CONNECTION,
    ErrorKind.REFUSED,
    ErrorKind.HTTP,
    ErrorKind.CRASH,
    ErrorKind.SKIPPED,
    ErrorKind.LENGTH,
    ErrorKind.CONTRACT,
)
ANSWER_MODES: Final = (
    AnswerMode.ANSWERED,
    AnswerMode.REFUSED_OR_BLOCKED,
    AnswerMode.INDIRECT,
    AnswerMode.NON_ANSWER,
)

OUTCOME_CODE: Final[dict[str, int]] = {name: code for code, name in enumerate(OUTCOME_NAMES)}
STAGE_CODE: Final[dict[str, int]] = {word: code for code, word in enumerate(STAGES)}
SCORE_KIND_CODE: Final[dict[str, int]] = {word: code for code, word in enumerate(SCORE_KINDS)}
ERROR_KIND_CODE: Final[dict[str, int]] = {word: code for code, word in enumerate(ERROR_KINDS)}
ANSWER_MODE_CODE: Final[dict[str, int]] = {word: code for code, word in enumerate(ANSWER_MODES)}

FLAG_AMORTISED: Final = 1
"""The latency is a share of a batch's time."""
FLAG_COLD: Final = 2
"""First call of this part in a process."""
FLAG_CACHED: Final = 4
"""The answer came from the cache."""
FLAG_TRUNCATED: Final = 8
"""The input was cut to fit the part."""
FLAG_PLANNED: Final = 16
"""The latency counts from the planned send time (open loop)."""

WORDS: Final[dict[str, tuple[str, ...]]] = {
    "outcome": OUTCOME_NAMES,
    "stage": tuple(word.value for word in STAGES),
    "score_kind": tuple(word.value for word in SCORE_KINDS),
    "error_kind": tuple(word.value for word in ERROR_KINDS),
    "answer_mode": tuple(word.value for word in ANSWER_MODES),
}
"""Every list above, as it is written into the file so that the file explains itself."""

FACET_COLUMNS: Final = (
    "category",
    "subcategory",
    "severity",
    "language",
    "variant",
    "technique",
    "source",
)

TRIES: Final = """
CREATE TABLE tries (
    defense INTEGER NOT NULL,
    layer INTEGER NOT NULL,
    number INTEGER NOT NULL,
    sample INTEGER NOT NULL,
    batch INTEGER NOT NULL,
    account TEXT NOT NULL,
    round TEXT NOT NULL,
    chain TEXT,
    tier TEXT,
    digest TEXT NOT NULL,
    size INTEGER,
    decoded INTEGER,
    resend_of INTEGER,
    is_free INTEGER NOT NULL,
    outcome INTEGER NOT NULL,
    score REAL,
    score_kind INTEGER NOT NULL,
    error_kind INTEGER,
    answer_mode INTEGER,
    latency_ns INTEGER,
    flags INTEGER NOT NULL,
    details TEXT,
    evidence TEXT,
    note TEXT,
    PRIMARY KEY (defense, layer, number, sample)
) WITHOUT ROWID;
CREATE TABLE confirmations (
    defense INTEGER NOT NULL,
    layer INTEGER NOT NULL,
    number INTEGER NOT NULL,
    sample INTEGER NOT NULL,
    batch INTEGER NOT NULL,
    sent INTEGER NOT NULL,
    passed INTEGER NOT NULL,
    is_confirmed INTEGER NOT NULL,
    PRIMARY KEY (defense, layer, number, sample)
) WITHOUT ROWID;
"""
"""`resend_of` is the number of the try whose text was sent again; `note` holds the words that a try
of an older version was hashed with."""

TABLES: Final = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE words (
    kind TEXT NOT NULL, id INTEGER NOT NULL, name TEXT NOT NULL, PRIMARY KEY (kind, id)
) WITHOUT ROWID;
CREATE TABLE defenses (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE layers (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, settings TEXT NOT NULL DEFAULT '{}'
);
CREATE TABLE kinds (
    id INTEGER PRIMARY KEY,
    is_attack INTEGER NOT NULL,
    category TEXT NOT NULL,
    subcategory TEXT NOT NULL,
    severity TEXT NOT NULL,
    language TEXT NOT NULL,
    variant TEXT NOT NULL,
    technique TEXT NOT NULL,
    source TEXT NOT NULL
);
CREATE TABLE samples (
    position INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    kind INTEGER NOT NULL,
    origin TEXT,
    length INTEGER NOT NULL,
    digest BLOB NOT NULL,
    text TEXT NOT NULL,
    prompt TEXT,
    rest TEXT
);
CREATE TABLE batches (id INTEGER PRIMARY KEY, rows INTEGER NOT NULL, hash BLOB NOT NULL);
CREATE TABLE records (
    defense INTEGER NOT NULL,
    stage INTEGER NOT NULL,
    layer INTEGER NOT NULL,
    repeat INTEGER NOT NULL,
    sample INTEGER NOT NULL,
    outcome INTEGER NOT NULL,
    score REAL,
    score_kind INTEGER NOT NULL,
    error_kind INTEGER,
    answer_mode INTEGER,
    latency_ns INTEGER,
    flags INTEGER NOT NULL,
    batch INTEGER NOT NULL,
    said INTEGER,
    PRIMARY KEY (defense, stage, layer, repeat, sample)
) WITHOUT ROWID;
CREATE TABLE details (
    defense INTEGER NOT NULL,
    stage INTEGER NOT NULL,
    layer INTEGER NOT NULL,
    repeat INTEGER NOT NULL,
    sample INTEGER NOT NULL,
    batch INTEGER NOT NULL,
    text TEXT,
    evidence TEXT,
    UNIQUE (defense, stage, layer, repeat, sample)
);
CREATE TABLE sayings (id INTEGER PRIMARY KEY, evidence TEXT NOT NULL, batch INTEGER NOT NULL);
CREATE VIEW results AS
SELECT d.name AS defense, st.name AS stage, l.name AS layer, r.repeat, r.sample AS position,
       s.id, CASE k.is_attack WHEN 1 THEN 'attack' ELSE 'benign' END AS label,
       k.category, o.name AS outcome, r.score, sk.name AS score_kind,
       e.name AS error_kind, a.name AS answer_mode, r.latency_ns / 1e6 AS latency_ms, r.flags
FROM records r
JOIN defenses d ON d.id = r.defense
JOIN layers l ON l.id = r.layer
JOIN samples s ON s.position = r.sample
JOIN kinds k ON k.id = s.kind
JOIN words o ON o.kind = 'outcome' AND o.id = r.outcome
JOIN words st ON st.kind = 'stage' AND st.id = r.stage
JOIN words sk ON sk.kind = 'score_kind' AND sk.id = r.score_kind
LEFT JOIN words e ON e.kind = 'error_kind' AND e.id = r.error_kind
LEFT JOIN words a ON a.kind = 'answer_mode' AND a.id = r.answer_mode;
INSERT INTO layers (id, name) VALUES (0, 'run');
"""

SUPERSEDED: Final = """
CREATE TABLE IF NOT EXISTS superseded (
    id INTEGER PRIMARY KEY,
    defense INTEGER NOT NULL,
    stage INTEGER NOT NULL,
    layer INTEGER NOT NULL,
    repeat INTEGER NOT NULL,
    sample INTEGER NOT NULL,
    batch INTEGER NOT NULL,
    outcome INTEGER NOT NULL,
    score REAL,
    score_kind INTEGER NOT NULL,
    error_kind INTEGER,
    answer_mode INTEGER,
    latency_ns INTEGER,
    flags INTEGER NOT NULL,
    text TEXT,
    evidence TEXT
)
"""
"""Records as they were before a second attempt took their place, details included. An addition
that changes nothing for who does not know it: the records mean the same without it."""

DETAILS_OF_RECORDS: Final = (
    " LEFT JOIN details x ON x.defense = r.defense AND x.stage = r.stage AND x.layer = r.layer"
    " AND x.repeat = r.repeat AND x.sample = r.sample"
)
"""Joins `details` as x to `records` as r."""
EVIDENCE_OF_RECORDS: Final = (
    "ifnull(x.evidence, (SELECT y.evidence FROM sayings y WHERE y.id = r.said))"
)
"""The evidence of a record, wherever it is kept; needs `DETAILS_OF_RECORDS`."""


def create(connection: sqlite3.Connection) -> None:
    """Write the tables of the present version into an empty database."""
    # One transaction: a kill in the middle leaves an empty file, not half a schema.
    connection.executescript(
        f"BEGIN IMMEDIATE; {TABLES} {TRIES} PRAGMA application_id = {APPLICATION_ID};"
        f" PRAGMA user_version = {SCHEMA_VERSION};"
    )
    connection.executemany(
        "INSERT INTO words VALUES (?, ?, ?)",
        [(kind, code, name) for kind, names in WORDS.items() for code, name in enumerate(names)],
    )
    connection.execute("COMMIT")
