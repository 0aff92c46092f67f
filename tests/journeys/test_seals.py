"""Seals and heads from the terminal: what they find, what they cannot, and what is no tampering."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest
from tests.journeys.command_line import CONFIG, guardmark, set_up

from guardmark.app.verify import verification
from guardmark.app.verify.verification import Verification, verify
from guardmark.store.seals import read_seals

FORMATS = "html,md,json,csv,junit,sarif"
KILLED = """\
import os, signal
from pathlib import Path
from guardmark.cli import main

def replace(path, target, really=Path.replace):
    if Path(target).name == "report.html":
        os.kill(os.getpid(), signal.SIGKILL)
    return really(path, target)

Path.replace = replace
main(["report", "out", "--no-texts"])
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run of all formats and its data."""
    folder = tmp_path_factory.mktemp("finished")
    set_up(folder, CONFIG + "  none: {type: allow-all}\n", count=40)
    done = guardmark("run", "bench.yaml", "-o", "out", cwd=folder)
    assert done.code == 0, done.err
    (folder / "printed").write_text(done.out, encoding="utf-8")
    assert guardmark("report", "out", "-f", FORMATS, cwd=folder).code == 0
    return folder


@pytest.fixture
def work(finished: Path, tmp_path: Path) -> Path:
    """A copy of the folder, to be tampered with."""
    shutil.copytree(finished, tmp_path / "copy")
    return tmp_path / "copy"


def look(work: Path, expect: str = "") -> Verification:
    """Verify the run of a folder."""
    return verify(work / "out", data=[work], expect=expect)


def head_of(work: Path) -> str:
    """Return the head that `run` printed at its end."""
    (head,) = re.findall(r"^head +([0-9a-f]{64})\b", (work / "printed").read_text(), re.MULTILINE)
    return str(head)


@pytest.mark.slow
def test_the_head_stands_where_a_person_can_note_it(work: Path) -> None:
    """At the end of `run`, in the report, in junit.xml, and where `verify` prints it."""
    head = head_of(work)
    for name in ("report.html", "report.md", "junit.xml"):
        assert head in (work / "out" / name).read_text(encoding="utf-8"), name
    assert f"Head of the records: {head}" in guardmark("verify", "out", cwd=work).out
    (work / "limits.yaml").write_text("asr_upper: 1\n", encoding="utf-8")
    gate = ("gate", "out", "--policy", "limits.yaml", "--junit", "gate.xml")
    assert guardmark(*gate, cwd=work).code in {0, 1, 5}
    assert head in (work / "gate.xml").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("digits", [16, 40, 64])
def test_the_head_that_was_noted_is_expected(work: Path, digits: int) -> None:
    """In full or its first digits, in small letters or large ones."""
    done = guardmark("verify", "out", "--expect", head_of(work)[:digits].upper(), cwd=work)
    assert done.code == 0, done.out
    assert "(as expected)" in done.out
    assert "Not shown" not in done.out


@pytest.mark.slow
def test_a_run_that_was_made_anew_holds_and_is_not_the_one_expected(work: Path) -> None:
    """Records, seals and reports of another hand agree with each other; the noted head tells."""
    noted = head_of(work)
    text = (work / "bench.yaml").read_text(encoding="utf-8")
    (work / "bench.yaml").write_text(text.replace("ignore", "forget"), encoding="utf-8")
    assert guardmark("run", "bench.yaml", "-o", "out", "--fresh", cwd=work).code == 0
    assert guardmark("report", "out", "-f", FORMATS, cwd=work).code == 0
    plain = guardmark("verify", "out", cwd=work)
    assert plain.code == 0, plain.out
    assert "Not shown: that nobody made records, seals and reports anew" in plain.out
    done = guardmark("verify", "out", "--expect", noted, cwd=work)
    assert done.code == 1
    assert f"expected was {noted}" in done.out


@pytest.mark.slow
def test_records_that_came_later_are_told_from_others(work: Path) -> None:
    """Tries of an attacker go into the chain, so the head of before is an earlier one."""
    noted = head_of(work)
    before = look(work).head
    done = guardmark("adapt", "out", "--budget", "4", cwd=work)
    assert done.code == 0, done.err
    result = look(work, noted)
    assert (before, result.holds, result.head == noted) == (noted, False, False)
    assert any("records were added since" in each.counted for each in result.mismatches)
    held = look(work)
    assert held.holds, [*map(str, held.mismatches)][:5]


@pytest.mark.slow
@pytest.mark.parametrize("word", ["", "abc", "0123456789abcde", "g" * 20, "0" * 65, "- -"])
def test_what_is_no_head_is_a_mistake_of_use(work: Path, word: str) -> None:
    """Code 2 in a few lines, and nothing is read."""
    done = guardmark("verify", "out", "--expect", word, cwd=work)
    assert (done.code, done.out) == (2, "")
    assert "16 to 64 hexadecimal digits" in done.err
    assert len(done.err.splitlines()) <= 5


EDITED = {
    "report.html": ("</main>", "<p>Certified safe.</p></main>"),
    "report.md": ("Method", "Methods"),
    "summary.json": ('"icc": ', '"icc": 1'),
    "comparison.json": ('"first_only": ', '"first_only": 1'),
    "categories.csv": (',"attack_success_rate",', ',"attack_success_rate",1'),
    "junit.xml": ("; ASR ", "; ASR 1"),
    "results.sarif": ('"ruleIndex": ', '"ruleIndex": 1'),
    "results.jsonl": ('"latency_ns":', '"latency_ns":1'),
    "environment.json": ('"python"', '"pythons"'),
}


@pytest.mark.parametrize("name", EDITED)
def test_an_edit_is_found_by_the_seal_alone(
    work: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """With a guardmark of another version, which writes no report again."""
    monkeypatch.setattr(verification, "VERSION", "0.0.7")
    path, (old, new) = work / "out" / name, EDITED[name]
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    found = look(work).mismatches
    assert {each.file for each in found} == {name}
    assert any("it was edited after it was sealed" in str(each) for each in found)


@pytest.mark.slow
def test_every_file_that_a_command_writes_is_sealed(work: Path) -> None:
    """Slices, exports below the run, a gate, a threshold; what people fill in is not."""
    for words in (
        ("stability", "out", "--attacks", "4", "--benign", "3", "--seeds", "2"),
        ("export", "out", "--to", "csv,svg,inspect"),
        ("adapt", "out", "--budget", "4"),
        ("gate", "out", "--policy", "limits.yaml", "--junit", "out/junit.xml"),
    ):
        (work / "limits.yaml").write_text("asr_upper: 1\n", encoding="utf-8")
        done = guardmark(*words, cwd=work)
        assert done.code in {0, 1, 5}, done.err
    out = work / "out"
    found = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    sealed = {seal.file for seal in read_seals(out).seals}
    unsealed = {name for name in found - sealed if not name.startswith("records.sqlite")}
    assert unsealed <= {".lock", "run.log", "seals.jsonl"}
    assert {"figures/plane.svg", "slice_stability.json", "trace.jsonl", "battery.lock"} <= sealed


@pytest.mark.slow
def test_reports_written_again_are_sealed_once(work: Path) -> None:
    """The same bytes add nothing; others add their seal, and both hold."""
    before = (work / "out" / "seals.jsonl").read_bytes()
    assert guardmark("report", "out", "-f", FORMATS, cwd=work).code == 0
    assert (work / "out" / "seals.jsonl").read_bytes() == before
    assert guardmark("report", "out", "--no-texts", "-f", FORMATS, cwd=work).code == 0
    assert (work / "out" / "seals.jsonl").read_bytes().startswith(before)
    result = look(work)
    assert result.holds, [*map(str, result.mismatches)][:5]
    assert result.notes == ()


@pytest.mark.slow
def test_a_folder_whose_seals_were_taken_away_does_not_hold(work: Path) -> None:
    """Nor is it said of files older than seals that were begun anew that nobody edited them."""
    (work / "out" / "seals.jsonl").unlink()
    assert [each.stated for each in look(work).mismatches] == ["it is not there"]
    path = work / "out" / "report.html"
    path.write_text(path.read_text("utf-8").replace("<b>", "<b> ", 1), encoding="utf-8")
    assert {each.file for each in look(work).mismatches} == {"seals.jsonl", "report.html"}
    assert guardmark("report", "out", "-f", FORMATS, cwd=work).code == 0
    result = look(work)
    assert result.holds
    (note,) = result.notes
    assert "environment.json: unsealed" in note
    assert not any("no file was edited" in each for each in result.shown)


@pytest.mark.parametrize(
    "name", ["records.sqlite.sh", "seals.jsonl.txt", ".hidden", "figures/.hidden", ".x.part"]
)
def test_every_other_file_is_listed_as_not_covered(name: str, work: Path) -> None:
    """Whatever it is called: a file that nobody sealed is never passed over."""
    (work / "out" / name).parent.mkdir(exist_ok=True)
    (work / "out" / name).write_text("strange", encoding="utf-8")
    result = look(work)
    assert result.holds
    assert name in result.not_covered


def test_a_whole_run_is_intact_without_a_remark(work: Path) -> None:
    """Nothing that guardmark wrote itself is left uncovered when its commands have ended."""
    assert look(work).verdict == "intact"


def test_seals_cut_off_at_the_end_are_missed(work: Path) -> None:
    """Who edits a file and cuts the seals that say so is found by the count in the records."""
    seals, report = work / "out" / "seals.jsonl", work / "out" / "report.html"
    lines = seals.read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [line for line in lines if '"report.html"' not in line]
    at = next(number for number, line in enumerate(lines) if '"report.html"' in line)
    seals.write_text("".join(lines[:at]), encoding="utf-8")
    report.write_text("edited", encoding="utf-8")
    result = look(work)
    assert len(kept) < len(lines)
    assert result.verdict == "changed"
    assert f"there were {len(lines)} when the last command ended" in "\n".join(
        map(str, result.mismatches)
    )


def test_a_seal_appended_by_hand_covers_nothing(work: Path) -> None:
    """An edited file with a seal made by hand is not covered: the records know no such seal."""
    seals, report = work / "out" / "seals.jsonl", work / "out" / "report.html"
    content = report.read_bytes().replace(b"<b>", b"<b> ", 1)
    report.write_bytes(content)
    lines = seals.read_bytes().splitlines(keepends=True)
    of_report = next(line for line in reversed(lines) if b'"report.html"' in line)
    seal = json.loads(of_report) | {
        "sha256": sha256(content).hexdigest(),
        "size": len(content),
        "before": sha256(lines[-1]).hexdigest(),
    }
    by_hand = json.dumps(seal, separators=(",", ":")).encode() + b"\n"
    seals.write_bytes(b"".join(lines) + by_hand)
    assert look(work).not_covered == ("report.html",)


def test_without_the_note_in_the_records_no_sealed_file_is_covered(work: Path) -> None:
    """Taking the note away does not make a run look intact."""
    with closing(sqlite3.connect(work / "out" / "records.sqlite")) as connection:
        connection.execute("DELETE FROM meta WHERE key = 'seals'")
        connection.commit()
    result = look(work)
    assert "report.html" in result.not_covered
    assert result.verdict.endswith("files not covered")


def test_an_edited_log_is_found_and_a_longer_one_named(work: Path) -> None:
    """Lines may be added to a log; those that were sealed stay as they were."""
    log = work / "out" / "run.log"
    content = log.read_text(encoding="utf-8")
    log.write_text(content + "one line more\n", encoding="utf-8")
    assert look(work).not_covered == ("run.log",)
    log.write_text("X" + content[1:], encoding="utf-8")
    assert look(work).verdict == "changed"


def test_seals_that_were_changed_are_found(work: Path) -> None:
    """A line taken away, a hash replaced by that of an edited file."""
    path = work / "out" / "seals.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[:3] + lines[4:]), encoding="utf-8")
    assert "seals.jsonl: line 4" in [each.where for each in look(work).mismatches]
    path.write_text("".join(lines).replace('"size":', '"size":1', 1), encoding="utf-8")
    assert "seals.jsonl: line 2" in [each.where for each in look(work).mismatches]


@pytest.mark.slow
def test_a_kill_between_seal_and_file_is_no_tampering(work: Path) -> None:
    """The file of before stays, and is told to be an earlier one; writing again heals it."""
    done = subprocess.run([sys.executable, "-c", KILLED], cwd=work, check=False, timeout=120)
    assert done.returncode < 0
    result = look(work)
    text = "\n".join([*result.notes, *map(str, result.mismatches)])
    assert "as sealed before, not as sealed last" in text
    assert "edited" not in text
    assert result.holds, text
    assert guardmark("report", "out", "--no-texts", "-f", FORMATS, cwd=work).code == 0
    assert (look(work).holds, look(work).notes) == (True, ())


@pytest.mark.slow
def test_a_report_of_fewer_records_that_is_put_back_is_found(work: Path) -> None:
    """It was sealed over another head than the last one."""
    old = (work / "out" / "report.html").read_bytes()
    assert guardmark("adapt", "out", "--budget", "4", cwd=work).code == 0
    assert look(work).holds
    (work / "out" / "report.html").write_bytes(old)
    texts = [str(each) for each in look(work).mismatches]
    assert any("report.html: this is the file of an earlier seal" in each for each in texts)


@pytest.mark.slow
def test_records_of_another_run_do_not_carry_the_seals(work: Path) -> None:
    """Reports whose records were exchanged were sealed over another head."""
    assert guardmark("run", "bench.yaml", "-o", "other", cwd=work).code == 0
    for path in (work / "out").glob("records.sqlite*"):
        path.unlink()
    shutil.copy(work / "other" / "records.sqlite", work / "out" / "records.sqlite")
    texts = [str(each) for each in look(work).mismatches]
    assert any("report.html: sealed over head" in each for each in texts)


def test_a_file_that_was_taken_away_is_missed(work: Path) -> None:
    """Exit 1, and the command that writes it again."""
    (work / "out" / "results.sarif").unlink()
    (work / "out" / "report.html").unlink()
    result = look(work)
    assert {each.file for each in result.mismatches} == {"results.sarif", "report.html"}
    assert any("guardmark report" in note for note in result.notes)


@pytest.mark.slow
def test_a_file_nobody_sealed_is_listed(work: Path) -> None:
    """Somebody's notes are no tampering, and nothing that guardmark vouches for."""
    (work / "out" / "notes.txt").write_text("mine", encoding="utf-8")
    assert look(work).not_covered == ("notes.txt",)
    printed = guardmark("verify", "out", cwd=work).out
    assert "Not covered by a seal that the records noted: notes.txt." in printed
    assert "is intact, 1 file not covered" in printed


@pytest.mark.parametrize(
    ("statement", "place"),
    [
        ('UPDATE layers SET settings = \'{"model": "another"}\'', "layers"),
        ("INSERT INTO layers (name, settings) VALUES ('judge/new', '{}')", ""),
    ],
)
def test_what_the_chain_of_records_leaves_out_is_looked_at(
    work: Path, statement: str, place: str
) -> None:
    """Settings of a judge; a layer without records is no change."""
    with closing(sqlite3.connect(work / "out" / "records.sqlite")) as connection, connection:
        connection.execute(statement)
    assert [each.place for each in look(work).mismatches] == [place] * bool(place)


@pytest.mark.slow
def test_an_entry_that_guardmark_does_not_write_is_damage(work: Path) -> None:
    """Whatever the command: nobody else writes into the records."""
    with closing(sqlite3.connect(work / "out" / "records.sqlite")) as connection, connection:
        connection.execute("INSERT INTO meta VALUES ('note', 'x')")
    for words in (["verify", "out"], ["report", "out"], ["run", "bench.yaml", "-o", "out"]):
        done = guardmark(*words, cwd=work)
        assert (done.code, "meta" in done.err) == (3, True), done.err


@pytest.mark.slow
def test_reports_written_again_do_not_heal_changed_settings(work: Path) -> None:
    """The new seals agree with what was changed; those of before do not."""
    with closing(sqlite3.connect(work / "out" / "records.sqlite")) as connection, connection:
        connection.execute('UPDATE layers SET settings = \'{"file": "another"}\'')
    assert guardmark("report", "out", "--no-texts", cwd=work).code == 0
    assert {each.place for each in look(work).mismatches} == {"layers"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["report.html", ".lock", "run.log", "seals.jsonl", "new"])
def test_a_link_in_place_of_a_file_is_refused(work: Path, name: str) -> None:
    """What it leads to is neither read nor written, whatever the command."""
    private = work / "private.txt"
    private.write_text("a private line", encoding="utf-8")
    (work / "out" / name).unlink(missing_ok=True)
    (work / "out" / name).symlink_to(private)
    for words in (["verify", "out"], ["report", "out"], ["run", "bench.yaml", "-o", "out"]):
        done = guardmark(*words, cwd=work)
        assert done.code == 3
        assert len(done.told) <= 5
        assert "private line" not in done.out + done.err
    assert private.read_text(encoding="utf-8") == "a private line"


def test_a_file_that_grew_beyond_reason_is_not_read(work: Path) -> None:
    """Three gigabytes of nothing in place of a summary."""
    with (work / "out" / "summary.json").open("r+b") as stream:
        stream.truncate(3_000_000_000)
    (mismatch,) = look(work).mismatches
    assert mismatch.where == "summary.json"
    assert "too large" in mismatch.counted
