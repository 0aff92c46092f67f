"""The times of one defense, measured off its answers a second time."""

from __future__ import annotations

import math
from statistics import median
from typing import TYPE_CHECKING, Any

from guardmark.app.verify.columns import NOTHING
from guardmark.app.verify.formulas.rates import quantile, quantile_ranks
from guardmark.app.verify.slices import sort_rows

if TYPE_CHECKING:
    from guardmark.app.verify.recount import Recount

Json = dict[str, Any]


def recount_latency(found: Recount) -> Json:
    """Return the block `timing` of one defense, in the shape of `summary.json`."""
    told = found.decisions
    manifest = found.manifest
    said: Json = {
        "mode": manifest["latency_mode"],
        "concurrency": manifest["concurrency"],
        "warmup": manifest["warmup"],
        "cold_ms": [
            told.latencies_ns[row] / 1e6
            for row in found.rows()
            if told.is_cold(row) and told.latencies_ns[row] != NOTHING
        ],
        "cached": sum(map(told.is_cached, found.rows())),
        "is_amortised": any(told.is_amortised(r) and told.is_timed(r) for r in found.rows()),
        "is_from_plan": any(told.is_from_plan(r) and told.is_timed(r) for r in found.rows()),
    }
    for side, rows in zip(("attacks", "benign"), found.sides(), strict=True):
        # At equal times a timeout comes last: it would have taken longer.
        timed = sorted(
            (told.latencies_ns[row] / 1e6, told.is_late(row)) for row in rows if told.is_timed(row)
        )
        said[side] = {
            "timed": len(timed),
            "timeouts": sum(is_late for _, is_late in timed),
            "quantiles": [_quantile(found, timed, q) for q in (0.5, 0.95, 0.99)],
        }
    said["slice_medians"] = _medians(found)
    return said


def _medians(found: Recount) -> list[Json]:
    tables, told = list[Json](), found.decisions
    for facet, label, slices in sort_rows(found):
        medians: dict[str, float | None] = {}
        for (name, _), inside in slices.items():
            times = [told.latencies_ns[row] / 1e6 for row in inside if told.is_timed(row)]
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
