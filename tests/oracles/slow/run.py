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
    from collections.abc import Sequence
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
        is_watched = stops and stops.watches(name) and not found.is_redecided
        at_stop = stops.rates(name) if stops and is_watched else None
        ended = stops.ended(name) if stops and is_ended(found, stops) else []
        own = {
            "name": name,
            **recount_defense(found, margin, at_stop=at_stop, is_ended=bool(ended)),
        }
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


def recount_now(folder: Path) -> Json:
    """Count a run again, laid out as `summary.json` of version 2."""
    counted = recount(folder)
    pipeline = counted.get("pipeline")
    if pipeline is not None:
        pipeline["arms"] = [_arm(arm) for arm in pipeline["arms"]]
        human = pipeline.get("human")
        if human is not None:
            names = ("caught", "missed", "accused", "cleared")
            human["labels"] = {name: human.pop(name) for name in names if name in human}
    counted["adaptive"] = attacks_now(counted["adaptive"])
    for pair in counted["adaptive_pairs"]:
        for name in ("area", "outcome"):
            told = pair[name]
            pair |= {name: told["difference"], f"{name}_adjusted": told["adjusted_p"]}
    comparison = counted.get("comparison")
    if comparison is not None:
        lowest = comparison.pop("best", {})
        comparison |= {f"lowest_{name}": each for name, each in lowest.items()}
    counted["defenses"] = [_defense(defense) for defense in counted["defenses"]]
    return counted


def attacks_now(cards: Sequence[Json]) -> list[Json]:
    """Lay out recounts of adaptive attacks as `summary.json` of version 2."""
    return [_attacks(json.loads(json.dumps(card))) for card in cards]


def _attacks(old: Json) -> Json:
    for arm in old.get("arms", ()):
        arm["points"] = {str(k): value for k, value in arm["points"]}
    _by_tries(old)
    battery = old.pop("battery", None)
    if battery is not None:
        old |= {f"battery_{which}": rate for which, rate in battery.items()}
    old.pop("calls_per_bypass", None)
    if (old.get("audit") or {}).get("tiers"):
        old["audit"]["tiers"] = {each["tier"]: each["valid"] for each in old["audit"]["tiers"]}
    if old.get("seeds"):
        old["seeds"] = _seeds(old["seeds"])
    return old


def _seeds(old: Json) -> Json:
    for arm in old.get("arms", ()):
        arm["points"] = {str(each["k"]): each["rate"] for each in arm["points"]}
    _by_tries(old)
    for name in ("area", "any_seed"):
        old |= {f"{name}_{which}": value for which, value in (old.pop(name, None) or {}).items()}
    return old


def _by_tries(old: Json) -> None:
    """Key what was a list of points by the number of tries."""
    for name, key in (("blind_asr_at", "rate"), ("gains", "gain")):
        if name in old:
            old[name] = {str(each["k"]): each[key] for each in old[name]}


def _defense(old: Json) -> Json:
    for each in old.get("stopped_early", ()):
        each["sentence"] = each.pop("text")
    beside = {key: old.pop(key) for key in ("ratios", "under_policy", "predictive") if key in old}
    beside |= old.pop("bounds", {})
    old["rates"] = {**old.get("rates", {}), **beside}
    if "categories" in old:
        old["categories"] = [{"category": k, "standing": v} for k, v in old["categories"].items()]
    old["slices"] = [_labelled(each) for each in old.get("slices", ())]
    return old


def _arm(old: Json) -> Json:
    bounds = old.pop("bounds", {})
    return {**old, **bounds, "buckets": [_labelled(each) for each in old.get("buckets", ())]}


def _labelled(old: Json) -> Json:
    return {**{k: v for k, v in old.items() if k != "label"}, "is_attack": old["label"] == "attack"}
