"""The data files of a run against the hashes it noted and the texts it stored."""

from __future__ import annotations

import csv
import gzip
import json
import os
import sys
import zlib
from array import array
from bisect import bisect_left
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from guardmark.app.verify.mismatches import MismatchKind
from guardmark.datasets.builtin import BUILTIN_SETS, builtin_specs
from guardmark.datasets.loading import file_sha256

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guardmark.app.verify.mismatches import Mismatches
    from guardmark.store.reader import RecordReader


def _builtin_files() -> dict[str, Path]:
    """Return where the files of the built-in data lie, by the names that a run notes."""
    specs = (spec for each in BUILTIN_SETS for spec in builtin_specs(each.target))
    return {spec.shown_as: spec.path for spec in specs}


def check_data(reader: RecordReader, folders: Sequence[Path], mismatches: Mismatches) -> list[str]:
    """Compare the data files with the hashes the run noted, and its samples with their texts."""
    missing, files, builtin = [], [], _builtin_files()
    for data in reader.manifest().data:
        for name, noted in data.files.items():
            paths = [folder / name for folder in folders if _is_inside(folder, name)]
            paths += [builtin[name]] if name in builtin else []
            there = [path for path in paths if path.is_file()]
            if not there:
                missing.append(name)
                continue
            digests = {file_sha256(path): path for path in reversed(there)}
            # Another file of the same name may lie in another folder.
            digest = noted if noted in digests else next(reversed(digests))
            files.append(digests[digest])
            mismatches.value(MismatchKind.DATA, name, "sha256", stated=noted, counted=digest)
    if not missing and files and all(map(_is_readable, files)):
        _check_texts(reader, files, mismatches)
    return missing


def _is_inside(folder: Path, name: str) -> bool:
    """Tell whether a name, which came with the run, leads into a folder that a person named."""
    path, base = (Path(os.path.normpath(each.absolute())) for each in (folder / name, folder))
    return path.is_relative_to(base)


def _check_texts(reader: RecordReader, files: Sequence[Path], mismatches: Mismatches) -> None:
    # Both sides may hold a million texts, so only their hashes meet; a repeated one is looked up
    # at its first place, and a set of them would take more than all the rest.
    query = "SELECT id, text FROM samples ORDER BY position"
    texts = reader.connection.execute(query)
    wanted = array("Q", sorted(array("Q", (_short_hash(text) for _, text in texts))))
    is_there = bytearray(len(wanted))
    for path in files:
        for text in _strings(path):
            hashed = _short_hash(text)
            at = bisect_left(wanted, hashed)
            if at < len(wanted) and wanted[at] == hashed:
                is_there[at] = True
    for name, text in reader.connection.execute(query):
        mismatches.compared += 1
        if not is_there[bisect_left(wanted, _short_hash(text))]:
            mismatches.differ(
                MismatchKind.DATA,
                "records.sqlite",
                f"text of sample {name}",
                stated="a text that is in none of the data files",
                counted="another one",
            )


def _short_hash(text: str) -> int:
    """Eight bytes of SHA-256: a changed one of a million texts meets another once in 10^13."""
    return int.from_bytes(sha256(text.encode(errors="surrogatepass")).digest()[:8], "big")


def _is_readable(path: Path) -> bool:
    return path.name.removesuffix(".gz").endswith((".jsonl", ".json", ".csv", ".tsv"))


def _strings(path: Path) -> Iterator[str]:
    """Every string of a file, wherever it stands."""
    name = path.name.removesuffix(".gz")
    try:
        # Lines end at line feeds only.
        unpack = gzip.open if path.suffix == ".gz" else Path.open
        with unpack(path, "rt", encoding="utf-8-sig", newline="\n") as lines:
            if name.endswith((".csv", ".tsv")):
                csv.field_size_limit(sys.maxsize)
                for row in csv.reader(lines, delimiter="\t" if name.endswith(".tsv") else ","):
                    yield from row
            elif name.endswith(".json"):
                yield from _within(json.load(lines))
            else:
                for line in lines:
                    yield from _within(json.loads(line)) if line.strip() else ()
    except (ValueError, RecursionError, csv.Error, gzip.BadGzipFile, EOFError, zlib.error):
        return  # the file is not the one that was read; its hash says so already


def _within(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _within(each)
