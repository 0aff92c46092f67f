"""The files of a run folder against their seals, these against the records, and who signed them."""

from __future__ import annotations

import os
from functools import partial
from glob import escape
from hashlib import sha256
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Final

from guardmark.app.minisign import read_signature
from guardmark.app.results.opened_run import find_run
from guardmark.app.settings import REPORTS
from guardmark.app.verify.mismatches import MismatchKind
from guardmark.core.errors import StoreError
from guardmark.core.values import dataclass
from guardmark.datasets.loading import file_sha256
from guardmark.store import integrity
from guardmark.store.reader import RecordReader
from guardmark.store.run_dir import LOCK
from guardmark.store.seals import LOG, RECORDS, SEALS, layers_of, read_noted_seals, read_seals
from guardmark.store.spent import SPENT
from guardmark.store.under_way import UNDER_WAY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.app.verify.mismatches import Mismatches
    from guardmark.store.connect import StoreConnection
    from guardmark.store.run_dir import RunDir
    from guardmark.store.seals import Seal, SealChain


_DIGITS: Final = 16
_LARGEST: Final = 16 << 20
"""Bytes by which a file may exceed what was sealed and still be compared line by line."""
_STREAMED: Final = {"results.jsonl", "records.csv"}
"""Files of a line a record, which are never read whole."""
_BESIDE: Final = {
    "results.jsonl",
    "trace.jsonl",
    "target.jsonl",
    "slice_stability.json",
    "config.resolved.yaml",
    "data_manifest.json",
    "environment.json",
}
"""Files beside the reports that every guardmark with seals seals."""
_RECORDS: Final = (f"records.sqlite{end}" for end in ("", "-wal", "-shm"))
_OURS: Final = {SEALS, f"{SEALS}.minisig", LOCK, SPENT, UNDER_WAY, f"{UNDER_WAY}.new", *_RECORDS}
"""Files that have a check of their own, or say nothing of the run."""
_NAMED: Final = 5  # files that a note names


@dataclass(frozen=True, slots=True, kw_only=True)
class SealCheck:
    """What seals say nothing of: notes for a reader, and the files themselves.

    `not_covered` are files that no seal is about, and files sealed after the records last noted
    how many seals there are: an edit of those, sealed anew, would not be found.
    """

    notes: tuple[str, ...]
    not_covered: tuple[str, ...]


def check_seals(
    folder: RunDir, chain: SealChain, connection: StoreConnection, mismatches: Mismatches
) -> SealCheck:
    """Compare every sealed file with its seal, and what the records hold beside their chain."""
    differ = partial(mismatches.differ, MismatchKind.SEAL)
    for line in chain.broken:
        counted = "a seal was changed, added or taken away"
        stated = "this seal does not follow the line before"
        differ(SEALS, f"line {line}", stated=stated, counted=counted)
    heads = {bytes(row[0]).hex() for row in connection.execute("SELECT hash FROM batches")}
    noted = _check_end(chain, connection, mismatches)
    sealed, earlier = chain.by_file(), []
    for name, seals in sealed.items():
        path = folder.path / name
        mismatches.compared += 1
        standing = None
        if not _leads_out(name) and path.is_file():
            standing = _standing_seal(path, seals)
        stated, counted = _fault(path, seals, standing, heads)
        if counted:
            differ(name, "", stated=stated, counted=counted)
        elif standing is not None and standing.sha256 != seals[-1].sha256:
            earlier.append(name)
    _check_layers(chain, connection, mismatches)
    files = [name for name in _files(folder) if name not in sealed]
    unsealed = [name for name in files if name in REPORTS or name in _BESIDE]
    is_missing = not (chain.seals or chain.broken)
    if is_missing and (unsealed or read_noted_seals(connection) is not None):
        stated, counted = "it is not there", "guardmark seals every file that it writes"
        differ(SEALS, "", stated=stated, counted=counted)
    # Whoever edits a file could append its seal; the records say how many seals there were.
    later = {seal.file for seal in chain.seals[noted:]}
    return SealCheck(
        notes=tuple(_notes(folder, unsealed, earlier=earlier)),
        not_covered=tuple(sorted({*files, *later, *_grown_log(folder, sealed)})),
    )


def _grown_log(folder: RunDir, sealed: dict[str, list[Seal]]) -> list[str]:
    """Name the log where lines came after its last seal, as when a command was killed."""
    seals = sealed.get(LOG, [])
    if seals and folder.log.is_file() and folder.log.stat().st_size > seals[-1].size:
        return [LOG]
    return []


def _check_end(chain: SealChain, connection: StoreConnection, mismatches: Mismatches) -> int:
    """Compare the seals with what the records noted of them; return how many seals that covers."""
    noted = read_noted_seals(connection)
    if noted is None or not chain.hashes:
        return 0
    mismatches.compared += 1
    if noted.count > len(chain.hashes):
        stated = f"it ends after {len(chain.hashes)} seals"
        counted = f"there were {noted.count} when the last command ended: lines were cut off"
        mismatches.differ(MismatchKind.SEAL, SEALS, "end", stated=stated, counted=counted)
        return len(chain.seals)
    if chain.hashes[noted.count - 1] != noted.last:
        stated = f"seal {noted.count} is not the one that was last when a command ended"
        counted = "seals were changed or exchanged"
        mismatches.differ(MismatchKind.SEAL, SEALS, "end", stated=stated, counted=counted)
    return noted.count


def _fault(
    path: Path, seals: Sequence[Seal], standing: Seal | None, heads: set[str]
) -> tuple[str, str]:
    """Say what is wrong with a sealed file, and what that means; nothing where it stands."""
    if _leads_out(seals[-1].file) or not (path.is_file() or _is_half_written(path, seals[-1])):
        return "it was sealed", "it is not there any more"
    if not path.is_file():
        return "", ""
    if standing is None:
        digests = file_sha256(path), seals[-1].sha256
        stated = "SHA-256 {}..., sealed {}...".format(*(each[:_DIGITS] for each in digests))
        return stated, "it was edited after it was sealed"
    if standing.head and standing.head not in heads:
        return f"sealed over head {standing.head[:_DIGITS]}...", "these are other records"
    if standing.head != seals[-1].head:
        old = "a write was interrupted, or an old file put back"
        return "this is the file of an earlier seal", old
    return "", ""


def _leads_out(name: str) -> bool:
    """Tell whether a name, which came with the seals, is of a file outside the folder."""
    return PurePath(name).is_absolute() or ".." in PurePath(name).parts


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
        elif size > 4 * most + _LARGEST and (name in sealed or name not in _STREAMED):
            counted = "it is too large to be this file"
        if counted:
            refused.add(name)
            stated = f"{size:,} bytes"
            mismatches.differ(MismatchKind.FILE, name, "", stated=stated, counted=counted)
    return frozenset(refused)


def _files(folder: RunDir) -> list[str]:
    """Return what lies in the folder, besides records, seals, a lock and calls under way.

    A folder in it that holds records is a run of its own, with seals of its own.
    """
    names = []
    for home, folders, files in os.walk(folder.path):
        # What is taken from the list is not walked into.
        folders[:] = [name for name in folders if not (Path(home) / name / RECORDS).is_file()]
        for file in files:
            name = (Path(home) / file).relative_to(folder.path).as_posix()
            if name not in _OURS:
                names.append(name)
    return sorted(names)


def _is_half_written(path: Path, seal: Seal) -> bool:
    """Tell whether a writer was killed after it had sealed a file and before it named it."""
    return any(
        each.is_file() and each.stat().st_size == seal.size and file_sha256(each) == seal.sha256
        for each in path.parent.glob(f".{escape(path.name)}.*")
    )


def _check_layers(chain: SealChain, connection: StoreConnection, mismatches: Mismatches) -> None:
    """Compare names and settings of the layers, such as a judge's, with all that were sealed."""
    # A layer that nothing belongs to yet may have come after a seal.
    head = connection.head()
    sealed = {seal.layers for seal in chain.seals if seal.head == head and seal.layers}
    used = "SELECT max(layer) FROM (SELECT layer FROM records UNION SELECT layer FROM tries)"
    query = f"SELECT id FROM layers WHERE id >= ifnull(({used}), 0) ORDER BY id LIMIT 100"  # noqa: S608 - a constant
    for (last,) in connection.execute(query).fetchall():
        sealed.discard(layers_of(connection, up_to=last))
    if sealed:
        mismatches.differ(
            MismatchKind.RECORDS,
            "records.sqlite",
            "layers",
            stated="names and settings of its layers are not those that were sealed",
            counted="the settings of a judge or an attacker were changed",
        )


def _standing_seal(path: Path, seals: Sequence[Seal]) -> Seal | None:
    """Return the last seal of a file that its bytes agree with."""
    size = path.stat().st_size
    digest = ""
    if path.name != LOG and any(seal.size == size for seal in seals):
        digest = file_sha256(path)
    for seal in reversed(seals):
        if path.name == LOG:
            if _begins_as(path, seal):
                return seal
        elif seal.sha256 == digest:
            return seal
    return None


def _begins_as(path: Path, seal: Seal) -> bool:
    """Tell whether a file to which lines are only ever added still begins as it was sealed."""
    with path.open("rb") as file:
        content = file.read(min(seal.size, _LARGEST))
    return len(content) == seal.size and sha256(content).hexdigest() == seal.sha256


def _notes(folder: RunDir, unsealed: list[str], *, earlier: list[str]) -> list[str]:
    notes = []
    if unsealed:
        notes.append(
            f"{_listed(unsealed)}: unsealed, by another program or older than the first seal; "
            "edits there are found only as far as reports are written again."
        )
    if earlier:
        notes.append(
            f"{_listed(earlier)}: as sealed before, not as sealed last; a write was interrupted, "
            f"or an old file put back. To write anew: guardmark report {folder.path}"
        )
    return notes


def _listed(names: list[str]) -> str:
    more = ""
    if len(names) > _NAMED:
        more = f" and {len(names) - _NAMED} more"
    return ", ".join(names[:_NAMED]) + more


def require_signed(run: Path, public_key: Path) -> None:
    """Refuse a run whose records are not those that the holder of a key signed.

    The signature is of the seals, and the last seal names the head of the records; so the records
    are compared with their hash chain up to that head.
    """
    folder = find_run(run)
    signature = folder.path / f"{folder.seals.name}.minisig"
    if not signature.is_file():
        raise StoreError(
            f"{folder.path} is not signed: there is no {signature.name}.\n"
            f"Next: let the holder of the key run `minisign -Sm {folder.seals}`, or leave out"
            " --public-key."
        )
    chain = read_seals(folder.path)
    fault = "its seals are damaged" if chain.broken or not chain.seals else ""
    if not fault:
        fault = read_signature(folder.seals, signature, public_key=public_key).fault
    if not fault:
        with RecordReader(folder.records) as reader:
            head = reader.connection.head()
        if chain.seals[-1].head != head or integrity.check(folder.records):
            fault = "its records are not those that were signed"
    if fault:
        raise StoreError(
            f"{folder.path} is not what was signed: {fault}.\n"
            f"Next: look with `guardmark verify {folder.path} --public-key {public_key}`."
        )
