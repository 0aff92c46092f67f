"""The tables of `records.sqlite` (`schema.sql`), and the integers that stand for words in them."""

from __future__ import annotations

import re
import tomllib
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.limits import (
    LONGEST_EVIDENCE,
    LONGEST_MANIFEST,
    LONGEST_NAME,
    LONGEST_SAMPLE_NAME,
    MIB,
    MOST_ATTEMPTS,
    MOST_CATEGORIES,
    MOST_DECLARED_CATEGORIES,
    MOST_DEFENSES,
    MOST_LAYERS,
    MOST_PARTS,
    MOST_PREVALENCES,
)
from guardmark.core.outcome import AnswerMode, ErrorKind, ScoreKind
from guardmark.core.record import Stage

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

SCHEMA_VERSION: Final = 1
APPLICATION_ID: Final = 0x474D5231
"""`GMR1`: lies in the header of the file, so that a foreign database is recognised."""
UNRELEASED_APPLICATION_ID: Final = 0x474D524B
"""`GMRK`: what stood there before the first release, with versions up to 4."""

# The tuples are part of the file format: a word keeps its place for ever, new words are appended
# together with a new schema version.

OUTCOME_NAMES: Final = ("allow", "block", "malformed", "error", "safe", "unsafe", "answered")
"""Word of each outcome code; `malformed` and `error` serve decisions and verdicts alike."""

STAGES: Final = (Stage.DEFENSE, Stage.MODEL, Stage.JUDGE, Stage.TRY, Stage.WARMUP, Stage.CASE)
SCORE_KINDS: Final = (
    ScoreKind.NONE,
    ScoreKind.CLASS_PROB,
    ScoreKind.TWO_TOKEN_SOFTMAX,
    ScoreKind.FULL_VOCAB_PROB,
    ScoreKind.CATEGORY_MAX,
    ScoreKind.ORDINAL,
    ScoreKind.SEVERITY,
    ScoreKind.SELF_REPORTED,
    ScoreKind.CONFIDENCE,
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

FLAG_AMORTISED: Final = 1  # the latency is a share of a batch's time
FLAG_COLD: Final = 2  # first call of this part in a process
FLAG_CACHED: Final = 4  # the answer came from the cache
FLAG_TRUNCATED: Final = 8  # the input was cut to fit the part
FLAG_PLANNED: Final = 16  # the latency counts from the planned send time (open loop)
FLAG_SHARED: Final = 32  # the answer of the first repeat, which stands for this one too
FLAG_REWRITTEN: Final = 64  # another text goes on; it stands in the details of the record

WORDS: Final[dict[str, tuple[str, ...]]] = {
    "outcome": OUTCOME_NAMES,
    "stage": tuple(word.value for word in STAGES),
    "score_kind": tuple(word.value for word in SCORE_KINDS),
    "error_kind": tuple(word.value for word in ERROR_KINDS),
    "answer_mode": tuple(word.value for word in ANSWER_MODES),
}
"""Every list above, as it is written into the file so that the file explains itself."""
ADDED_WORDS: Final = frozenset(
    {
        ("stage", STAGE_CODE[Stage.CASE], Stage.CASE.value),
        ("score_kind", SCORE_KIND_CODE[ScoreKind.CONFIDENCE], ScoreKind.CONFIDENCE.value),
    }
)
"""Words that files of this version may lack: they were written before the word was added."""

FACET_COLUMNS: Final = (
    "category",
    "subcategory",
    "severity",
    "language",
    "variant",
    "technique",
    "source",
)
"""Columns of what samples have in common, in the order in which a kind of sample holds them."""

_NAME: Final = re.compile(r"(?:TABLE|VIEW|INDEX)(?: IF NOT EXISTS)? (\w+)")
_LATER: Final = ("samples_by_id", "superseded")  # what is made when it is first needed


def word_rows() -> Iterator[tuple[str, int, str]]:
    """Yield the rows of the table `words`: of which list, which number, which word."""
    for kind, names in WORDS.items():
        for code, name in enumerate(names):
            yield kind, code, name


@cache
def definitions() -> dict[str, str]:
    """Return how each table, view and index is made, by its name, in the order of `schema.sql`."""
    script = Path(__file__).with_name("schema.sql").read_text(encoding="utf-8")
    by_name = {}
    for statement in script.split(";"):
        if statement.strip():
            definition = statement[statement.index("CREATE") :]
            by_name[_NAME.findall(definition)[0]] = definition
    return by_name


@cache
def table_of(name: str) -> dict[str, Any]:
    """Return one of the tables that lie beside this module: forms of JSON, queries by what for."""
    return tomllib.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))


def query(name: str) -> str:
    """Return a query of `queries.toml` or `statements.toml`."""
    return str((table_of("queries.toml") | table_of("statements.toml"))[name])


@cache
def known_definitions() -> frozenset[str]:
    """Return how every table, view and index that guardmark ever wrote is defined, as `folded`."""
    written = {name: folded(definition) for name, definition in definitions().items()}
    superseded = written["superseded"].replace("IF NOT EXISTS ", "")
    # Before samples could be unlabelled, whatever was no attack was benign.
    results = written["results"].replace("WHEN 0 THEN 'benign' ELSE 'unlabelled'", "ELSE 'benign'")
    return frozenset({*written.values(), superseded, results})


def folded(sql: str) -> str:
    """Return SQL without the blanks that mean nothing."""
    return re.sub(r"\s*([(),])\s*", r"\1", " ".join(sql.split())).strip()


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


def create(connection: sqlite3.Connection) -> None:
    """Write the tables of the present version into an empty database."""
    # One transaction: a kill in the middle leaves an empty file, not half a schema.
    with transaction(connection):
        for name, statement in definitions().items():
            if name not in _LATER:
                connection.execute(statement)
        connection.execute("INSERT INTO layers (id, name) VALUES (0, 'run')")
        connection.executemany("INSERT INTO words VALUES (?, ?, ?)", word_rows())
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


class BeyondLimit(ValueError):
    """A file holds more of something than a run folder may: the message names the limit."""


def _limits_of_evidence() -> dict[str, str]:
    return {
        f"length(evidence) > {LONGEST_EVIDENCE}": (
            f"evidence of more than {LONGEST_EVIDENCE // MIB} MiB for one record"
        ),
        f"json_array_length(evidence, '$.attempts') > {MOST_ATTEMPTS}": (
            f"more than {MOST_ATTEMPTS:,} attempts in the evidence of one record"
        ),
        f"json_array_length(evidence, '$.categories') > {MOST_CATEGORIES}": (
            f"more than {MOST_CATEGORIES:,} categories in the evidence of one record"
        ),
    }


def _limits_of_names(*columns: str, most: int, what: str) -> dict[str, str]:
    condition = " OR ".join(f"length({column}) > {most}" for column in columns)
    return {condition: f"{what} of more than {most:,} characters"}


_DECLARED: Final = (
    "CASE meta.key WHEN 'manifest' THEN "
    "(SELECT count(*) FROM json_each(meta.value, '$.categories')) END"
)
"""How many categories a manifest declares."""


def _limits_of_manifest() -> dict[str, str]:
    def length(path: str) -> str:
        return f"CASE key WHEN 'manifest' THEN json_array_length(value, '$.{path}') END"

    return {
        f"length(value) > {LONGEST_MANIFEST}": (
            f"a manifest of more than {LONGEST_MANIFEST // MIB} MiB"
        ),
        f"{length('parts')} > {MOST_PARTS}": f"more than {MOST_PARTS:,} parts in its manifest",
        f"{length('data')} > {MOST_PARTS}": f"more than {MOST_PARTS:,} data sets in its manifest",
        f"{_DECLARED} > {MOST_DECLARED_CATEGORIES}": (
            f"more than {MOST_DECLARED_CATEGORIES:,} categories in its manifest"
        ),
        f"{length('settings.stats.prevalence')} > {MOST_PREVALENCES}": (
            f"more than {MOST_PREVALENCES} values of prevalence in its manifest"
        ),
    }


_MOST_ROWS: Final = {
    "defenses": (MOST_DEFENSES, "defenses"),
    "layers": (MOST_LAYERS, "layers"),
}
"""How many rows of a table there may be, and what they are."""
_LIMITS: Final[dict[str, dict[str, str]]] = {
    "defenses": _limits_of_names("name", most=LONGEST_NAME, what="a name"),
    "layers": _limits_of_names("name", most=LONGEST_NAME, what="a name"),
    "kinds": _limits_of_names(*FACET_COLUMNS, most=LONGEST_SAMPLE_NAME, what="a facet"),
    "samples": _limits_of_names("id", "origin", most=LONGEST_SAMPLE_NAME, what="an id"),
    "meta": _limits_of_manifest(),
    "details": _limits_of_evidence(),
    "sayings": _limits_of_evidence(),
    "tries": _limits_of_evidence(),
    "superseded": _limits_of_evidence(),
}
"""Conditions by which a row of a table is beyond a limit, and the words for it."""


def require_usual_values(connection: sqlite3.Connection) -> None:
    """Refuse a table with a value that guardmark never writes, as `values.sql` tells them.

    Values beyond a limit are looked for on the same way through the table.
    """
    script = Path(__file__).with_name("values.sql").read_text(encoding="utf-8")
    there = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema")}
    for table, unusual in re.findall(r"^(\w+): ([^;]+);", script, re.MULTILINE):
        if table not in there:
            continue
        if table in _MOST_ROWS:
            most, what = _MOST_ROWS[table]
            if _count(connection, table) > most:
                raise BeyondLimit(f"more than {most:,} {what}")
        limits = _LIMITS.get(table, {})
        conditions = " OR ".join(f"({condition})" for condition in (*limits, unusual))
        if not _has_row(connection, table, conditions):
            continue
        for condition, words in limits.items():
            if _has_row(connection, table, condition):
                raise BeyondLimit(words)
        raise ValueError(f"one of table {table} is none that guardmark writes")


def _count(connection: sqlite3.Connection, table: str) -> int:
    query = f"SELECT count(*) FROM {table}"  # noqa: S608 - a word of ours
    return int(connection.execute(query).fetchone()[0])


def _has_row(connection: sqlite3.Connection, table: str, condition: str) -> bool:
    query = f"SELECT 1 FROM {table} WHERE {condition} LIMIT 1"  # noqa: S608 - words of ours
    return connection.execute(query).fetchone() is not None
