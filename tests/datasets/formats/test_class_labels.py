"""Columns of Hugging Face's `ClassLabel`: numbers mean what the file says that they mean."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from guardmark.core.sample import DEFAULT_TAXONOMY, Label
from guardmark.datasets.formats.class_labels import class_names
from guardmark.datasets.formats.fields import BadRows, DatasetSpec
from guardmark.datasets.loading import load

pa = pytest.importorskip("pyarrow")


def write(folder: Path, labels: list[Any], feature: object, *, kind: Any = None) -> Path:
    """Write a file as `datasets` does: numbers in the column, names in the schema."""
    from pyarrow.parquet import write_table

    texts = [f"say the word kiwi {number} times" for number in range(len(labels))]
    table = pa.table({"text": texts, "label": pa.array(labels, kind or pa.int64())})
    features = {"text": {"dtype": "string", "_type": "Value"}, "label": feature}
    stated = json.dumps({"info": {"features": features}})
    path = folder / "train.parquet"
    write_table(table.replace_schema_metadata({"huggingface": stated}), path)
    return path


def labels_of(path: Path) -> list[Label]:
    """Read the labels as a run does."""
    spec = DatasetSpec(name="d", path=path, shown_as=path.name)
    return [sample.label for sample in load([spec], DEFAULT_TAXONOMY).samples()]


@pytest.mark.parametrize(
    ("names", "right"),
    [
        (["unsafe", "safe"], [Label.ATTACK, Label.BENIGN]),
        (["safe", "unsafe"], [Label.BENIGN, Label.ATTACK]),
        (["injection", "legit"], [Label.ATTACK, Label.BENIGN]),
        (["0", "1"], [Label.BENIGN, Label.ATTACK]),
    ],
)
def test_a_number_means_what_its_name_says(
    tmp_path: Path, names: list[str], right: list[Label]
) -> None:
    """0 may be the attack."""
    feature = {"names": names, "_type": "ClassLabel"}
    assert labels_of(write(tmp_path, [0, 1], feature)) == right


def test_a_name_of_no_meaning_is_refused_with_its_name(tmp_path: Path) -> None:
    """Not read as the number that it stands for."""
    feature = {"names": ["plum", "kiwi"], "_type": "ClassLabel"}
    with pytest.raises(BadRows, match="says 'plum', 'kiwi', not a known label"):
        labels_of(write(tmp_path, [0, 1], feature))


@pytest.mark.parametrize("number", [-1, 7, None])
def test_a_number_without_a_name_is_no_label(tmp_path: Path, number: int | None) -> None:
    """-1 is how a test set says that the class is not told."""
    feature = {"names": ["safe", "unsafe"], "_type": "ClassLabel"}
    with pytest.raises(BadRows):
        labels_of(write(tmp_path, [0, number], feature))


def test_classes_in_lists_have_names_too(tmp_path: Path) -> None:
    """Labels of several annotators stay with the sample, by name."""
    feature = {
        "feature": {"names": ["safe", "unsafe"], "_type": "ClassLabel"},
        "_type": "Sequence",
    }
    path = write(tmp_path, [[0, 1]], feature, kind=pa.list_(pa.int64()))
    spec = DatasetSpec(
        name="d", path=path, shown_as=path.name, label=Label.BENIGN, map={"source": "label"}
    )
    (sample,) = load([spec], DEFAULT_TAXONOMY).samples()
    assert sample.source == "['safe', 'unsafe']"


@pytest.mark.parametrize(
    "stated",
    [
        b"not json",
        b"[]",
        b"null",
        b'{"info": []}',
        b'{"info": {"features": [1]}}',
        b'{"info": {"features": {"label": {"_type": "ClassLabel", "names": {"0": "a"}}}}}',
        b"[" * 100_000,
    ],
)
def test_odd_metadata_is_none(stated: bytes) -> None:
    """Anybody may write anything there."""
    assert class_names({b"huggingface": stated}) == {}
    assert class_names(None) == {}
