"""`export --to parquet -o FOLDER`: a folder for other programs that is a run as well."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from tests.journeys.command_line import guardmark
from tests.journeys.test_merge import CONFIG, GUARD, measured

from guardmark import load_run
from guardmark.app.results.exporting import export
from guardmark.app.results.opened_run import find_run, open_run
from guardmark.app.verify.verification import verify
from guardmark.core.errors import GuardmarkError, StoreError
from guardmark.interchange.records import parquet as parquet_run

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def tables(folder: Path) -> dict[str, list[tuple[object, ...]]]:
    """All that the records of a run hold, by table, but for the note of its seals."""
    with closing(sqlite3.connect(folder / "records.sqlite")) as connection:
        names = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        query = "SELECT * FROM {}".format
        return {
            name: [row for row in connection.execute(query(name)) if row[0] != "seals"]
            for (name,) in names
        }


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run: its guard was down at first, so some answers came on a second attempt."""
    home = tmp_path_factory.mktemp("home")
    (home / "guard.py").write_text(GUARD)
    (home / "bench.yaml").write_text(CONFIG)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        (home / "down").touch()
        measured(home / "bench.yaml", home / "run")
        (home / "down").unlink()
        return measured(home / "bench.yaml", home / "run", retry_errors=True)


@pytest.fixture
def packed(run: Path, tmp_path: Path) -> Path:
    """The run as a folder of Parquet."""
    return export(run, "parquet", out=tmp_path / "packed").path


def rewritten(file: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """Change a table of a folder."""
    pq.write_table(change(pq.read_table(file)), file)


def test_the_records_come_back_as_they_were(run: Path, packed: Path) -> None:
    """Every table, with what stood there before second attempts, and nothing beside."""
    find_run(packed)
    stored = tables(run)
    assert len(stored["superseded"]) > 10
    assert tables(packed) == stored
    assert {each.name for each in packed.iterdir()} == {"_run", "defense=mine", "records.sqlite"}


def test_the_figures_are_those_of_the_run(run: Path, packed: Path) -> None:
    """To the byte, by the command and from Python; and the chain of hashes holds."""
    done = guardmark("report", str(packed), "-f", "json", cwd=packed.parent)
    assert done.code == 0, done.err
    assert (packed / "summary.json").read_bytes() == (run / "summary.json").read_bytes()
    (card,), (same,) = (load_run(each).analysis.defenses for each in (run, packed))
    assert card.card == same.card
    assert verify(packed).holds


def test_other_programs_see_each_record_once(run: Path, packed: Path) -> None:
    """The tables of the run lie where readers of partitions do not look."""
    dataset = pytest.importorskip("pyarrow.dataset")
    count = dataset.dataset(packed, partitioning="hive").count_rows()
    assert count == len(tables(run)["records"])
    assert count == sum(pq.read_metadata(each).num_rows for each in packed.rglob("*.parquet"))


def test_a_changed_answer_shows(packed: Path) -> None:
    """Whoever edits the tables breaks the chain."""

    def blocked(table: pa.Table) -> pa.Table:
        at = table.schema.get_field_index("outcome")
        return table.set_column(at, "outcome", pa.array([1] * len(table), pa.int64()))

    rewritten(packed / "_run" / "records.pq", blocked)
    assert not verify(packed).holds


def without_column(folder: Path) -> None:
    """Samples that lack their texts."""
    rewritten(folder / "samples.pq", lambda table: table.drop_columns(["text"]))


def without_table(folder: Path) -> None:
    """No samples at all."""
    (folder / "samples.pq").unlink()


def twice(folder: Path) -> None:
    """Every record doubled."""
    rewritten(folder / "records.pq", lambda table: pa.concat_tables([table, table]))


def cut_short(folder: Path) -> None:
    """A copy that ended in the middle."""
    whole = (folder / "samples.pq").read_bytes()
    (folder / "samples.pq").write_bytes(whole[: len(whole) // 2])


def nested(folder: Path) -> None:
    """A list where a text belongs."""
    lists = pa.array([["a"]], pa.list_(pa.string()))
    pq.write_table(pa.table({"id": [0], "evidence": lists, "batch": [1]}), folder / "sayings.pq")


def linked(folder: Path) -> None:
    """A file that lies elsewhere."""
    (folder / "samples.pq").rename(folder.parent / "elsewhere")
    (folder / "samples.pq").symlink_to(folder.parent / "elsewhere")


@pytest.mark.parametrize("ruin", [without_column, without_table, twice, cut_short, nested, linked])
def test_a_ruined_folder_is_refused(ruin: Callable[[Path], None], packed: Path) -> None:
    """In a few lines, with nothing half made left behind."""
    ruin(packed / "_run")
    before = sorted(packed.iterdir())
    with pytest.raises(StoreError) as caught:
        find_run(packed)
    assert 2 <= len(str(caught.value).splitlines()) <= 5
    assert sorted(packed.iterdir()) == before


def test_a_value_that_guardmark_never_writes_is_refused(packed: Path) -> None:
    """As in any file of a stranger's."""

    def beyond(table: pa.Table) -> pa.Table:
        at = table.schema.get_field_index("latency_ns")
        return table.set_column(at, "latency_ns", pa.array([-5] * len(table), pa.int64()))

    rewritten(packed / "_run" / "records.pq", beyond)
    with pytest.raises(GuardmarkError, match="records"), open_run(packed):
        pass


def test_a_small_file_does_not_fill_the_disk(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand rows that share one long text take little in Parquet."""
    monkeypatch.setattr(parquet_run, "_MOST", 4 << 20)
    monkeypatch.setattr(parquet_run, "_RATIO", 0)

    def long(table: pa.Table) -> pa.Table:
        rows = table.take([0] * 400).to_pydict()
        texts = {"position": list(range(400)), "text": ["ab " * 10_000] * 400}
        return pa.table(rows | texts, table.schema)

    rewritten(packed / "_run" / "samples.pq", long)
    assert (packed / "_run" / "samples.pq").stat().st_size < 200_000
    with pytest.raises(StoreError, match="full"):
        find_run(packed)
    assert not (packed / "records.sqlite").exists()


@pytest.mark.slow
def test_a_run_that_was_attacked_comes_back_whole(run: Path, tmp_path: Path) -> None:
    """Tries, confirmations and settings of layers among the rest."""
    given = ("bench.yaml", "-o", tmp_path / "attacked", "--budget", "4", "--canaries", "0")
    done = guardmark("adapt", *given, cwd=run.parent)
    assert done.code == 0, done.err
    packed = export(tmp_path / "attacked", "parquet", out=tmp_path / "packed").path
    find_run(packed)
    stored = tables(tmp_path / "attacked")
    assert stored["tries"]
    assert tables(packed) == stored
    assert verify(packed).holds
