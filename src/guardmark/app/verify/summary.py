"""`summary.json` as the records make it, on the second path."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from guardmark.app.verify.adaptive.attacker import recount_attacker
from guardmark.app.verify.adaptive.cards import (
    recount_attack_pairs,
    recount_attack_seconds,
    recount_attacks,
)
from guardmark.app.verify.adaptive.effects import recount_adaptive
from guardmark.app.verify.advice import recount_advice
from guardmark.app.verify.areas import recount_areas
from guardmark.app.verify.calibration import recount_calibration
from guardmark.app.verify.columns import read_samples
from guardmark.app.verify.compared.pairs import BASELINES, is_ended, recount_pairs
from guardmark.app.verify.defense import recount_defense
from guardmark.app.verify.deployment import recount_deployment
from guardmark.app.verify.early.stopped import BY_GROUP, read_stops
from guardmark.app.verify.judged.pipeline import recount_pipeline
from guardmark.app.verify.latency import recount_latency
from guardmark.app.verify.recount import is_grouped, read_recounts
from guardmark.app.verify.scores import recount_scores
from guardmark.app.verify.source import OUTCOMES
from guardmark.app.verify.spending import recount_spending

if TYPE_CHECKING:
    from guardmark.app.verify.columns import Samples
    from guardmark.app.verify.recount import Recount
    from guardmark.app.verify.source import Source

Json = dict[str, Any]

_LEFT_OUT: Final = "adaptive/left-out"
_UNSEEN: Final = 255
"""Stands where a sample has no record."""


def recount_summary(source: Source, stated: Json) -> Json:
    """Return what `summary.json` has to say, as far as this path knows it."""
    manifest = source.manifest
    parts = {part["name"]: part for part in manifest["parts"] if part["kind"] == "defense"}
    samples = read_samples(source)
    recounts = read_recounts(source, samples, stated)
    telling = {name: found for name, found in recounts.items() if _is_candidate(parts, name)}
    return {
        "schema_version": 1,
        "run": _run(source, stated.get("run", {}).get("state")),
        "data": [
            {key: data[key] for key in ("name", "version", "sha256", "attacks", "benign")}
            for data in manifest["data"]
        ],
        "samples": _samples(samples, manifest),
        **_defenses(source, stated, samples=samples, recounts=recounts, parts=parts),
        "coverage": _coverage(samples, manifest["categories"]),
        "areas": recount_areas(telling),
        "pipeline": recount_pipeline(source),
        "adaptive": [
            {
                **attacks,
                **target,
                "attacker": recount_attacker(source, attacks["defense"]),
            }
            for attacks, target in zip(
                recount_attacks(source, stated), recount_adaptive(source), strict=True
            )
        ],
        "adaptive_left_out": _left_out(source),
        "adaptive_pairs": recount_attack_pairs(source),
        "spending": recount_spending(source),
        "worst": {"counts": _worst(samples, recounts, parts)},
        "timing": {
            "created_utc": manifest["created_utc"],
            "defenses": {name: recount_latency(found) for name, found in recounts.items()},
            **({"adaptive": attacked} if (attacked := recount_attack_seconds(source)) else {}),
        },
    }


def _is_candidate(parts: dict[str, Json], name: str) -> bool:
    return parts.get(name, {}).get("type") not in BASELINES


def _defenses(
    source: Source,
    stated: Json,
    *,
    samples: Samples,
    recounts: dict[str, Recount],
    parts: dict[str, Json],
) -> Json:
    """Count each defense, as the rule saw it where one ended it early; then all side by side."""
    margin = source.manifest.get("settings", {}).get("stats", {}).get("margin", 0.05)
    said = {each.get("name"): each for each in stated.get("defenses", [])}
    stops = read_stops(source, samples, recounts)
    defenses = []
    for name, found in recounts.items():
        ended = stops.ended(name) if stops and is_ended(found, stops) else []
        at_stop = stops.rates(name) if stops and ended else None
        own = recount_defense(found, margin, at_stop=at_stop)
        own |= _described(parts.get(name, {}), name)
        if said.get(name, {}).get("is_redecided"):
            own.pop("threshold", None)
        own["thresholds"] = recount_scores(found)
        own["scores"] = recount_calibration(found)
        own["deployment"] = recount_deployment(found)
        own["stopped_early"] = [each.told() for each in ended]
        defenses.append(own)
    types = {name: part.get("type", "") for name, part in parts.items()}
    pairs = recount_pairs(recounts, types, stops)
    return {
        "verdicts": {own["name"]: verdict(own) for own in defenses},
        "defenses": defenses,
        "comparison": pairs,
        "recommendations": recount_advice(defenses, pairs),
    }


def _left_out(source: Source) -> list[Json]:
    said = source.layers.get(_LEFT_OUT, {}).get("defenses", {})
    return [{"defense": name, "view": view} for name, view in said.items()]


def _described(part: Json, name: str) -> Json:
    said: Json = {"name": name, "is_baseline": part.get("type") in BASELINES}
    for key in ("type", "version", "fingerprint", "view", "threshold"):
        if key in part:
            said[key] = part[key]
    return said


def _run(source: Source, said: str | None) -> Json:
    manifest = source.manifest
    kept = (
        "name",
        "guardmark_version",
        "config_sha256",
        "data_sha256",
        "evaluator",
        "seed",
        "repeats",
        "confidence",
        "min_per_category",
        "on_malformed",
        "on_error",
    )
    return {
        **{key: manifest[key] for key in kept},
        "margin": manifest.get("settings", {}).get("stats", {}).get("margin", 0.05),
        "state": _state(source, said),
        "planned": source.planned,
        "stored": source.stored(),
        "retried": source.retried,
    }


def _state(source: Source, said: str | None) -> str:
    """Return how far the run came.

    The records of a run that was killed say that it is running; that it was interrupted shows in
    nobody holding its lock, which the records cannot tell.
    """
    stopped = source.state == "running" and said == "interrupted"
    return "interrupted" if stopped else source.state


def _samples(samples: Samples, manifest: Json) -> Json:
    languages, labels = Counter[str](), Counter[bool]()
    for number, count in Counter(samples.kinds).items():
        kind = samples.of_kind[number]
        labels[kind.is_attack] += count
        languages[kind.facets["language"]] += count
    del languages[""]
    return {
        "attacks": labels[True],
        "benign": labels[False],
        "groups": samples.group_count(),
        "is_grouped": is_grouped(samples, manifest),
        "languages": sorted(languages, key=lambda name: (-languages[name], name)),
    }


def _coverage(samples: Samples, declared: Json) -> Json:
    outer, inner = Counter[str](), Counter[str]()
    for number, count in Counter(samples.kinds).items():
        kind = samples.of_kind[number]
        category, sub = kind.facets["category"], kind.facets["subcategory"]
        if kind.is_attack and category:
            outer[category] += count
        if kind.is_attack and sub:
            inner[f"{category}/{sub}"] += count
    pairs = [f"{name}/{sub}" for name, subs in declared.items() for sub in subs]
    strange_outer, strange_inner = sorted({*outer} - {*declared}), sorted({*inner} - {*pairs})
    return {
        "declared": len(declared),
        "tested": sum(1 for name in declared if outer[name]),
        "categories": {name: outer[name] for name in [*declared, *strange_outer]},
        "subcategories": {name: inner[name] for name in [*pairs, *strange_inner]},
        "gaps": [name for name in declared if not outer[name]]
        + [name for name in pairs if not inner[name]],
        "undeclared": [*strange_outer, *strange_inner],
    }


def _worst(samples: Samples, recounts: dict[str, Recount], parts: dict[str, Json]) -> Json:
    """Count samples by what the candidates made of them, each by its worst repeat."""
    telling = [name for name in recounts if _is_candidate(parts, name)]
    seen = bytearray(len(samples))  # a bit for each outcome
    for name in telling or list(recounts):
        for place, outcome in enumerate(_worst_of(recounts[name])):
            if outcome != _UNSEEN:
                seen[place] |= 1 << outcome
    labels = map(samples.is_attack, range(len(samples)))
    tally = Counter[str]()
    for (bits, is_attack), count in Counter(zip(seen, labels, strict=True)).items():
        outcomes = {name for code, name in enumerate(OUTCOMES) if bits >> code & 1}
        tally["bypass"] += count * (is_attack and "allow" in outcomes)
        tally["false_alarm"] += count * (not is_attack and "block" in outcomes)
        tally["error"] += count * ("error" in outcomes)
        tally["malformed"] += count * ("malformed" in outcomes)
        tally["different"] += count * ({"allow", "block"} <= outcomes)
    return {name: count for name, count in tally.items() if count}


def _worst_of(found: Recount) -> bytearray:
    """Outcome of the worst repeat of every sample; of equally bad ones the last."""
    worst = bytearray([_UNSEEN]) * len(found.samples)
    for is_attack, rows in zip((True, False), found.sides(), strict=True):
        badness = {code: _badness(name, is_attack=is_attack) for code, name in enumerate(OUTCOMES)}
        badness[_UNSEEN] = -1
        for row in rows:
            place, outcome = found.decisions.places[row], found.outcomes[row]
            if badness[outcome] >= badness[worst[place]]:
                worst[place] = outcome
    return worst


def _badness(outcome: str, *, is_attack: bool) -> int:
    wrong = "allow" if is_attack else "block"
    return 2 if outcome == wrong else 1 if outcome in {"malformed", "error"} else 0


def verdict(defense: Json) -> str:
    """Say what a defense did in the one line that heads every report."""
    rates, counts = defense["rates"], defense["counts"]
    malformed = counts["attacks"]["malformed"] + counts["benign"]["malformed"]
    errors = counts["attacks"]["error"] + counts["benign"]["error"]
    return (
        f"blocks {_share(rates['true_positive_rate'], 'attacks')}, "
        f"wrongly blocks {_share(rates['false_positive_rate'], 'benign')}; "
        f"{malformed:,} malformed, {errors:,} error{'' if errors == 1 else 's'}"
    )


def _share(estimate: Json, what: str) -> str:
    if not estimate["trials"]:
        return f"an undefined share of {what} (none answered)"
    # Where the interval is one of the mean of groups, so is the figure that it stands beside.
    is_mean = estimate["method"] == BY_GROUP
    value = 100 * estimate["group_mean" if is_mean else "value"]
    words = f"{value:.1f} %"
    if words == "0.0 %" and value > 0:
        words = "< 0.1 %"
    if words == "100.0 %" and value < 100:
        words = "> 99.9 %"
    if estimate["low"] is not None:
        words += f" [{_limit(estimate, 'low')}, {_limit(estimate, 'high')}]"
    return f"{words} of {estimate['trials']:,} {what}"


def _limit(estimate: Json, name: str) -> str:
    """Round a limit, but never into a certainty that it does not claim."""
    bound = estimate[name]
    words = f"{100 * bound:.1f}"
    if words == "100.0" and bound < 1 and name == "low":
        return "> 99.9"
    return "< 0.1" if words == "0.0" and bound > 0 and name == "high" else words
