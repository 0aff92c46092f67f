"""The verb `export`: the records of a run in a form that other tools read."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, cast

from guardmark.app.results.reporting import find_run
from guardmark.core.errors import UnknownName
from guardmark.store.records import RecordReader

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_FORMATS = {
    "csv": ("records.csv", "guardmark.store.export:write_csv"),
    "jsonl": ("results.jsonl", "guardmark.store.export:write_jsonl"),
    "minorbench": ("minorbench", "guardmark.reports.minorbench:write_minorbench"),
    "inspect": ("inspect", "guardmark.reports.inspect_log:write_inspect"),
    "parquet": ("records.parquet", "guardmark.store.export:write_parquet"),
    "png": ("figures", "guardmark.app.results.figures:write_png"),
    "svg": ("figures", "guardmark.app.results.figures:write_svg"),
}
"""Format to the usual name below the run's folder, and its writer: a function of an open
reader and a path (a file, or a folder where the format has several files), which returns how
many records it wrote. Writers are imported on use."""

FORMATS = tuple(_FORMATS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What was written."""

    path: Path
    records: int


def export(run: Path, form: str, *, out: Path | None = None) -> Exported:
    """Write the records of a run in another form."""
    if form not in _FORMATS:
        raise UnknownName("export format", form, _FORMATS)
    name, place = _FORMATS[form]
    folder = find_run(run)
    path = out or folder.file(name)
    module, _, attribute = place.partition(":")
    write = cast("Callable[[RecordReader, Path], int]", getattr(import_module(module), attribute))
    with RecordReader(folder.records) as reader:
        return Exported(path=path, records=write(reader, path))
