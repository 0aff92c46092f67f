"""Reports written again by the code that writes them: an edit shows, also that of a sentence."""

from __future__ import annotations

import json
import re
from filecmp import cmp
from itertools import zip_longest
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from guardmark.analysis.pipeline.small_slices import SliceRequest
from guardmark.app.results.exporting import export
from guardmark.app.results.opened_run import run_config
from guardmark.app.results.reading import write_slices
from guardmark.app.results.report_files import write_reports
from guardmark.app.results.try_trace import target_lines, trace_lines
from guardmark.app.settings import REPORTS
from guardmark.app.verify.headline import redecided
from guardmark.app.verify.mismatches import Mismatches, MismatchKind
from guardmark.net.service import ENDPOINTS
from guardmark.store.connect import copy_records
from guardmark.store.layers import MODEL_LAYERS, asked_layers
from guardmark.store.reader import RecordReader
from guardmark.store.run_dir import RunDir
from guardmark.store.tries import read_tries

if TYPE_CHECKING:
    from collections.abc import Iterable

_FORMAT_OF: Final = {**REPORTS, "results.jsonl": ""}
_SHOWN: Final = 60
_BEFORE: Final = 20
"""Characters of a line that are shown, and those of them before the first that differs."""
_CHUNK: Final = 1 << 20


def compare_again(folder: RunDir, stated: dict[str, Any], mismatches: Mismatches) -> None:
    """Write everything again that lies in the folder of a run, and compare it."""
    with TemporaryDirectory(prefix="guardmark-verify-") as scratch:
        _compare_reports(folder, stated, mismatches, scratch=Path(scratch))
        _compare_exports(folder, mismatches, scratch=Path(scratch))
        _compare_traces(folder, mismatches)
        if folder.slice_stability.exists():
            _compare_slices(folder, mismatches, scratch=Path(scratch))


def _compare_reports(
    folder: RunDir, stated: dict[str, Any], mismatches: Mismatches, *, scratch: Path
) -> None:
    """Compare reports with the nearer of their two forms, with texts and without."""
    names = [name for name in _FORMAT_OF if (folder.path / name).exists()]
    if not names:
        return
    with RecordReader(folder.records) as reader:
        config = run_config(reader.manifest())
        known = reader.defenses()
    thresholds = []
    for name, threshold in redecided(stated).items():
        if name in known:
            thresholds.append((name, threshold))
    formats = tuple({_FORMAT_OF[name] for name in names})
    fresh: list[Path] = []
    for texts in (True, False):
        again = RunDir(path=scratch / f"texts-{texts}").create()
        copy_records(folder.records, again.records)
        if folder.file(ENDPOINTS).is_file():
            copyfile(folder.file(ENDPOINTS), again.file(ENDPOINTS))
        write_reports(again, config, formats=formats, thresholds=tuple(thresholds), texts=texts)
        fresh.append(again.path)
        different = []
        for name in names:
            if not _is_equal(folder.path / name, again.path / name, mismatches):
                different.append(name)
        names = different
        if not names:
            return
    for name in names:
        _compare(folder, name, [path / name for path in fresh], mismatches)


def _compare_slices(folder: RunDir, mismatches: Mismatches, *, scratch: Path) -> None:
    """Draw the small slices again that the folder's own file asks for."""
    try:
        slices = json.loads(folder.slice_stability.read_bytes())
        request = SliceRequest(
            attacks=int(slices["attacks"]),
            benign=int(slices["benign"]),
            seeds=tuple(int(seed) for seed in slices["seeds"]),
        )
    except (TypeError, ValueError, KeyError, RecursionError):
        name = folder.slice_stability.name
        _differ(mismatches, name, "", ("no request of slices", "none of this form"))
        return
    again = RunDir(path=scratch / "slices")
    write_slices(again, folder.records, request)
    for name in (again.slice_stability.name, again.slice_stability_md.name):
        _compare_file(folder, name, again.path / name, mismatches)


def _compare_exports(folder: RunDir, mismatches: Mismatches, *, scratch: Path) -> None:
    """Export again what lies where `guardmark export` puts it: the table and the drawings."""
    if folder.file("records.csv").exists():
        export(folder.path, "csv", out=scratch / "records.csv")
        _compare_file(folder, "records.csv", scratch / "records.csv", mismatches)
    drawings = sorted(path.name for path in folder.file("figures").glob("*.svg"))
    if drawings:
        export(folder.path, "svg", out=scratch / "figures")
    for name in drawings:
        _compare_file(folder, f"figures/{name}", scratch / "figures" / name, mismatches)


def _compare_traces(folder: RunDir, mismatches: Mismatches) -> None:
    """Compare the traces of an adaptive attacker with the tries they tell."""
    with RecordReader(folder.records) as reader:
        for path in (folder.trace, folder.target):
            if not path.exists():
                continue
            stated = path.read_text(encoding="utf-8", errors="replace").split("\n")
            if path == folder.trace:
                fresh = trace_lines(reader, defenses=_attacked(reader, _parsed(stated[0])))
            else:
                fresh = target_lines(reader)
            _compare_lines(path.name, stated, "".join(fresh).split("\n"), mismatches)


def _attacked(reader: RecordReader, head: Any) -> list[str]:
    """Return the defenses of which a trace tells: in the order of its head, then of the run."""
    layers = (*asked_layers(reader.layers()), *MODEL_LAYERS)
    asked = []
    for name in reader.defenses():
        for layer in layers:
            if any(read_tries(reader, defense=name, layer=layer)):
                asked.append(name)
                break
    named = None
    if isinstance(head, dict):
        named = head.get("defenses")
    if not isinstance(named, list):
        return asked
    first = [name for name in named if name in asked]
    return list(dict.fromkeys([*first, *asked]))


def _is_equal(path: Path, fresh: Path, mismatches: Mismatches) -> bool:
    """Compare two files; what a million records leave is not read into memory."""
    if not fresh.exists() or not cmp(path, fresh, shallow=False):
        return False
    mismatches.compared += _line_count(path)
    return True


def _line_count(path: Path) -> int:
    """Count the lines of a file without reading it whole."""
    count = 0
    with path.open("rb") as file:
        chunk = file.read(_CHUNK)
        while chunk:
            count += chunk.count(b"\n")
            chunk = file.read(_CHUNK)
    return count


def _compare_file(folder: RunDir, name: str, fresh: Path, mismatches: Mismatches) -> None:
    path = folder.path / name
    if path.exists() and not _is_equal(path, fresh, mismatches):
        _compare(folder, name, [fresh], mismatches)


def _compare(folder: RunDir, name: str, fresh: list[Path], mismatches: Mismatches) -> None:
    """Say where a file differs from the nearer of its forms."""
    if name.endswith((".jsonl", "records.csv")):
        with (folder.path / name).open("rb") as one, fresh[0].open("rb") as two:
            lengths = (_line_count(folder.path / name), _line_count(fresh[0]))
            _compare_lines(name, map(_text, one), map(_text, two), mismatches, lengths=lengths)
        return
    stated = (folder.path / name).read_bytes()
    forms = [path.read_bytes() for path in fresh if path.exists()]
    head, *earlier_heads = _heads(folder.records)
    if head not in stated:
        # Written before records were added that it tells nothing of.
        forms = [_without_head(form, head) for form in forms]
        for earlier in earlier_heads:
            if earlier in stated:
                stated = _without_head(stated, earlier)
    if stated in forms:
        mismatches.compared += stated.count(b"\n")
        return
    if not forms:
        _differ(mismatches, name, "", ("something", "no such report"))
        return
    document = None
    if name.endswith(".json"):
        document = _parsed(stated)
    if document is not None:
        before, as_lines = mismatches.met, mismatches.compared + stated.count(b"\n")
        mismatches.tree(MismatchKind.REPORT, name, "", stated=document, counted=_parsed(forms[0]))
        if mismatches.met == before:  # the last digit of a figure depends on the processor
            mismatches.compared = as_lines
        return
    _compare_lines(name, _lines(stated), _lines(_nearest(forms, stated)), mismatches)


def _nearest(forms: list[bytes], stated: bytes) -> bytes:
    """Return the form of a report whose number of lines is nearest."""
    count = stated.count(b"\n")
    return min(forms, key=lambda form: abs(form.count(b"\n") - count))


def _lines(content: bytes) -> list[str]:
    return content.decode(errors="replace").split("\n")


def _text(line: bytes) -> str:
    return line.decode(errors="replace").removesuffix("\n")


def _compare_lines(
    name: str,
    stated: Iterable[str],
    counted: Iterable[str],
    mismatches: Mismatches,
    *,
    lengths: tuple[int, int] | None = None,
) -> None:
    """Compare lines; of files with other numbers of lines only the first that differs is named."""
    one_length, two_length = lengths or (len(list(stated)), len(list(counted)))
    for number, (one, two) in enumerate(zip_longest(stated, counted), 1):
        mismatches.compared += 1
        if one != two:
            _differ(mismatches, name, f"line {number}", _excerpts(one, two))
            if one_length != two_length:
                break
    if one_length != two_length:
        _differ(mismatches, name, "lines", (str(one_length), str(two_length)))


def _heads(records: Path) -> list[bytes]:
    """Return the head of the records, then all earlier ones."""
    with RecordReader(records) as reader:
        rows = reader.connection.execute("SELECT hash FROM batches ORDER BY id DESC").fetchall()
    return [bytes(row[0]).hex().encode() for row in rows] or [b"none"]


def _without_head(form: bytes, head: bytes) -> bytes:
    """Take the lines out of a report that name a head of the records."""
    form = re.sub(rb" *<properties>\n[^\n]*%b[^\n]*\n *</properties>\n" % head, b"", form)
    return re.sub(rb"[^\n]*%b[^\n]*\n" % head, b"", form)


def _differ(mismatches: Mismatches, name: str, position: str, texts: tuple[str, str]) -> None:
    mismatches.differ(MismatchKind.REPORT, name, position, stated=texts[0], counted=texts[1])


def _parsed(content: bytes | str) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _excerpts(one: str | None, two: str | None) -> tuple[str, str]:
    """Return two lines from a little before the first character that differs."""
    differs_at = 0
    for position, (first, second) in enumerate(zip_longest(one or "", two or "")):
        if first != second:
            differs_at = position
            break
    start = max(0, differs_at - _BEFORE)
    return _excerpt(one, start), _excerpt(two, start)


def _excerpt(line: str | None, start: int) -> str:
    """Quote a part of a line, with dots where it goes on."""
    if line is None:
        return "nothing"
    end = start + _SHOWN
    excerpt = line[start:end]
    if start > 0:
        excerpt = f"...{excerpt}"
    if end < len(line):
        excerpt = f"{excerpt}..."
    return repr(excerpt)
