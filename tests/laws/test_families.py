"""Which family a sample belongs to does not depend on the file it was read from."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from guardmark.core.sample import Taxonomy
from guardmark.datasets.formats.fields import DatasetSpec
from guardmark.datasets.loading import load

TAXONOMY: Taxonomy = {"extraction": ()}


def row(number: int, base: int, kind: str, *, is_attack: bool) -> dict[str, Any]:
    """A sample of an idea: its original, a variant told by its id, or one with a stated group."""
    label = "attack" if is_attack else "benign"
    made: dict[str, Any] = {"text": f"words {number}", "label": label, "category": "extraction"}
    if kind == "original":
        return {**made, "id": f"b{base}", "variant": "original"}
    if kind == "by id":
        return {**made, "id": f"b{base}-v{number}", "variant": f"v{number}"}
    return {**made, "id": f"x{number}", "variant": "other", "group": f"b{base}"}


@st.composite
def rows(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Rows of up to four ideas, in any order."""
    ideas = draw(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=12))
    seen: set[int] = set()
    made = []
    for number, (base, is_attack) in enumerate(ideas):
        kinds = ["by id", "stated"] if base in seen else ["original", "by id", "stated"]
        kind = draw(st.sampled_from(kinds))
        if kind == "original":
            seen.add(base)
        made.append(row(number, base, kind, is_attack=is_attack))
    return made


def families(parts: list[list[dict[str, Any]]], folder: Path) -> dict[str, str]:
    """Read rows from as many files as there are parts; return the family of each sample."""
    specs = []
    for number, part in enumerate(parts):
        path = folder / f"file{number}.jsonl"
        path.write_text("".join(f"{json.dumps(each)}\n" for each in part), encoding="utf-8")
        specs.append(DatasetSpec(name=f"set {number}", path=path, shown_as=path.name))
    return {each.id: each.lineage for each in load(specs, TAXONOMY).samples()}


@given(rows(), st.randoms(use_true_random=False), st.integers(2, 4))
def test_parting_data_over_files_in_any_order_changes_no_family(
    made: list[dict[str, Any]], random: Any, count: int
) -> None:
    """Attacks in one file and benign inputs in another is what most people have."""
    parts: list[list[dict[str, Any]]] = [[] for _ in range(count)]
    shuffled = list(made)
    random.shuffle(shuffled)
    for each in shuffled:
        parts[random.randrange(count)].append(each)
    with TemporaryDirectory() as one, TemporaryDirectory() as other:
        whole = families([made], Path(one))
        assert families([part for part in parts if part], Path(other)) == whole
    assert all(family.startswith("b") for family in whole.values())
