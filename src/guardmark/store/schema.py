"""The tables of `records.sqlite`, their version, and the integers that stand for words in them.

`records` holds what was observed, lean, by defense, stage, layer, repeat and sample; `details` has
text and evidence where there is more to say, `sayings` the evidence that many records share
(`records.said`). `batches` has a row a commit, the links of a hash chain. `tries` holds what an
adaptive attacker sent and the answer, `confirmations` what came of a pass that was sent again.
`superseded` has the errors that were asked about again; it is made when it is first needed.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import cache
from re import sub
from typing import TYPE_CHECKING, Final

from guardmark.core.outcome import AnswerMode, ErrorKind, ScoreKind
from guardmark.core.record import Stage

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

SCHEMA_VERSION: Final = 3
APPLICATION_ID: Final = 0x474D524B
"""`GMRK`: lies in the header of the file, so that a foreign database is recognised."""

# The tuples are part of the file format: a word keeps its place for ever, new words are appended
# together with a new schema version.

OUTCOME_NAMES: Final = ("allow", "block", "malformed", "error", "safe", "unsafe", "answered")
"""Word of each outcome code; `malformed` and `error` serve decisions and verdicts alike."""

STAGES: Final = (Stage.DEFENSE, Stage.MODEL, Stage.JUDGE, Stage.TRY, Stage.WARMUP)
SCORE_KINDS: Final = (
    *(ScoreKind.NONE, ScoreKind.CLASS_PROB, ScoreKind.TWO_TOKEN_SOFTMAX, ScoreKind.FULL_VOCAB_PROB),
    *(ScoreKind.CATEGORY_MAX, ScoreKind.ORDINAL, ScoreKind.SEVERITY, ScoreKind.SELF_REPORTED),
)
ERROR_KINDS: Final = (
    *(ErrorKind.TIMEOUT, ErrorKind.CONNECTION, ErrorKind.REFUSED, ErrorKind.HTTP),
    *(ErrorKind.CRASH, ErrorKind.SKIPPED, ErrorKind.LENGTH, ErrorKind.CONTRACT),
)
ANSWER_MODES: Final = (
    *(AnswerMode.ANSWERED, AnswerMode.REFUSED_OR_BLOCKED),
    *(AnswerMode.INDIRECT, AnswerMode.NON_ANSWER),
)

OUTCOME_CODE: Final[dict[str, int]] = {name: code for code, name in enumerate(OUTCOME_NAMES)}
STAGE_CODE: Final[dict[str, int]] = {word: code for code, word in enumerate(STAGES)}
SCORE_KIND_CODE: Final[dict[str, int]] = {word: code for code, word in enumerate(SCORE_KINDS)}
ERROR_KIND_CODE: Final[dict[str, int]] = {word: code for code, word in enumerate(ERROR_KINDS)}
ANSWER_MODE_CODE: Final[dict[str, int]] = {word: code for code, word in enumerate(ANSWER_MODES)}

FLAG_AMORTISED: Final = 1  # the latency is a share of a batch's time
FLAG_COLD: Final = 2  # first call of this part in a process
FLAG_CACHED: Final = 4  # the answer came from the cache
FLAG_TRUNCATED: Final = 8  # the input was cut to fit the part
FLAG_PLANNED: Final = 16  # the latency counts from the planned send time (open loop)

WORDS: Final[dict[str, tuple[str, ...]]] = {
    "outcome": OUTCOME_NAMES,
    "stage": tuple(word.value for word in STAGES),
    "score_kind": tuple(word.value for word in SCORE_KINDS),
    "error_kind": tuple(word.value for word in ERROR_KINDS),
    "answer_mode": tuple(word.value for word in ANSWER_MODES),
}
"""Every list above, as it is written into the file so that the file explains itself."""

FACET_COLUMNS: Final = (
    *("category", "subcategory", "severity", "language", "variant", "technique", "source"),
)

_OBSERVED: Final = """
    outcome INTEGER NOT NULL, score REAL, score_kind INTEGER NOT NULL, error_kind INTEGER,
    answer_mode INTEGER, latency_ns INTEGER, flags INTEGER NOT NULL"""
_KEY: Final = """
    defense INTEGER NOT NULL, stage INTEGER NOT NULL, layer INTEGER NOT NULL,
    repeat INTEGER NOT NULL, sample INTEGER NOT NULL"""
_KEY_OF_TRY: Final = """
    defense INTEGER NOT NULL, layer INTEGER NOT NULL, number INTEGER NOT NULL,
    sample INTEGER NOT NULL"""

TRIES: Final = f"""
CREATE TABLE tries ({_KEY_OF_TRY},
    batch INTEGER NOT NULL, account TEXT NOT NULL, round TEXT NOT NULL, chain TEXT, tier TEXT,
    digest TEXT NOT NULL, size INTEGER, decoded INTEGER, resend_of INTEGER,
    is_free INTEGER NOT NULL, {_OBSERVED},
    details TEXT, evidence TEXT, note TEXT, PRIMARY KEY (defense, layer, number, sample)
) WITHOUT ROWID;
CREATE TABLE confirmations ({_KEY_OF_TRY},
    batch INTEGER NOT NULL, sent INTEGER NOT NULL, passed INTEGER NOT NULL,
    is_confirmed INTEGER NOT NULL, PRIMARY KEY (defense, layer, number, sample)
) WITHOUT ROWID;
"""
"""`resend_of` is the number of the try whose text was sent again; `note` holds the words that a try
of an older version was hashed with."""

SAYINGS: Final = (
    "CREATE TABLE sayings (id INTEGER PRIMARY KEY, evidence TEXT NOT NULL, batch INTEGER NOT NULL)"
)
TABLES: Final = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE words (
    kind TEXT NOT NULL, id INTEGER NOT NULL, name TEXT NOT NULL, PRIMARY KEY (kind, id)
) WITHOUT ROWID;
CREATE TABLE defenses (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE layers (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, settings TEXT NOT NULL DEFAULT '{{}}'
);
CREATE TABLE kinds (
    id INTEGER PRIMARY KEY, is_attack INTEGER NOT NULL,
    {", ".join(f"{name} TEXT NOT NULL" for name in FACET_COLUMNS)}
);
CREATE TABLE samples (
    position INTEGER PRIMARY KEY, id TEXT NOT NULL, kind INTEGER NOT NULL, origin TEXT,
    length INTEGER NOT NULL, digest BLOB NOT NULL, text TEXT NOT NULL, prompt TEXT, rest TEXT
);
CREATE TABLE batches (id INTEGER PRIMARY KEY, rows INTEGER NOT NULL, hash BLOB NOT NULL);
CREATE TABLE records ({_KEY}, {_OBSERVED},
    batch INTEGER NOT NULL, said INTEGER, PRIMARY KEY (defense, stage, layer, repeat, sample)
) WITHOUT ROWID;
CREATE TABLE details ({_KEY},
    batch INTEGER NOT NULL, text TEXT, evidence TEXT,
    UNIQUE (defense, stage, layer, repeat, sample)
);
{SAYINGS};
"""
RESULTS: Final = """CREATE VIEW results AS
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
LEFT JOIN words a ON a.kind = 'answer_mode' AND a.id = r.answer_mode"""

SAMPLE_IDS: Final = "CREATE UNIQUE INDEX samples_by_id ON samples (id)"
"""Made when all samples are stored: an index that grows with them costs more."""

SUPERSEDED: Final = f"""
CREATE TABLE IF NOT EXISTS superseded (id INTEGER PRIMARY KEY, {_KEY},
    batch INTEGER NOT NULL, {_OBSERVED}, text TEXT, evidence TEXT
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


OF_RUN: Final = "layer IN (SELECT id FROM layers WHERE name = 'run' OR name LIKE 'run/%')"
"""Condition of what a run itself plans, without later judgings."""
COUNT_STORED: Final = (
    f"SELECT count(*) FROM records WHERE stage <> {STAGE_CODE[Stage.WARMUP]} AND {OF_RUN}"  # noqa: S608 - constants of ours
)
"""How many of the planned records there are."""


@cache
def known_definitions() -> frozenset[str]:
    """Return how every table, view and index that guardmark ever wrote is defined, as `folded`."""
    superseded = SUPERSEDED.replace("IF NOT EXISTS ", "")
    written = {folded(each) for each in (*statements(TABLES + TRIES), RESULTS, SAMPLE_IDS)}
    (records,) = (each for each in written if each.startswith("CREATE TABLE records("))
    first = records.replace("said INTEGER,", "")
    moved = first.replace(")WITHOUT ROWID", ",said INTEGER)WITHOUT ROWID")  # by a migration
    return frozenset({*written, folded(superseded), first, moved})


def folded(sql: str) -> str:
    """Return SQL without the blanks that mean nothing."""
    return sub(r"\s*([(),])\s*", r"\1", " ".join(sql.split())).strip()


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit what a block writes, all of it or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def statements(script: str) -> Iterator[str]:
    """Yield the statements of a script, which SQLite would run outside of a transaction."""
    return filter(str.strip, script.split(";"))


def create(connection: sqlite3.Connection) -> None:
    """Write the tables of the present version into an empty database."""
    rows = [(kind, code, name) for kind, names in WORDS.items() for code, name in enumerate(names)]
    # One transaction: a kill in the middle leaves an empty file, not half a schema.
    with transaction(connection):
        for statement in (*statements(TABLES + TRIES), RESULTS):
            connection.execute(statement)
        connection.execute("INSERT INTO layers (id, name) VALUES (0, 'run')")
        connection.executemany("INSERT INTO words VALUES (?, ?, ?)", rows)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


META_KEYS: Final = frozenset({"head", "manifest", "planned", "possibly_billed", "samples", "state"})
"""All that `meta` holds."""
