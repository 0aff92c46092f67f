"""The samples of a run, kept in full so that nothing else is needed to read it later."""

from __future__ import annotations

import json
import sqlite3
from array import array
from dataclasses import replace
from hashlib import sha256
from itertools import chain, islice
from sys import byteorder
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from guardmark.core.errors import DatasetError, StoreError
from guardmark.core.limits import LONGEST_SAMPLE_NAME
from guardmark.core.sample import (
    Image,
    Label,
    MarkedSpan,
    Message,
    Prompt,
    Role,
    Sample,
    Severity,
    ToolCall,
    ToolDefinition,
)
from guardmark.core.values import dataclass
from guardmark.store.codec import stored_object
from guardmark.store.connect import insert, values_of
from guardmark.store.schema import definitions
from guardmark.store.whole_files import whole_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from guardmark.store.connect import StoreConnection


_CHUNK: Final = 500  # part of the format: the seal is taken chunk by chunk
_COLUMNS: Final = "position, id, kind, origin, length, digest, text, prompt, rest"
_SAMPLES: Final = f"samples ({_COLUMNS})"
_VALUES: Final = ", ".join(f"column{index}" for index in range(1, _COLUMNS.count(",") + 2))
_OF_KIND: Final = 9  # number and values of a kind, before the columns of a sample
_NOTHING: Final[dict[str, Any]] = {}
_INSERT_KIND: Final = "INSERT INTO kinds VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"

SampleRow = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Some samples, as three parallel lists: what the engine needs and no more.

    Attributes:
        positions: Of each sample in the data.
        attacks: Whether each is an attack.
        prompts: What each says.
        has_images: Whether any shows an image.
    """

    positions: list[int]
    attacks: list[bool]
    prompts: list[Prompt]
    has_images: bool

    def part(self, start: int, end: int) -> Chunk:
        """Return some of the samples."""
        return replace(
            self,
            positions=self.positions[start:end],
            attacks=self.attacks[start:end],
            prompts=self.prompts[start:end],
        )


def prompt_to_json(prompt: Prompt) -> str:
    """Write a whole conversation as JSON."""
    form = prompt.form
    form[1] = prompt.under_test  # as it was stated, which may count from the end
    return json.dumps(form, ensure_ascii=False, separators=(",", ":"))


def prompt_of(text: str, conversation: str | None, records: Path) -> Prompt:
    """Read a prompt back; the images of a run lie beside its records."""
    if not conversation:
        return Prompt.of_text(text)
    messages, under_test, *more = json.loads(conversation)
    folder = records.with_name("images")
    read = tuple(_message(folder, *message) for message in messages)
    return Prompt(messages=read, under_test=under_test, tools=_tools(*more))


def _tools(stated: Sequence[Sequence[Any]] = ()) -> tuple[ToolDefinition, ...]:
    """Read back the tools that may be called."""
    tools = []
    for name, description, parameters in stated:
        tools.append(
            ToolDefinition(
                name=str(name), description=str(description), parameters=dict(parameters)
            )
        )
    return tuple(tools)


def _message(folder: Path, role: str, content: str, more: Mapping[str, Any] = _NOTHING) -> Message:
    calls = tuple(ToolCall(*call) for call in more.get("calls", ()))
    answers = more.get("answers", "")
    "".join([content, answers, *chain(*calls)]).encode()  # texts, none with half of a pair
    images = []
    for digest, kind in more.get("images", ()):
        images.append(Image(sha256=digest, media_type=kind, place=str(folder / digest)))
    return Message(
        role=Role(role), content=content, images=tuple(images), calls=calls, answers=answers
    )


def _keep_images(prompt: Prompt, records: Path) -> None:
    """Copy images into the folder of a run, each under its hash."""
    for image in chain.from_iterable(message.images for message in prompt.messages):
        with whole_file(records.with_name("images") / image.sha256) as out:
            out.write(image.read())


def load(connection: StoreConnection, samples: Iterable[Sample | PlainSample]) -> str:
    """Write all samples in the transaction that is open, and return their seal."""
    connection.execute("DELETE FROM samples")
    connection.execute("DELETE FROM kinds")
    connection.execute("DROP INDEX IF EXISTS samples_by_id")
    seal = sha256()
    kinds: dict[Kind, int] = {}
    source = iter(samples)
    position = 0
    while True:
        chunk = list(islice(source, _CHUNK))  # some at a time, so that memory stays flat
        if not chunk:
            break
        rows = _rows(chunk, position, kinds, connection.path)
        position += len(rows)
        seal.update(_sealed(list(zip(*rows, strict=True))))
        insert(connection, _SAMPLES, chosen=_VALUES, rows=rows)
    connection.executemany(_INSERT_KIND, [(number, *kind) for kind, number in kinds.items()])
    try:
        connection.execute(definitions()["samples_by_id"])
    except sqlite3.IntegrityError as error:
        raise DatasetError(
            f"Two samples have the same id: {_doubled(connection)}.\n"
            "Next: give each sample of the data an id of its own, or none."
        ) from error
    seal.update(_sealed_kinds(connection))
    return seal.hexdigest()


def seal_of(connection: StoreConnection) -> str:
    """Compute the seal again from what is stored."""
    seal = sha256()
    query = f"SELECT {_COLUMNS} FROM samples ORDER BY position"  # noqa: S608 - only our own column names
    for rows in connection.chunks(query, size=_CHUNK):
        seal.update(_sealed(list(zip(*rows, strict=True))))
    seal.update(_sealed_kinds(connection))
    return seal.hexdigest()


def _sealed(columns: Sequence[SampleRow]) -> bytes:
    # By column, and as JSON only where a column can hold any text: this runs for every sample.
    positions, ids, kinds, origins, lengths, digests, _, _, rests = columns
    numbers = array("Q", [*positions, *kinds, *lengths])
    if byteorder == "big":
        numbers.byteswap()
    return json.dumps([ids, origins, rests]).encode() + numbers.tobytes() + b"".join(digests)


def _sealed_kinds(connection: StoreConnection) -> bytes:
    return json.dumps(connection.rows("SELECT * FROM kinds ORDER BY id")).encode()


def _doubled(connection: StoreConnection) -> str:
    (row,) = connection.rows(
        "SELECT id, min(position) + 1, max(position) + 1 FROM samples GROUP BY id"
        " HAVING count(*) > 1 ORDER BY 2 LIMIT 1"
    )
    return f"{row[0]!r} (samples {row[1]} and {row[2]})"


def _rows(
    chunk: Sequence[Sample | PlainSample], first: int, kinds: dict[Kind, int], records: Path
) -> list[SampleRow]:
    rows: list[SampleRow] = []
    for position, sample in enumerate(chunk, first):
        if isinstance(sample, PlainSample):
            name, kind, group, text, digest, rest = sample
            number = kinds.setdefault(kind, len(kinds))
            rows.append((position, name, number, group, len(text), digest, text, None, rest))
        else:
            rows.append(_row(position, sample, kinds))
            _keep_images(sample.prompt, records)
    return rows


def _row(position: int, sample: Sample, kinds: dict[Kind, int]) -> SampleRow:
    prompt = sample.prompt
    text = prompt.text
    try:
        digest = prompt.digest()
    except UnicodeEncodeError as error:
        raise DatasetError(
            f"Sample {sample.id!r} holds a lone surrogate at character {error.start};"
            " UTF-8 cannot carry it.\nNext: take it out of the data."
        ) from error
    kind = kind_of(sample)
    for name in (sample.id, sample.group, *kind):
        if isinstance(name, str) and name[LONGEST_SAMPLE_NAME:]:
            raise DatasetError(
                f"A sample has an id, a group or a facet of more than {LONGEST_SAMPLE_NAME:,} "
                f"characters: {name[:40]!r} ...\nNext: shorten it in the data."
            )
    return (
        position,
        sample.id,
        kinds.setdefault(kind, len(kinds)),
        sample.group or None,
        len(text),
        digest,
        text,
        None if prompt.is_plain else prompt_to_json(prompt),
        rest_of(
            crossing=sample.crossing,
            expected=sample.expected,
            must_keep=sample.must_keep,
            spans=sample.spans,
            secrets=sample.secrets,
            harm_turn=sample.harm_turn,
            metadata=sample.metadata,
        ),
    )


def read(
    connection: StoreConnection, *, first: int = 0, last: int | None = None
) -> Iterator[Sample]:
    """Yield stored samples in order."""
    query = (
        "SELECT k.*, s.* FROM samples s JOIN kinds k ON k.id = s.kind"
        " WHERE position >= ? AND position < ? ORDER BY position"
    )
    end = count(connection) if last is None else last + 1
    for start in range(first, end, _CHUNK):
        # Short queries: one long read would keep the log of a running run from being cut.
        with values_of(connection.path):
            for row in connection.rows(query, (start, min(start + _CHUNK, end))):
                yield _sample(row[_OF_KIND:], row[1:_OF_KIND], connection.path)


def read_one(connection: StoreConnection, position: int) -> Sample:
    """Return one stored sample."""
    for sample in read(connection, first=position, last=position):
        return sample
    raise IndexError(position)


def kinds_of(connection: StoreConnection) -> dict[int, Kind]:
    """Return what samples have in common."""
    return {row[0]: row[1:] for row in connection.rows("SELECT * FROM kinds ORDER BY id")}


def _sample(row: SampleRow, kind: Kind, records: Path) -> Sample:
    number, category, subcategory, severity, language, variant, technique, source = kind
    _, sample_id, _, origin, _, _, text, prompt, rest = row
    more = stored_object(rest, "rest")
    return Sample(
        id=sample_id,
        prompt=prompt_of(text, prompt, records),
        label=_LABELS[number],
        category=category,
        subcategory=subcategory,
        severity=Severity(severity) if severity else None,
        expected=more.get("expected", ""),
        technique=technique,
        language=language,
        variant=variant,
        group=origin or "",
        crossing=more.get("crossing", ""),
        source=source,
        must_keep=tuple(more.get("must_keep", ())),
        spans=tuple(MarkedSpan(*span) for span in more.get("spans", ())),
        secrets=tuple(more.get("secrets", ())),
        harm_turn=more.get("harm_turn"),
        metadata=dict(more.get("metadata", {})),
    )


def count(connection: StoreConnection) -> int:
    """Count the stored samples."""
    last = connection.value("SELECT max(position) FROM samples")
    if last is None:
        return 0
    return int(last) + 1


def count_labelled(connection: StoreConnection) -> int:
    """Count the samples with a label, which stand before all others."""
    unlabelled = [number for number, kind in kinds_of(connection).items() if kind[0] == UNLABELLED]
    if not unlabelled:
        return count(connection)
    numbers = json.dumps(unlabelled)
    of_kinds = "FROM samples WHERE kind IN (SELECT value FROM json_each(?))"
    first = connection.value(f"SELECT min(position) {of_kinds}", (numbers,))
    without_label = connection.value(f"SELECT count(*) {of_kinds}", (numbers,))
    if first is None:
        return count(connection)
    if first + without_label != count(connection):
        raise StoreError(
            f"{connection.path}: samples with a label stand behind samples without one, as "
            "guardmark never writes them.\nNext: measure again, or restore the file from a copy."
        )
    return int(first)


def chunk_of(
    rows: Sequence[tuple[int, int, str, str | None]], attacks: AbstractSet[int], records: Path
) -> Chunk:
    """Build a chunk from rows of position, kind, text, prompt."""
    return Chunk(
        positions=[row[0] for row in rows],
        attacks=[row[1] in attacks for row in rows],
        prompts=[prompt_of(row[2], row[3], records) for row in rows],
        has_images=any(row[3] and '"images":' in row[3] for row in rows),
    )


Kind = tuple[int, str, str, str, str, str, str, str]
"""What samples have in common: whether they are attacks (1, 0, or 2 without a label), category,
subcategory, severity, language, variant, technique, source; empty words for what is absent."""

UNLABELLED: Final = 2
_LABELS: Final = (Label.BENIGN, Label.ATTACK, Label.UNLABELLED)
"""The label that each number of a kind stands for, in their order."""
_LABEL_NUMBER: Final = {label: number for number, label in enumerate(_LABELS)}


class PlainSample(NamedTuple):
    """A sample of one user message that needs no prompt before it is stored.

    A tuple, since a run of a million samples makes a million of them and lets each go at once.

    Attributes:
        id: Its id.
        kind: What it has in common with others.
        group: What it was derived from, or None where it stands alone.
        text: Its text, valid Unicode.
        digest: Content hash, as `Prompt.digest` gives it.
        rest: Whatever else is known of it, as `rest_of` writes it.
    """

    id: str
    kind: Kind
    group: str | None
    text: str
    digest: bytes
    rest: str | None


def kind_of(sample: Sample) -> Kind:
    """Return what a sample has in common with others."""
    names = sample.language, sample.variant, sample.technique, sample.source
    severity = sample.severity or ""
    return (_LABEL_NUMBER[sample.label], sample.category, sample.subcategory, severity, *names)


def label_of(kind: Kind) -> Label:
    """Return the label that samples of a kind have."""
    return _LABELS[kind[0]]


def rest_of(
    *,
    expected: str,
    metadata: Mapping[str, object],
    must_keep: tuple[str, ...] = (),
    spans: tuple[MarkedSpan, ...] = (),
    secrets: tuple[str, ...] = (),
    harm_turn: int | None = None,
    crossing: str = "",
) -> str | None:
    """Write what of a sample is neither text nor facet; a second origin stands first."""
    rest = {
        "crossing": crossing,
        "expected": expected,
        "must_keep": must_keep,
        "spans": spans,
        "secrets": secrets,
        "harm_turn": harm_turn,
        "metadata": dict(metadata),
    }
    known = {name: value for name, value in rest.items() if value}
    if not known:
        return None
    return json.dumps(known, separators=(",", ":"))
