"""The data files of a run against the hashes it noted and the texts it stored."""

from __future__ import annotations

import json
import os
import zlib
from array import array
from bisect import bisect_left
from collections import defaultdict
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatch
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from guardmark.app.results.opened_run import run_config
from guardmark.app.verify.mismatches import MismatchKind
from guardmark.core.errors import DatasetError, StoreError
from guardmark.datasets.builtin import BUILTIN_SETS, builtin_specs
from guardmark.datasets.formats.fields import DatasetSpec
from guardmark.datasets.formats.files import file_format, open_text, read_rows
from guardmark.datasets.formats.turns import BETWEEN_TURNS
from guardmark.datasets.loading import file_sha256
from guardmark.store.turns import asked_turns, read_talks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guardmark.app.verify.mismatches import Mismatches
    from guardmark.store.reader import RecordReader


def check_data(reader: RecordReader, named: Sequence[Path], mismatches: Mismatches) -> list[str]:
    """Compare the data files with the hashes the run noted, and its samples with their texts.

    Args:
        reader: The records; names of files come from them, and from whoever made them.
        named: Folders that a person named. Beside them only the folder of the run is looked into.
        mismatches: Takes what differs.

    Returns:
        Names of files that lie in none of these folders.
    """
    own = reader.path.parent
    folders = [*named, own]
    builtin = {}
    for known in BUILTIN_SETS:
        for spec in builtin_specs(known.target):
            builtin[spec.shown_as] = spec.path
    manifest, entries = reader.manifest(), []
    missing: list[str] = []
    files: list[DatasetSpec] = []
    with suppress(StoreError):  # settings that cannot be read are told of elsewhere
        entries = [entry for entry in run_config(manifest).data if entry.path]
    for data in manifest.data:
        for name, noted in data.files.items():
            paths = [folder / name for folder in folders if _is_inside(folder, name)]
            if name in builtin:
                paths.append(builtin[name])
            there = [path for path in paths if _is_file_within(path, own)]
            if not there:
                missing.append(name)
                continue
            digests = {file_sha256(path): path for path in reversed(there)}
            # Another file of the same name may lie in another folder.
            digest = noted if noted in digests else next(reversed(digests))
            stated = next((each for each in entries if fnmatch(name, each.path or "")), None)
            spec = DatasetSpec(name="", path=digests[digest], shown_as=name)
            if stated:
                spec = replace(spec, format=stated.format or "", encoding=stated.encoding)
            files.append(spec)
            mismatches.value(MismatchKind.DATA, name, "sha256", stated=noted, counted=digest)
    if not missing and files and all(map(_is_readable, files)):
        _check_texts(reader, files, mismatches)
    return missing


def _is_inside(folder: Path, name: str) -> bool:
    """Tell whether a name, which came with the run, leads into a folder that a person named."""
    path, base = (Path(os.path.normpath(each.absolute())) for each in (folder / name, folder))
    return path.is_relative_to(base)


def _is_file_within(path: Path, own: Path) -> bool:
    """Tell whether a path is a file; a link in the folder of the run must not lead out of it."""
    if path.is_relative_to(own) and not path.resolve().is_relative_to(own.resolve()):
        return False
    return path.is_file()


def _check_texts(
    reader: RecordReader, files: Sequence[DatasetSpec], mismatches: Mismatches
) -> None:
    # Both sides may hold a million texts, so only their hashes meet; a repeated one is looked up
    # at its first place, and a set of them would take more than all the rest.
    query = "SELECT id, text FROM samples ORDER BY position"
    texts = reader.connection.execute(query)
    wanted = array("Q", sorted(array("Q", (_short_hash(text) for _, text in texts))))
    is_there = bytearray(len(wanted))
    for spec in files:
        for text in _strings(spec):
            hashed = _short_hash(text)
            at = bisect_left(wanted, hashed)
            if at < len(wanted) and wanted[at] == hashed:
                is_there[at] = True
    whole = _joined_texts(reader)
    for name, text in reader.connection.execute(query):
        mismatches.compared += 1
        if name in whole:  # the files hold its turns, which are compared each for itself
            is_known = whole[name] in {None, text}
        else:
            is_known = bool(is_there[bisect_left(wanted, _short_hash(text))])
        if not is_known:
            mismatches.differ(
                MismatchKind.DATA,
                "records.sqlite",
                f"text of sample {name}",
                stated="a text that is in none of the data files",
                counted="another one",
            )


def _joined_texts(reader: RecordReader) -> dict[str, str | None]:
    """Return by id what turns in one message must say; None where a turn is not among the samples.

    Such a text is made from the data, and stands in no file as it is.
    """
    if "both" not in asked_turns(reader):
        return {}
    talks, of_talk = read_talks(reader.connection), defaultdict[str, dict[int, str]](dict)
    lengths = dict[str, int]()
    for stored in talks.turns:
        of_talk[stored.conversation][stored.turn] = reader.sample_at(stored.position).prompt.text
        lengths[stored.conversation] = stored.turns
    texts = dict[str, str | None]()
    for name, position in talks.joined.items():
        turns = of_talk[name]
        is_whole = len(turns) == lengths.get(name)
        said = [turns[number] for number in sorted(turns)]
        texts[reader.sample_at(position).id] = BETWEEN_TURNS.join(said) if is_whole else None
    return texts


def _short_hash(text: str) -> int:
    """Eight bytes of SHA-256: a changed one of a million texts meets another once in 10^13."""
    return int.from_bytes(sha256(text.encode(errors="surrogatepass")).digest()[:8], "big")


_READ = ("jsonl", "json", "prompt_pack", "csv", "tsv")


def _is_readable(spec: DatasetSpec) -> bool:
    name = spec.path.name.removesuffix(".gz")
    return (spec.format or name.rpartition(".")[2].replace("ndjson", "jsonl")) in _READ


def _strings(spec: DatasetSpec) -> Iterator[str]:
    """Every string of a file, wherever it stands."""
    try:
        if file_format(spec) in {"json", "prompt_pack"}:
            with open_text(spec) as stream:
                yield from _within(json.loads(stream.read().decode("utf-8-sig")))
            return
        for _, row in read_rows(spec):
            yield from _within(row)
    except (DatasetError, ValueError, RecursionError, OSError, EOFError, zlib.error):
        return  # the file is not the one that was read; its hash says so already


def _within(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _within(each)
