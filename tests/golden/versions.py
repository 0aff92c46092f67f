"""JSON of schema version 1 as version 2 has it: what was only moved or renamed, and what is new."""

from __future__ import annotations

from typing import Any, Final

Json = dict[str, Any]

FACETS: Final = (
    "category", "subcategory", "severity", "language", "length", "variant", "technique", "source",
)  # fmt: skip

NEW_KEYS: Final = frozenset(
    {
        "calibration_share",
        "defenses/[]/scores/brier/bins",
        "defenses/[]/scores/by_mass/trials",
        "defenses/[]/scores/by_width/trials",
        "defenses/[]/scores/expected_costs/[]/false_positive_rate",
        "defenses/[]/scores/expected_costs/[]/reason",
        "defenses/[]/scores/expected_costs/[]/stakes/block_cost",
        "defenses/[]/scores/expected_costs/[]/stakes/miss_cost",
        "defenses/[]/scores/expected_costs/[]/true_positive_rate",
        "defenses/[]/rates/truncated_attacks",
        "defenses/[]/rates/truncated_benign",
        "defenses/[]/thresholds/calibration_share",
        "defenses/[]/thresholds/chosen/[]/reason",
        "adaptive/[]/operators/[]/expansion/method",
        "pairs/[]/text",
        "system/[]/rates/truncated_attacks",
        "system/[]/rates/truncated_benign",
        "timing/retries",
    }
)
"""What version 2 says and version 1 did not."""


def without_new(value: Any, path: str = "") -> Any:
    """Return a document of version 2 without what version 1 did not say."""
    if isinstance(value, dict):
        return {
            key: without_new(each, f"{path}/{key}" if path else key)
            for key, each in value.items()
            if (f"{path}/{key}" if path else key) not in NEW_KEYS
        }
    if isinstance(value, list):
        return [without_new(each, f"{path}/[]") for each in value]
    return value


def summary_2(old: Json) -> Json:
    """Map `summary.json` of version 1."""
    timing = old["timing"]
    return {
        **{key: old[key] for key in ("run", "data", "samples", "verdicts", "areas", "spending")},
        "schema_version": 2,
        "defenses": [_defense(each) for each in old["defenses"]],
        "coverage": _coverage(old["coverage"]),
        "comparison": _comparison(old["comparison"]),
        "pipeline": _pipeline(old["pipeline"]),
        "adaptive": [_adaptive(each) for each in old["adaptive"]],
        "adaptive_left_out": {each["defense"]: each["view"] for each in old["adaptive_left_out"]},
        "adaptive_pairs": [_adaptive_pair(each) for each in old["adaptive_pairs"]],
        "worst": {
            "counts": [{"flaw": k, "total": n} for k, n in old["worst"]["counts"].items()],
            "most_impactful_bypasses": old["worst"]["most_impactful_bypasses"],
        },
        "recommendations": old["recommendations"],
        "timing": {
            "created_utc": timing["created_utc"],
            "defenses": {name: _latency(each) for name, each in timing["defenses"].items()},
            "slice_medians": {
                name: _tables(each["slice_medians"], "median_ms", {})
                for name, each in timing["defenses"].items()
            },
            "adaptive": timing.get("adaptive", {}),
        },
    }


def comparison_2(old: Json) -> Json:
    """Map `comparison.json` of version 1."""
    return {
        **{key: value for key, value in old.items() if key not in {"best", "pairs", "runs"}},
        "schema_version": 2,
        "runs": [{"created_utc": "", **each} for each in old["runs"]],
        "lowest_attack_success_rate": old["best"]["attack_success_rate"],
        "lowest_false_positive_rate": old["best"]["false_positive_rate"],
        "pairs": [_compared_pair(each) for each in old["pairs"]],
    }


def _compared_pair(old: Json) -> Json:
    kept = ("first", "second", "verdict", "recommendation", *_RATES)
    new = {**{key: old[key] for key in kept}, "detail": None}
    if "categories" in old:
        found = old["discordant"]
        new["detail"] = {
            "categories": [_labelled(each) for each in old["categories"]],
            "costs": [_labelled(each) for each in old["costs"]],
            "timing": [_labelled(each) for each in old.get("timing", ())],
            "discordant": [{"text": None, **each} for each in found["listed"]],
            "first_only": found["first_only"],
            "second_only": found["second_only"],
        }
    return new


_RATES: Final = ("attack_success_rate", "false_positive_rate")


def _defense(old: Json) -> Json:
    moved = {"bounds", "ratios", "under_policy", "predictive", "rates", "stopped_early", "scores"}
    kept = {key: value for key, value in old.items() if key not in moved}
    ratios = {key: value for key, value in old["ratios"].items() if key != "recall"}
    return {
        **kept,
        "rates": {
            **old["rates"],
            **old["bounds"],
            "ratios": ratios,
            "under_policy": old["under_policy"],
            "predictive": old["predictive"],
        },
        "categories": [{"category": k, "standing": v} for k, v in old["categories"].items()],
        "slices": _tables(old["slices"], "rates", []),
        "thresholds": _thresholds(old["thresholds"]),
        "scores": _scores(old["scores"]),
        "stopped_early": [_renamed(each, text="sentence") for each in old["stopped_early"]],
    }


def _tables(old: list[Json], key: str, empty: Any) -> list[Json]:
    """Put tables without a slice back where they were left out."""
    known = {(each["facet"], each["label"]): each[key] for each in old}
    return [
        {"facet": facet, "is_attack": label == "attack", key: known.get((facet, label), empty)}
        for facet in FACETS
        for label in ("attack", "benign")
    ]


def _thresholds(old: Json | None) -> Json | None:
    if old is None:
        return None
    limited = [_renamed(each, resolvable="is_resolvable") for each in old["limited"]]
    return {**old, "limited": limited, "chosen": [_with_stakes(each) for each in old["chosen"]]}


def _with_stakes(old: Json) -> Json:
    names = ("prevalence", "miss_cost", "block_cost")
    kept = {key: value for key, value in old.items() if key not in names}
    return {**kept, "stakes": {key: old[key] for key in names if key in old}}


def _scores(old: Json | None) -> Json | None:
    if old is None:
        return None
    by_width, by_mass = old["calibration"]
    kept = {key: value for key, value in old.items() if key != "calibration"}
    costs = [_with_stakes(each) for each in old["expected_costs"]]
    return {**kept, "by_width": by_width, "by_mass": by_mass, "expected_costs": costs}


def _coverage(old: Json) -> Json:
    undeclared = set(old["undeclared"])
    new = dict(old)
    for key in ("categories", "subcategories"):
        new[key] = [
            {"name": name, "attacks": count, "is_declared": name not in undeclared}
            for name, count in old[key].items()
        ]
    return new


def _comparison(old: Json | None) -> Json | None:
    if old is None:
        return None
    return {
        "pairs": old["pairs"],
        "left_out": old["left_out"],
        "lowest_attack_success_rate": old["best"]["attack_success_rate"],
        "lowest_false_positive_rate": old["best"]["false_positive_rate"],
    }


def _latency(old: Json) -> Json:
    new = {key: value for key, value in old.items() if key != "slice_medians"}
    for side in ("attacks", "benign"):
        new[side] = _renamed(old[side], quantiles="quantiles_ms")
        new[side]["quantiles_ms"] = [
            _renamed(each, value_ms="value", low_ms="low", high_ms="high")
            for each in old[side]["quantiles"]
        ]
    return new


def _pipeline(old: Json | None) -> Json | None:
    if old is None:
        return None
    human = old["human"]
    if human is not None:
        names = ("caught", "missed", "accused", "cleared")
        kept = {key: value for key, value in human.items() if key not in names}
        human = {**kept, "labels": {key: human[key] for key in names}}
    return {**old, "human": human, "arms": [_arm(each) for each in old["arms"]]}


def _arm(old: Json) -> Json:
    kept = {key: value for key, value in old.items() if key != "bounds"}
    return {**kept, **old["bounds"], "buckets": [_labelled(each) for each in old["buckets"]]}


def _adaptive(old: Json) -> Json:
    moved = {"battery", "calls_per_bypass", "extrapolated"}
    best = [each for each in old["repairs"] if each["name"] == old["best_repair"]]
    curve, audit, seeds = old["blind_asr_at"], old["audit"], old["seeds"]
    return {
        **{key: value for key, value in old.items() if key not in moved},
        "arms": [{**each, "points": _keyed(each["points"])} for each in old["arms"]],
        "blind_asr_at": _by_k(curve, "rate"),
        "gains": _by_k(old["gains"], "gain"),
        "battery_strict": old["battery"]["strict"],
        "battery_full": old["battery"]["full"],
        "extrapolated": old["extrapolated"] and old["extrapolated"]["rate"],
        "extrapolated_at": 4 * old["settings"]["budget"] if curve else 0,
        "operators": [_operator(each) for each in old["operators"]],
        "best_repair": best[0] if best else None,
        "audit": audit
        and {**audit, "tiers": {each["tier"]: each["valid"] for each in audit["tiers"]}},
        "seeds": seeds and _seeds(seeds),
    }


def _operator(old: Json) -> Json:
    expansion = _renamed(old["expansion"], median="value")
    return {
        **old,
        "expansion": {**expansion, "quantile": 0.5, "censored": 0, "at_least": False},
    }


def _seeds(old: Json) -> Json:
    kept = {key: value for key, value in old.items() if key not in {"area", "any_seed"}}
    return {
        **kept,
        "arms": [{**each, "points": _by_k(each["points"], "rate")} for each in old["arms"]],
        "blind_asr_at": _by_k(old["blind_asr_at"], "rate"),
        "gains": _by_k(old["gains"], "gain"),
        "area_adaptive": old["area"]["adaptive"],
        "area_blind": old["area"]["blind"],
        "any_seed_strict": old["any_seed"]["strict"],
        "any_seed_full": old["any_seed"]["full"],
    }


def _adaptive_pair(old: Json) -> Json:
    new = dict(old)
    for name in ("area", "outcome"):
        new[name] = old[name]["difference"]
        new[f"{name}_adjusted"] = old[name]["adjusted_p"]
    return new


def _labelled(old: Json) -> Json:
    new = {key: value for key, value in old.items() if key != "label"}
    return {**new, "is_attack": old["label"] == "attack"}


def _by_k(old: list[Json], key: str) -> Json:
    return {str(each["k"]): each[key] for each in old}


def _keyed(old: list[list[Any]]) -> Json:
    return {str(k): value for k, value in old}


def _renamed(old: Json, **names: str) -> Json:
    return {names.get(key, key): value for key, value in old.items()}
