"""Reports written again by the code that writes them, to find any other change.

This second look is no independent check of the figures; it finds an edit in places that the
recount does not know, such as a sentence or a drawing.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from guardmark.analysis.pipeline.small_slices import SliceRequest
from guardmark.app.results.artefacts import write_reports
from guardmark.app.results.comparing import read_slices
from guardmark.app.results.exporting import export
from guardmark.app.verify.difference import Comparer, Finding
from guardmark.app.verify.lines import parsed
from guardmark.reports.small_slices import stability_json, stability_markdown
from guardmark.store.connect import close_reading
from guardmark.store.run_dir import RunDir

if TYPE_CHECKING:
    from collections.abc import Iterator

    from guardmark.app.settings import Config

_FORMAT_OF: Final = {
    "summary.json": "json",
    "comparison.json": "json",
    "summary.md": "md",
    "categories.csv": "csv",
    "variant_metrics.csv": "csv",
    "report.html": "html",
    "junit.xml": "junit",
    "results.sarif": "sarif",
}


def compare_again(
    folder: RunDir,
    config: Config,
    comparer: Comparer,
    *,
    thresholds: tuple[tuple[str, float], ...],
) -> None:
    """Write all reports of a run into a scratch folder and compare them with those it has."""
    names = [name for name in _FORMAT_OF if (folder.path / name).exists()]
    formats = tuple(dict.fromkeys(_FORMAT_OF[name] for name in names))
    comparer.compared += len(names)
    with TemporaryDirectory(prefix="guardmark-verify-") as scratch:
        fresh: list[Path] = []
        for texts in (True, False):
            place = RunDir(path=Path(scratch) / f"texts-{texts}").create()
            _copy_records(folder.records, place.records)
            write_reports(place, config, formats=formats, thresholds=thresholds, texts=texts)
            fresh.append(place.path)
            names = [name for name in names if not _is_equal(folder.path / name, place.path / name)]
            if not names:
                return
        for name in names:
            _compare(folder.path / name, [place / name for place in fresh], comparer)


def compare_slices_again(folder: RunDir, comparer: Comparer) -> None:
    """Write the figures of small slices again, those that the folder's own file asks for."""
    said = parsed(folder.slice_stability.read_bytes())
    try:
        request = SliceRequest(
            attacks=int(said["attacks"]),
            benign=int(said["benign"]),
            seeds=tuple(int(seed) for seed in said["seeds"]),
        )
    except (TypeError, ValueError, KeyError):
        return  # the second count has said so
    found = read_slices(folder.records, request)
    with TemporaryDirectory(prefix="guardmark-verify-") as scratch:
        place = RunDir(path=Path(scratch))
        place.write_text(folder.slice_stability.name, stability_json(found))
        place.write_text(folder.slice_stability_md.name, stability_markdown(found))
        for path in (folder.slice_stability, folder.slice_stability_md):
            comparer.compared += 1
            if path.exists() and not _is_equal(path, place.path / path.name):
                _compare(path, [place.path / path.name], comparer)


def compare_exports_again(folder: RunDir, comparer: Comparer) -> None:
    """Export again what lies where `guardmark export` puts it: the table and the drawings."""
    drawings = sorted(folder.file("figures").glob("*.svg"))
    table = [path for path in [folder.file("records.csv")] if path.exists()]
    for form, paths in (("csv", table), ("svg", drawings)):
        if not paths:
            continue
        comparer.compared += len(paths)
        with TemporaryDirectory(prefix="guardmark-verify-") as scratch:
            place = Path(scratch) / "exported"
            export(folder.path, form, out=place)
            for path in paths:
                fresh = place if form == "csv" else place / path.name
                if not _is_equal(path, fresh):
                    _compare(path, [fresh], comparer)


def _is_equal(path: Path, other: Path) -> bool:
    return other.exists() and path.read_bytes() == other.read_bytes()


def _copy_records(source: Path, target: Path) -> None:
    one = sqlite3.connect(f"{source.resolve().as_uri()}?mode=ro", uri=True)
    try:
        with closing(sqlite3.connect(target)) as two:
            one.backup(two)
    finally:
        close_reading(one, source)


def _compare(path: Path, fresh: list[Path], comparer: Comparer) -> None:
    """Say where a file differs from the nearer of its renderings, with texts and without."""
    said = path.read_bytes()
    wanted = [each.read_bytes() for each in fresh if each.exists()]
    if not wanted:
        comparer.findings.append(
            Finding(file=path.name, place="", said="something", found="no such report")
        )
        return
    if path.suffix == ".json":
        found = len(comparer.findings)
        one, two = parsed(said), parsed(wanted[0])
        comparer.tree(path.name, "", said=one, found=two)
        comparer.tree(path.name, "", said=two, found=one)  # keys that only the file has
        if len(comparer.findings) > found or one == two:
            return
    count = said.count(b"\n")
    nearest = min(wanted, key=lambda rendering: abs(rendering.count(b"\n") - count))
    comparer.findings.extend(_lines(path.name, said, nearest))


def _lines(name: str, said: bytes, wanted: bytes) -> Iterator[Finding]:
    one, two = (content.decode(errors="replace").split("\n") for content in (said, wanted))
    if len(one) != len(two):
        yield Finding(file=name, place="lines", said=f"{len(one)}", found=f"{len(two)}")
        return
    for number, (a, b) in enumerate(zip(one, two, strict=True), 1):
        if a != b:
            yield Finding(file=name, place=f"line {number}", said=_short(a), found=_short(b))


def _short(line: str) -> str:
    return repr(line if len(line) <= 60 else f"{line[:57]}...")
