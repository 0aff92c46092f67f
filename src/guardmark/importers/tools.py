"""The tools whose runs can be read, and how what was read becomes records."""

from __future__ import annotations

from hashlib import sha256
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Final, cast

from guardmark.core.errors import ConfigError, UnknownName
from guardmark.core.manifest import DataManifest
from guardmark.core.record import Stage
from guardmark.importers.queried import queried_tools, read_queried

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from guardmark.importers.imported import ImportedRow, ImportedRun, Statements
    from guardmark.store.records import RecordWriter

_TOOLS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "any-guardrail": ("guardmark.importers.table:read_table", ("label", "model")),
    "garak": ("guardmark.importers.garak:read_garak", ()),
    "inspect": ("guardmark.importers.inspect_log:read_inspect", ("label", "unsafe")),
    "minorbench": ("guardmark.importers.minorbench:read_minorbench", ()),
    "table": ("guardmark.importers.table:read_table", ("label", "model")),
}
"""Tool to its reader, and to what a person may have to say of files that do not say it."""


_ASKED: Final = {"jailbreakbench": (), "promptfoo": ("label", "model")}
"""What a person may have to say of files of tools that are read by a query: else the target."""


def read_run(tool: str, path: Path, statements: Statements) -> ImportedRun:
    """Read a finished run of a tool."""
    by_query = tool in queried_tools()
    if not by_query and tool not in _TOOLS:
        raise UnknownName("tool", tool, (*_TOOLS, *queried_tools()))
    reader, needed = ("", _ASKED.get(tool, ("model",))) if by_query else _TOOLS[tool]
    for name in ("label", "model", "unsafe"):
        if getattr(statements, name) and name not in needed:
            raise ConfigError(f"--{name} does not apply to files of {tool}. Leave it out.")
    if by_query:
        return read_queried(tool, path, statements)
    read = cast("Callable[[Path, Statements], ImportedRun]", resolve_name(reader))
    return read(path, statements)


def store_rows(
    writer: RecordWriter, rows: Sequence[ImportedRow], *, unguarded: str, has_model: bool
) -> None:
    """Store what came of each sample: decisions of its guard, what followed as `unguarded`."""
    planned = 0
    if has_model:  # known even where the guard let nothing through to it
        writer.record_batch(unguarded, Stage.MODEL, repeat=0)
    for position, row in enumerate(rows):
        for answer in row.answers:
            for defense, stage, outcome in (
                (row.guard, Stage.DEFENSE, answer.decision),
                (unguarded, Stage.MODEL, answer.response),
                (unguarded, Stage.JUDGE, answer.verdict),
            ):
                if outcome is not None:
                    batch = writer.record_batch(defense, stage, repeat=answer.repeat)
                    batch.add(position, outcome, latency_ns=None)
                    planned += 1
    writer.plan(planned)


def describe_data(imported: ImportedRun, *, name: str, home: Path) -> DataManifest:
    """Describe the samples of a run as a manifest describes data."""
    attacks = sum(row.sample.is_attack for row in imported.rows)
    digest = sha256()
    for row in imported.rows:
        digest.update(row.sample.id.encode() + row.sample.prompt.digest())
    return DataManifest(
        name=name,
        version="",
        sha256=digest.hexdigest(),
        attacks=attacks,
        benign=len(imported.rows) - attacks,
        files={str(home / file): sealed for file, sealed in imported.files.items()},
    )
