"""The folder of a run: whole files, and one writer at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from guardmark.core.errors import StorageError
from guardmark.store.run_dir import LOCK, RunDir, is_held
from guardmark.store.whole_files import whole_file

HOLD = """
import sys
from pathlib import Path
from guardmark.store.run_dir import RunDir
with RunDir(path=Path(sys.argv[1])).lock(started="2026-11-21T10:00:00Z"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_file_is_written_whole_with_its_folders(tmp_path: Path) -> None:
    """Rounds of an adaptive run have folders of their own."""
    run = RunDir(path=tmp_path / "deep" / "run").create()
    path = run.write_text("rounds/1/notes.txt", "äö\r\n")
    assert path.read_bytes() == "äö\r\n".encode()
    assert [p.name for p in path.parent.iterdir()] == ["notes.txt"]


def test_a_failed_write_keeps_the_earlier_file(tmp_path: Path) -> None:
    """A report is either the old one or the new one."""
    run = RunDir(path=tmp_path)
    run.write_text("summary.json", "old")
    with pytest.raises(TypeError), whole_file(run.summary_json) as file:
        file.write("new")  # type: ignore[arg-type]
    assert run.summary_json.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["summary.json"]


def test_half_of_a_pair_is_written_as_json_spells_it(tmp_path: Path) -> None:
    """A service may send one, and what it sent is told as it came."""
    run = RunDir(path=tmp_path)
    run.write_text("summary.json", json.dumps("\ud800", ensure_ascii=False))
    assert json.loads(run.summary_json.read_text()) == "\ud800"


def test_what_a_killed_writer_left_is_swept_away(tmp_path: Path) -> None:
    """Not what another one is writing at this moment, nor what may be sealed as another file."""
    folder = RunDir(path=tmp_path)
    (tmp_path / ".report.html.k1lled00.part").write_text("half a rep")
    (tmp_path / ".report.html.k1lled01.part").touch()
    (tmp_path / ".other.html.k1lled00.part").write_text("half")
    (tmp_path / ".other.html.k1lled01.part").touch()
    (tmp_path / ".settings.of-somebody-else").touch()
    with whole_file(tmp_path / "report.html") as file:
        file.write(b"slow")
        file.flush()
        folder.write_text("report.html", "whole")
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"report.html", ".other.html.k1lled00.part", ".settings.of-somebody-else"}
    assert folder.report_html.read_text() == "slow"


@pytest.mark.parametrize("name", ["../out.txt", "/etc/out.txt", "a/../../b"])
def test_no_name_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    """A data set name in a file name cannot write elsewhere."""
    with pytest.raises(ValueError, match="leads out"):
        RunDir(path=tmp_path).file(name)


def test_the_second_process_is_refused_and_told_the_first(tmp_path: Path) -> None:
    """Two runs in one folder would mix their records."""
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        assert is_held(tmp_path)
        with (
            pytest.raises(StorageError, match=f"process {child.pid} on .*2026-11-21T10:00:00Z"),
            RunDir(path=tmp_path).lock(),
        ):
            pass
        child.kill()
        child.wait()
    assert not is_held(tmp_path)
    with RunDir(path=tmp_path).lock():
        assert is_held(tmp_path)


def test_a_folder_that_is_a_file_is_an_error_in_words(tmp_path: Path) -> None:
    """A mistyped -o is not a traceback."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageError, match="cannot be written"):
        RunDir(path=tmp_path / "file" / "run").create()


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere"
)
def test_a_read_only_folder_is_an_error_in_words(tmp_path: Path) -> None:
    """Permission denied comes with the next step."""
    tmp_path.chmod(0o500)
    with pytest.raises(StorageError, match="Permission denied"):
        RunDir(path=tmp_path).write_text("a.txt", "x")
    tmp_path.chmod(0o700)


def test_a_folder_nobody_ever_held_has_no_holder(tmp_path: Path) -> None:
    """A copied run can be read anywhere."""
    assert not is_held(tmp_path)
    (tmp_path / ".lock").write_text("anything")
    assert not is_held(tmp_path)


def test_every_artefact_has_its_documented_name(tmp_path: Path) -> None:
    """The names are part of the product."""
    run = RunDir(path=tmp_path)
    names = {
        run.records.name, run.results.name, run.resolved_config.name, run.data_manifest.name,
        run.environment.name, run.summary_json.name, run.summary_md.name, run.report_html.name,
        run.categories_csv.name, run.variant_metrics_csv.name, run.comparison_json.name,
        run.junit.name, run.sarif.name, run.log.name,
    }  # fmt: skip
    assert names == {
        "records.sqlite", "results.jsonl", "config.resolved.yaml", "data_manifest.json",
        "environment.json", "summary.json", "summary.md", "report.html", "categories.csv",
        "variant_metrics.csv", "comparison.json", "junit.xml", "results.sarif", "run.log",
    }  # fmt: skip


@pytest.mark.skipif(os.name == "nt", reason="Windows has no umask")
@pytest.mark.parametrize(("umask", "mode"), [(0o077, 0o600), (0o022, 0o644), (0o002, 0o664)])
def test_files_follow_the_umask(tmp_path: Path, umask: int, mode: int) -> None:
    """Whoever keeps their files to themselves keeps results to themselves."""
    before = os.umask(umask)
    try:
        run = RunDir(path=tmp_path / "run").create()
        path = run.write_text("summary.md", "words")
        with run.lock():
            lock = (run.path / LOCK).stat().st_mode & 0o777
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == mode
    assert lock == mode
