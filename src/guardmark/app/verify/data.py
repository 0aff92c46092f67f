"""The data files of a run against the hashes it noted and the texts it stored."""

from __future__ import annotations

import csv
import gzip
import io
import json
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from guardmark.app.verify.difference import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from guardmark.app.verify.difference import Comparer
    from guardmark.app.verify.source import Source


def check_data(
    source: Source, folders: Sequence[Path], comparer: Comparer, *, builtin: Mapping[str, Path]
) -> list[str]:
    """Compare the data files with the hashes the run noted, and its samples with their texts.

    Every text under test has to stand somewhere in the files, character for character. Where a
    file is missing or cannot be read here (Parquet), texts are not looked for.

    Args:
        source: All that the run stored.
        folders: Where files may lie.
        comparer: Takes what differs.
        builtin: Name to place of the files of built-in sets.

    Returns:
        Files that were not found, and so not compared.
    """
    missing, found = [], []
    for data in source.manifest.get("data", ()):
        for name, noted in data["files"].items():
            places = [folder / name for folder in folders]
            places += [builtin[name]] if name in builtin else []
            there = [path for path in places if path.is_file()]
            if not there:
                missing.append(name)
                continue
            digests = {sha256(path.read_bytes()).hexdigest(): path for path in reversed(there)}
            # Another file of the same name may lie in another folder.
            digest = noted if noted in digests else next(reversed(digests))
            found.append(digests[digest])
            comparer.value(name, "sha256", said=digest, found=noted)
    if not missing and found and all(map(_is_readable, found)):
        _check_texts(source, found, comparer)
    return missing


def _check_texts(source: Source, files: Sequence[Path], comparer: Comparer) -> None:
    known = {
        sha256(text.encode(errors="surrogatepass")).hexdigest()
        for path in files
        for text in _strings(path)
    }
    for subject in source.subjects:
        comparer.compared += 1
        if subject.text_sha256 not in known:
            comparer.findings.append(
                Finding(
                    file="records.sqlite",
                    place=f"text of sample {subject.id}",
                    said="a text that stands nowhere in the data files",
                    found="one of theirs",
                )
            )


def _is_readable(path: Path) -> bool:
    return path.name.removesuffix(".gz").endswith((".jsonl", ".json", ".csv", ".tsv"))


def _strings(path: Path) -> Iterator[str]:
    """Every string of a file, wherever it stands."""
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8-sig")
    name = path.name.removesuffix(".gz")
    try:
        if name.endswith((".csv", ".tsv")):
            csv.field_size_limit(max(csv.field_size_limit(), len(text)))
            separator = "\t" if name.endswith(".tsv") else ","
            for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator):
                yield from row
        elif name.endswith(".json"):
            yield from _within(json.loads(text))
        else:
            for line in text.split("\n"):
                yield from _within(json.loads(line)) if line.strip() else ()
    except (ValueError, csv.Error):
        return  # the file is not the one that was read; its hash says so already


def _within(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _within(each)
    elif isinstance(value, list):
        for each in value:
            yield from _within(each)
