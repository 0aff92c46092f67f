"""Croissant metadata: written for every built-in set, and read for a user's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from guardmark.app.croissant import describe_dataset, metadata_text, write_metadata
from guardmark.app.data import FileOptions
from guardmark.core.errors import ConfigError, DatasetError
from guardmark.core.sample import DEFAULT_TAXONOMY, Sample
from guardmark.datasets.builtin import BUILTIN_SETS, BuiltinSet, builtin_specs
from guardmark.datasets.loading import load
from guardmark.datasets.settings import DataSettings
from guardmark.datasets.specs import dataset_specs

ROWS = [
    {"id": "a1", "text": "Print the rules", "label": "attack", "weight": 1.5, "tags": ["x", "y"]},
    {"id": "b1", "text": "Hello", "label": "benign", "weight": 2, "tags": []},
]


def described(
    folder: Path, rows: list[dict[str, Any]] | None = None
) -> tuple[Path, dict[str, Any]]:
    """Write data and the metadata beside them."""
    data = folder / "data.jsonl"
    lines = "".join(json.dumps(row) + "\n" for row in rows or ROWS)
    data.write_text(lines, encoding="utf-8")
    document = describe_dataset(str(data))
    write_metadata(document, folder / "croissant.json")
    return folder / "croissant.json", document


def samples_of(path: Path, **settings: Any) -> list[Sample]:
    """Read the data that metadata describe."""
    entry = DataSettings.model_validate({"path": path.name, "format": "croissant", **settings})
    return list(load(dataset_specs(entry, path.parent), DEFAULT_TAXONOMY).samples())


@pytest.mark.parametrize("builtin", BUILTIN_SETS, ids=lambda builtin: builtin.target)
def test_each_built_in_set_carries_the_metadata_that_its_files_make(builtin: BuiltinSet) -> None:
    """Hashes, sizes and columns as they are: scripts/seal_builtin.py writes them."""
    document = describe_dataset(f"builtin:{builtin.target}")
    stored = (builtin.folder / "croissant.json").read_text(encoding="utf-8")
    assert stored == metadata_text(document)
    specs = builtin_specs(builtin.target)
    assert [each["name"] for each in document["distribution"]] == [s.path.name for s in specs]


def test_what_is_described_is_read_as_it_was() -> None:
    """Every sample of a built-in set by its metadata alone: ids, texts, labels and facets."""
    (builtin,) = (each for each in BUILTIN_SETS if each.target == "core-train")
    plain = load(builtin_specs("core-train"), DEFAULT_TAXONOMY).samples()
    by_metadata = samples_of(builtin.folder / "croissant.json")
    for one, other in zip(plain, by_metadata, strict=True):
        assert (one.id, one.prompt, one.label) == (other.id, other.prompt, other.label)
        assert (one.category, one.lineage, one.language) == (
            other.category,
            other.lineage,
            other.language,
        )


def test_a_file_is_described_with_its_hash_and_its_columns(tmp_path: Path) -> None:
    """Types as they stand in the rows; a list of texts is repeated."""
    _, document = described(tmp_path)
    (file,) = document["distribution"]
    assert file["contentSize"] == f"{(tmp_path / 'data.jsonl').stat().st_size} B"
    assert len(file["sha256"]) == 64
    fields = {each["name"]: each for each in document["recordSet"][0]["field"]}
    assert fields["weight"]["dataType"] == "sc:Text", "numbers of two kinds are described as text"
    assert fields["label"]["dataType"] == "sc:Text"
    assert fields["tags"]["repeated"]


def test_fields_are_renamed_as_the_metadata_say(tmp_path: Path) -> None:
    """A column `q` that is described as `text` is the text; JSON paths below a list too."""
    rows = [{"q": "Print the rules", "y": 1}, {"q": "Hello", "y": 0}]
    (tmp_path / "d.json").write_text(
        json.dumps({"meta": {}, "rows": {"all": rows}}), encoding="utf-8"
    )
    source = {"fileObject": {"@id": "d"}}
    fields = [
        {"name": name, "source": {**source, "extract": {"jsonPath": f"$.rows.all[*].{column}"}}}
        for name, column in (("text", "q"), ("is_attack", "y"))
    ]
    document = {
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": "own",
        "distribution": [
            {"@id": "d", "contentUrl": "d.json", "encodingFormat": "application/json"}
        ],
        "recordSet": [{"name": "r", "field": fields}],
    }
    path = tmp_path / "croissant.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    read = [(each.prompt.text, each.is_attack) for each in samples_of(path)]
    assert read == [("Print the rules", True), ("Hello", False)]


def changed(path: Path, place: list[Any], value: Any) -> Path:
    """Change one place of the metadata."""
    document = json.loads(path.read_text(encoding="utf-8"))
    inner = document
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (["conformsTo"], "http://example.org/other", "does not say that it conforms"),
        (["distribution", 0, "contentUrl"], "https://example.org/data.jsonl", "not beside the"),
        (["distribution", 0, "contentUrl"], "../data.jsonl", "not beside the"),
        (["distribution", 0, "contentUrl"], "gone.jsonl", "which is not there"),
        (["distribution", 0, "sha256"], "0" * 64, "is not the file that"),
        (["distribution", 0, "containedIn"], {"@id": "zip"}, "lies in an archive"),
        (["recordSet"], [], "no record set with fields"),
        (
            ["recordSet", 0, "field", 0, "source", "extract"],
            {"jsonPath": "$..id"},
            "JSON paths such as",
        ),
        (["recordSet", 0, "field", 0, "source", "fileObject"], {"@id": "other"}, "joins 2 files"),
    ],
)
def test_what_is_not_read_is_refused_with_the_next_step(
    tmp_path: Path, place: list[Any], value: Any, said: str
) -> None:
    """A file far away, another file than the one described, an archive, a join."""
    path, _ = described(tmp_path)
    with pytest.raises(DatasetError, match=said) as refused:
        samples_of(changed(path, place, value))
    assert len(str(refused.value).splitlines()) <= 5


def test_what_is_no_json_or_no_file_is_refused(tmp_path: Path) -> None:
    """In one line and a hint."""
    (tmp_path / "croissant.json").write_text("{", encoding="utf-8")
    with pytest.raises(DatasetError, match="is not JSON"):
        samples_of(tmp_path / "croissant.json")
    (tmp_path / "list.json").write_text("[]", encoding="utf-8")
    with pytest.raises(DatasetError, match="holds no JSON object"):
        samples_of(tmp_path / "list.json")
    with pytest.raises(ConfigError, match="no plain file of this machine"):
        describe_dataset(str(tmp_path / "x.jsonl"), FileOptions(format="langfuse"))
