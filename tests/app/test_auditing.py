"""A random sample of answers, labelled by people and read back."""

from __future__ import annotations

import csv
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.analysis.small_pipelines import (
    SAFE_ANSWER,
    UNSAFE_ANSWER,
    PlannedPipeline,
    write_pipeline,
)
from tests.analysis.small_runs import attack, benign

from guardmark.analysis.run import analyse_run
from guardmark.app.labels.audit_file import (
    ANSWERS,
    AuditFile,
    label_row,
    open_rows,
    read_audit,
    write_audit,
)
from guardmark.app.labels.auditing import draw_audit
from guardmark.app.labels.human_labels import read_labels, store_labels
from guardmark.core.errors import DatasetError, StorageError, StoreError
from guardmark.core.outcome import VerdictLabel
from guardmark.core.place import NO_GUARD
from guardmark.core.record import Stage
from guardmark.store.reader import RecordReader
from guardmark.store.records import RecordWriter

NOW = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A finished pipeline run; one sample's id begins like a formula."""
    samples = [attack(0, id="=1+1"), *(attack(n) for n in range(1, 20)), benign(0)]
    folder = tmp_path / "run"
    folder.mkdir()
    planned = PlannedPipeline(
        samples=samples, judges={"judge": lambda _at, _s: SAFE_ANSWER}, fails=lambda at: at == 3
    )
    write_pipeline(folder / "records.sqlite", planned)
    return folder


def test_a_sample_is_random_seeded_and_holds_answers_only(run: Path, tmp_path: Path) -> None:
    """The same seed draws the same; a failed call is no answer to label."""
    one = draw_audit(run, out=tmp_path / "a.csv", count=8)
    two = draw_audit(run, out=tmp_path / "b.csv", count=8)
    other = draw_audit(run, out=tmp_path / "c.csv", count=8, seed=8)
    ids = [[row["audit_id"] for row in each.rows] for each in (one, two, other)]
    assert ids[0] == ids[1] != ids[2]
    everything = draw_audit(run, out=tmp_path / "d.csv", count=99)
    assert len(everything.rows) == 20
    with (tmp_path / "d.csv").open(newline="", encoding="utf-8") as stream:
        assert tuple(next(csv.reader(stream))) == ANSWERS.columns


def test_answers_drawn_by_a_field_say_how_many_they_stand_for(tmp_path: Path) -> None:
    """Of 30 and 10 answers, four each: a label of the larger category counts three times as much."""
    samples = [attack(n, category="common" if n < 30 else "rare") for n in range(40)]
    folder = tmp_path / "run"
    folder.mkdir()
    planned = PlannedPipeline(samples=samples, judges={"judge": lambda _at, _s: SAFE_ANSWER})
    write_pipeline(folder / "records.sqlite", planned)
    drawn = draw_audit(folder, out=tmp_path / "a.csv", count=8, by="category")
    assert Counter(row["stands_for"] for row in drawn.rows) == {"7.5": 4, "2.5": 4}
    for at, row in enumerate(drawn.rows):
        label = "unsafe" if row["stands_for"] == "2.5" else "safe"
        drawn = label_row(drawn, at, label=label, notes="", now=NOW, since=NOW)
    with RecordReader(folder / "records.sqlite") as reader:
        labels = read_labels(tmp_path / "a.csv", reader)
    with RecordWriter(folder / "records.sqlite") as writer:
        store_labels(writer, labels, source=tmp_path / "a.csv")
    with RecordReader(folder / "records.sqlite") as reader:
        pipeline = analyse_run(reader).pipeline
    assert pipeline is not None
    corrected = pipeline.arms[0].corrected
    assert corrected is not None
    assert corrected.system.value == pytest.approx(10 / 40)


def test_answers_drawn_by_verdict_are_as_many_of_each(tmp_path: Path) -> None:
    """Three of forty are judged unsafe; all of them are drawn, and a run without verdicts says so."""
    samples = [attack(n) for n in range(40)]
    folder = tmp_path / "run"
    folder.mkdir()
    judge = {"judge": lambda at, _s: UNSAFE_ANSWER if at < 3 else SAFE_ANSWER}
    write_pipeline(folder / "records.sqlite", PlannedPipeline(samples=samples, judges=judge))
    drawn = draw_audit(folder, out=tmp_path / "a.csv", count=10, by="verdict")
    assert sorted(row["stands_for"] for row in drawn.rows) == ["1"] * 3 + ["5.28571"] * 7
    assert all(row["judge_label"] == "" for row in drawn.rows)
    bare = tmp_path / "bare"
    bare.mkdir()
    write_pipeline(bare / "records.sqlite", PlannedPipeline(samples=samples))
    with pytest.raises(StoreError, match="no verdicts to draw by"):
        draw_audit(bare, out=tmp_path / "b.csv", count=10, by="verdict")


def test_the_verdict_is_hidden_unless_asked_for(run: Path, tmp_path: Path) -> None:
    """People who see a verdict tend to agree with it."""
    hidden = draw_audit(run, out=tmp_path / "a.csv", count=1)
    shown = draw_audit(run, out=tmp_path / "b.csv", count=1, with_verdicts=True)
    assert hidden.rows[0]["judge_label"] == ""
    assert shown.rows[0]["judge_label"] == "safe"


def test_labels_survive_and_are_read_back(run: Path, tmp_path: Path) -> None:
    """Row by row, through the file, formula-like ids included."""
    audit = draw_audit(run, out=tmp_path / "a.csv", count=99)
    for at in tuple(open_rows(audit)):
        audit = label_row(audit, at, label="unsafe", notes="=bad", now=NOW, since=NOW)
    again = read_audit(tmp_path / "a.csv")
    assert again.labelled == 20
    with RecordReader(run / "records.sqlite") as reader:
        labels = read_labels(tmp_path / "a.csv", reader)
    assert {each.position for each in labels} == set(range(21)) - {3}
    assert {each.label for each in labels} == {VerdictLabel.UNSAFE}


def test_a_file_with_labels_is_never_overwritten(run: Path, tmp_path: Path) -> None:
    """Somebody's evening stands in it."""
    draw_audit(run, out=tmp_path / "a.csv", count=2)
    with pytest.raises(StorageError, match="may hold labels"):
        draw_audit(run, out=tmp_path / "a.csv", count=2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("id,label\n1,safe\n", "audit_id and human_label"),
        ("audit_id,human_label\n=1+1#0,\n", "holds no label"),
        ("audit_id,human_label\nnobody#0,safe\n", ":2: the run has no answer"),
        ("audit_id,human_label\na-00001#7,safe\n", ":2: the run has no answer"),
        ("audit_id,human_label\na-00001#0,maybe\n", ":2: human_label must be"),
        ("audit_id,human_label,stands_for\na-00001#0,safe,-2\n", ":2: stands_for must be"),
        ("audit_id,human_label,stands_for\na-00001#0,safe,many\n", ":2: stands_for must be"),
    ],
)
def test_labels_that_fit_no_answer_are_named(
    run: Path, tmp_path: Path, text: str, words: str
) -> None:
    """With file and line."""
    (tmp_path / "l.csv").write_text(text, encoding="utf-8")
    with RecordReader(run / "records.sqlite") as reader, pytest.raises(DatasetError, match=words):
        read_labels(tmp_path / "l.csv", reader)


def test_a_sheet_of_another_tool_is_matched_by_prompt_variant_and_generation(
    run: Path, tmp_path: Path
) -> None:
    """Its ids are its own; an answer that reads otherwise is that of another run."""
    audit = draw_audit(run, out=tmp_path / "a.csv", count=99)
    rows = [
        {**row, "audit_id": f"case-{n:04d}", "human_label": "safe"}
        for n, row in enumerate(audit.rows)
    ]
    path = tmp_path / "theirs.csv"
    write_audit(AuditFile(path=path, rows=tuple(rows)))
    with RecordReader(run / "records.sqlite") as reader:
        labels = read_labels(path, reader)
        ids = [sample.id for sample in reader.samples()]
        assert sorted(ids[each.position] for each in labels) == sorted(
            row["audit_id"].rpartition("#")[0] for row in audit.rows
        )
        for name, value, words in (
            ("prompt_text", "something else", ":2: the run has no answer 'case-0000'"),
            ("generation_index", "7", ":2: the run has no answer 'case-0000'"),
            ("assistant_response", "another answer", ":2: the run answers otherwise"),
        ):
            write_audit(AuditFile(path=path, rows=({**rows[0], name: value}, *rows[1:])))
            with pytest.raises(DatasetError, match=words):
                read_labels(path, reader)


def test_a_run_without_a_judge_has_no_verdict_to_show(run: Path, tmp_path: Path) -> None:
    """Its answers can be labelled all the same; a run without answers cannot."""
    folder = tmp_path / "unjudged"
    folder.mkdir()
    planned = PlannedPipeline(samples=[attack(0), benign(0)], judges={}, fails=lambda _at: False)
    write_pipeline(folder / "records.sqlite", planned)
    audit = draw_audit(folder, out=tmp_path / "u.csv", count=9, with_verdicts=True)
    assert [(row["judge_label"], row["judge_malformed"]) for row in audit.rows] == [("", "")] * 2
    assert all(row["assistant_response"] for row in audit.rows)


def test_labels_that_are_read_in_twice_are_stored_once(run: Path, tmp_path: Path) -> None:
    """The second time finds its layer; a changed label is another layer."""
    path = tmp_path / "l.csv"

    def stored(label: str) -> tuple[str, int]:
        path.write_text(f"audit_id,human_label\n=1+1#0,{label}\n", encoding="utf-8")
        with RecordReader(run / "records.sqlite") as reader:
            labels = read_labels(path, reader)
        with RecordWriter(run / "records.sqlite") as writer:
            layer = store_labels(writer, labels, source=path)
        with RecordReader(run / "records.sqlite") as reader:
            records = reader.records(defense=NO_GUARD, stage=Stage.JUDGE, layer=layer)
            return layer, len(list(records))

    first = stored("safe")
    assert first == (first[0], 1)
    assert stored("safe") == first
    assert stored("unsafe")[0] != first[0]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.csv", "audit_id,same_request\nx,yes\n", "it lacks before_encoding, defense, "),
        ("a.csv", "", "it lacks assistant_response, audit_id, "),
        ("a.jsonl", '{"audit_id": "x"\n', r"The audit file .*a\.jsonl cannot be read: row 1 "),
        ("a.jsonl", b"\xff\xfe\xff", r"The audit file .*a\.jsonl cannot be read: "),
        ("a.csv", b"audit_id,human_label\n\xff,safe\n", r"a\.csv cannot be read: it "),
        ("gone.csv", None, r"gone\.csv cannot be opened: No such file"),
    ],
)
def test_a_file_that_is_no_audit_file_is_refused_by_name(
    tmp_path: Path, name: str, text: str | bytes | None, words: str
) -> None:
    """With the columns that are missing, or with what kept it from being read."""
    if text is not None:
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DatasetError, match=words):
        read_audit(tmp_path / name)


def test_a_sheet_that_cannot_be_written_is_an_error_with_its_place(
    run: Path, tmp_path: Path
) -> None:
    """A folder that is not there, before a person has spent an evening."""
    with pytest.raises(StorageError, match=r"gone/a\.csv cannot be written: No such file"):
        draw_audit(run, out=tmp_path / "gone" / "a.csv", count=2)


@pytest.mark.slow
def test_labelling_in_the_terminal_goes_on_where_it_stopped(run: Path, tmp_path: Path) -> None:
    """Two labels, a skip, a quit; then the rest."""

    def typed(keys: str) -> str:
        words = [sys.executable, "-c", "from guardmark.cli import main; main()", "audit"]
        done = subprocess.run(
            [*words, str(run), "--count", "4", "--label"],
            cwd=tmp_path,
            input=keys,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return done.stdout

    assert "4 answers, 2 labelled" in typed("s\n\nu\nrude\nk\nq\n")
    assert "4 answers, 4 labelled" in typed("s\n\ns\n\n")
    assert read_audit(tmp_path / "audit.csv").rows[1]["human_notes"] == "rude"
