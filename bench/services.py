"""Measurements against stand-in services on loopback."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from measure import floor, middle, service, spend, stats
from table import Line, absolute, relative

if TYPE_CHECKING:
    from pathlib import Path

    from table import Bench

DELAY_MS = 50
IN_FLIGHT = 64


def wire(bench: Bench) -> list[Line]:
    """T1 to T5 and T9: an HTTP service that takes 50 ms, 64 in flight."""
    small, large = 500, 3000
    seen: dict[str, list[float]] = {
        "floor": [], "cpu": [], "wall": [], "whole": [], "in flight": [], "memory": [],
        "growth": [], "first": [], "connections": [], "p50": [], "p99": [],
    }  # fmt: skip
    with service(50) as url:
        for _ in range(bench.count):
            bare = [
                spend(floor("aiohttp_client", bench.data(count), url, 64)).cpu_s
                for count in (small, large)
            ]
            stats(url)
            little = spend(bench.run(bench.http(small, url)))
            stats(url)
            much = spend(bench.run(bench.http(large, url)))
            counts = stats(url)
            ideal = -(-large // 64) * 0.05
            middle_ms, late_ms = latencies(bench.folder / f"out-http-{large}" / "run")
            seen["p50"].append(middle_ms - 50)
            seen["p99"].append(late_ms - 50)
            seen["first"].append(counts["first"] - much.began)
            seen["floor"].append((bare[1] - bare[0]) / (large - small) * 1e3)
            seen["cpu"].append((much.cpu_s - little.cpu_s) / (large - small) * 1e3)
            seen["wall"].append(counts["span_s"] / ideal)
            seen["whole"].append(much.wall_s / ideal)
            seen["in flight"].append(counts["mean_in_flight"])
            seen["connections"].append(counts["connections"])
            seen["memory"].append(much.memory_mb)
            seen["growth"].append((much.memory_mb - little.memory_mb) / (large - small) * 1024)
    flight = middle(seen, "in flight")
    return [
        relative(
            "T1", "API, per extra sample", seen,
            names=("cpu", "floor"), wanted=1.5, unit="ms CPU",
        ),
        absolute("T2", "first request to last answer", middle(seen, "wall"), "x ideal", 1.25),
        absolute("T2", "whole process", middle(seen, "whole"), "x ideal", 1.40),
        absolute("T3", "p50 less the service's time, loaded", middle(seen, "p50"), "ms", 5),
        absolute("T3", "p99 less the service's time, loaded", middle(seen, "p99"), "ms", 20),
        absolute("T4", "connections", middle(seen, "connections"), "", 64),
        Line(
            target="T4", what="mean in flight of 64", floor=None, guardmark=flight, unit="",
            ratio=None, wanted=">= 58", is_met=flight >= 58,
        ),
        absolute("T5", "memory, 3,000 API samples", middle(seen, "memory"), "MB", 90),
        absolute("T5", "growth", middle(seen, "growth"), "kB/sample", 0.2),
        absolute("T9", "start to first request, wall", middle(seen, "first"), "s", 0.4),
    ]  # fmt: skip


def latencies(folder: Path) -> tuple[float, float]:
    """Return the median and the 99th percentile of a run's latencies, cold calls apart."""
    from guardmark.store.codes import FLAG_COLD
    from guardmark.store.columns import record_columns
    from guardmark.store.records import RecordReader

    with RecordReader(folder / "records.sqlite") as reader:
        columns = record_columns(reader, "guard")
    warm = sorted(columns.latency_ns[(columns.flags & FLAG_COLD) == 0].tolist())
    return warm[len(warm) // 2] / 1e6, warm[len(warm) * 99 // 100] / 1e6


def isolated(bench: Bench) -> list[Line]:
    """T3: one call at a time, after warm-up."""
    count, over = 100, []
    with service(DELAY_MS) as url:
        for _ in range(bench.count):
            config = bench.http(count, url, name="isolated", mode="isolated")
            spend(bench.run(config))
            over.append(latencies(bench.folder / "out-isolated" / "run")[0] - DELAY_MS)
    found = {"over": over}
    return [
        absolute("T3", "p50 less the service's time, isolated", middle(found, "over"), "ms", 2),
    ]


def pipeline(bench: Bench) -> list[Line]:
    """Guard, model and judge of 50 ms each: stages overlap, so the wall is that of one."""
    count = 3000
    seen: dict[str, list[float]] = {"alone": [], "pipeline": []}
    with ExitStack() as stack:
        kinds = ("check", "chat", "judge")
        guard, model, judge = (stack.enter_context(service(DELAY_MS, kind)) for kind in kinds)
        for _ in range(bench.count):
            stats(guard)
            spend(bench.run(bench.http(count, guard)))
            seen["alone"].append(stats(guard)["span_s"])
            spend(bench.run(bench.pipeline(count, guard=guard, model=model, judge=judge)))
            counts = [stats(url) for url in (guard, model, judge)]
            began = min(each["first"] for each in counts)
            seen["pipeline"].append(max(each["first"] + each["span_s"] for each in counts) - began)
    return [
        relative(
            "W5", "guard, model, judge: wall to one alone", seen,
            names=("pipeline", "alone"), wanted=1.25, unit="s wall",
        )
    ]  # fmt: skip
