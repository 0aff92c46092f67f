"""What the catalogue says of public data, and how rows are read by its rules."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from guardmark.core.errors import ConfigError, DatasetError, GuardmarkError
from guardmark.core.sample import DEFAULT_TAXONOMY
from guardmark.datasets.catalogue.settings import (
    ENTRIES,
    entry_names,
    find_entry,
    find_suite,
    suite_names,
)
from guardmark.datasets.loading import LoadedData, load
from guardmark.datasets.settings import DataSettings
from guardmark.datasets.specs import dataset_specs

if TYPE_CHECKING:
    from pathlib import Path

ENTRY = """
title = "Ours"
about = "Rows of a test."
home = "https://example.org/data"
licence = "CC0"
forbids = ["commercial"]
languages = ["en"]
purposes = ["prompt-injection"]
ask = "Nobody."
groups = "The family."
tried = "documentation only"

[[files]]
path = "rows.jsonl"

[rows]
text = "words"
label = {column = "bad", words = {yes = "attack", no = "benign"}}
kind = {column = "bad", words = {yes = "attack", no = "benign"}}
category = {column = "bad", words = {yes = "direct_injection", no = ""}}
group = {column = "family", prefix = "f:", otherwise = {column = "words", hash = true}}
"""
ROWS = [
    {"words": "stop", "bad": "yes", "family": "1"},
    {"words": "halt", "bad": "yes", "family": "1"},
    {"words": "hello", "bad": "no", "family": ""},
]


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder with an entry and its file."""
    (tmp_path / "ours.toml").write_text(ENTRY)
    lines = "".join(json.dumps(row) + "\n" for row in ROWS)
    (tmp_path / "rows.jsonl").write_text(lines)
    return tmp_path


def opened(folder: Path, **settings: object) -> LoadedData:
    """Read the entry of a folder from the files in it."""
    entry = DataSettings.model_validate({"catalogue": "ours.toml", "from": ".", **settings})
    return load(dataset_specs(entry, folder), DEFAULT_TAXONOMY)


@pytest.mark.parametrize("name", entry_names())
def test_an_entry_names_categories_of_the_taxonomy(name: str) -> None:
    """Words for categories are those that reports know; every rule reads."""
    entry = find_entry(name)
    for file in entry.row_files:
        rule = entry.rules(file).category
        named = {rule.constant, *rule.words.values()} - {""} if rule else set()
        assert named <= set(DEFAULT_TAXONOMY)


def test_the_catalogue_holds_data_and_no_texts() -> None:
    """At least forty sets; a long line would be a copied text."""
    assert len(entry_names()) >= 40
    assert max(len(path.read_text()) for path in ENTRIES.glob("*.toml")) < 6_000


@pytest.mark.parametrize("name", suite_names())
def test_a_suite_asks_only_what_its_purpose_is_for(name: str) -> None:
    """A detector of injections is never scored on plain harmful requests."""
    suite = find_suite(name)
    classes = {each for part in suite.parts for each in part.quota}
    harmful = {"harmful_request", "harmful_content"}
    assert suite.purposes == (name,)
    assert bool(classes & harmful) is (name == "content-safety")
    assert not (name == "content-safety" and classes & set(DEFAULT_TAXONOMY))


def test_rows_become_samples_by_the_rules(own: Path) -> None:
    """Label, category and group come from the words and columns that the entry names."""
    data = opened(own)
    samples = [(s.prompt.text, s.is_attack, s.category, s.group) for s in data.samples()]
    assert samples[:2] == [
        ("stop", True, "direct_injection", "f:1"),
        ("halt", True, "direct_injection", "f:1"),
    ]
    assert samples[2][:3] == ("hello", False, "")
    (manifest,) = data.manifests
    assert list(manifest.files) == ["ours/rows.jsonl"]


def test_a_sample_is_named_by_its_text(own: Path) -> None:
    """So that a row put in before it leaves its name alone, and versions can be compared."""
    before = {s.prompt.text: s.id for s in opened(own).samples()}
    (own / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in reversed(ROWS)))
    assert {s.prompt.text: s.id for s in opened(own).samples()} == before


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"text": "stop", "bad": "yes", "family": "1"}, "has no column 'words'"),
        (
            {"words": "stop", "bad": "maybe", "family": "1"},
            "says 'maybe', which the entry does not",
        ),
        ({"words": None, "bad": "yes", "family": "1"}, "text: is empty"),
    ],
)
def test_a_home_that_changed_is_told_in_few_lines(
    row: dict[str, object], told: str, own: Path
) -> None:
    """A column that is gone, a new word of a label, an empty text."""
    (own / "rows.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(DatasetError) as raised:
        opened(own)
    assert told in str(raised.value)
    assert len(str(raised.value).splitlines()) <= 5


def test_a_file_that_is_not_utf_8_is_refused(own: Path) -> None:
    """Mixed encodings name the place."""
    (own / "rows.jsonl").write_bytes(b'{"words": "caf\xe9", "bad": "no", "family": "1"}\n')
    with pytest.raises(DatasetError, match="is not UTF-8"):
        opened(own)


def test_a_wrong_checksum_is_refused(own: Path) -> None:
    """The message names both hashes."""
    entry = ENTRY.replace('path = "rows.jsonl"', f'path = "rows.jsonl"\nsha256 = "{"0" * 64}"')
    (own / "other.toml").write_text(entry)
    with pytest.raises(DatasetError, match=r"Expected SHA-256 0000000000000000\.\.\., came"):
        opened(own, catalogue="other.toml")


def test_a_licence_that_forbids_the_use_is_refused(own: Path) -> None:
    """Before anything is fetched or read."""
    with pytest.raises(ConfigError, match=r"The licence of ours.toml \(CC0\) forbids commercial"):
        opened(own, use="commercial")


def test_data_that_were_not_fetched_say_how_to_fetch_them(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the licence, so that it is known before."""
    monkeypatch.setenv("GUARDMARK_DATA", str(own / "cache"))
    entry = DataSettings.model_validate({"catalogue": "xstest"})
    with pytest.raises(GuardmarkError, match=r"licence CC-BY-4.0.*\n.*guardmark data get xstest"):
        dataset_specs(entry, own)


def _with_classes(own: Path, names: list[str]) -> None:
    """Put the rows into Parquet, whose metadata name the numbers of the column `bad`."""
    pa = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    feature = {"names": names, "_type": "ClassLabel"}
    stated = json.dumps({"info": {"features": {"bad": feature}}})
    columns = {
        "words": [row["words"] for row in ROWS],
        "bad": [1, 1, 0],
        "family": [row["family"] for row in ROWS],
    }
    table = pa.table(columns).replace_schema_metadata({"huggingface": stated})
    write_table(table, own / "rows.parquet")
    entry = ENTRY.replace("rows.jsonl", "rows.parquet").replace("yes =", "1 =")
    (own / "ours.toml").write_text(entry.replace("no =", "0 ="))


@pytest.mark.parametrize("names", [["legit", "injection"], ["plum", "kiwi"]])
def test_the_number_of_a_class_is_translated_by_the_entry(own: Path, names: list[str]) -> None:
    """Whatever its name in the file is, as long as that does not say the opposite."""
    _with_classes(own, names)
    samples = list(opened(own).samples())
    assert [sample.is_attack for sample in samples] == [True, True, False]


def test_a_number_whose_name_says_the_opposite_is_refused(own: Path) -> None:
    """The home has turned its numbers round since the entry was written."""
    _with_classes(own, ["injection", "legit"])
    with pytest.raises(
        DatasetError, match=r"'legit'.* the entry takes the number for the opposite"
    ):
        opened(own)


def test_a_row_that_nobody_looked_at_is_not_benign(own: Path) -> None:
    """None of the columns is true and one is missing: the row has no label."""
    rule = 'label = {any_of = ["harm", "spam"], words = {true = "attack", false = "benign"}}'
    old = 'label = {column = "bad", words = {yes = "attack", no = "benign"}}'
    optional = f'optional = ["harm", "spam"]\n{rule}'
    (own / "ours.toml").write_text(ENTRY.replace(old, optional))
    marks: list[dict[str, object]] = [{"harm": 1}, {"harm": 0, "spam": "0"}, {"harm": 0}]
    rows = [{**row, **mark} for row, mark in zip(ROWS, marks, strict=True)]
    (own / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(DatasetError, match="row 3, field label: is missing"):
        opened(own)
