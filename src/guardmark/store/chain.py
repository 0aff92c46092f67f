"""The hash chain over committed batches: a changed, missing or doubled row breaks it."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Row = tuple[Any, ...]


def genesis(manifest: str, samples_seal: str) -> bytes:
    """Hash what stands before the first batch.

    Args:
        manifest: JSON of the manifest, as stored.
        samples_seal: Seal of the samples (hex).

    Returns:
        32 bytes.
    """
    return sha256(json.dumps(["guardmark records 1", manifest, samples_seal]).encode()).digest()


def link(
    before: bytes,
    *,
    rows: Sequence[Row],
    details: Sequence[Row],
    names: Iterable[Mapping[int, str]],
) -> bytes:
    """Hash one batch together with everything before it.

    Args:
        before: Hash of the batch before, or the genesis.
        rows: Key and value columns of the batch's records, in key order, without batch number.
        details: Key, text and evidence of the batch's details, in key order.
        names: Number to name of the defenses, then of the layers, that occur in the rows.

    Returns:
        SHA-256 of `before` followed by the compact JSON `[rows, details, defenses, layers]`.
    """
    tables = [sorted(table.items()) for table in names]
    said = json.dumps([rows, details, *tables], separators=(",", ":"))
    return sha256(before + said.encode()).digest()
