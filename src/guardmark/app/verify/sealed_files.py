"""The files of a run folder against their seals, and the seals against the records."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import file_digest
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from guardmark.app.verify.mismatches import MismatchKind
from guardmark.store.run_dir import SEALS, read_seals

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence
    from pathlib import Path

    from guardmark.app.verify.mismatches import Mismatches
    from guardmark.store.run_dir import RunDir, Seal

_DIGITS: Final = 16
_NAMED: Final = 5
"""Files that a note names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SealCheck:
    """What seals say nothing of, and whether they are about every report."""

    notes: tuple[str, ...]
    is_whole: bool


def check_seals(
    folder: RunDir, connection: sqlite3.Connection, mismatches: Mismatches
) -> SealCheck:
    """Compare every sealed file with its seal."""
    chain = read_seals(folder.path)
    for line in chain.broken:
        mismatches.differ(
            MismatchKind.SEAL,
            SEALS,
            f"line {line}",
            stated="this seal does not follow the line before",
            counted="a seal was changed, added or taken away",
        )
    heads = {bytes(row[0]).hex() for row in connection.execute("SELECT hash FROM batches")}
    sealed, missing, earlier = chain.by_file(), [], []
    for name, seals in sealed.items():
        path = folder.path / name
        if ".." in PurePath(name).parts or PurePath(name).is_absolute():
            missing.append(name)  # guardmark seals nothing outside the folder
            continue
        if not path.is_file():
            missing.append(name)
            continue
        mismatches.compared += 1
        standing, wrong = _standing_seal(path, seals), ("", "")
        if standing is None:
            stated = f"SHA-256 {_digest(path)[:_DIGITS]}..., sealed {seals[-1].sha256[:_DIGITS]}..."
            wrong = (stated, "it was edited after it was sealed")
        elif standing.head and standing.head not in heads:
            wrong = (f"sealed over head {standing.head[:_DIGITS]}...", "these are other records")
        elif standing.head != seals[-1].head:
            wrong = (
                "this is the file of an earlier seal",
                "a write was interrupted, or an old file put back",
            )
        elif standing.sha256 != seals[-1].sha256:
            earlier.append(name)
        if wrong[0]:
            mismatches.differ(MismatchKind.SEAL, name, "", stated=wrong[0], counted=wrong[1])
    unsealed = _unsealed(folder, sealed)
    notes = _notes(folder, unsealed, missing=missing, earlier=earlier)
    return SealCheck(notes=tuple(notes), is_whole=not unsealed)


def _standing_seal(path: Path, seals: Sequence[Seal]) -> Seal | None:
    """Return the last seal of a file that its bytes agree with."""
    size, digest = path.stat().st_size, ""
    for seal in reversed(seals):
        if seal.size == size:
            digest = digest or _digest(path)
            if seal.sha256 == digest:
                return seal
    return None


def _unsealed(folder: RunDir, sealed: dict[str, list[Seal]]) -> list[str]:
    """Return the reports that no seal is about."""
    return [
        path.name
        for path in (
            *(folder.summary_json, folder.summary_md, folder.report_html, folder.categories_csv),
            *(folder.variant_metrics_csv, folder.comparison_json, folder.junit, folder.sarif),
            *(folder.results, folder.trace, folder.target, folder.slice_stability),
        )
        if path.name not in sealed and path.exists()
    ]


def _notes(
    folder: RunDir, unsealed: list[str], *, missing: list[str], earlier: list[str]
) -> list[str]:
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
    if missing:
        notes.append(f"{_listed(missing)}: sealed, but not there any more.")
    return notes


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _digest(path: Path) -> str:
    with path.open("rb") as content:
        return file_digest(content, "sha256").hexdigest()
