"""The times of one defense, measured off its answers a second time."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from guardmark.app.verify.rates import quantile, quantile_bounds
from guardmark.app.verify.slices import sort_answers

if TYPE_CHECKING:
    from guardmark.app.verify.defense import Recount

Json = dict[str, Any]


def recount_latency(found: Recount) -> Json:
    """Return the block `timing` of one defense, in the shape of `summary.json`.

    Args:
        found: Its answers.
    """
    said: Json = {
        "cold_ms": [
            answer.latency_ns / 1e6
            for answer in found.answers
            if answer.flags & 2 and answer.latency_ns is not None
        ],
        "cached": sum(1 for answer in found.answers if answer.flags & 4),
        "is_amortised": any(a.flags & 1 for a in found.answers if a.is_timed),
        "is_from_plan": any(a.flags & 16 for a in found.answers if a.is_timed),
    }
    for side, answers in zip(("attacks", "benign"), found.sides(), strict=True):
        timed = [answer for answer in answers if answer.is_timed]
        late = sum(1 for answer in timed if answer.error_kind == "timeout")
        times = sorted((answer.latency_ns or 0) / 1e6 for answer in timed)
        said[side] = {"timed": len(timed), "timeouts": late}
        if not late:
            said[side]["quantiles"] = [_quantile(found, times, q) for q in (0.5, 0.95, 0.99)]
    said["slice_medians"] = _medians(found)
    return said


def _medians(found: Recount) -> list[Json]:
    tables: list[Json] = []
    for facet, label, slices in sort_answers(found.source, found.sides()):
        medians: dict[str, float | None] = {}
        for (name, _), inside in slices.items():
            times = [a.latency_ns / 1e6 for a in inside if a.is_timed and a.latency_ns is not None]
            medians[name] = median(times) if times else None
        if medians:
            tables.append({"facet": facet, "label": label, "median_ms": medians})
    return tables


def _quantile(found: Recount, times: list[float], share: float) -> Json:
    low, high = quantile_bounds(times, share, found.confidence) if times else (None, None)
    is_known = low is not None and high is not None
    return {
        "quantile": share,
        "trials": len(times),
        "value_ms": quantile(times, share) if is_known else None,
        "low_ms": low if is_known else None,
        "high_ms": high if is_known else None,
    }
