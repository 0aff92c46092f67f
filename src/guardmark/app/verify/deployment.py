"""Rates at the mix of traffic that a deployment has, weighed a second time sample by sample."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from guardmark.app.verify.recount import Recount
    from guardmark.app.verify.source import Subject

Json = dict[str, Any]
Shares = dict[str, float]

_ROUNDS: Final = 200
_SETTLED: Final = 1e-9
_OTHER: Final = ""
_ONE_SIDED: Final = {"category": True, "topic": False}
_DECIDED: Final = {"allow", "block"}


def recount_deployment(found: Recount) -> Json | None:
    """Return both error rates at the stated mix, in the shape of `summary.json`.

    References:
        Deming & Stephan (1940), doi:10.1214/aoms/1177731829: facet after facet is set right,
        until nothing moves.
    """
    mix = found.stats.get("deployment_mix") or {}
    if not mix:
        return None
    said: Json = {}
    for name, is_attack, side in (
        ("attack_success_rate", True, "attacks"),
        ("false_positive_rate", False, "benign"),
    ):
        subjects = [s for s in found.source.subjects() if s.is_attack == is_attack]
        spoken = {
            facet: shares
            for facet, shares in mix.items()
            if _ONE_SIDED.get(facet, is_attack) == is_attack
        }
        weights = _rake(subjects, spoken)
        error = "allow" if is_attack else "block"
        positions, places = found.samples.positions, found.decisions.places
        rows = [
            (weights[positions[places[row]]], found.outcome(row) == error)
            for row in found.sides()[not is_attack]
            if found.outcome(row) in _DECIDED
        ]
        total = math.fsum(weight for weight, _ in rows)
        squares = math.fsum(weight * weight for weight, _ in rows)
        hits = math.fsum(weight for weight, is_hit in rows if is_hit)
        said[f"worth_{side}"] = total**2 / squares if total else 0.0
        said[name] = {
            "value": hits / total if total else None,
            "trials": len(rows),
            "confidence": found.confidence,
            "replicates": 0,
            **dict.fromkeys(("low", "high", "groups")),
        }
    return said


def _rake(subjects: list[Subject], mix: dict[str, Shares]) -> dict[int, float]:
    """Return a weight for each sample of one label, by its place; of mean 1."""
    weights = {subject.position: 1.0 for subject in subjects}
    facets = []
    for facet, shares in mix.items():
        values = {subject.position: _value(subject, facet, shares) for subject in subjects}
        facets.append((values, _reachable(shares, set(values.values()))))
    for _ in range(_ROUNDS if facets and subjects else 0):
        before = dict(weights)
        for values, wanted in facets:
            sums: defaultdict[str, float] = defaultdict(float)
            for place, weight in weights.items():
                sums[values[place]] += weight
            total = math.fsum(sums.values())
            weights = {
                place: weight * wanted[values[place]] * total / sums[values[place]]
                if sums[values[place]]
                else 0.0
                for place, weight in weights.items()
            }
        if max(abs(weights[place] - before[place]) for place in weights) < _SETTLED:
            break
    total = math.fsum(weights.values())
    if not total:
        return dict.fromkeys(weights, 1.0)
    return {place: weight * len(subjects) / total for place, weight in weights.items()}


def _value(subject: Subject, facet: str, shares: Shares) -> str:
    if facet == "length":
        return next((band for band in shares if _holds(band, subject.length)), _OTHER)
    value = subject.facets["language" if facet == "language" else "category"]
    return value if value in shares else _OTHER


def _holds(band: str, size: int) -> bool:
    """Tell whether a band such as `0-199` or `2000+` holds a number of characters."""
    low, *high = re.findall(r"\d+", band)
    return int(low) <= size and (not high or size <= int(high[0]))


def _reachable(shares: Shares, present: set[str]) -> Shares:
    """Return the shares of the values there are, scaled up in place of those there are not."""
    rest = {**shares, _OTHER: max(0.0, 1 - sum(shares.values()))}
    total = sum(rest[value] for value in present)
    return {value: rest[value] / total if total else 1 / len(present) for value in present}
