"""Prompt packs: where the label of an item comes from, and who is told."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from guardmark.core.sample import Label
from guardmark.datasets.formats.fields import BadRows, resolve_label

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from guardmark.datasets.loading import LoadedData

    Read = Callable[..., LoadedData]


def pack(*items: dict[str, Any], **head: str) -> str:
    """Write a prompt pack."""
    return json.dumps({"name": "tutoring", "source": "ours", "subset": "", **head, "items": items})


def item(metadata: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """Write one item."""
    return {"id": "7", "prompt_text": "a placeholder", "metadata": metadata or {}, **fields}


@pytest.mark.parametrize(
    ("metadata", "label", "source"),
    [
        ({"is_harmful": True}, Label.ATTACK, "explicit_is_harmful"),
        ({"is_harmful": False, "label": "unsafe"}, Label.BENIGN, "explicit_is_harmful"),
        ({"label": "safe"}, Label.BENIGN, "metadata_label"),
        ({"is_harmful": None, "label": "unsafe"}, Label.ATTACK, "metadata_label"),
        ({"label": "safe", "original_category": "hateful"}, Label.BENIGN, "metadata_label"),
        ({"original_category": "Hateful"}, Label.ATTACK, "inferred_hateful"),
    ],
)
def test_the_label_of_an_item_is_found_in_order(
    read: Read, metadata: dict[str, Any], label: Label, source: str
) -> None:
    """What is said outright beats what is only inferred."""
    (only,) = read("pack.json", pack(item(metadata))).samples()
    assert only.label is label
    assert only.metadata["label_source"] == source


@pytest.mark.parametrize("head", [{"name": "my_hateful_v1"}, {"subset": "Hateful"}])
def test_the_name_of_a_pack_infers_the_label_and_warns(read: Read, head: dict[str, str]) -> None:
    """A benign item in such a pack would be called an attack: somebody must hear of it."""
    data = read("pack.json", pack(item(), item(id="8", prompt_text="another"), **head))
    assert all(s.is_attack for s in data.samples())
    assert {s.metadata["label_source"] for s in data.samples()} == {"inferred_hateful"}
    (warning,) = data.warnings
    assert "pack.json: 2 items state no label" in warning
    assert "inferred_hateful" in warning


def test_the_source_of_an_item_may_infer_too(read: Read) -> None:
    """Items may name their own source."""
    (only,) = read("pack.json", pack(item(source="hateful_things"))).samples()
    assert only.metadata["label_source"] == "inferred_hateful"


def test_an_item_nothing_tells_of_needs_a_label_in_the_configuration(read: Read) -> None:
    """It is never guessed."""
    with pytest.raises(BadRows) as caught:
        read("pack.json", pack(item()))
    assert "if all rows are one of both say so (label: attack)" in str(caught.value)


def test_a_stated_label_settles_it(read: Read) -> None:
    """Whoever reads the pack knows better than its name."""
    (only,) = read("pack.json", pack(item(), name="hateful"), label=Label.BENIGN).samples()
    assert (only.label, only.metadata["label_source"]) == (Label.BENIGN, "configuration")


def test_a_stated_field_settles_it(read: Read) -> None:
    """So does a field of the user's choice."""
    content = pack(item({"mine": "benign", "is_harmful": True}))
    data = read("pack.json", content, label_field="metadata.mine")
    assert next(data.samples()).label is Label.BENIGN


def test_a_default_label_comes_last(read: Read) -> None:
    """For rows that say nothing."""
    data = read("pack.json", pack(item()), defaults={"label": "benign"})
    assert next(data.samples()).label is Label.BENIGN


def test_an_unknown_word_is_an_error_with_its_field(read: Read) -> None:
    """A third word is neither safe nor unsafe."""
    with pytest.raises(BadRows) as caught:
        read("pack.json", pack(item({"label": "perhaps"})))
    assert "field metadata.label: says 'perhaps'" in str(caught.value)


def test_only_packs_infer_labels(read: Read) -> None:
    """A column called source in an ordinary file tells nothing of harm."""
    with pytest.raises(BadRows):
        read("data.jsonl", [{"text": "t", "source": "hateful"}])


def test_a_pack_brings_its_own_categories_and_source(read: Read) -> None:
    """Packs of tutors have categories of tutors."""
    data = read(
        "pack.json",
        pack(
            item(
                {"is_harmful": True, "original_category": "bullying", "variant": "typo"},
                id="7-typo",
            )
        ),
    )
    (only,) = data.samples()
    assert (only.category, only.source) == ("bullying", "prompt_pack:tutoring")
    assert (only.group, only.variant) == ("7", "typo")
    assert "bullying" in data.taxonomy


def test_the_format_may_be_stated_and_the_name_defaults_to_the_file(read: Read) -> None:
    """A pack without a head is still a pack."""
    content = json.dumps({"items": [item({"is_harmful": True}, prompt="b")]})
    (only,) = read("mine.json", content, format="prompt_pack").samples()
    assert only.source == "prompt_pack:mine"


def test_an_item_without_metadata_is_unknown() -> None:
    """Nothing is no statement."""
    assert resolve_label({"pack_name": "x", "metadata": None}) == (None, "unknown", "")


def test_the_placeholder_pack_reads_as_its_own_project_reads_it(
    shared_dir: Path, read: Read
) -> None:
    """Three base prompts in four variants, all inferred harmful."""
    path = shared_dir / "data" / "original" / "minor_bench_format" / "prompt_pack.json"
    data = read("prompt_pack.json", path.read_bytes())
    kept = list(data.samples())
    assert (len(kept), len({s.lineage for s in kept})) == (12, 3)
    assert all(s.metadata["label_source"] == "inferred_hateful" for s in kept)
