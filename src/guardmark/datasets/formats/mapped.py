"""Texts in the exports of other tools, as data: rows by a mapping file."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from guardmark.core.errors import DatasetError
from guardmark.datasets.formats.fields import Fault
from guardmark.datasets.formats.files import read_document, read_rows
from guardmark.parsing.mapped import is_wanted, read_mapping, sample_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from guardmark.datasets.formats.fields import DatasetSpec
    from guardmark.datasets.formats.files import RawRow


def mapped_spec(spec: DatasetSpec) -> DatasetSpec:
    """Return how a file is read whose format is that of a mapping."""
    read_mapping(spec.format)  # a mapping that cannot be read is told before any row is
    return replace(spec, rows=partial(_rows, spec))


def _rows(spec: DatasetSpec) -> Iterator[RawRow]:
    """Yield rows in guardmark's names; a line that cannot be read keeps its fault."""
    mapping = read_mapping(spec.format)
    rules = mapping.data
    documents: Iterable[tuple[int, object]] = read_rows(replace(spec, format="jsonl"))
    if _is_document(spec):
        documents = enumerate(_members(read_document(spec)), start=1)
    number = 0
    for at, document in documents:
        if isinstance(document, Fault):
            yield at, document
            continue
        for row in mapping.rows(document):
            if not is_wanted(row, rules):
                continue
            fields = sample_fields(row, rules)
            # A span without an input was shown nothing.
            if fields.get("messages") or fields.get("text", "").strip():
                number += 1
                yield number, fields
    if not number:
        raise DatasetError(
            f"{spec.shown_as} holds no text, as {mapping.name} keeps them.\n{mapping.hint}"
        )


def _members(document: object) -> list[object]:
    if isinstance(document, list):
        return document
    return [document]


def _is_document(spec: DatasetSpec) -> bool:
    """Tell whether a file is one JSON document: a list of rows, or an object that holds them."""
    suffixes = [suffix.lower() for suffix in spec.path.suffixes if suffix.lower() != ".gz"]
    return bool(suffixes) and suffixes[-1] == ".json"
