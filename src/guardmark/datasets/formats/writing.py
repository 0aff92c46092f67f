"""Samples into files: JSONL, JSON, tables and Parquet, read back as the same samples."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import fields, is_dataclass
from enum import Enum
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from guardmark.canon.visible import csv_line, is_formula
from guardmark.core.errors import ConfigError, DatasetError, listed, needs
from guardmark.core.sample import Prompt, Sample
from guardmark.datasets.formats.fields import USUAL_NAMES
from guardmark.datasets.formats.files import INERT_COLUMN, NESTED_COLUMNS
from guardmark.store.whole_files import whole_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path


COLUMNS = (*USUAL_NAMES, "metadata")  # fields of a written sample, in order

WRITTEN_FORMATS = ("jsonl", "json", "csv", "tsv", "parquet")
_BATCH = 1_000
_EXCERPT = 160
_SAME = (
    "category",
    "subcategory",
    "severity",
    "expected",
    "technique",
    "language",
    "variant",
    "group",
    "crossing",
    "source",
)


def written_format(path: Path) -> str:
    """Return the format a file is written in, by its name."""
    suffixes = [suffix.lower().lstrip(".") for suffix in path.suffixes]
    is_packed = bool(suffixes) and suffixes[-1] == "gz"
    if is_packed:
        suffixes.pop()
    kind = suffixes[-1] if suffixes else ""
    if kind not in WRITTEN_FORMATS or (is_packed and kind == "parquet"):
        raise ConfigError(
            f"The name {path.name} does not tell a format to write.\n"
            f"End it with one of {listed(f'.{name}' for name in WRITTEN_FORMATS)}."
        )
    return kind


def write_samples(samples: Iterable[Sample], path: Path) -> int:
    """Write samples to a file, whole or not at all.

    Reading the file gives the same samples with the same content hash. In CSV and TSV a cell
    that a spreadsheet would run as a formula gets an apostrophe in front, and the column
    `inert_cells` names it so that reading takes the apostrophe off again.
    """
    kind = written_format(path)
    with whole_file(path) as raw, _packed(cast("BinaryIO", raw), path) as out:
        if kind == "parquet":
            _write_parquet(samples, out)
        elif kind in {"csv", "tsv"}:
            return _write_table(samples, out, delimiter="\t" if kind == "tsv" else ",")
        else:
            _write_json(samples, out, is_list=kind == "json")
    return 0


def write_rows(data: Iterable[object], folder: Path) -> Path:
    """Write rows that exist as objects to a JSONL file, named after the hash of its content.

    A row is a `Sample`, a mapping, or an instance of a data class, a named tuple or a model of
    pydantic, with its fields; data frames of pandas and polars are known by their methods. What
    has a method `load` is a source: it stands for the rows it loads, and its `name` for where
    they come from.
    """
    if isinstance(data, Mapping):
        raise DatasetError(
            f"The data is one mapping with the keys {', '.join(map(str, data))[:_EXCERPT]}, "
            "not a list of rows.\nOf a data set with splits, take one: data['test']."
        )
    frame: Any = data
    if hasattr(frame, "to_dicts"):
        data = frame.to_dicts()
    elif hasattr(frame, "to_dict") and hasattr(frame, "columns"):
        data = frame.astype(object).where(frame.notna(), None).to_dict("records")
    lines = []
    for number, row in enumerate(_rows_of(data), start=1):
        lines.append(_row_line(row, number))
    content = "".join(lines).encode()
    path = folder / f"{sha256(content).hexdigest()[:16]}.jsonl"
    with whole_file(path) as out:
        out.write(content)
    return path


def _rows_of(data: Any, source: str = "") -> Iterator[object]:
    """Yield the rows of a source, of a list of rows and sources, and of sources in them."""
    if is_source(data):
        name = str(getattr(data, "name", "") or type(data).__name__)
        yield from _rows_of(data.load(), name)
        return
    for row in data:
        if is_source(row):
            yield from _rows_of(row, source)
            continue
        values = fields_of(row)
        is_open = bool(source) and isinstance(values, Mapping)
        if is_open and not any(values.get(name) for name in USUAL_NAMES["source"]):
            values = {**values, "source": source}
        yield values


def is_source(subject: object) -> bool:
    """Tell what loads rows from a row."""
    if isinstance(subject, Mapping | Sample | type):
        return False
    return callable(getattr(subject, "load", None))


def fields_of(row: Any) -> Any:
    """Return the fields of a row that is an object; anything else as it is."""
    if isinstance(row, Sample | Mapping | type):
        return row
    if is_dataclass(row):
        return {field.name: getattr(row, field.name) for field in fields(row)}
    for method in ("_asdict", "model_dump"):
        if callable(getattr(row, method, None)):
            return getattr(row, method)()
    if hasattr(type(row), "__attrs_attrs__"):
        return {field.name: getattr(row, field.name) for field in type(row).__attrs_attrs__}
    return row


def _row_line(row: object, number: int) -> str:
    """Write a row of Python as a line of JSON."""
    if not isinstance(row, Sample | Mapping):
        raise DatasetError(
            f"Row {number} of the data is of type {type(row).__name__}; expected a Sample, a dict "
            "or an instance of a data class.\nFor example: {'text': 'Hello', 'label': 'benign'}"
        )
    if isinstance(row, Sample):
        values = sample_row(row)
    else:
        values = _without_members(dict(row))
    try:
        return json.dumps(values, ensure_ascii=False, default=_plain) + "\n"
    except (TypeError, ValueError) as error:
        raise DatasetError(f"Row {number} of the data cannot be written: {error}.") from error


def _without_members(row: dict[str, Any]) -> dict[str, Any]:
    """Put words in the place of members of an Enum, also of one that JSON takes for a number."""
    words = dict(row)
    for key, value in row.items():
        if isinstance(value, Enum):
            words[key] = _word_of(value)
    return words


def _word_of(member: Enum) -> object:
    """Return the word for a member: its value where that is one, or else its name."""
    if isinstance(member.value, str | bool):
        return member.value
    return member.name.lower()


def _plain(value: Any) -> object:
    """Return numbers and arrays of numpy, dates, members and data classes as JSON values."""
    if isinstance(value, Enum):
        return _word_of(value)
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)
    for method in ("tolist", "isoformat"):
        if hasattr(value, method):
            return getattr(value, method)()
    values = fields_of(value)
    if values is not value:
        return values
    raise TypeError(f"a value of type {type(value).__name__} is not a JSON value")


def sample_row(sample: Sample) -> dict[str, Any]:
    """Return a sample as a row of JSON values that reads back as the same sample."""
    values: dict[str, Any] = {"id": sample.id, "text": None, "messages": None}
    if sample.prompt == Prompt.of_text(sample.prompt.text):
        values["text"] = sample.prompt.text
    else:
        values["messages"] = _messages(sample.prompt)
    values["label"] = sample.label.value if sample.is_labelled else ""
    for name in _SAME:
        values[name] = getattr(sample, name) or ""
    values["must_keep"] = list(sample.must_keep)
    values["spans"] = [span._asdict() for span in sample.spans]
    values["secrets"] = list(sample.secrets)
    values["harm_turn"] = sample.harm_turn
    values["tools"] = [tool.chat for tool in sample.prompt.tools]
    values["metadata"] = dict(sample.metadata)
    row = {}
    for field, value in values.items():
        # An empty field is written where metadata hold a name that would be read as the field.
        if value or not sample.metadata.keys().isdisjoint(USUAL_NAMES.get(field, ())):
            row[field] = value
    return row


def _messages(prompt: Prompt) -> list[dict[str, Any]]:
    """Write a conversation, with the message under test marked."""
    messages = [message.chat(message.role.value) for message in prompt.messages]
    messages[prompt.under_test % len(messages)]["under_test"] = True
    return messages


def _packed(raw: BinaryIO, path: Path) -> AbstractContextManager[Any]:
    """Open a file for writing, packed where its name says so."""
    if path.suffix.lower() != ".gz":
        return nullcontext(raw)
    # Neither name nor time inside: equal samples give equal bytes.
    return gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0)


def _write_json(samples: Iterable[Sample], out: BinaryIO, *, is_list: bool) -> None:
    """Write samples as JSON lines, or as one list."""
    before, between, after = b"", b"\n", b"\n"
    if is_list:
        before, between, after = b"[\n", b",\n", b"\n]\n"
    lead = before
    for sample in samples:
        out.write(lead + json.dumps(sample_row(sample), ensure_ascii=False).encode())
        lead = between
    if lead is before:  # there was no sample
        out.write(before)
    out.write(after)


def _write_table(samples: Iterable[Sample], out: BinaryIO, *, delimiter: str) -> int:
    """Write exact cells: what a reader of ours takes off again is named, nothing is spelled out."""
    changed = 0
    head = csv_line([*COLUMNS, INERT_COLUMN], delimiter=delimiter, is_exact=True)
    out.write(head.encode())
    for sample in samples:
        cells = _cells(sample)
        risky = [name for name, cell in cells.items() if is_formula(cell)]
        for name in risky:
            cells[name] = f"'{cells[name]}"
        changed += len(risky)
        row = [*cells.values(), " ".join(risky)]
        out.write(csv_line(row, delimiter=delimiter, is_exact=True).encode())
    return changed


def _cells(sample: Sample) -> dict[str, str]:
    """Write a sample as the cells of a table."""
    row = sample_row(sample)
    cells = {}
    for name in COLUMNS:
        value = row.get(name) or ""
        if value and name in NESTED_COLUMNS:
            value = json.dumps(value, ensure_ascii=False)
        cells[name] = str(value)
    return cells


def _write_parquet(samples: Iterable[Sample], out: BinaryIO) -> None:
    """Write samples as a table of Parquet, some rows at a time."""
    with needs("Writing Parquet needs pyarrow", "parquet"):
        import pyarrow as pa
        import pyarrow.parquet as pq
    schema = pa.schema([(name, pa.string()) for name in COLUMNS])
    rows = map(_cells, samples)
    with pq.ParquetWriter(out, schema) as table:
        while True:
            batch = list(islice(rows, _BATCH))
            if not batch:
                break
            table.write_table(pa.Table.from_pylist(batch, schema=schema))
