"""The loader over public data nobody here wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.core.sample import DEFAULT_TAXONOMY
from guardmark.datasets.formats.fields import DatasetSpec
from guardmark.datasets.loading import load

if TYPE_CHECKING:
    from pathlib import Path

KINDS = ("attack", "benign", "over_refusal_probe")


def test_attacks_and_benign_inputs_of_the_public_sets(shared_dir: Path) -> None:
    """The counts that published figures over these files rest on."""
    specs = [
        DatasetSpec(
            name=path.name.split(".")[0],
            path=path,
            shown_as=path.name,
            filter={"kind": KINDS},
        )
        for path in sorted((shared_dir / "data").glob("*.jsonl*"))
    ]
    data = load(specs, DEFAULT_TAXONOMY)
    assert sum(m.attacks for m in data.manifests) == 2_781
    assert sum(m.benign for m in data.manifests) == 2_740
    assert {s.category for s in data.samples() if s.is_attack} == set(DEFAULT_TAXONOMY)
