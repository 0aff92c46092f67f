"""The battery over public attacks nobody here wrote, and over the built-in ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from guardmark.attacks.application import apply, keeps, seed_for
from guardmark.attacks.battery import battery
from guardmark.attacks.contract import Tier, Use
from guardmark.core.sample import DEFAULT_TAXONOMY
from guardmark.datasets.builtin import builtin_specs
from guardmark.datasets.formats.fields import DatasetSpec
from guardmark.datasets.loading import load

if TYPE_CHECKING:
    from pathlib import Path

    from guardmark.core.sample import Sample

CATEGORIES = ("jailbreak", "direct_injection")


def counted(samples: list[Sample]) -> dict[str, int]:
    """Apply the battery to every sample; check what is V0; count fates and tiers."""
    found: dict[str, int] = {}
    for sample in samples:
        text = sample.prompt.text
        for chain in battery():
            seed = seed_for(1, chain.key, sample.id, 0)
            attempt = apply(chain, text, seed=seed, must_keep=sample.must_keep)
            name = attempt.status.value if attempt.tier is None else attempt.tier.value
            found[name] = found.get(name, 0) + 1
            if attempt.tier is Tier.V0:
                (arm,) = chain.arms
                assert arm.operator.restore is not None
                assert arm.operator.restore(attempt.text, Use(arm.settings, seed)) == text
            elif attempt.tier is not None:
                assert keeps(text, attempt.text, sample.must_keep)
    return found


@pytest.mark.slow
def test_every_v0_variant_of_the_public_attacks_can_be_undone(shared_dir: Path) -> None:
    """And most of the battery applies to most attacks."""
    specs = [
        DatasetSpec(
            name=path.name.split(".")[0],
            path=path,
            shown_as=path.name,
            filter={"kind": ("attack",), "category": CATEGORIES},
        )
        for path in sorted((shared_dir / "data").glob("*.jsonl*"))
    ]
    samples = [s for s in load(specs, DEFAULT_TAXONOMY).samples() if len(s.prompt.text) <= 4000]
    found = counted(samples[::3])
    tries = sum(found.values())
    assert tries >= 32 * 300
    assert found["V0"] >= 0.4 * tries
    assert found.get("refused", 0) <= 0.05 * tries


def test_the_battery_keeps_the_spans_of_the_built_in_attacks() -> None:
    """The set that `guardmark adapt` runs on without a configuration."""
    samples = [s for s in load(builtin_specs("core"), DEFAULT_TAXONOMY).samples() if s.is_attack]
    assert sum(bool(s.must_keep) for s in samples) >= 100
    found = counted(samples[::2])
    tries = sum(found.values())
    assert found["V0"] >= 0.4 * tries
    assert found.get("refused", 0) <= 0.1 * tries
