"""What lies in a run folder is written again and compared: place and words for each file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest
from tests.golden.folders import carry_out, read_frozen, unpack
from tests.golden.runs import RUNS, step

from guardmark.app.results.try_trace import trace_lines
from guardmark.app.verify.mismatches import Mismatches, MismatchKind
from guardmark.app.verify.rewritten import compare_again
from guardmark.store.reader import RecordReader
from guardmark.store.run_dir import RunDir

ATTACKED: Final = next(run for run in RUNS if run.name == "adaptive")
BY_LINE: Final = ("trace.jsonl", "target.jsonl")
WHOLE: Final = (
    *("summary.json", "comparison.json", "summary.md", "categories.csv", "results.jsonl"),
    *("slice_stability.json", "slice_stability.md", "records.csv", "figures/latency-closed.svg"),
)

EDITED: Final = (
    *("summary.json: data[canaries].attacks", "summary.md: line 3", "summary.md: lines"),
    *("categories.csv: line 23", "results.jsonl: line 1", "records.csv: line 2"),
    *("figures/latency-closed.svg: line 1", "figures/other.svg", "trace.jsonl: line 1"),
    *("target.jsonl: line 108", "target.jsonl: lines", "slice_stability.md: line 12"),
)


WRITING: Final = (
    step("report run -f json,md,csv"),
    step("stability run --attacks 3 --benign 2 --seeds 3"),
    step("export run --to csv,jsonl,svg"),
)
"""Commands that write every file of `WHOLE` from the records."""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the frozen adaptive run, with the files that commands write from it."""
    work = tmp_path_factory.mktemp("written") / "work"
    unpack(ATTACKED, work)
    carry_out(WRITING, work)
    (work / "run" / "trace.jsonl").write_bytes(read_frozen(ATTACKED)["run/trace.jsonl"])
    return work / "run"


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> RunDir:
    """Records of an adaptive run, and a file of each kind that is made of them."""
    for name in ("records.sqlite", *BY_LINE, *WHOLE):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes((written / name).read_bytes())
    return RunDir(path=tmp_path)


def again(folder: RunDir) -> Mismatches:
    """Write everything again and compare it."""
    found = Mismatches()
    compare_again(folder, {}, found)
    return found


def line_count(folder: RunDir, name: str) -> int:
    """How many lines a file has."""
    return (folder.path / name).read_bytes().count(b"\n")


def keep_only(folder: RunDir, kept: str = "") -> None:
    """Remove all files that can be written again, but for one."""
    for name in (*WHOLE, *BY_LINE):
        if name != kept:
            (folder.path / name).unlink()


def change(folder: RunDir, name: str, old: str, new: str) -> None:
    """Replace the first occurrence of a text in a file."""
    path = folder.path / name
    text = path.read_text(encoding="utf-8")
    assert old in text, name
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_every_line_of_every_file_is_compared(folder: RunDir) -> None:
    """Of a trace also the empty rest after its last line; a file that is not there is none."""
    lines = sum(line_count(folder, name) for name in (*WHOLE, *BY_LINE)) + len(BY_LINE)
    found = again(folder)
    assert ([*found.listed], found.compared) == ([], lines)
    keep_only(folder, "categories.csv")
    found = again(folder)
    assert ([*found.listed], found.compared) == ([], line_count(folder, "categories.csv"))


def test_an_edit_of_each_file_is_named_by_its_place(folder: RunDir) -> None:
    """All at once: one edit hides no other."""
    change(folder, "summary.json", '"attacks": ', '"attacks": 1')
    change(folder, "summary.md", "\n", "\n\n")
    change(folder, "categories.csv", "closed", "clothed")
    change(folder, "results.jsonl", '"block"', '"allow"')
    change(folder, "slice_stability.md", "|", "||")
    change(folder, "records.csv", "scored", "stored")
    change(folder, "figures/latency-closed.svg", "</svg>", "</SVG>")
    change(folder, "trace.jsonl", '"closed"', '"opened"')
    with folder.target.open("a", encoding="utf-8") as file:
        file.write("one more\n")
    edited = line_count(folder, "summary.md")
    (folder.path / "figures" / "other.svg").write_text("<svg/>", encoding="utf-8")
    listed = [*again(folder).listed]
    assert {each.what for each in listed} == {MismatchKind.REPORT}
    assert tuple(each.where for each in listed) == EDITED
    told = [(each.stated, each.counted) for each in listed]
    assert [told[at] for at in (0, 2, 7, 9, 10)] == [
        ("16", "6"),
        (str(edited + 1), str(edited)),
        ("something", "no such report"),
        ("'one more'", "''"),
        ("109", "108"),
    ]
    for at, (old, new) in {3: ("closed", "clothed"), 6: ("/svg", "/SVG"), 11: ("|", "||")}.items():
        stated, counted = told[at]
        assert new in stated
        assert new not in counted
        assert old in counted


@pytest.mark.parametrize(("share", "is_told"), [(1e-15, False), (1e-6, True)])
def test_the_last_digit_of_a_figure_is_that_of_a_processor(
    folder: RunDir, share: float, *, is_told: bool
) -> None:
    """A folder that was carried to another machine is not taken for an edited one."""
    keep_only(folder, "summary.json")
    summary = json.loads((folder.path / "summary.json").read_text(encoding="utf-8"))
    high = summary["defenses"][0]["rates"]["attack_success_rate"]["high"]
    lines = line_count(folder, "summary.json")
    change(folder, "summary.json", f'"high": {high},', f'"high": {high * (1 + share)},')
    found = again(folder)
    places = [each.where for each in found.listed]
    assert all(place.startswith("summary.json: defenses[") for place in places)
    assert bool(places) is is_told
    if not is_told:
        assert found.compared == lines


def test_a_trace_tells_defenses_in_the_order_of_its_head(folder: RunDir) -> None:
    """Names it does not know are passed over; a head that is no object says nothing."""
    with RecordReader(folder.records) as reader:
        ordered = "".join(trace_lines(reader, defenses=["scored", "closed"]))
        other = "".join(trace_lines(reader, defenses=["closed", "scored"]))
    assert ordered != other
    keep_only(folder, "target.jsonl")
    for text in (ordered, other):
        folder.trace.write_text(text, encoding="utf-8")
        assert [*again(folder).listed] == []


def test_a_file_of_slices_that_asks_for_none_is_told_so(folder: RunDir) -> None:
    """No JSON, another thing, or not every part of a request."""
    keep_only(folder)
    for text in ("{", "[]", "{}", '{"attacks": 1, "benign": 1, "seeds": 3}'):
        folder.slice_stability.write_text(text, encoding="utf-8")
        assert [*map(str, again(folder).listed)] == [
            "slice_stability.json: says no request of slices; the records give none of this form"
        ], text
