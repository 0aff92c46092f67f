"""Data by address: objects of a store, here of the one that pyarrow has for this machine."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from guardmark.core.errors import DatasetError, GuardmarkError
from guardmark.core.sample import DEFAULT_TAXONOMY
from guardmark.datasets.loading import file_sha256, load
from guardmark.datasets.settings import DataSettings
from guardmark.datasets.specs import dataset_specs

ROWS = [
    {"id": f"s{n}", "prompt": f"text {n}", "label": "attack" if n % 2 else "benign"}
    for n in range(6)
]


def read(stated: str, **settings: object) -> list[tuple[str, str, str]]:
    """Id, text and label of what an entry of a configuration names."""
    specs = dataset_specs(DataSettings.model_validate({"path": stated, **settings}), Path())
    samples = load(specs, DEFAULT_TAXONOMY).samples()
    return [(each.id, each.prompt.text, each.label.value) for each in samples]


@pytest.fixture
def store(tmp_path: Path) -> str:
    """A folder with the rows in two files of Parquet and as packed lines; its address."""
    parquet = pytest.importorskip("pyarrow.parquet")
    pyarrow = pytest.importorskip("pyarrow")
    for name, rows in (("a", ROWS[:3]), ("b", ROWS[3:])):
        parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / f"{name}.parquet")
    lines = "".join(json.dumps(row) + "\n" for row in ROWS)
    (tmp_path / "rows.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    return f"file://{tmp_path}"


def test_an_address_is_read_like_a_file(store: str, tmp_path: Path) -> None:
    """One object, all that fit a pattern, and packed lines; the same samples as from files."""
    there = read(f"{store}/*.parquet")
    assert there == read(f"{tmp_path}/*.parquet")
    assert there == read(f"{store}/rows.jsonl.gz")
    assert there == [(row["id"], row["prompt"], row["label"]) for row in ROWS]
    assert read(f"{store}/b.parquet") == there[3:]


def test_a_run_notes_addresses_and_the_hashes_of_files(store: str, tmp_path: Path) -> None:
    """So that the same bytes are known again, wherever they lie."""
    for name in ("*.parquet", "a.parquet"):
        (there, here) = (
            load(dataset_specs(DataSettings(path=f"{folder}/{name}"), Path()), DEFAULT_TAXONOMY)
            for folder in (store, tmp_path)
        )
        files = [each.files for each in there.manifests]
        assert next(iter(files[0])) == f"{store}/a.parquet"
        assert [[*each.files.values()] for each in here.manifests] == [
            [*each.values()] for each in files
        ]
    digest = files[0][f"{store}/a.parquet"]
    assert len(read(f"{store}/a.parquet", sha256=digest)) == 3
    with pytest.raises(DatasetError, match="not the one the configuration states"):
        read(f"{store}/b.parquet", sha256=digest)


@pytest.mark.parametrize(
    ("stated", "reason"),
    [
        ("{store}/none.parquet", "none.parquet cannot be read"),
        ("{store}/none/*.parquet", "none cannot be read"),
        ("{store}/c*.parquet", "No data file fits"),
        ("nowhere://bucket/a.parquet", "Unrecognized filesystem"),
        ("{store}/a.odd", "does not tell its format"),
    ],
)
def test_what_cannot_be_read_is_told_in_a_few_lines(store: str, stated: str, reason: str) -> None:
    """An object or folder that is not there, and a store that pyarrow does not know."""
    with pytest.raises(GuardmarkError, match=reason) as caught:
        read(stated.format(store=store))
    assert len(str(caught.value).splitlines()) <= 5


def test_a_file_whose_name_looks_like_an_address_is_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder called `s3:` may come with somebody's run: nothing is asked of a store for it."""
    monkeypatch.chdir(tmp_path)
    file = Path("s3:/bucket/rows.jsonl")
    file.parent.mkdir(parents=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    assert len(read("s3:/bucket/rows.jsonl")) == len(ROWS)
    assert len(file_sha256(file)) == 64
