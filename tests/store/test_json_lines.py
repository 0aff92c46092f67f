"""Exports carry the records to other programs, inert."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from guardmark.core.errors import StorageError
from guardmark.core.outcome import Decision, Evidence, Outcome, Response
from guardmark.core.record import Stage
from guardmark.core.sample import Label, Prompt, Sample
from guardmark.interchange.records import writing as tables
from guardmark.interchange.records.writing import write_csv, write_parquet
from guardmark.store.json_lines import COLUMNS, write_jsonl
from guardmark.store.reader import RecordReader
from guardmark.store.records import RecordWriter
from guardmark.store.tries import TrySubject


@pytest.fixture
def reader(writer: RecordWriter, path: Path) -> RecordReader:
    """Thirty decisions and one answer."""
    for position in range(30):
        decision = Decision(
            outcome=Outcome.BLOCK if position % 2 else Outcome.ALLOW,
            score=position / 30,
            evidence=Evidence(reason="why") if position == 3 else None,
        )
        writer.record_batch("words").add(position, decision, latency_ns=position)
    answer = Response(text='=HYPERLINK("x")\n\u2028 "quoted", <b>')
    writer.record_batch("none", Stage.MODEL).add(0, answer, latency_ns=1)
    writer.flush()
    return RecordReader(path)


def test_json_lines_say_the_same_as_the_records(
    reader: RecordReader, tmp_path: Path, sample: Callable[[int], Sample]
) -> None:
    """Each line stands alone and can be checked with standard tools."""
    with reader:
        assert write_jsonl(reader, tmp_path / "results.jsonl") == 31
        records = list(reader.records())
    lines = (tmp_path / "results.jsonl").read_text().split("\n")
    assert lines.pop() == ""
    rows = [json.loads(line) for line in lines]
    assert [(r["defense"], r["position"], r["outcome"]) for r in rows] == [
        (r.key.defense, r.key.sample, r.outcome) for r in records
    ]
    assert list(rows[0]) == [*COLUMNS, "evidence"]
    assert rows[3]["evidence"] == {"reason": "why"}
    assert rows[3]["score"] == 0.1
    assert rows[3]["sha256"] == sample(3).prompt.digest().hex()
    assert rows[3]["category"] == sample(3).category
    assert rows[30]["text"] == records[30].text
    assert rows[30]["score"] is None


def test_csv_is_inert_in_a_spreadsheet(reader: RecordReader, tmp_path: Path) -> None:
    """A model's answer must not run as a formula."""
    with reader:
        assert write_csv(reader, tmp_path / "results.csv") == 31
    with (tmp_path / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[30]["text"].startswith("'=HYPERLINK")
    assert rows[0]["text"] == ""
    assert rows[3]["score"] == "0.1"


def test_parquet_has_typed_columns(reader: RecordReader, tmp_path: Path) -> None:
    """Data frames read it without guessing."""
    pq = pytest.importorskip("pyarrow.parquet")
    with reader:
        assert write_parquet(reader, tmp_path / "results.parquet") == 31
    table = pq.read_table(tmp_path / "results.parquet")
    assert table.column_names == list(COLUMNS)
    assert table["score"].to_pylist()[3] == 0.1
    assert table["text"].to_pylist()[30].startswith("=HYPERLINK")


def test_parquet_has_partitions_in_a_folder(
    reader: RecordReader, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By defense, stage and layer; together they are the rows of the one file."""
    pytest.importorskip("pyarrow.parquet")
    import pyarrow.dataset as ds

    monkeypatch.setattr(tables, "AT_ONCE", 8)
    home = tmp_path / "new" / "records"
    with reader:
        assert write_parquet(reader, home) == 31
        assert write_parquet(reader, tmp_path / "results.parquet") == 31
        with pytest.raises(StorageError, match="already exists"):
            write_parquet(reader, home)
    assert [each.name for each in home.parent.iterdir()] == ["records"]
    files = sorted(each.relative_to(home).as_posix() for each in home.rglob("*.parquet"))
    words = "defense=words/stage=defense/layer=run"
    assert files == ["defense=none/stage=model/layer=run/0.parquet", f"{words}/0.parquet"]
    order = [("defense", "descending"), ("position", "ascending")]
    whole = ds.dataset(tmp_path / "results.parquet").to_table().sort_by(order)
    parts = ds.dataset(home, partitioning="hive").to_table().sort_by(order)
    assert parts.select(COLUMNS).to_pylist() == whole.to_pylist()


def test_a_name_leads_out_of_no_folder(path: Path, tmp_path: Path) -> None:
    """Names of a run that was imported are a stranger's."""
    pytest.importorskip("pyarrow.parquet")
    import pyarrow.dataset as ds

    odd = "../../a/../b%2F="
    with RecordWriter(path) as writer:
        writer.load_samples([Sample(id="x", prompt=Prompt.of_text("x"), label=Label.BENIGN)])
        writer.record_batch(odd).add(0, Decision(outcome=Outcome.ALLOW), latency_ns=1)
    with RecordReader(path) as reader:
        assert write_parquet(reader, tmp_path / "parts") == 1
    assert len(list((tmp_path / "parts").rglob("*.parquet"))) == 1
    rows = ds.dataset(tmp_path / "parts", partitioning="hive").to_table().to_pylist()
    assert [row["defense"] for row in rows] == [odd]


def test_ids_and_topics_with_odd_characters_stay_valid_json(path: Path, tmp_path: Path) -> None:
    """A hostile id breaks no line."""
    odd = 'a"b\\c\n\x00\u2028</script>'
    with RecordWriter(path) as writer:
        writer.load_samples(
            [Sample(id=odd, prompt=Prompt.of_text("x"), label=Label.BENIGN, category=odd)]
        )
        writer.record_batch(odd).add(0, Decision(outcome=Outcome.ALLOW), latency_ns=1)
    with RecordReader(path) as reader:
        write_jsonl(reader, tmp_path / "r.jsonl")
    row = json.loads((tmp_path / "r.jsonl").read_bytes().decode())
    assert (row["id"], row["category"], row["defense"]) == (odd, odd, odd)


def test_tries_of_an_attacker_are_no_answers_of_the_run(
    writer: RecordWriter, path: Path, tmp_path: Path
) -> None:
    """They are about variants, and would be counted with the samples they carry the id of."""
    pq = pytest.importorskip("pyarrow.parquet")
    writer.record_batch("words").add(0, Decision(outcome=Outcome.BLOCK), latency_ns=1)
    subject = TrySubject(account="search", round="R2", digest="d", chain="c", tier="V1")
    allowed = Decision(outcome=Outcome.ALLOW)
    writer.tries("words", "adaptive").add((0, 0), subject, allowed, is_free=False)
    writer.flush()
    with RecordReader(path) as reader:
        assert write_jsonl(reader, tmp_path / "results.jsonl") == 1
        assert write_csv(reader, tmp_path / "records.csv") == 1
        assert write_parquet(reader, tmp_path / "records.parquet") == 1
    assert json.loads((tmp_path / "results.jsonl").read_text())["stage"] == "defense"
    assert pq.read_table(tmp_path / "records.parquet")["stage"].to_pylist() == ["defense"]
