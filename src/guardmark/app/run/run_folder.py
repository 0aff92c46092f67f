"""The folder of a run: where it is, what describes the run in it, and when it is taken back."""

from __future__ import annotations

import json
import re
import shutil
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from guardmark.app.parts.loading import resolved
from guardmark.app.settings import REPORTS
from guardmark.config.installation import describe_environment
from guardmark.core.errors import StorageError, StoreError
from guardmark.core.manifest import IN_PROCESS, RunManifest
from guardmark.core.version import VERSION
from guardmark.datasets.loading import file_hashes
from guardmark.datasets.settings import data_sha256, merge_files
from guardmark.datasets.specs import dataset_specs
from guardmark.engine.shards import name_part
from guardmark.net.redaction import KNOWN
from guardmark.store.connect import is_blank
from guardmark.store.reader import RecordReader, RunState
from guardmark.store.run_dir import RunDir, errors_of_files, is_held

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime

    from guardmark.app.parts.loading import LoadedConfig
    from guardmark.app.settings import Config
    from guardmark.core.manifest import DataManifest, PartManifest
    from guardmark.engine.runner import RunSummary


RUNS = Path("runs")  # folder of all runs when none is named


class Start(StrEnum):
    """How a command takes up a run."""

    CONTINUE = "continue"
    FRESH = "fresh"
    RETRY = "retry"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLocation:
    """Where a run takes place."""

    folder: RunDir
    has_samples: bool = False
    is_fresh: bool = False


def find_place(
    loaded: LoadedConfig, *, out: Path | None, start: Start, config_hash: str, now: datetime
) -> RunLocation:
    """Find the unfinished run that a command continues, or the folder of a new one."""
    name, is_retry, shard = loaded.config.name, start is Start.RETRY, loaded.config.run.shard
    new = (
        new_run(RUNS, name, config_hash, now=now, shard=shard) if out is None else RunDir(path=out)
    )
    if start is Start.FRESH:
        return RunLocation(folder=new, is_fresh=True)
    folders = (
        runs_to_continue(RUNS, name, config_hash, also_complete=is_retry) if out is None else [new]
    )
    files = None
    for folder in folders:
        manifest = stored_manifest(folder)
        if manifest is None:
            if out is None and not is_retry and not is_held(folder.path):
                return RunLocation(folder=folder)  # killed while its samples were read
            continue
        files = files or data_hashes(loaded)
        strange = difference(manifest, config_hash=config_hash, files=files, shard=shard)
        if not strange:
            return RunLocation(folder=folder, has_samples=True)
        if out is not None:
            raise StoreError(
                f"{folder.path} holds a run {strange}; it was left as it is.\n"
                "Next: name another folder with -o, or set that run aside with --fresh."
            )
    if is_retry:
        raise StoreError(
            "There is no run of this configuration and data whose errors could be asked about "
            "again.\nNext: leave out --failed, or name the folder of the run with -o."
        )
    return RunLocation(folder=new)


def data_hashes(loaded: LoadedConfig) -> dict[str, str]:
    """Return the hash of each file of data that a configuration names."""
    return {
        name: digest
        for entry in loaded.config.data
        for spec in dataset_specs(entry, loaded.folder)
        for name, digest in file_hashes(spec).items()
    }


@contextmanager
def begun(location: RunLocation, *, now: datetime) -> Iterator[Callable[[], None]]:
    """Hold the folder of a run; take a beginning back that an exception ends too early."""
    folder, is_kept = location.folder, location.has_samples
    missing = [path for path in (folder.path, *folder.path.parents) if not path.exists()]

    def keep() -> None:
        nonlocal is_kept
        is_kept = True

    with folder.lock(started=utc_text(now)):
        aside = set_aside(folder, now=now) if location.is_fresh else {}
        is_ours = not folder.records.exists()
        try:
            yield keep
        except BaseException:
            if is_ours and not is_kept:
                _take_back(folder, missing, aside)
            raise


def _take_back(folder: RunDir, missing: list[Path], aside: dict[Path, Path]) -> None:
    with suppress(OSError):  # what cannot be removed hinders no later run
        if folder.path in missing:
            shutil.rmtree(folder.path, ignore_errors=True)
            for path in missing[1:]:
                path.rmdir()
            return
        for path in _record_files(folder):
            path.unlink(missing_ok=True)
        for path, earlier in aside.items():
            earlier.rename(path)


_NOT_ALWAYS = {"comparison.json", "gate.json", "junit.xml", "results.sarif"}
"""Reports without which a run may be finished."""
_STAMP = "%Y%m%dT%H%M%SZ"
_SHOWN_OF_HASH = 8


def new_run(
    base: Path, name: str, config_hash: str, *, now: datetime, shard: str | None = None
) -> RunDir:
    """Name the folder of a new run; shards that begin in the same second have their own."""
    stem = f"{now.strftime(_STAMP)}-{config_hash[:_SHOWN_OF_HASH]}"
    stem += f"-shard-{shard.replace('/', '-of-')}" if shard else ""
    folder, serial = _family(base, name) / stem, 2
    while folder.exists():
        folder, serial = folder.with_name(f"{stem}-{serial}"), serial + 1
    return RunDir(path=folder)


def runs_to_continue(
    base: Path, name: str, config_hash: str, *, also_complete: bool = False
) -> Iterator[RunDir]:
    """Yield earlier runs that the same command would continue, newest first."""
    family = _family(base, name)
    for path in sorted(family.glob(f"*-{config_hash[:_SHOWN_OF_HASH]}*"), reverse=True):
        folder = RunDir(path=path)
        if folder.records.exists() and (also_complete or _is_unfinished(folder)):
            yield folder


def stored_manifest(folder: RunDir) -> RunManifest | None:
    """Return what a folder's run was, if it got as far as storing its samples."""
    is_there = folder.checked().records.exists()
    if not is_there or is_blank(folder.records):
        if folder.summary_json.exists() or folder.results.exists():
            raise StoreError(
                f"{folder.records} is {'empty' if is_there else 'missing'}, but reports of a "
                "finished run lie beside it.\n"
                "Next: restore it from a copy, name another folder with -o, or set what is there"
                " aside with --fresh."
            )
        return None
    with RecordReader(folder.records) as reader:
        return reader.manifest() if reader.has_samples() else None


def difference(
    manifest: RunManifest, *, config_hash: str, files: Mapping[str, str], shard: str | None = None
) -> str:
    """Say what makes a stored run another one than the run that is asked for."""
    if manifest.config_sha256 != config_hash:
        return "of another configuration, or of other options (--limit, --only)"
    run = manifest.settings.get("run")
    if isinstance(run, dict) and run.get("shard") != shard:
        return "of another shard"
    before = {file: h for data in manifest.data for file, h in data.files.items()}
    changed = sorted(file for file in {*before, *files} if before.get(file) != files.get(file))
    return f"over other data: {changed[0]} was changed since" if changed else ""


def set_aside(folder: RunDir, *, now: datetime) -> dict[Path, Path]:
    """Rename records and seals of an earlier run, so that a fresh one starts in its folder."""
    return {
        path: path.rename(path.with_name(f"{path.stem}.before-{now.strftime(_STAMP)}{path.suffix}"))
        for path in (*_record_files(folder), folder.seals)
        if path.exists()
    }


def _record_files(folder: RunDir) -> list[Path]:
    """The file of the records, and those that SQLite keeps beside it."""
    records = folder.records
    return [records.with_name(f"{records.name}{suffix}") for suffix in ("", "-wal", "-shm")]


def _family(base: Path, name: str) -> Path:
    return base / re.sub(r"[^A-Za-z0-9_.@-]", "_", name)


def _is_unfinished(folder: RunDir) -> bool:
    try:
        with RecordReader(folder.records) as reader:
            if reader.status().state is not RunState.COMPLETE:
                return True
            # Killed while it wrote its reports: asking every service again would be a pity.
            return bool(missing_reports(folder, reader.manifest()))
    except StoreError:
        return False  # a damaged run is left alone; a new one starts beside it


def missing_reports(folder: RunDir, manifest: RunManifest) -> list[str]:
    """Name the reports that a configuration asks for and every finished run has, and are gone."""
    wanted = manifest.settings.get("report")
    return [
        name
        for name, form in REPORTS.items()
        if isinstance(wanted, list)
        and form in wanted
        and name not in _NOT_ALWAYS
        and not folder.file(name).exists()
    ]


def utc_text(moment: datetime) -> str:
    """Write a moment of UTC, to the second."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def describe_run(
    config: Config,
    *,
    config_sha256: str,
    now: datetime,
    parts: Sequence[PartManifest],
    data: Sequence[DataManifest],
) -> RunManifest:
    """Return the manifest of a run, as far as its configuration tells it."""
    on_malformed, on_error = config.policies
    return RunManifest(
        name=name_part(config.name, config.run.shard),
        guardmark_version=VERSION,
        config_sha256=config_sha256,
        data_sha256=data_sha256(data),
        created_utc=utc_text(now),
        seed=config.run.seed,
        repeats=config.run.repeats,
        confidence=config.stats.confidence,
        min_per_category=config.stats.min_per_category,
        on_malformed=on_malformed,
        on_error=on_error,
        latency_mode=config.latency.mode,
        concurrency=config.run.concurrency,
        warmup=config.latency.warmup,
        evaluator=config.run.evaluator,
        parts=tuple(parts),
        data=merge_files(data),
        categories={},
        settings=resolved(config),
    )


def write_description(
    folder: RunDir, config: Config, data: Sequence[DataManifest], **more: object
) -> None:
    """Write what was run: configuration, data and environment, and more about the latter."""
    import yaml

    text = yaml.safe_dump(resolved(config), sort_keys=False, allow_unicode=True)
    text = _what_is_not_rebuilt(config) + text
    folder.write_text(folder.resolved_config.name, text)
    for path, value in (
        (folder.data_manifest, [asdict(manifest) for manifest in data]),
        (folder.environment, {**describe_environment(), **more}),
    ):
        folder.write_text(path.name, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def _what_is_not_rebuilt(config: Config) -> str:
    """Say in comments which defenses were objects that no file holds; nothing for other runs."""
    objects = [name for name, each in config.defenses.items() if each.get("type") == IN_PROCESS]
    if not objects:
        return ""
    is_or_are = "is" if len(objects) == 1 else "are"
    return (
        f"# Measured from Python: {', '.join(objects)} {is_or_are} no part of this file, which says"
        " where each stood\n"
        "# (object) and a hash of what was known of it (fingerprint). Data, seed and all settings "
        "are rebuilt\n"
        "# from this file once each of them has a type again, for example\n"
        '# {type: python, target: "FILE.py:NAME"}.\n'
    )


@contextmanager
def logbook(folder: RunDir, now: datetime) -> Iterator[Callable[[str], None]]:
    """Offer a way to note lines in the log of a run, no text of a sample and no secret."""
    began = monotonic()

    def note(line: str) -> None:
        stamp = utc_text(now + timedelta(seconds=monotonic() - began))
        with errors_of_files(folder.log), folder.log.open("a", encoding="utf-8") as log:
            log.write(f"{stamp} {' '.join(KNOWN.text(line).split())}\n")

    try:
        yield note
    except BaseException as error:
        first = (KNOWN.text(str(error)).splitlines() or [""])[0]
        with suppress(StorageError):  # a full disk may be what ended the run
            note(f"ended by {type(error).__name__}: {first[:200]}")
        raise


def ending_line(summary: RunSummary) -> str:
    """Return how a run ended, on one line."""
    reason = f" ({summary.reason})" if summary.reason else ""
    return (
        f"{summary.ending.value}{reason}: {summary.added} records added, {summary.stored} of "
        f"{summary.planned} stored, {summary.calls} calls in {summary.elapsed_s:.3f} s, "
        f"{summary.mean_in_flight:.1f} in flight, event loop late by at most "
        f"{summary.loop_lag_ms:.1f} ms"
    )
