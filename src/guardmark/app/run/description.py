"""What is run, when and where: manifest, environment, the files that tell of them, `run.log`."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import sqlite3
import sys
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from importlib.metadata import PackageNotFoundError, distribution, requires, version
from time import monotonic
from typing import TYPE_CHECKING

from guardmark.app.parts.loading import resolved
from guardmark.core.errors import StorageError
from guardmark.core.manifest import VERSION, RunManifest
from guardmark.datasets.settings import data_sha256, merge_files
from guardmark.net.redaction import KNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from guardmark.app.settings import Config
    from guardmark.core.manifest import DataManifest, PartManifest
    from guardmark.engine.runner import RunSummary
    from guardmark.store.run_dir import RunDir


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
        name=config.name,
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


def write_description(folder: RunDir, config: Config, data: Sequence[DataManifest]) -> None:
    """Write what was run: configuration, data and environment."""
    import yaml

    text = yaml.safe_dump(resolved(config), sort_keys=False, allow_unicode=True)
    folder.write_text(folder.resolved_config.name, text)
    for path, value in (
        (folder.data_manifest, [asdict(manifest) for manifest in data]),
        (folder.environment, describe_environment()),
    ):
        folder.write_text(path.name, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


@contextmanager
def logbook(folder: RunDir, now: datetime) -> Iterator[Callable[[str], None]]:
    """Offer a way to note lines in the log of a run, no text of a sample and no secret."""
    began = monotonic()

    def note(line: str) -> None:
        stamp = utc_text(now + timedelta(seconds=monotonic() - began))
        try:
            with folder.log.open("a", encoding="utf-8") as log:
                log.write(f"{stamp} {' '.join(KNOWN.text(line).split())}\n")
        except OSError as error:
            raise StorageError(
                f"{folder.log} cannot be written: {error.strerror}.\n"
                "Next: free disk space or make the folder writable, then give the command again."
            ) from error

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


_EXTRAS = {
    "hf": (("torch", "transformers"), "local guard models and classifiers"),
    "parquet": (("pyarrow",), "Parquet files"),
    "uvloop": (("uvloop",), "a faster event loop"),
    "view": (("starlette", "uvicorn"), "pages over many runs"),
}
_LEAST_FREE_BYTES = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallationCheck:
    """One thing that was looked at."""

    subject: str
    is_fine: bool
    detail: str


def examine() -> list[InstallationCheck]:
    """Look at everything a measurement may need."""
    free = shutil.disk_usage(".").free
    python = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    rows = [
        ("guardmark", True, installed_version("guardmark") or ""),
        ("Python", sys.version_info >= (3, 11), python),
        ("SQLite", True, sqlite3.sqlite_version),
        ("disk", free > _LEAST_FREE_BYTES, f"{free / 1e9:.1f} GB free in the current folder"),
        *(_extra(name, *needs) for name, needs in _EXTRAS.items()),
    ]
    return [InstallationCheck(subject=s, is_fine=fine, detail=d) for s, fine, d in rows]


def _extra(name: str, packages: tuple[str, ...], purpose: str) -> tuple[str, bool, str]:
    versions = {package: installed_version(package) for package in packages}
    detail = ", ".join(f"{package} {version}" for package, version in versions.items())
    if None in versions.values():
        return f"extra [{name}]", False, f"for {purpose}: pip install 'guardmark[{name}]'"
    return f"extra [{name}]", True, detail


_OPTIONAL = ("onnxruntime", "pyarrow", "torch", "transformers", "uvloop")


def installed_version(name: str) -> str | None:
    """Return the version of an installed distribution, or None."""
    try:
        # The version stands near the top; parsing many kilobytes of metadata takes its time.
        head = (distribution(name).read_text("METADATA") or "").partition("\n\n")[0]
    except PackageNotFoundError:
        return None
    stated = re.search(r"^Version: (\S+)", head, re.MULTILINE)
    return stated.group(1) if stated else version(name)


def describe_environment() -> dict[str, object]:
    """Return what may move a figure beside configuration and data."""
    # The distributions guardmark depends on, and the optional ones it knows.
    stated = [re.match(r"[A-Za-z0-9_.-]+", line) for line in requires("guardmark") or ()]
    libraries = sorted({*(name.group().lower() for name in stated if name), *_OPTIONAL})
    return {
        "guardmark": installed_version("guardmark"),
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "sqlite": sqlite3.sqlite_version,
        "system": platform.system(),
        "release": platform.release(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "libraries": {name: found for name in libraries if (found := installed_version(name))},
    }
