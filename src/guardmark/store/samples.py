"""The samples of a run, kept in full so that nothing else is needed to read it later."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from guardmark.core.errors import DatasetError
from guardmark.core.sample import Label, Message, Prompt, Role, Sample, Severity
from guardmark.store.schema import FACET_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_CHUNK: Final = 1000
_COLUMNS: Final = ("position", "id", "is_attack", *FACET_COLUMNS, "origin", "length", "digest")
_INSERT: Final = f"INSERT INTO samples VALUES ({', '.join('?' * (len(_COLUMNS) + 3))})"  # noqa: S608 - only our own column names
_FACETS_AT: Final = slice(3, 3 + len(FACET_COLUMNS))

SampleRow = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Some samples, as three parallel lists: what the engine needs and no more.

    Attributes:
        positions: Positions in the run's data, ascending unless asked otherwise.
        attacks: Whether each is an attack.
        prompts: What is sent.
    """

    positions: list[int]
    attacks: list[bool]
    prompts: list[Prompt]

    def part(self, start: int, end: int) -> Chunk:
        """Return some of the samples.

        Args:
            start: Index of the first.
            end: Index after the last; may lie beyond the end.

        Returns:
            A smaller chunk.
        """
        return Chunk(
            positions=self.positions[start:end],
            attacks=self.attacks[start:end],
            prompts=self.prompts[start:end],
        )


def of_user_text(text: str) -> Prompt:
    """Build the prompt of one user message.

    Args:
        text: The user's words.

    Returns:
        The same as `Prompt.of_text`.
    """
    return Prompt(messages=(Message(role=Role.USER, content=text),), under_test=0)


def prompt_to_json(prompt: Prompt) -> str:
    """Write a whole conversation as JSON.

    Args:
        prompt: Any prompt.

    Returns:
        `[[[role, content], ...], index under test]`.
    """
    messages = [[message.role.value, message.content] for message in prompt.messages]
    return json.dumps([messages, prompt.under_test], ensure_ascii=False, separators=(",", ":"))


def prompt_from_json(text: str) -> Prompt:
    """Read a conversation back.

    Args:
        text: What `prompt_to_json` wrote.

    Returns:
        The prompt.

    Raises:
        ValueError: If the text is not such JSON.
    """
    messages, under_test = json.loads(text)
    return Prompt(
        messages=tuple(Message(role=Role(role), content=content) for role, content in messages),
        under_test=under_test,
    )


def load(connection: sqlite3.Connection, samples: Iterable[Sample]) -> str:
    """Write all samples, replacing a half-written load.

    Memory stays flat: at most a thousand samples are held.

    Args:
        connection: In autocommit mode.
        samples: In order; ids must be unique.

    Returns:
        The seal: SHA-256 (hex) over ids, labels, facets and content hashes in order.

    Raises:
        DatasetError: If two samples have the same id, or a text cannot be stored as UTF-8.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute("DELETE FROM samples")
        connection.execute("DROP INDEX IF EXISTS samples_by_id")
        seal, facets = sha256(), _facets(connection)
        known = len(facets)
        source, position = iter(samples), 0
        while chunk := list(islice(source, _CHUNK)):
            rows = [_row(p, s, facets) for p, s in enumerate(chunk, position)]
            position += len(rows)
            seal.update(_sealed(rows))
            connection.executemany(_INSERT, rows)
        names = list(facets)
        connection.executemany(
            "INSERT INTO facets VALUES (?, ?)", [(i, names[i]) for i in range(known, len(names))]
        )
        seal.update(json.dumps(names).encode())
        connection.execute("CREATE UNIQUE INDEX samples_by_id ON samples (id)")
        connection.execute("COMMIT")
    except sqlite3.IntegrityError as error:
        raise DatasetError(f"Two samples have the same id: {_doubled(connection)}.") from error
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
    return seal.hexdigest()


def seal_of(connection: sqlite3.Connection) -> str:
    """Compute the seal again from what is stored.

    Args:
        connection: Any.

    Returns:
        What `load` returned, if nothing was changed since.
    """
    seal = sha256()
    cursor = connection.execute(
        f"SELECT {', '.join(_COLUMNS)}, '', '', rest FROM samples ORDER BY position"  # noqa: S608 - only our own column names
    )
    while rows := cursor.fetchmany(_CHUNK):
        seal.update(_sealed(rows))
    seal.update(json.dumps(list(_facets(connection))).encode())
    return seal.hexdigest()


def _sealed(rows: Sequence[SampleRow]) -> bytes:
    at = len(_COLUMNS) - 1
    said = [(*row[:at], row[at].hex(), row[-1]) for row in rows]
    return json.dumps(said, separators=(",", ":")).encode()


def _facets(connection: sqlite3.Connection) -> dict[str, int]:
    rows = connection.execute("SELECT name, id FROM facets ORDER BY id")
    return dict(rows.fetchall())


def _doubled(connection: sqlite3.Connection) -> str:
    row = connection.execute(
        "SELECT id, min(position), max(position) FROM samples GROUP BY id HAVING count(*) > 1"
        " ORDER BY 2 LIMIT 1"
    ).fetchone()
    return f"{row[0]!r} (samples {row[1] + 1} and {row[2] + 1})" if row else "unknown"


def _row(position: int, sample: Sample, facets: dict[str, int]) -> SampleRow:
    prompt = sample.prompt
    messages = prompt.messages
    text = messages[prompt.under_test].content
    is_plain = len(messages) == 1 and messages[0].role is Role.USER
    try:
        digest = sha256(text.encode()).digest() if is_plain else prompt.digest()
    except UnicodeEncodeError as error:
        raise DatasetError(
            f"Sample {sample.id!r} holds a lone surrogate at character {error.start};"
            " it cannot be sent or stored as UTF-8."
        ) from error
    intern, size = facets.setdefault, facets.__len__
    return (
        position,
        sample.id,
        1 if sample.label is Label.ATTACK else 0,
        intern(sample.category, size()),
        intern(sample.subcategory, size()),
        intern(sample.severity or "", size()),
        intern(sample.language, size()),
        intern(sample.variant, size()),
        intern(sample.technique, size()),
        intern(sample.source, size()),
        sample.group or None,
        len(text),
        digest,
        text,
        None if is_plain else prompt_to_json(prompt),
        _rest(sample) if sample.expected or sample.must_keep or sample.metadata else None,
    )


def _rest(sample: Sample) -> str:
    said: dict[str, object] = {}
    if sample.expected:
        said["expected"] = sample.expected
    if sample.must_keep:
        said["must_keep"] = sample.must_keep
    if sample.metadata:
        said["metadata"] = dict(sample.metadata)
    return json.dumps(said, separators=(",", ":"))


def read(
    connection: sqlite3.Connection, *, first: int = 0, last: int | None = None
) -> Iterator[Sample]:
    """Yield stored samples in order.

    Args:
        connection: Any.
        first: Position of the first.
        last: Position of the last, or None for all.

    Yields:
        Samples, in full.
    """
    names = {number: name for name, number in _facets(connection).items()}
    query = (
        f"SELECT {', '.join(_COLUMNS)}, text, prompt, rest FROM samples"  # noqa: S608 - only our own column names
        " WHERE position >= ? AND position < ? ORDER BY position"
    )
    end = count(connection) if last is None else last + 1
    for start in range(first, end, _CHUNK):
        # Short queries: one long read would keep the log of a running run from being cut.
        stop = min(start + _CHUNK, end)
        for row in connection.execute(query, (start, stop)).fetchall():
            yield _sample(row, names)


def _sample(row: SampleRow, names: dict[int, str]) -> Sample:
    category, subcategory, severity, language, variant, technique, source = (
        names[number] for number in row[_FACETS_AT]
    )
    text, prompt, rest = row[-3:]
    more: dict[str, Any] = json.loads(rest) if rest else {}
    return Sample(
        id=row[1],
        prompt=prompt_from_json(prompt) if prompt else of_user_text(text),
        label=Label.ATTACK if row[2] else Label.BENIGN,
        category=category,
        subcategory=subcategory,
        severity=Severity(severity) if severity else None,
        expected=more.get("expected", ""),
        technique=technique,
        language=language,
        variant=variant,
        group=row[len(FACET_COLUMNS) + 3] or "",
        source=source,
        must_keep=tuple(more.get("must_keep", ())),
        metadata=more.get("metadata", {}),
    )


def count(connection: sqlite3.Connection) -> int:
    """Count the stored samples.

    Args:
        connection: Any.

    Returns:
        One more than the highest position; 0 without samples.
    """
    found = connection.execute("SELECT max(position) FROM samples").fetchone()[0]
    return 0 if found is None else int(found) + 1


def chunk_of(rows: Sequence[tuple[int, int, str, str | None]]) -> Chunk:
    """Build a chunk from rows of position, is_attack, text, prompt.

    Args:
        rows: As selected.

    Returns:
        The chunk.
    """
    return Chunk(
        positions=[row[0] for row in rows],
        attacks=[row[1] == 1 for row in rows],
        prompts=[prompt_from_json(row[3]) if row[3] else of_user_text(row[2]) for row in rows],
    )
