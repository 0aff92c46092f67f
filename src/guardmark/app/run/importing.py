"""The verb `import`: a finished run of another tool, as a run of guardmark."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from hashlib import sha256
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Final, cast

from guardmark import __version__
from guardmark.app.data.reading import resolved
from guardmark.app.run.run_folder import RUNS, new_run
from guardmark.app.settings import Config
from guardmark.core.errors import ConfigError, DatasetError, StorageError, UnknownName
from guardmark.core.manifest import DataManifest, PartManifest, Policy, RunManifest
from guardmark.core.record import Stage
from guardmark.datasets.settings import data_sha256
from guardmark.engine.plan import NO_GUARD
from guardmark.importers.imported import Statements
from guardmark.store.records import RecordWriter, RunState
from guardmark.store.run_dir import RunDir

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from pathlib import Path

    from guardmark.importers.imported import ImportedRun

_TOOLS: Final = {
    "garak": "guardmark.importers.garak:read_garak",
    "inspect": "guardmark.importers.inspect_log:read_inspect",
    "jailbreakbench": "guardmark.importers.jailbreakbench:read_jailbreakbench",
    "minorbench": "guardmark.importers.minorbench:read_minorbench",
    "promptfoo": "guardmark.importers.promptfoo:read_promptfoo",
}
_STATED: Final = {
    "garak": (),
    "inspect": ("label", "unsafe"),
    "jailbreakbench": (),
    "minorbench": (),
    "promptfoo": ("label", "model"),
}
"""What a person may have to say of the files of a tool, since they do not say it themselves."""

_TYPE: Final = "imported"


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
    said: Statements | None = None,
) -> Imported:
    """Read a finished run of another tool into records; nothing is called."""
    found = _read(tool, path, said or Statements())
    if not any(answer.decision or answer.response for row in found.rows for answer in row.answers):
        raise DatasetError(f"{path} holds neither a decision nor an answer: nothing to score.")
    config = _config(found, path)
    settings = json.dumps(resolved(config), sort_keys=True)
    digest = sha256((settings + json.dumps(dict(found.files), sort_keys=True)).encode()).hexdigest()
    folder = RunDir(path=out) if out is not None else new_run(RUNS, config.name, digest, now=now)
    if folder.records.exists():
        raise StorageError(
            f"{folder.path} holds a run already.\nNext: name another folder with -o."
        )
    stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    folder.create()
    with folder.lock(started=stamp), RecordWriter(folder.records) as writer:
        home = path.parent if path.is_file() else path
        writer.put_manifest(_manifest(found, config, digest=digest, stamp=stamp, home=home))
        writer.load_samples([row.sample for row in found.rows])
        answers = _store(writer, found, guard=_guard_name(found))
        writer.finish(RunState.COMPLETE)
    samples, warnings = len(found.rows), found.warnings
    return Imported(
        folder=folder, config=config, samples=samples, answers=answers, warnings=warnings
    )


def _read(tool: str, path: Path, said: Statements) -> ImportedRun:
    if tool not in _TOOLS:
        raise UnknownName("tool", tool, _TOOLS)
    for name in ("label", "model", "unsafe"):
        if getattr(said, name) and name not in _STATED[tool]:
            raise ConfigError(f"--{name} says nothing of files of {tool}. Leave it out.")
    read = cast("Callable[[Path, Statements], ImportedRun]", resolve_name(_TOOLS[tool]))
    return read(path, said)


def _store(writer: RecordWriter, found: ImportedRun, *, guard: str) -> int:
    planned = answers = 0
    for position, row in enumerate(found.rows):
        for answer in row.answers:
            for defense, stage, outcome in (
                (guard, Stage.DEFENSE, answer.decision),
                (NO_GUARD, Stage.MODEL, answer.response),
                (NO_GUARD, Stage.JUDGE, answer.verdict),
            ):
                if outcome is not None:
                    batch = writer.record_batch(defense, stage, repeat=answer.repeat)
                    batch.add(position, outcome, latency_ns=None)
                    planned += 1
            answers += answer.response is not None
    writer.plan(planned)
    return answers


def _config(found: ImportedRun, path: Path) -> Config:
    guard = _guard_name(found)
    settings: dict[str, Any] = {
        "version": 1,
        "name": _name(path.parent.name if _is_folder_run(path) else path.stem),
        "data": [{"path": str(path)}],
        "defenses": {guard: {"type": _TYPE}} if guard else {},
        "run": {"repeats": max([1, *(len(row.answers) for row in found.rows)])},
    }
    if found.model:  # else a guard was measured alone, and there is nothing to enforce
        policy = Policy.FALLBACK_TO_MAIN if found.passes_malformed else Policy.BLOCK
        settings["run"] |= {"on_malformed": policy, "on_error": policy}
        settings["pipeline"] = {
            "guards": [guard or NO_GUARD],
            "model": {"type": _TYPE, "model": found.model},
            "judges": [{"type": _TYPE, "name": found.judge}] if found.judge else [],
            "legacy_cards": list(found.legacy_cards),
        }
    return Config.model_validate(settings)


def _is_folder_run(path: Path) -> bool:
    """Whether the tool gives each run a folder, whose name then tells more than the file's."""
    return path.is_file() and path.name == "results.jsonl"


def _manifest(
    found: ImportedRun, config: Config, *, digest: str, stamp: str, home: Path
) -> RunManifest:
    attacks = sum(row.sample.is_attack for row in found.rows)
    seal = sha256()
    for row in found.rows:
        seal.update(row.sample.id.encode() + row.sample.prompt.digest())
    data = DataManifest(
        name=config.name,
        version="",
        sha256=seal.hexdigest(),
        attacks=attacks,
        benign=len(found.rows) - attacks,
        files={str(home / name): sealed for name, sealed in found.files.items()},
    )
    named = [("defense", _guard_name(found)), ("model", found.model), ("judge", found.judge)]
    on_malformed, on_error = config.policies
    return RunManifest(
        name=config.name,
        guardmark_version=__version__,
        config_sha256=digest,
        data_sha256=data_sha256([data]),
        created_utc=stamp,
        seed=config.run.seed,
        repeats=config.run.repeats,
        confidence=config.stats.confidence,
        min_per_category=config.stats.min_per_category,
        on_malformed=on_malformed,
        on_error=on_error,
        latency_mode=config.latency.mode,
        concurrency=config.run.concurrency,
        warmup=0,
        evaluator=f"imported from {found.tool} {found.created_utc}".strip(),
        parts=tuple(
            PartManifest(name=name, kind=kind, type=_TYPE, view="text" if kind == "defense" else "")
            for kind, name in named
            if name
        ),
        data=(data,),
        categories={},
        settings=resolved(config),
    )


def _guard_name(found: ImportedRun) -> str:
    name = _name(found.guard) if found.guard else ""
    return f"{name}-guard" if name == NO_GUARD else name


def _name(text: str) -> str:
    """A name as configurations write them."""
    return re.sub(r"[^A-Za-z0-9_.@-]+", "-", text).strip("-.@")[:80] or "imported"
