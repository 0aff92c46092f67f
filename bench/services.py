"""Measurements against stand-in services on loopback."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from measure import floor, middle, ratio, service, spend, stats, watch
from table import Line, absolute, relative

if TYPE_CHECKING:
    from pathlib import Path

    from table import Bench

DELAY_MS = 50
AIOHTTP_S = 0.19  # importing aiohttp on the machine of the targets, CPU seconds
IN_FLIGHT = 64
LITTLE, MUCH, MOST = 500, 3000, 12_000


def wire(bench: Bench) -> list[Line]:
    """T1 to T5 and T9: an HTTP service that takes 50 ms, 64 in flight.

    Walls and latencies stand beside those of a bare client of the same rounds: on a slow or busy
    machine neither reaches what the targets ask for, and their ratio still tells. The start has
    the import of the client as its floor.
    """
    bare, ours = dict[str, list[float]](), dict[str, list[float]]()
    with service(DELAY_MS) as url:
        for _ in range(bench.count):
            for seen, measure in ((bare, _bare_client), (ours, _run)):
                for name, value in measure(bench, url).items():
                    seen.setdefault(name, []).append(value)

    def beside(
        target: str,
        what: str,
        name: str,
        unit: str,
        *,
        wanted: float,
        there: float,
        least: bool = False,
    ) -> Line:
        found = {"bare": bare[name], "ours": ours[name]}
        value, times = middle(ours, name), ratio(found, "ours", "bare")
        limit = round(wanted / there, 2)
        word = ">=" if least else "<="
        is_met = value >= wanted or times >= limit if least else value <= wanted or times <= limit
        return Line(
            target=target, what=what, floor=middle(bare, name), guardmark=value, unit=unit,
            ratio=times, wanted=f"{word} {wanted:g}, or {limit:g} x", is_met=is_met,
        )  # fmt: skip

    found = {"bare": bare["cpu"], "ours": ours["cpu"]}
    return [
        relative(
            "T1", "API, per extra sample", found,
            names=("ours", "bare"), wanted=1.5, unit="ms CPU",
        ),
        beside("T2", "first request to last answer", "span", "x ideal", wanted=1.25, there=1.18),
        beside("T2", "whole process", "whole", "x ideal", wanted=1.4, there=1.18),
        beside("T3", "p50 less the service's time, loaded", "p50", "ms", wanted=5, there=2.6),
        beside("T3", "p99 less the service's time, loaded", "p99", "ms", wanted=20, there=17),
        absolute("T4", "connections", middle(ours, "connections"), "", IN_FLIGHT),
        beside("T4", "mean in flight of 64", "in flight", "", wanted=58, there=60, least=True),
        absolute("T5", "memory, 3,000 API samples", middle(ours, "memory"), "MB", 90),
        absolute("T5", "growth, 500 to 3,000", middle(ours, "growth"), "kB/sample", 0.2),
        absolute("T5", "growth, 3,000 to 12,000", middle(ours, "later growth"), "kB/sample", 0.2),
        beside("T9", "start to first request", "first", "s CPU", wanted=0.4, there=AIOHTTP_S),
    ]  # fmt: skip


def _ideal_s(count: int) -> float:
    """Return how long so many calls take if every place in flight is always taken."""
    return -(-count // IN_FLIGHT) * DELAY_MS / 1e3


def _bare_client(bench: Bench, url: str) -> dict[str, float]:
    out = bench.folder / "latencies.json"
    sizes = bench.size(LITTLE), bench.size(MUCH)
    little, much = (
        (spend(floor("aiohttp_client", bench.data(count), url, IN_FLIGHT, out)), stats(url))
        for count in sizes
    )
    client = spend([sys.executable, "-c", "import aiohttp"])
    late = json.loads(out.read_text(encoding="utf-8"))
    return {
        "cpu": (much[0].cpu_s - little[0].cpu_s) / (sizes[1] - sizes[0]) * 1e3,
        "span": much[1]["span_s"] / _ideal_s(sizes[1]),
        "whole": much[0].wall_s / _ideal_s(sizes[1]),
        "in flight": much[1]["mean_in_flight"],
        "first": client.cpu_s,
        **{name: value - DELAY_MS for name, value in late.items()},
    }


def _run(bench: Bench, url: str) -> dict[str, float]:
    sizes = [bench.size(count) for count in (LITTLE, MUCH, MOST)]
    little, much, most = (
        (spend(bench.run(bench.http(count, url)), started=partial(watch, url)), stats(url))
        for count in sizes
    )
    cost, counts = much
    middle_ms, late_ms = latencies(bench.folder / f"out-http-{sizes[1]}" / "run")
    return {
        "cpu": (cost.cpu_s - little[0].cpu_s) / (sizes[1] - sizes[0]) * 1e3,
        "span": counts["span_s"] / _ideal_s(sizes[1]),
        "whole": cost.wall_s / _ideal_s(sizes[1]),
        "in flight": counts["mean_in_flight"],
        "connections": counts["connections"],
        "p50": middle_ms - DELAY_MS,
        "p99": late_ms - DELAY_MS,
        "first": counts["cpu_s_at_first"],
        "memory": cost.memory_mb,
        "growth": (cost.memory_mb - little[0].memory_mb) / (sizes[1] - sizes[0]) * 1024,
        "later growth": (most[0].memory_mb - cost.memory_mb) / (sizes[2] - sizes[1]) * 1024,
    }


def latencies(folder: Path) -> tuple[float, float]:
    """Return the median and the 99th percentile of a run's latencies, cold calls apart."""
    from guardmark.store.columns import record_columns
    from guardmark.store.reader import RecordReader
    from guardmark.store.schema import FLAG_COLD

    with RecordReader(folder / "records.sqlite") as reader:
        columns = record_columns(reader, "guard")
    warm = sorted(columns.latency_ns[(columns.flags & FLAG_COLD) == 0].tolist())
    return warm[len(warm) // 2] / 1e6, warm[len(warm) * 99 // 100] / 1e6


def routing(bench: Bench) -> list[Line]:
    """CPU a sample with four addresses of a service, beside one with as many calls in flight."""
    sizes, found = [bench.size(LITTLE), bench.size(MOST)], dict[str, list[float]]()
    with ExitStack() as stack:
        urls = [stack.enter_context(service(0)) for _ in range(4)]
        for _ in range(bench.count):
            for name, beside in (("one", []), ("four", urls[1:])):
                limits = {"base_urls": beside, "concurrency": IN_FLIGHT // (1 + len(beside))}
                little, much = (
                    spend(bench.run(bench.http(n, urls[0], name=name, services={urls[0]: limits})))
                    for n in sizes
                )
                cost = (much.cpu_s - little.cpu_s) / (sizes[1] - sizes[0]) * 1e3
                found.setdefault(name, []).append(cost)
    return [
        relative(
            "R1", "four addresses, per extra sample", found,
            names=("four", "one"), wanted=1.1, unit="ms CPU",
        )
    ]  # fmt: skip


def isolated(bench: Bench) -> list[Line]:
    """T3: one call at a time, after warm-up."""
    count, over = bench.size(100), []
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
    count = bench.size(MUCH)
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
