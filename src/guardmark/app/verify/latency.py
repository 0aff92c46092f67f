"""The times of one defense, measured off its answers a second time."""

from __future__ import annotations

import math
from statistics import median
from typing import TYPE_CHECKING, Any

from guardmark.app.verify.rates import quantile, quantile_ranks
from guardmark.app.verify.slices import sort_answers

if TYPE_CHECKING:
    from guardmark.app.verify.defense import Recount

Json = dict[str, Any]


def recount_latency(found: Recount) -> Json:
    """Return the block `timing` of one defense, in the shape of `summary.json`.

    Args:
        found: Its answers.
    """
    manifest = found.source.manifest
    said: Json = {
        "mode": manifest["latency_mode"],
        "concurrency": manifest["concurrency"],
        "warmup": manifest["warmup"],
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
        # At equal times a timeout comes last: it would have taken longer.
        timed = sorted(
            ((answer.latency_ns or 0) / 1e6, answer.error_kind == "timeout")
            for answer in answers
            if answer.is_timed
        )
        said[side] = {
            "timed": len(timed),
            "timeouts": sum(is_late for _, is_late in timed),
            "quantiles": [_quantile(found, timed, q) for q in (0.5, 0.95, 0.99)],
        }
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


def _quantile(found: Recount, timed: list[tuple[float, bool]], share: float) -> Json:
    """Return a quantile; where it rests on timeouts it is a lower bound, open above."""
    times = [time for time, _ in timed]
    lower, upper = quantile_ranks(len(times), share, found.confidence)
    said: Json = {
        "quantile": share,
        "trials": len(times),
        "censored": sum(is_late for _, is_late in timed),
        "confidence": found.confidence,
        "at_least": False,
        **dict.fromkeys(("value_ms", "low_ms", "high_ms")),
    }
    if lower is None or upper is None:
        return said
    measured = next((at for at, (_, is_late) in enumerate(timed) if is_late), len(timed))
    place = (len(times) - 1) * share
    return said | {
        "value_ms": quantile(times, share),
        "low_ms": times[lower - 1],
        "high_ms": times[upper - 1] if upper <= measured else None,
        "at_least": math.ceil(place) + 1 > measured,
    }
