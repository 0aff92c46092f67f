"""Samples into files and back."""

from __future__ import annotations

import csv
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from guardmark.core.errors import ConfigError, StorageError
from guardmark.core.sample import (
    DEFAULT_TAXONOMY,
    Label,
    MarkedSpan,
    Message,
    Prompt,
    Role,
    Sample,
    Severity,
)
from guardmark.datasets.formats.writing import sample_row, write_samples, written_format
from guardmark.datasets.loading import load

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from guardmark.datasets.formats.fields import DatasetSpec

NAMES = ("out.jsonl", "out.jsonl.gz", "out.json", "out.csv", "out.csv.gz", "out.tsv", "out.parquet")

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)
visible = texts.filter(lambda text: bool(text.strip()))
messages = st.lists(
    st.builds(
        lambda role, content: Message(role=role, content=content), st.sampled_from(Role), visible
    ),
    min_size=1,
    max_size=3,
)
prompts = st.one_of(
    visible.map(Prompt.of_text),
    messages.map(lambda m: Prompt(messages=tuple(m), under_test=len(m) - 1)),
)
metadata = st.dictionaries(
    st.one_of(texts, st.sampled_from(["text", "label", "messages", "lang", "id", "severity"])),
    st.one_of(st.none(), st.booleans(), st.integers(-5, 5), texts, st.lists(texts, max_size=2)),
    max_size=3,
)


@st.composite
def samples(draw: st.DrawFn) -> Sample:
    """Samples as a reader would make them."""
    prompt = draw(prompts)
    plain = st.one_of(st.just(""), visible)
    has_user = any(message.role is Role.USER for message in prompt.messages)
    label, category = draw(st.sampled_from([Label.ATTACK, Label.BENIGN])), draw(plain)
    # What is finer than no topic is the topic.
    is_topic = label is Label.BENIGN and not category
    return Sample(
        id="the id",
        prompt=prompt,
        label=label,
        category=category,
        subcategory="" if is_topic else draw(plain),
        severity=draw(st.sampled_from([None, *Severity])),
        expected=draw(plain),
        technique=draw(plain),
        language=draw(plain),
        group=draw(plain),
        source="made",
        must_keep=draw(st.sampled_from([(), (prompt.text,)])),
        spans=draw(st.sampled_from([(), (MarkedSpan(0, 1, "person"),)])),
        secrets=draw(st.sampled_from([(), ("made-up key",)])),
        harm_turn=draw(st.sampled_from([None, 1])) if has_user else None,
        metadata=draw(metadata),
    )


def back(path: Path, spec: Callable[..., DatasetSpec]) -> list[Sample]:
    """Read a file that was written."""
    settings = {"name": "made", "open_categories": True}
    return list(load([spec(path, **settings)], DEFAULT_TAXONOMY).samples())


@pytest.mark.parametrize("name", NAMES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(sample=samples())
def test_what_is_written_reads_back_as_the_same_sample(
    tmp_path: Path, spec: Callable[..., DatasetSpec], name: str, sample: Sample
) -> None:
    """Whatever its texts hold, and whatever its metadata is called."""
    write_samples([sample], tmp_path / name)
    assert back(tmp_path / name, spec) == [sample]


@pytest.mark.parametrize("lead", ["=", "+", "-", "@", "\t", "\r"])
def test_no_cell_of_a_table_can_run_as_a_formula(
    tmp_path: Path, spec: Callable[..., DatasetSpec], sample: Callable[..., Sample], lead: str
) -> None:
    """The apostrophe is counted, named, and taken off again."""
    risky = sample(f"{lead}cmd|' /C calc'!A0", category="-x")
    out = tmp_path / "out.csv"
    assert write_samples([risky], out) == 2
    with out.open(newline="", encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    assert not any(cell.startswith(("=", "+", "-", "@", "\t", "\r")) for cell in row.values())
    assert row["inert_cells"] == "text category"
    assert back(out, spec)[0].prompt.text == risky.prompt.text


def test_equal_samples_give_equal_bytes(tmp_path: Path, sample: Callable[..., Sample]) -> None:
    """Packed files included: no time, no name inside."""
    one = sample("text")
    for name in NAMES:
        write_samples([one], tmp_path / "a" / name)
        write_samples([one], tmp_path / "b" / name)
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_many_samples_go_in_batches(
    tmp_path: Path, spec: Callable[..., DatasetSpec], sample: Callable[..., Sample]
) -> None:
    """More than one batch of Parquet."""
    many = [sample(f"text {n}") for n in range(1_001)]
    write_samples(many, tmp_path / "out.parquet")
    assert [s.id for s in back(tmp_path / "out.parquet", spec)] == [s.id for s in many]


@pytest.mark.parametrize("name", ["out.json", "out.jsonl", "out.parquet", "out.csv"])
def test_no_samples_give_a_file_that_reads_as_empty(
    tmp_path: Path, spec: Callable[..., DatasetSpec], name: str
) -> None:
    """Valid, and refused for having no rows."""
    from guardmark.core.errors import DatasetError

    write_samples([], tmp_path / name)
    with pytest.raises(DatasetError, match="is empty"):
        back(tmp_path / name, spec)


def test_fields_that_say_nothing_are_left_out(sample: Callable[..., Sample]) -> None:
    """Rows stay readable; a name in the metadata pins its field."""
    assert sample_row(sample("t")) == {
        "id": "s1",
        "text": "t",
        "label": "benign",
        "variant": "original",
    }
    pinned: dict[str, Any] = sample_row(sample("t", metadata={"lang": "de", "messages": 1}))
    assert (pinned["language"], pinned["messages"]) == ("", None)


@pytest.mark.parametrize("name", ["out.txt", "out", "out.gz", "out.parquet.gz", "out.xlsx"])
def test_a_name_that_tells_no_format_is_refused(name: str, tmp_path: Path) -> None:
    """Before anything is written."""
    with pytest.raises(ConfigError, match="does not tell a format to write"):
        written_format(tmp_path / name)


def test_a_file_that_cannot_be_written_leaves_the_old_one(
    tmp_path: Path, sample: Callable[..., Sample]
) -> None:
    """Whole or not at all."""
    out = tmp_path / "out.jsonl"
    write_samples([sample("old")], out)

    def breaking() -> Any:
        yield sample("new")
        raise OSError(28, "No space left on device")

    with pytest.raises(StorageError):
        write_samples(breaking(), out)
    assert json.loads(out.read_text())["text"] == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]


def test_parquet_without_its_extra_says_how_to_get_it(
    tmp_path: Path, sample: Callable[..., Sample], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And leaves no file."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match="Writing Parquet needs pyarrow"):
        write_samples([sample()], tmp_path / "out.parquet")
    assert list(tmp_path.iterdir()) == []
