"""A run counted by plain loops, in the shape of `summary.json` as far as they reach.

Limits that are drawn by a bootstrap, searched thresholds, words and drawings are left to laws,
reference cases and the golden runs.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.oracles.slow.adaptive.attacker import recount_attacker
from tests.oracles.slow.adaptive.cards import recount_attack_pairs, recount_attacks
from tests.oracles.slow.defenses.columns import read_samples
from tests.oracles.slow.defenses.defense import recount_defense
from tests.oracles.slow.defenses.pairs import is_ended, recount_pairs
from tests.oracles.slow.defenses.recount import read_recounts
from tests.oracles.slow.early.stopped import read_stops
from tests.oracles.slow.judged.pipeline import recount_pipeline
from tests.oracles.slow.source import open_source

from guardmark.store import connect

if TYPE_CHECKING:
    from pathlib import Path

    from tests.oracles.slow.source import Source

Json = dict[str, Any]


def recount(folder: Path) -> Json:
    """Count a run folder whose reports are decided at the thresholds of the run."""
    connect.open_to_write(folder / "records.sqlite").close()  # brings an older file up
    with open_source(folder / "records.sqlite") as source:
        return json.loads(json.dumps(recount_run(source)))  # type: ignore[no-any-return]


def recount_run(source: Source) -> Json:
    """Count defenses, their pairs, a pipeline and adaptive attacks."""
    parts = {each["name"]: each for each in source.manifest["parts"] if each["kind"] == "defense"}
    samples = read_samples(source)
    recounts = read_recounts(source, samples, {})
    stops = read_stops(source, samples, recounts)
    margin = source.manifest.get("settings", {}).get("stats", {}).get("margin", 0.05)
    defenses = []
    for name, found in recounts.items():
        at_stop = stops.rates(name) if stops and is_ended(found, stops) else None
        ended = stops.ended(name) if stops and at_stop else []
        own = {"name": name, **recount_defense(found, margin, at_stop=at_stop)}
        defenses.append(own | {"stopped_early": [each.told() for each in ended]})
    types = {name: part.get("type", "") for name, part in parts.items()}
    return {
        "defenses": defenses,
        "comparison": recount_pairs(recounts, types, stops),
        "pipeline": recount_pipeline(source),
        "adaptive": [
            {**card, "attacker": recount_attacker(source, card["defense"])}
            for card in recount_attacks(source)
        ],
        "adaptive_pairs": recount_attack_pairs(source),
    }
