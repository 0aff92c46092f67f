"""What `verify` names of a folder that was changed, in its own words; journeys have the rest."""

from __future__ import annotations

import gzip
import json
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest
from tests.journeys.command_line import CONFIG, guardmark, set_up

from guardmark.analysis.pipeline.small_slices import SliceRequest
from guardmark.app.parts.loading import load_config
from guardmark.app.results.exporting import export
from guardmark.app.results.reading import slice_run
from guardmark.app.results.reporting import report
from guardmark.app.run.running import RunOptions, Session
from guardmark.app.run.running import run as measure
from guardmark.app.verify.verification import UNSHOWN, Verification
from guardmark.app.verify.verification import verify as verify_run
from guardmark.core.outcome import ALLOWED
from guardmark.core.record import Stage
from guardmark.store.reader import RunState
from guardmark.store.records import RecordWriter

COUNT = 12


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run and its data."""
    folder = tmp_path_factory.mktemp("finished")
    set_up(folder, CONFIG + "report: [json]\n", count=COUNT)
    done = guardmark("run", "bench.yaml", "-o", "out", cwd=folder)
    assert done.code == 0, done.err
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the finished run, read from the folder of its data."""
    shutil.copytree(finished, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    return tmp_path / "copy" / "out"


def verify(run: Path, *, data: Sequence[Path] = (), expect: str = "") -> Verification:
    """Verify with the data beside the run, which whoever measured it names."""
    return verify_run(run, data=data or [run.parent], expect=expect)


def said(found: Verification) -> list[tuple[str, str, str]]:
    """The mismatches, as place, what is stated and what was counted."""
    return [(each.where, each.stated, each.counted) for each in found.mismatches]


def test_a_run_as_it_was_left_holds_and_says_what_that_shows(run: Path) -> None:
    """Each row, each line and each noted head is one thing compared."""
    alone = verify(run)
    assert (alone.holds, alone.mismatches, alone.notes) == (True, (), ())
    lines = sum(
        (run / name).read_bytes().count(b"\n") for name in ("results.jsonl", "summary.json")
    )
    assert alone.compared > lines + 2 * COUNT
    document = alone.as_document()
    assert (document["as_expected"], document["as_signed"], document["outdated"]) == (None,) * 3
    noted = verify(run, expect=alone.head[:12])
    assert noted.compared == alone.compared + 1
    assert len(noted.shown) == len(alone.shown) + 1
    assert noted.as_document()["as_expected"] is True
    assert set(alone.shown) < set(noted.shown)


def test_another_head_than_the_noted_one_is_named(run: Path) -> None:
    """With the head there is, and the one that was wanted."""
    head = verify(run).head
    found = verify(run, expect="00" * 32)
    assert not found.holds
    assert said(found) == [("records.sqlite: head", head, "00" * 32)]


def test_the_head_of_an_earlier_batch_is_known_by_its_number(run: Path) -> None:
    """Who noted it sees that records came after: a run that went on is no forgery."""
    with closing(sqlite3.connect(run / "records.sqlite")) as connection:
        heads = [bytes(row[0]).hex() for row in connection.execute("SELECT hash FROM batches")]
    assert len(heads) > 1
    (found,) = said(verify(run, expect=heads[0]))
    words = f"{heads[0]}, the head after batch 1 of {len(heads)}: records were added since"
    assert found == ("records.sqlite: head", heads[-1], words)


def test_a_line_that_was_changed_is_quoted_from_a_little_before(run: Path) -> None:
    """From the sealed file, and from the line written again."""
    path = run / "results.jsonl"
    lines = path.read_text(encoding="utf-8").split("\n")
    at = lines[3].index('"allow"') if '"allow"' in lines[3] else lines[3].index('"block"')
    other = lines[3][:at] + '"maybe"' + lines[3][at + 7 :]
    path.write_text("\n".join([*lines[:3], other, *lines[4:]]), encoding="utf-8")
    (seal, quoted) = said(verify(run))
    assert seal[0] == "results.jsonl"
    assert seal[2] == "it was edited after it was sealed"
    assert quoted[0] == "results.jsonl: line 4"
    start = at + 1 - 20
    assert quoted[1] == repr(f"...{other[start : start + 60]}...")
    assert quoted[2] == repr(f"...{lines[3][start : start + 60]}...")


def test_a_line_too_many_ends_the_comparison(run: Path) -> None:
    """The first line that differs, and how many there are."""
    path = run / "results.jsonl"
    with path.open("a", encoding="utf-8") as file:
        file.write("one more\ntwo more\n")
    count = path.read_bytes().count(b"\n")
    _, line, lines = said(verify(run))
    assert line == (f"results.jsonl: line {count - 1}", "'one more'", "nothing")
    assert lines == ("results.jsonl: lines", str(count), str(count - 2))


def test_a_figure_that_was_changed_is_named_by_its_place(run: Path) -> None:
    """In the summary, by path; the records count another one."""
    path = run / "summary.json"
    summary = json.loads(path.read_text(encoding="utf-8"))
    summary["samples"]["attacks"] += 1
    path.write_text(json.dumps(summary), encoding="utf-8")
    found = verify(run)
    attacks = summary["samples"]["attacks"]
    assert ("summary.json: samples.attacks", str(attacks), str(attacks - 1)) in said(found)


def test_an_exported_table_is_written_again(run: Path) -> None:
    """The table of records, line by line."""
    export(run, "csv", out=run / "records.csv")
    assert verify(run).holds
    path = run / "records.csv"
    path.write_text(path.read_text(encoding="utf-8").replace("block", "BLOCK", 1), encoding="utf-8")
    found = verify(run)
    assert {where.partition(":")[0] for where, _, _ in said(found)} == {"records.csv"}
    assert any(where.startswith("records.csv: line ") for where, _, _ in said(found))


def test_what_is_missing_is_a_note_and_a_seal_without_its_file(run: Path) -> None:
    """With the command that writes it."""
    (run / "results.jsonl").unlink()
    found = verify(run)
    assert said(found) == [("results.jsonl", "it was sealed", "it is not there any more")]
    (note,) = found.notes
    assert note.startswith("results.jsonl is not there; to write it: guardmark report ")


def test_a_folder_without_its_seals_is_named(run: Path) -> None:
    """Files that guardmark seals lie there and none is sealed."""
    (run / "seals.jsonl").unlink()
    found = verify(run)
    assert said(found) == [
        ("seals.jsonl", "it is not there", "guardmark seals every file that it writes")
    ]
    (note,) = found.notes
    assert "summary.json: unsealed, by another program or older than the first seal" in note
    names = note.partition(":")[0].split(", ")
    assert names == sorted(names)
    assert "results.jsonl" in names


def test_swollen_files_are_not_opened(run: Path) -> None:
    """They may fill the memory: nothing else is looked at, and each is named."""
    names = ("config.resolved.yaml", "environment.json")
    for name in names:
        with (run / name).open("r+b") as file:
            file.truncate(10 << 30)  # a hole: it takes no room on disk
    found = verify(run)
    large = f"{10 << 30:,} bytes"
    assert said(found) == [(name, large, "it is too large to be this file") for name in names]
    assert found.notes[0] == "config.resolved.yaml, environment.json: not opened."
    with closing(sqlite3.connect(run / "records.sqlite")) as connection:
        ((rows,),) = connection.execute("SELECT count(*) FROM records")
    assert found.compared > rows  # the chain was still followed, row by row
    assert (found.outdated, found.shown) == ("", ())


def test_data_that_was_changed_is_told_as_of_the_data(run: Path) -> None:
    """The file by its hash, the text that is not in it any more by its sample; all of it in JSON."""
    path, text = run.parent / "data.jsonl", (run.parent / "data.jsonl").read_text(encoding="utf-8")
    row = json.loads(text.splitlines()[0])
    path.write_text(text.replace(row["text"], "soup", 1), encoding="utf-8")
    before, after = (sha256(each.encode()).hexdigest() for each in (text, path.read_text("utf-8")))
    found = verify(run)
    assert [*map(str, found.mismatches)] == [
        f"data.jsonl: sha256: says {before!r}; the data file has {after!r}",
        (
            f"records.sqlite: text of sample {row['id']}: says a text that is in none of the data "
            "files; the data file has another one"
        ),
    ]
    assert found.as_document() == {
        "run": str(run),
        "verdict": "changed",
        "holds": False,
        "head": found.head,
        "as_expected": None,
        "as_signed": None,
        "compared": found.compared,
        "damage": (),
        "outdated": None,
        "not_covered": found.not_covered,
        "mismatches": [
            {"what": "data", "where": where, "stated": stated, "counted": counted}
            for where, stated, counted in said(found)
        ],
        "mismatches_in_all": 2,
        "notes": (),
        "shown": (),
        "not_shown": [UNSHOWN],
    }
    assert verify(run, expect=found.head).as_document()["not_shown"] == [UNSHOWN]


def test_a_noted_head_leaves_nothing_unshown(run: Path) -> None:
    """What the folder alone cannot show is shown by what was noted elsewhere."""
    noted = verify(run, expect=verify(run).head)
    assert noted.as_document()["not_shown"] == []
    assert str(verify(run, expect="f" * 64).mismatches[0]) == (
        f"records.sqlite: head: says {noted.head}; expected was {'f' * 64}"
    )


def pressed(rows: bytes) -> bytes:
    """Rows as they lie in a compressed file."""
    return gzip.compress(rows)


def as_list(rows: bytes) -> bytes:
    """The same rows as one JSON list."""
    return b"[" + b",".join(rows.splitlines()) + b"]"


@pytest.mark.parametrize(("name", "form"), [("data.jsonl.gz", pressed), ("data.json", as_list)])
def test_texts_are_looked_for_in_files_of_other_forms(
    run: Path, monkeypatch: pytest.MonkeyPatch, name: str, form: Callable[[bytes], bytes]
) -> None:
    """As many places are compared as in the file as it was; one that was cut off holds none."""
    home = run.parent / "other"
    home.mkdir()
    content = form((run.parent / "data.jsonl").read_bytes())
    (home / name).write_bytes(content)
    config = CONFIG.replace("data.jsonl", name) + "report: []\n"
    (home / "bench.yaml").write_text(config, encoding="utf-8")
    monkeypatch.chdir(home)
    out = measure(load_config(home / "bench.yaml"), RunOptions(out=home / "out"), Session()).folder
    whole = verify(out.path, data=[home])
    assert whole.holds
    (home / name).write_bytes(content[:-30])
    places = [where for where, *_ in said(verify(out.path, data=[home]))]
    assert places[0] == f"{name}: sha256"
    assert len(places) == COUNT + 1
    (home / name).unlink()
    without = verify(out.path, data=[home])
    assert whole.compared - without.compared == COUNT + 1  # each text, and the hash
    assert without.notes[0] == (
        f"{name} was not compared with the data; --data FOLDER says where it lies (--data . here)."
    )


def test_a_description_that_was_changed_is_named_by_its_place(run: Path) -> None:
    """The settings beside the records, against those in them; one that is no YAML too."""
    path = run / "config.resolved.yaml"
    path.write_text(path.read_text("utf-8").replace("name: journey", "name: other"), "utf-8")
    assert ("config.resolved.yaml: name", "'other'", "'journey'") in said(verify(run))
    path.write_text("[", "utf-8")
    where, stated, _ = said(verify(run))[0]
    assert (where, stated) == ("config.resolved.yaml", "nothing")


@pytest.mark.parametrize(
    ("key", "words"), [("stored", "records"), ("retried", "errors asked about again")]
)
def test_reports_older_than_the_records_are_outdated(run: Path, key: str, words: str) -> None:
    """It says of what there are more by now, and compares nothing that would differ."""
    path = run / "summary.json"
    summary = json.loads(path.read_text("utf-8"))
    now = summary["run"][key]
    summary["run"][key] = now - 1
    path.write_text(json.dumps(summary), "utf-8")
    found = verify(run)
    assert found.outdated == (
        f"The reports are older than the records: they tell of {now - 1:,} {words}, {now:,} are "
        f"stored. To write them anew: guardmark report {run}"
    )
    assert (found.mismatches, found.shown, found.holds) == ((), (), False)


def test_small_slices_are_drawn_again(run: Path) -> None:
    """Both files of them; a file that asks for none is told so."""
    slice_run(run, SliceRequest(attacks=3, benign=2, seeds=(1, 2)))
    assert verify(run).holds
    path = run / "slice_stability.md"
    path.write_text(path.read_text("utf-8").replace("1", "7", 1), "utf-8")
    lines = [where for where, *_ in said(verify(run)) if where.startswith("slice_stability.md: ")]
    assert len(lines) == 1
    (run / "slice_stability.json").write_text("[]", "utf-8")
    assert ("slice_stability.json", "no request of slices", "none of this form") in said(
        verify(run)
    )


def test_a_seal_that_was_changed_is_named_by_its_line(run: Path) -> None:
    """The first that does not follow; what stands before it stays sealed."""
    path = run / "seals.jsonl"
    lines = path.read_text("utf-8").splitlines(keepends=True)
    path.write_text("".join([lines[0], lines[1].replace('"', '" ', 1), *lines[2:]]), "utf-8")
    fault = "this seal does not follow the line before", "a seal was changed, added or taken away"
    assert ("seals.jsonl: line 2", *fault) in said(verify(run))


def test_a_note_names_five_files_and_counts_the_others(run: Path) -> None:
    """The list ends, and says how much longer it is."""
    report(run, formats=("json", "md", "csv"))
    (run / "seals.jsonl").unlink()
    note = verify(run).notes[0]
    names, _, more = note.partition(":")[0].partition(" and ")
    every = [each.name for each in run.iterdir() if each.suffix in {".json", ".jsonl", ".yaml"}]
    tables = ["categories.csv", "report.md", "summary.md", "variant_metrics.csv"]
    assert names.split(", ") == sorted([*every, *tables])[:5]
    assert more == f"{len(every) + len(tables) - 5} more"


def add_records(run: Path) -> None:
    """Let records come later that no report tells of."""
    with RecordWriter(run / "records.sqlite") as writer:
        writer.record_batch("words", Stage.WARMUP, repeat=1).add(0, ALLOWED, latency_ns=1)


def test_records_that_came_later_are_told_from_other_records(run: Path) -> None:
    """The noted head is an earlier one of this chain; only the list of all records lacks it."""
    report(run, formats=("json", "md"))
    noted = verify(run)
    add_records(run)
    found = verify(run, expect=noted.head)
    (where, stated, counted), *others = said(found)
    assert (where, stated) == ("records.sqlite: head", found.head)
    assert counted.startswith(f"{noted.head}, the head after batch ")
    assert counted.endswith(": records were added since")
    assert [place for place, *_ in others] == ["results.jsonl: line 16", "results.jsonl: lines"]


def test_a_report_of_fewer_records_that_is_put_back_is_found(run: Path) -> None:
    """It has a seal, and not the last one."""
    path = run / "report.md"
    report(run, formats=("json", "md"))
    before = path.read_bytes()
    add_records(run)
    report(run, formats=("json", "md"))
    path.write_bytes(before)
    fault = "a write was interrupted, or an old file put back"
    assert ("report.md", "this is the file of an earlier seal", fault) in said(verify(run))


def test_an_earlier_form_of_a_report_is_a_note(run: Path) -> None:
    """Of the same records: a write was interrupted, and nothing says otherwise than before."""
    path = run / "summary.md"
    report(run, formats=("md",))
    before = path.read_bytes()
    report(run, formats=("md",), texts=False)
    assert path.read_bytes() != before
    path.write_bytes(before)
    found = verify(run)
    assert found.holds
    (note,) = found.notes
    assert note.startswith("summary.md: as sealed before, not as sealed last; a write was ")
    assert note.endswith(f" To write anew: guardmark report {run}")


def test_a_file_that_was_sealed_and_not_yet_named_is_no_edit(run: Path) -> None:
    """A writer that was killed leaves it beside its place, under a name of its own."""
    (run / "results.jsonl").rename(run / ".results.jsonl.half")
    found = verify(run)
    assert found.mismatches == ()
    assert found.notes[0].startswith("results.jsonl is not there; to write it: ")


def test_records_of_another_run_do_not_carry_the_seals(run: Path) -> None:
    """The same configuration, run again, has a chain of its own."""
    other = measure(
        load_config(run.parent / "bench.yaml"), RunOptions(out=run.parent / "other"), Session()
    )
    head = verify(run).head
    shutil.copy(other.folder.records, run / "records.sqlite")
    faults = [(stated, counted) for _, stated, counted in said(verify(run))]
    assert (f"sealed over head {head[:16]}...", "these are other records") in faults


def test_a_link_below_the_folder_is_not_followed(run: Path) -> None:
    """Nor is anything else compared: nothing of the folder is to be trusted."""
    private = run.parent / "private.txt"
    private.write_text("a private line", encoding="utf-8")
    (run / "figures").mkdir()
    (run / "figures" / "mine.svg").symlink_to(private)
    found = verify(run)
    assert [where for where, *_ in said(found)] == ["figures/mine.svg"]
    assert said(found)[0][2] == "a link, a pipe or a device stands in place of a file"
    assert found.notes[0] == "figures/mine.svg: not opened."


def test_settings_of_a_judging_that_were_changed_are_named(run: Path) -> None:
    """They are in no record, and sealed all the same."""
    with RecordWriter(run / "records.sqlite") as writer:
        writer.add_layer("later", {"kind": "judge"})
    assert verify(run).holds, "a layer that nothing belongs to may have come after the seals"
    with closing(sqlite3.connect(run / "records.sqlite")) as connection, connection:
        connection.execute("UPDATE layers SET settings = '{}' WHERE name = 'run'")
        connection.execute("DELETE FROM layers WHERE name = 'later'")
        connection.execute("UPDATE layers SET name = 'ran' WHERE name = 'run'")
    stated = "names and settings of its layers are not those that were sealed"
    assert stated in [stated for _, stated, _ in said(verify(run))]


def test_a_run_that_is_not_complete_is_checked_as_far_as_it_came(run: Path) -> None:
    """It says so in place of what is missing."""
    with RecordWriter(run / "records.sqlite") as writer:
        writer.finish(RunState.INTERRUPTED)
    assert "The run is not complete; what it stored so far was checked." in verify(run).notes


def test_a_description_that_was_taken_away_is_missed_once(run: Path) -> None:
    """By its seal; there is nothing to compare with the manifest."""
    (run / "data_manifest.json").unlink()
    fault = "it was sealed", "it is not there any more"
    assert said(verify(run)) == [("data_manifest.json", *fault)]


def test_a_summary_that_is_no_json_is_compared_by_its_lines(run: Path) -> None:
    """The first that differs, and how many there are."""
    count = (run / "summary.json").read_bytes().count(b"\n")
    (run / "summary.json").write_text("{", encoding="utf-8")
    lines = ("summary.json: lines", "1", str(count + 1))
    assert lines in said(verify(run))
