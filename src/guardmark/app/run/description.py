"""What was run and when, as files: configuration, data, environment and `run.log`."""

from __future__ import annotations

import json
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any

from guardmark.core.errors import StorageError
from guardmark.net.redaction import KNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime

    from guardmark.core.manifest import DataManifest
    from guardmark.engine.runner import RunSummary
    from guardmark.store.run_dir import RunDir


def write_description(
    folder: RunDir,
    *,
    config: Mapping[str, Any],
    data: Sequence[DataManifest],
    environment: Mapping[str, object],
) -> None:
    """Write what was run: configuration, data and environment."""
    import yaml

    folder.write_text(
        folder.resolved_config.name,
        yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True),
    )
    folder.write_text(folder.data_manifest.name, _json([asdict(manifest) for manifest in data]))
    folder.write_text(folder.environment.name, _json(environment))


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, sort_keys=False) + "\n"


@contextmanager
def logbook(folder: RunDir, now: datetime) -> Iterator[Callable[[str], None]]:
    """Offer a way to note lines in the log of a run while a block runs.

    An exception is noted by its kind and first line, and goes on. No text of a sample and no
    secret is ever noted.
    """
    began = monotonic()

    def note(line: str) -> None:
        stamp = (now + timedelta(seconds=monotonic() - began)).strftime("%Y-%m-%dT%H:%M:%SZ")
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
