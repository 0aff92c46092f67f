"""The folder of a run: where it is, what describes the run in it, and when it is taken back."""

from __future__ import annotations

import json
import re
import shutil
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from guardmark.app.parts.loading import resolved
from guardmark.config.installation import describe_environment
from guardmark.core.errors import StorageError
from guardmark.core.manifest import IN_PROCESS, RunManifest
from guardmark.core.values import dataclass
from guardmark.core.version import VERSION
from guardmark.datasets.settings import data_sha256, merge_files
from guardmark.engine.shards import name_part
from guardmark.net.redaction import KNOWN
from guardmark.store.file_errors import errors_of_files
from guardmark.store.run_dir import RunDir

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from guardmark.app.settings import Config
    from guardmark.core.manifest import DataManifest, PartManifest
    from guardmark.engine.runner import RunSummary


RUNS = Path("runs")  # folder of all runs when none is named


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLocation:
    """Where a run takes place."""

    folder: RunDir
    has_samples: bool = False
    is_fresh: bool = False


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


_STAMP = "%Y%m%dT%H%M%SZ"
SHOWN_OF_HASH = 8


def new_run(
    base: Path, name: str, config_hash: str, *, now: datetime, shard: str | None = None
) -> RunDir:
    """Name the folder of a new run; shards that begin in the same second have their own."""
    stem = f"{now.strftime(_STAMP)}-{config_hash[:SHOWN_OF_HASH]}"
    stem += f"-shard-{shard.replace('/', '-of-')}" if shard else ""
    folder, serial = family_of(base, name) / stem, 2
    while folder.exists():
        folder, serial = folder.with_name(f"{stem}-{serial}"), serial + 1
    return RunDir(path=folder)


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


def family_of(base: Path, name: str) -> Path:
    """Return the folder of all runs of one name."""
    return base / re.sub(r"[^A-Za-z0-9_.@-]", "_", name)


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
    reason = ""
    if summary.reason:
        reason = f" ({summary.reason})"
    return (
        f"{summary.ending.value}{reason}: {summary.added} records added, {summary.stored} of "
        f"{summary.planned} stored, {summary.calls} calls in {summary.elapsed_s:.3f} s, "
        f"{summary.mean_in_flight:.1f} in flight, event loop late by at most "
        f"{summary.loop_lag_ms:.1f} ms"
    )
