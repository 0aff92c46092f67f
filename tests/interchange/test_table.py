"""Tables of decisions, as anybody writes them: what is read of them, and what is not made up."""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from guardmark.app.results.reporting import finish
from guardmark.app.run.importing import import_run
from guardmark.app.verify.verification import verify
from guardmark.core.errors import DatasetError, UnknownName
from guardmark.core.outcome import Outcome, ScoreKind
from guardmark.core.sample import Label
from guardmark.interchange.imported import ImportedRun, Statements
from guardmark.interchange.table import read_table

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def read(folder: Path, text: str, name: str = "words.csv", **statements: object) -> ImportedRun:
    """Write a table and read it."""
    (folder / name).write_text(text, encoding="utf-8")
    return read_table(folder / name, Statements(**statements))  # type: ignore[arg-type]


def outcomes(run: ImportedRun) -> list[list[Outcome]]:
    """What was decided of each sample, repeat by repeat."""
    return [[a.decision.outcome for a in row.answers if a.decision] for row in run.rows]


def test_a_table_of_four_columns_is_a_run(tmp_path: Path) -> None:
    """Its rates are those a person counts, and the folder verifies."""
    lines = ["Text,Label,Blocked,Score"]
    lines += [f"say the canary word {n},attack,{n < 6},{n / 10}" for n in range(10)]
    lines += [f"how do plants drink {n},benign,{n < 2},0.{n}" for n in range(8)]
    path = tmp_path / "vendor.csv"
    path.write_text("\n".join(lines) + "\n")
    made = import_run("table", path, now=NOW, out=tmp_path / "run")
    finished = finish(made.folder, made.config, formats=("json",), texts=True)
    (card,) = json.loads((made.folder.path / "summary.json").read_text())["defenses"]
    rates = card["rates"]
    assert card["name"] == "vendor"
    assert (rates["attack_success_rate"]["successes"], rates["attack_success_rate"]["trials"]) == (
        4,
        10,
    )
    assert (rates["false_positive_rate"]["successes"], rates["false_positive_rate"]["trials"]) == (
        2,
        8,
    )
    assert card["thresholds"] is not None
    assert finished is not None
    assert verify(made.folder.path).mismatches == ()


def test_valid_means_passed(tmp_path: Path) -> None:
    """Outputs of guard libraries say whether a text is valid; in JSON lines, with anything beside."""
    rows = [
        {"text": "a", "label": "attack", "valid": False, "explanation": "canary", "score": 0.9},
        {"text": "b", "label": "benign", "valid": True, "score": None},
    ]
    run = read(tmp_path, "".join(json.dumps(row) + "\n" for row in rows), "out.jsonl")
    assert outcomes(run) == [[Outcome.BLOCK], [Outcome.ALLOW]]
    assert [row.answers[0].decision.score for row in run.rows if row.answers[0].decision] == [
        0.9,
        None,
    ]


def test_what_cannot_be_read_is_no_decision(tmp_path: Path) -> None:
    """Neither yes nor no is malformed; an error is an error; neither is an allow."""
    run = read(
        tmp_path,
        "text,label,decision,error\na,attack,maybe,\nb,attack,,\nc,attack,allow,timeout after 3 s\n"
        "d,benign,ALLOW ,\n",
    )
    assert outcomes(run) == [
        [Outcome.MALFORMED],
        [Outcome.MALFORMED],
        [Outcome.ERROR],
        [Outcome.ALLOW],
    ]


def test_rows_of_one_id_are_repeats_and_keep_their_group(tmp_path: Path) -> None:
    """Answers to the same sample are not new samples."""
    run = read(
        tmp_path,
        "id,prompt,is_attack,flagged,group\nx,a,1,1,g\nx,a,1,0,g\ny,b,1,1,g\nz,c,0,0,\n",
    )
    assert outcomes(run) == [[Outcome.BLOCK, Outcome.ALLOW], [Outcome.BLOCK], [Outcome.ALLOW]]
    assert [row.sample.group for row in run.rows][:2] == ["g", "g"]


def test_texts_arrive_byte_for_byte(tmp_path: Path) -> None:
    """Line separators, quotes and blanks inside of a cell are part of the text."""
    text = "long " * 30_000 + 'one\u2028two "three"\r\n four\x0bfive '
    quoted = text.replace('"', '""')
    (tmp_path / "t.csv").write_bytes(f'text,label,blocked\r\n"{quoted}",attack,1\r\n'.encode())
    (row,) = read_table(tmp_path / "t.csv", Statements()).rows
    assert row.sample.prompt.text == text


def test_a_small_table_lowers_no_limit_of_the_process(tmp_path: Path) -> None:
    """Other tables that are read later may hold longer cells."""
    before = csv.field_size_limit()
    read(tmp_path, "text,label,blocked\na,attack,1\n")
    assert csv.field_size_limit() >= before


def test_a_label_may_be_stated_for_all(tmp_path: Path) -> None:
    """Rows without one are left out and counted otherwise."""
    table = "text,label,blocked\na,,1\nb,attack,0\n"
    run = read(tmp_path, table)
    assert "1 row without a label was left out" in run.warnings
    assert (
        "the decision was read from the column 'blocked': true = blocked, false = allowed"
        in run.readings
    )
    assert len(run.rows) == 1
    stated = read(tmp_path, table, label=Label.BENIGN)
    assert [row.sample.label for row in stated.rows] == [Label.BENIGN, Label.ATTACK]


def test_one_defense_of_several_is_named(tmp_path: Path) -> None:
    """Two of them in one column are not one defense with repeats."""
    table = "text,label,blocked,guard\na,attack,1,one\na,attack,0,two\n"
    with pytest.raises(DatasetError, match="holds 2 defenses: one, two"):
        read(tmp_path, table)
    assert outcomes(read(tmp_path, table, model="two")) == [[Outcome.ALLOW]]
    with pytest.raises(UnknownName, match="Did you mean"):
        read(tmp_path, table, model="twoo")


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("label,blocked\nattack,1\n", "has no column text, prompt"),
        ("text,label\na,attack\n", "has no column decision, outcome, blocked"),
        ("text,label,blocked\n", "has no column text"),
        ("", "has no column text"),
        ('text,label,blocked\n"a,attack,1\n', "is not CSV"),
        ("text,label,blocked\na,,1\n", "if every row is one of both, --label"),
        ("id,text,label,blocked\nx,a,attack,1\nx,b,attack,1\n", "stands for two samples"),
    ],
)
def test_bad_tables_are_refused_in_few_lines(table: str, said: str, tmp_path: Path) -> None:
    """What, where and the next step."""
    with pytest.raises(DatasetError, match=said) as caught:
        read(tmp_path, table)
    assert len(str(caught.value).splitlines()) <= 3


def test_other_encodings_are_refused(tmp_path: Path) -> None:
    """Texts are not guessed at."""
    (tmp_path / "t.csv").write_bytes("text,label,blocked\n\u00e4,attack,1\n".encode("cp1252"))
    with pytest.raises(DatasetError, match="UTF-8"):
        read_table(tmp_path / "t.csv", Statements())


CONFIDENT = (
    "text,label,decision,confidence\nsay kiwi,attack,block,0.9\nhello,benign,allow,{allowed}\n"
)


@pytest.mark.parametrize(
    ("meaning", "allowed", "scores"),
    [("", "0.2", [0.9, 0.2]), ("risk", "0.95", [0.9, 0.95]), ("certainty", "0.95", [0.9, 0.05])],
)
def test_a_confidence_is_the_score_that_somebody_says_it_is(
    tmp_path: Path, meaning: str, allowed: str, scores: list[float]
) -> None:
    """A risk as it is, a certainty turned for what was allowed; what was taken is said."""
    path = tmp_path / "t.csv"
    path.write_text(CONFIDENT.format(allowed=allowed), encoding="utf-8")
    run = read_table(path, Statements(confidence=meaning))
    decisions = [row.answers[0].decision for row in run.rows]
    assert [each and each.score for each in decisions] == pytest.approx(scores)
    kind = ScoreKind.SELF_REPORTED if meaning else ScoreKind.CONFIDENCE
    assert {each and each.score_kind for each in decisions} == {kind}
    assert any("'confidence' as " in reading for reading in run.readings)


def test_a_confidence_that_contradicts_the_decisions_is_asked_for(tmp_path: Path) -> None:
    """It allowed with a higher one than it blocked: the note says how to tell what it is."""
    path = tmp_path / "t.csv"
    path.write_text(CONFIDENT.format(allowed="0.95"), encoding="utf-8")
    (warning,) = read_table(path, Statements()).warnings
    assert "its confidence contradicts its decisions if it is a risk" in warning
    assert "--confidence certainty" in warning
    assert read_table(path, Statements(confidence="certainty")).warnings == ()
