"""Seals of the files in a run folder: chained, cut off by a crash, given once for equal bytes."""

from __future__ import annotations

import subprocess
import sys
from hashlib import sha256
from pathlib import Path

from guardmark.store.records import RecordWriter
from guardmark.store.run_dir import RunDir
from guardmark.store.seals import SEALS, read_seals
from guardmark.store.whole_files import whole_file

WRITE = """
import sys
from pathlib import Path
from guardmark.store.run_dir import RunDir
for number in range(20):
    RunDir(path=Path(sys.argv[1])).write_text(f"{sys.argv[2]}-{number}.txt", sys.argv[2])
"""


def begun(folder: Path) -> RunDir:
    """A folder with records that hold nothing yet."""
    run = RunDir(path=folder).create()
    RecordWriter(run.records).close()
    return run


def test_each_file_is_sealed_and_each_seal_names_the_one_before(tmp_path: Path) -> None:
    """With hash, size and the head of the records."""
    run = begun(tmp_path)
    run.write_text("summary.md", "one")
    run.write_text("figures/plane.svg", "<svg/>")
    chain = read_seals(tmp_path)
    assert chain.broken == ()
    first, second = chain.seals
    assert (first.file, first.size, first.before) == ("summary.md", 3, "")
    assert first.sha256 == sha256(b"one").hexdigest()
    assert second.file == "figures/plane.svg"
    assert second.before == sha256(run.seals.read_bytes().splitlines(keepends=True)[0]).hexdigest()
    assert {first.head, second.head} == {""}


def test_the_same_bytes_are_sealed_once(tmp_path: Path) -> None:
    """Until others came between: then what stands there last is sealed last."""
    run = begun(tmp_path)
    for text in ("one", "one", "two", "one"):
        run.write_text("summary.md", text)
    assert [seal.size for seal in read_seals(tmp_path).seals] == [3, 3, 3]
    assert len({seal.sha256 for seal in read_seals(tmp_path).seals}) == 2


def test_outside_the_folder_of_a_run_nothing_is_sealed(tmp_path: Path) -> None:
    """A data file, a matrix of runs."""
    with whole_file(tmp_path / "data.jsonl") as file:
        file.write(b"{}\n")
    assert not (tmp_path / SEALS).exists()


def test_a_line_that_a_crash_cut_off_is_no_seal(tmp_path: Path) -> None:
    """The next seal takes its place, and the chain holds."""
    run = begun(tmp_path)
    run.write_text("a.txt", "a")
    with run.seals.open("ab") as file:
        file.write(b'{"file":"b.txt","sha')
    assert [seal.file for seal in read_seals(tmp_path).seals] == ["a.txt"]
    run.write_text("c.txt", "c")
    chain = read_seals(tmp_path)
    assert ([seal.file for seal in chain.seals], chain.broken) == (["a.txt", "c.txt"], ())


def test_a_changed_line_breaks_the_chain(tmp_path: Path) -> None:
    """At the line itself where it is no seal any more, else at the next one."""
    run = begun(tmp_path)
    for name in "abc":
        run.write_text(name, name)
    lines = run.seals.read_text(encoding="utf-8").splitlines(keepends=True)
    for changed, broken in (
        ([lines[0].replace('"size":1', '"size":2'), *lines[1:]], (2,)),
        ([lines[0], lines[2]], (2,)),
        ([lines[0], "[]\n", lines[2]], (2, 3)),
        ([lines[0], lines[1].replace(":", ": "), lines[2]], (2, 3)),
        ([lines[0], lines[1], lines[2], lines[2]], (4,)),
    ):
        run.seals.write_text("".join(changed), encoding="utf-8")
        assert read_seals(tmp_path).broken == broken


def test_two_who_write_at_once_make_one_chain(tmp_path: Path) -> None:
    """Each waits for the other."""
    begun(tmp_path)
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITE, str(tmp_path), name])
        for name in ("one", "two")
    ]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    chain = read_seals(tmp_path)
    assert (len(chain.seals), chain.broken) == (40, ())
