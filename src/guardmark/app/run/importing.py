"""The verb `import`: a finished run of another tool, as a run of guardmark."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING

from guardmark.app.parts.loading import resolved
from guardmark.app.run.run_folder import RUNS, describe_run, new_run, utc_text
from guardmark.app.settings import Config
from guardmark.core.errors import DatasetError, StorageError
from guardmark.core.manifest import PartManifest
from guardmark.engine.plan import NO_GUARD
from guardmark.importers.imported import PART_TYPE, Statements
from guardmark.importers.minorbench import KEPT
from guardmark.importers.tools import describe_data, read_run, store_rows
from guardmark.store.reader import RunState
from guardmark.store.records import RecordWriter
from guardmark.store.run_dir import RunDir

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from guardmark.core.manifest import RunManifest
    from guardmark.importers.imported import ImportedRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A run that was taken over."""

    folder: RunDir
    config: Config
    samples: int
    answers: int
    warnings: tuple[str, ...]


def import_run(
    tool: str,
    path: Path,
    *,
    now: datetime,
    out: Path | None = None,
    statements: Statements | None = None,
) -> Imported:
    """Read a finished run of another tool into records; nothing is called."""
    imported = read_run(tool, path, statements or Statements())
    answers = [answer for row in imported.rows for answer in row.answers]
    if not any(answer.decision or answer.response for answer in answers):
        raise DatasetError(f"{path} holds neither a decision nor an answer: nothing to score.")
    config = Config.model_validate(imported.settings(path, no_guard=NO_GUARD))
    texts = [json.dumps(each, sort_keys=True) for each in (resolved(config), dict(imported.files))]
    digest = sha256("".join(texts).encode()).hexdigest()
    folder = RunDir(path=out) if out is not None else new_run(RUNS, config.name, digest, now=now)
    if folder.records.exists():
        raise StorageError(
            f"{folder.path} already holds a run.\nNext: name another folder with -o."
        )
    with folder.lock(started=utc_text(now)), RecordWriter(folder.records) as writer:
        home = path.parent if path.is_file() else path
        writer.put_manifest(_manifest(imported, config, digest=digest, now=now, home=home))
        writer.load_samples([row.sample for row in imported.rows])
        guards = imported.guards(NO_GUARD)
        rows = [replace(r, guard=guards.get(r.guard or imported.guard, "")) for r in imported.rows]
        store_rows(writer, rows, unguarded=NO_GUARD, has_model=bool(imported.model))
        if imported.kept:
            writer.add_layer(KEPT, imported.kept)
        writer.finish(RunState.COMPLETE)
    return Imported(
        folder=folder,
        config=config,
        samples=len(imported.rows),
        answers=sum(answer.response is not None for answer in answers),
        warnings=imported.warnings,
    )


def _manifest(
    imported: ImportedRun, config: Config, *, digest: str, now: datetime, home: Path
) -> RunManifest:
    data = describe_data(imported, name=config.name, home=home)
    parts = [
        PartManifest(name=n, kind="defense", type=PART_TYPE, view="text", settings={"model": raw})
        for raw, n in imported.guards(NO_GUARD).items()
    ]
    named = {"model": imported.model, "judge": imported.judge}
    parts += [PartManifest(name=n, kind=kind, type=PART_TYPE) for kind, n in named.items() if n]
    manifest = describe_run(config, config_sha256=digest, now=now, parts=parts, data=[data])
    evaluator = f"imported from {imported.tool} {imported.created_utc}".strip()
    return replace(manifest, warmup=0, evaluator=evaluator)
