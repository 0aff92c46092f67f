"""Whether a run was signed by somebody, checked before its figures decide anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.app.minisign import read_signature
from guardmark.app.results.opened_run import find_run
from guardmark.core.errors import StoreError
from guardmark.store import integrity
from guardmark.store.reader import RecordReader
from guardmark.store.seals import read_seals

if TYPE_CHECKING:
    from pathlib import Path


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
