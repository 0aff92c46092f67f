"""The files of a run folder against their seals, and the seals against the records."""

from __future__ import annotations

import os
from dataclasses import dataclass
from glob import escape
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Final

from guardmark.app.settings import REPORTS
from guardmark.app.verify.mismatches import MismatchKind
from guardmark.datasets.loading import file_sha256
from guardmark.store.run_dir import SEALS, layers_of
from guardmark.store.schema import META_KEYS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.app.verify.mismatches import Mismatches
    from guardmark.store.connect import StoreConnection
    from guardmark.store.run_dir import RunDir, Seal, SealChain

_DIGITS: Final = 16
_LARGEST: Final = 16 << 20
"""Bytes by which a file may exceed what was sealed and still be compared line by line."""
_STREAMED: Final = {"results.jsonl", "records.csv"}
"""Files of a line a record, which are never read whole."""
_BESIDE: Final = {
    *("results.jsonl", "trace.jsonl", "target.jsonl", "slice_stability.json"),
    *("config.resolved.yaml", "data_manifest.json", "environment.json"),
}
"""Files beside the reports that every guardmark with seals seals."""
_OTHER_RECORDS: Final = "these are other records"
_NAMED: Final = 5
"""Files that a note names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SealCheck:
    """What seals say nothing of, and whether they are about every report."""

    notes: tuple[str, ...]
    not_covered: tuple[str, ...]
    is_whole: bool


def check_seals(
    folder: RunDir, chain: SealChain, connection: StoreConnection, mismatches: Mismatches
) -> SealCheck:
    """Compare every sealed file with its seal, and what the records hold beside their chain."""
    for line in chain.broken:
        mismatches.differ(
            MismatchKind.SEAL,
            SEALS,
            f"line {line}",
            stated="this seal does not follow the line before",
            counted="a seal was changed, added or taken away",
        )
    heads = {bytes(row[0]).hex() for row in connection.execute("SELECT hash FROM batches")}
    sealed, earlier = chain.by_file(), []
    for name, seals in sealed.items():
        path = folder.path / name
        mismatches.compared += 1
        stated, counted = "", ""
        if not path.is_file() or ".." in PurePath(name).parts or PurePath(name).is_absolute():
            if not _is_half_written(path, seals[-1]):
                stated, counted = "it was sealed", "it is not there any more"
        elif (standing := _standing_seal(path, seals)) is None:
            stated = (
                f"SHA-256 {file_sha256(path)[:_DIGITS]}..., sealed {seals[-1].sha256[:_DIGITS]}..."
            )
            counted = "it was edited after it was sealed"
        elif standing.head and standing.head not in heads:
            stated, counted = f"sealed over head {standing.head[:_DIGITS]}...", _OTHER_RECORDS
        elif standing.head != seals[-1].head:
            stated = "this is the file of an earlier seal"
            counted = "a write was interrupted, or an old file put back"
        elif standing.sha256 != seals[-1].sha256:
            earlier.append(name)
        if counted:
            mismatches.differ(MismatchKind.SEAL, name, "", stated=stated, counted=counted)
    _check_layers(chain, connection, mismatches)
    files = [name for name in _files(folder) if name not in sealed]
    unsealed = [name for name in files if name in REPORTS or name in _BESIDE]
    return SealCheck(
        notes=tuple(_notes(folder, unsealed, earlier=earlier)),
        not_covered=tuple(name for name in files if name not in unsealed),
        is_whole=not unsealed,
    )


def unreadable_files(folder: RunDir, chain: SealChain, mismatches: Mismatches) -> frozenset[str]:
    """Return the files that are links, or grew far beyond what was sealed; none is opened."""
    sealed, refused = chain.by_file(), set()
    for name in _files(folder):
        path = folder.path / name
        size = path.lstat().st_size
        most = max((seal.size for seal in sealed.get(name, ())), default=_LARGEST)
        counted = ""
        if not path.is_file() or path.is_symlink():
            counted = "a link, a pipe or a device stands in place of a file"
        elif name in sealed or name not in _STREAMED:
            counted = "it is too large to be this file" if size > 4 * most + _LARGEST else ""
        if counted:
            refused.add(name)
            stated = f"{size:,} bytes"
            mismatches.differ(MismatchKind.FILE, name, "", stated=stated, counted=counted)
    return frozenset(refused)


def _files(folder: RunDir) -> list[str]:
    """Return what lies in the folder, besides records, seals and what is half written."""
    names = (
        (Path(home) / name).relative_to(folder.path).as_posix()
        for home, _, files in os.walk(folder.path)
        for name in files
    )
    ours = (SEALS, "records.sqlite")
    return sorted(
        name for name in names if not (name.startswith(ours) or PurePath(name).name.startswith("."))
    )


def _is_half_written(path: Path, seal: Seal) -> bool:
    """Tell whether a writer was killed after it had sealed a file and before it named it."""
    return any(
        each.is_file() and each.stat().st_size == seal.size and file_sha256(each) == seal.sha256
        for each in path.parent.glob(f".{escape(path.name)}.*")
    )


def _check_layers(chain: SealChain, connection: StoreConnection, mismatches: Mismatches) -> None:
    """Compare names and settings of the layers, such as a judge's, with those last sealed."""
    head = connection.head()
    sealed = {each.layers for each in chain.seals if each.head == head and each.layers}
    if not sealed or layers_of(connection) in sealed:
        return
    # A layer that nothing belongs to yet may have come after the last seal.
    query = "SELECT max(layer) FROM (SELECT layer FROM records UNION SELECT layer FROM tries)"
    last = connection.execute(query).fetchone()[0] or 0
    if layers_of(connection, up_to=last) not in sealed:
        mismatches.differ(
            MismatchKind.RECORDS,
            "records.sqlite",
            "layers",
            stated="names and settings of its layers are not those that were sealed",
            counted="the settings of a judge or an attacker were changed",
        )


def check_meta(connection: StoreConnection, mismatches: Mismatches) -> None:
    """Find entries that no guardmark writes beside the description of a run."""
    for (key,) in connection.execute("SELECT key FROM meta ORDER BY key"):
        mismatches.compared += 1
        if key not in META_KEYS:
            mismatches.differ(
                MismatchKind.RECORDS,
                "records.sqlite",
                "meta",
                stated=f"an entry {str(key)[:_DIGITS]!r}",
                counted="guardmark writes none of this name",
            )


def _standing_seal(path: Path, seals: Sequence[Seal]) -> Seal | None:
    """Return the last seal of a file that its bytes agree with."""
    size = path.stat().st_size
    digest = file_sha256(path) if any(seal.size == size for seal in seals) else ""
    return next((seal for seal in reversed(seals) if seal.sha256 == digest), None)


def _notes(folder: RunDir, unsealed: list[str], *, earlier: list[str]) -> list[str]:
    notes = []
    if unsealed:
        notes.append(
            f"{_listed(unsealed)}: unsealed, written by a guardmark without seals or by another "
            "program; edits there are found only as far as reports are written again."
        )
    if earlier:
        notes.append(
            f"{_listed(earlier)}: as sealed before, not as sealed last; a write was interrupted, "
            f"or an old file put back. To write anew: guardmark report {folder.path}"
        )
    return notes


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
