"""The two built-in defenses attacked with public data, and every exact variant undone."""

from __future__ import annotations

import json
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Any, Final

import pytest
from tests.adaptive.planted import attack, cards, trace

from guardmark.adaptive.campaign import AdaptivePlan
from guardmark.app.parts.building import build_defenses
from guardmark.app.parts.loading import builtin_config
from guardmark.attacks.application import apply, seed_for
from guardmark.attacks.catalogue import parse_chain
from guardmark.attacks.contract import Use
from guardmark.core.sample import DEFAULT_TAXONOMY, Sample
from guardmark.datasets.formats.fields import DatasetSpec
from guardmark.datasets.loading import load

SEED, BUDGET = 7, 64


def samples_of(folder: Path, name: str, *, step: int) -> list[Sample]:
    """Return attacks and benign samples of a public file, every so many."""
    spec = DatasetSpec(
        name=name.split(".", maxsplit=1)[0],
        path=folder / "data" / name,
        shown_as=name,
        filter={"kind": ("attack", "benign")},
    )
    return list(load([spec], DEFAULT_TAXONOMY).samples())[::step]


OTHER_SEEDS: Final = {"adaptive/null", "adaptive/repaired", "adaptive/repaired-first"}


def undone(row: dict[str, Any], sample: Sample) -> bool:
    """Make a variant of a trace again from its seed, and say whether its inverse holds."""
    chain = parse_chain(row["chain"])
    for index in dict.fromkeys((0, 1, row["try"])):
        seed = seed_for(SEED, chain.key, sample.id, index)
        made = apply(chain, sample.prompt.text, seed=seed)
        digest = blake2b(made.text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        if digest != row["text"]:
            continue
        text = made.text
        seeds = [seed, *(sha256(seed + bytes((i,))).digest() for i in range(1, len(chain.arms)))]
        for arm, own in reversed(list(zip(chain.arms, seeds, strict=True))):
            if arm.key in made.applied and arm.operator.restore is not None:
                text = arm.operator.restore(text, Use(arm.settings, own))
        return text == sample.prompt.text
    return False


@pytest.mark.slow
async def test_built_in_defenses_against_public_attacks(shared_dir: Path, tmp_path: Path) -> None:
    """Static and adaptive success side by side; each V0 variant comes back byte for byte."""
    data = samples_of(shared_dir, "deepset_prompt_injections.jsonl", step=6)
    data += samples_of(shared_dir, "jailbreakllms.jsonl.gz", step=40)
    parts = build_defenses(builtin_config(), None, only=("pattern", "ngram"))
    defenses = tuple(each.part for each in parts)
    await attack(tmp_path, data, AdaptivePlan(defenses=defenses, seed=SEED, budget=BUDGET))
    for card in cards(tmp_path):
        assert card.rounds[0].name == "R0"
        assert card.rounds[-1].full.value > card.rounds[0].full.value
        assert all(gain.high >= 0 for _, gain in card.gains), card.name
    rows = [json.loads(line) for line in trace(tmp_path, "pattern", "ngram").splitlines()[1:]]
    by_id = {sample.id: sample for sample in data}
    exact = {
        (row["sample"], row["chain"], row["text"]): row
        for row in rows
        if row["tier"] == "V0" and row["chain"] and row["arm"] not in OTHER_SEEDS
    }
    tried = [row for row in exact.values() if row["account"] in {"battery", "search"}]
    assert len(tried) > 300
    assert all(undone(row, by_id[row["sample"]]) for row in tried)
