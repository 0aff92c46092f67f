"""The verb `verify`: whether a run folder still says what was measured; nothing is changed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from guardmark.app.minisign import read_signature
from guardmark.app.results.opened_run import find_run
from guardmark.app.run.continuing import missing_reports
from guardmark.app.verify.data_files import check_data
from guardmark.app.verify.headline import check_headline, read_summary
from guardmark.app.verify.mismatches import Mismatch, Mismatches, MismatchKind
from guardmark.app.verify.sealed_files import check_seals, unreadable_files
from guardmark.core.errors import ConfigError
from guardmark.core.limits import MOST_DESCRIPTION_BYTES
from guardmark.core.values import dataclass
from guardmark.core.version import VERSION
from guardmark.store import integrity
from guardmark.store.connect import errors_of
from guardmark.store.reader import RecordReader, RunState
from guardmark.store.seals import read_seals

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from guardmark.store.run_dir import RunDir
    from guardmark.store.seals import SealChain

LEAST_DIGITS: Final = 16  # hexadecimal digits of a head that tell it from any other

_ROWS: Final = "SELECT (SELECT count(*) FROM records) + (SELECT count(*) FROM samples)"
_CHAINED: Final = "no record was changed, lost or doubled, unless the whole chain was made anew"
_EXPECTED: Final = "the records are those whose head was noted"
_SIGNED: Final = "seals and head of the records are what was signed, with key "
_SEALED: Final = "no file was edited after guardmark wrote it, unless it was sealed anew"
_SEALED_BUT: Final = "no file but those not covered was edited after guardmark wrote it"
_COUNTED: Final = "the headline follows from the records"
_REWRITTEN: Final = "every report is what this guardmark makes of the records"
UNSHOWN: Final = (
    "that nobody made records, seals and reports anew; to see that, compare with a head noted "
    "elsewhere: --expect HEAD, or check a signature: --public-key FILE"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SealSignature:
    """Whose signature of the seals is wanted; it stands beside them if no other file is named."""

    public_key: Path
    path: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What came of verifying a run: what is wrong, what was not looked at, what it shows.

    Attributes:
        folder: Folder of the run.
        head: Head of the records; empty where they cannot be read.
        is_expected: Whether a head was named to compare with.
        is_signed: Whether a public key was named.
        compared: How many values were compared.
        damage: What cannot be read, or breaks the chain.
        mismatches: The first values that differ.
        total: How many values differ.
        notes: What a reader should know of the comparison.
        shown: What the comparison shows.
        not_covered: Files that no seal is about.
        outdated: That reports are older than the records; empty where they are not.
    """

    folder: Path
    head: str
    is_expected: bool
    is_signed: bool
    compared: int
    damage: tuple[str, ...]
    mismatches: tuple[Mismatch, ...]
    total: int
    notes: tuple[str, ...]
    shown: tuple[str, ...] = ()
    not_covered: tuple[str, ...] = ()
    outdated: str = ""

    @property
    def holds(self) -> bool:
        """Whether nothing is wrong."""
        return not self.damage and not self.mismatches and not self.outdated

    @property
    def verdict(self) -> str:
        """One of *changed*, *intact*, and *intact, N files not covered*."""
        if not self.holds:
            return "changed"
        if not self.not_covered:
            return "intact"
        count, files = len(self.not_covered), "files"
        if count == 1:
            files = "file"
        return f"intact, {count} {files} not covered"

    @property
    def is_anchored(self) -> bool:
        """Whether it was compared with something that write access to the folder cannot forge."""
        return self.is_expected or self.is_signed

    def as_document(self) -> dict[str, object]:
        """Return what another program reads."""
        as_expected, as_signed = None, None
        if self.is_expected:
            as_expected = self.holds
        if self.is_signed:
            as_signed = self.holds
        not_shown = [UNSHOWN]
        if self.is_anchored and self.holds:
            not_shown.clear()
        mismatches = []
        for mismatch in self.mismatches:
            described = {
                "what": mismatch.what,
                "where": mismatch.where,
                "stated": mismatch.stated,
                "counted": mismatch.counted,
            }
            mismatches.append(described)
        return {
            "run": str(self.folder),
            "verdict": self.verdict,
            "holds": self.holds,
            "head": self.head or None,
            "as_expected": as_expected,
            "as_signed": as_signed,
            "compared": self.compared,
            "damage": self.damage,
            "outdated": self.outdated or None,
            "not_covered": self.not_covered,
            "mismatches": mismatches,
            "mismatches_in_all": self.total,
            "notes": self.notes,
            "shown": self.shown,
            "not_shown": not_shown,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _SealedFiles:
    """What comparing files with their seals came to.

    Attributes:
        notes: What a reader should know of the comparison.
        shown: What it shows.
        not_covered: Files that no seal is about.
    """

    notes: list[str]
    shown: list[str]
    not_covered: tuple[str, ...]


def verify(
    path: Path,
    *,
    data: Sequence[Path] = (),
    expect: str = "",
    signature: SealSignature | None = None,
) -> Verification:
    """Check a run against its chains, its hashes, its records and reports written again."""
    _require_folders(data)
    folder = find_run(path)
    damage = tuple(integrity.check(folder.records))
    chain = read_seals(folder.path)
    not_covered: tuple[str, ...] = ()
    mismatches, shown = Mismatches(), [_CHAINED]
    if expect:
        shown.append(_EXPECTED)
    with RecordReader(folder.records) as reader, errors_of(folder.records):
        version = reader.manifest().guardmark_version
        # What a run that is under way adds meanwhile is not seen by half of the checks.
        reader.connection.execute("BEGIN")
        head = reader.connection.head()
        if expect:
            _check_head(reader, head, expect, mismatches)
        if signature is not None:
            shown.append(_check_signature(signature, folder, chain, mismatches, head=head))
        mismatches.compared += reader.connection.value(_ROWS)
        refused = unreadable_files(folder, chain, mismatches)
        notes, outdated = list[str](), ""
        if refused:
            notes.append(f"{', '.join(sorted(refused))}: not opened.")
        else:
            outdated = _outdated(folder, reader)
            notes += _check_stored(folder, reader, mismatches, data=data)
            if not outdated:
                sealed = _check_sealed(folder, chain, reader, mismatches)
                not_covered = sealed.not_covered
                notes += sealed.notes
                shown += sealed.shown
        notes += _missing(folder, reader)
    if version != VERSION:
        notes.append(
            f"Reports were not written again: the run is of guardmark {version}, this is {VERSION}."
        )
    elif not damage and not outdated and not refused:
        shown += _compare_reports(folder, mismatches)
    if damage or outdated or mismatches.total:
        shown.clear()  # it shows nothing while anything is wrong
    return Verification(
        folder=folder.path,
        head=head,
        is_expected=bool(expect),
        is_signed=signature is not None,
        compared=mismatches.compared,
        damage=damage,
        mismatches=tuple(mismatches.listed),
        total=mismatches.total,
        notes=tuple(notes),
        shown=tuple(shown),
        not_covered=not_covered,
        outdated=outdated,
    )


def _require_folders(paths: Sequence[Path]) -> None:
    """Refuse what is named as a folder of data and is none."""
    for path in paths:
        if not path.is_dir():
            raise ConfigError(f"--data names a folder, and {path} is none.")


def _check_sealed(
    folder: RunDir,
    chain: SealChain,
    reader: RecordReader,
    mismatches: Mismatches,
) -> _SealedFiles:
    """Compare files with their seals, and the headline with the records."""
    sealed = check_seals(folder, chain, reader.connection, mismatches)
    notes, shown = [*sealed.notes], [_SEALED]
    if sealed.not_covered:
        shown = [_SEALED_BUT]
    not_counted = check_headline(folder.summary_json, reader.connection, mismatches)
    if not_counted:
        notes.append(not_counted)
    else:
        shown.append(_COUNTED)
    return _SealedFiles(notes=notes, shown=shown, not_covered=sealed.not_covered)


def _compare_reports(folder: RunDir, mismatches: Mismatches) -> list[str]:
    """Write the reports again and compare them; return the words for what that shows."""
    from guardmark.app.verify.rewritten import compare_again

    compare_again(folder, read_summary(folder.summary_json, Mismatches()), mismatches)
    if folder.summary_json.is_file():
        return [_REWRITTEN]
    return []


def _check_head(reader: RecordReader, head: str, expect: str, mismatches: Mismatches) -> None:
    """Compare the head with one that was noted elsewhere."""
    mismatches.compared += 1
    if head.startswith(expect.lower()):
        return
    expected = expect
    heads = list(reader.connection.rows("SELECT lower(hex(hash)) FROM batches ORDER BY id"))
    for number, (earlier,) in enumerate(heads, start=1):
        if earlier.startswith(expect.lower()):
            expected += f", the head after batch {number} of {len(heads)}: records were added since"
            break
    stated, kind = head or "nothing", MismatchKind.EXPECTED_HEAD
    mismatches.differ(kind, "records.sqlite", "head", stated=stated, counted=expected)


def _check_signature(
    signature: SealSignature, folder: RunDir, chain: SealChain, mismatches: Mismatches, *, head: str
) -> str:
    """Compare seals and head with what was signed; return the words for it."""
    if chain.broken:
        return ""  # that is a difference already, and what stands there may be no end of bytes
    path = signature.path or folder.path / f"{folder.seals.name}.minisig"
    mismatches.compared += 1
    signed = read_signature(folder.seals, path, public_key=signature.public_key)
    stated = signed.fault
    if not stated and not (chain.seals and chain.seals[-1].head == head):
        stated = "the records are not those that were signed"
    if stated:
        counted = f"wanted is a signature of {folder.seals.name} with key {signed.key}"
        mismatches.differ(MismatchKind.SIGNATURE, path.name, "", stated=stated, counted=counted)
    return f"{_SIGNED}{signed.key}: {signed.comment}"


def _outdated(folder: RunDir, reader: RecordReader) -> str:
    """Say that a run went on after its reports were written; every figure would differ."""
    stated, status = read_summary(folder.summary_json, Mismatches()).get("run"), reader.status()
    if not isinstance(stated, dict):
        return ""
    for words, before, now in (
        ("records", stated.get("stored"), status.stored),
        ("errors asked about again", stated.get("retried"), status.retried),
    ):
        if isinstance(before, int) and before < now:
            return (
                f"The reports are older than the records: they tell of {before:,} {words}, "
                f"{now:,} are stored. To write them anew: guardmark report {folder.path}"
            )
    return ""


def _described_in(path: Path) -> Any:
    """Read a description of the run; None where the file holds none, or is far too large."""
    import yaml

    if path.stat().st_size > MOST_DESCRIPTION_BYTES:
        return None
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        if path.suffix == ".json":
            return json.loads(text)
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one in C where it was built
        return yaml.load(text, Loader=loader)  # noqa: S506 - both are safe loaders
    except (yaml.YAMLError, ValueError, RecursionError):
        return None


def _check_stored(
    folder: RunDir, reader: RecordReader, mismatches: Mismatches, *, data: Sequence[Path]
) -> tuple[str, ...]:
    """Compare the description of the run, and its data, with the manifest in the records."""
    row = reader.connection.execute("SELECT value FROM meta WHERE key = 'manifest'").fetchone()
    manifest: dict[str, Any] = {}
    if row:
        manifest = json.loads(row[0])
    for path, key in ((folder.data_manifest, "data"), (folder.resolved_config, "settings")):
        if not path.exists():
            continue
        stated = _described_in(path)
        counted = manifest.get(key)
        mismatches.tree(MismatchKind.DESCRIPTION, path.name, "", stated=stated, counted=counted)
    # Names of files come from the run, which may be a stranger's: what lies in the current folder
    # is opened only where a person says that the data lie there.
    missing = check_data(reader, data, mismatches)
    return tuple(
        f"{name} was not compared with the data; --data FOLDER says where it lies (--data . here)."
        for name in missing
    )


def _missing(folder: RunDir, reader: RecordReader) -> list[str]:
    """Say which reports a complete run lacks, or that it is not complete."""
    if reader.status().state is not RunState.COMPLETE:
        return ["The run is not complete; what it stored so far was checked."]
    missing = [*missing_reports(folder, reader.manifest())]
    if not folder.results.exists():
        missing.append("results.jsonl")
    return [f"{name} is not there; to write it: guardmark report {folder.path}" for name in missing]
