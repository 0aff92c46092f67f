"""T7: the figures of a run from columns, against bare numpy counts of the same.

Run as `python bench/figures.py` in a process of its own: prints CPU seconds by name as JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING

import numpy as np
from subjects import MANIFEST

from guardmark.analysis.defense.counts import estimate_slices, sort_into_cells
from guardmark.analysis.defense.frame import DefenseColumn, Frame
from guardmark.analysis.defense.latency import measure_latency
from guardmark.analysis.defense.scorecard import BlockedCounts, estimate_ratios
from guardmark.analysis.settings import AnalysisSettings
from guardmark.core.manifest import PartManifest
from guardmark.core.outcome import ALLOWED, BLOCKED
from guardmark.core.record import Stage
from guardmark.core.sample import Label, Prompt, Sample
from guardmark.stats.rates.clustered import EffectiveCounts, effective_counts, summarise
from guardmark.stats.rates.ratios import correlate
from guardmark.stats.rates.ratios import estimate_ratios as ratios_of_groups
from guardmark.store.columns import Facet, RecordColumns, SampleColumns, record_columns
from guardmark.store.reader import RecordReader
from guardmark.store.records import RecordWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

COUNT, CATEGORIES, GROUPS, STORED = 1_000_000, 12, 200_000, 100_000
TRIES = 5


def best(work: Callable[[], object]) -> float:
    """Return the CPU seconds of the quickest of some tries; the first one warms up."""
    found = []
    for _ in range(TRIES):
        start = process_time()
        work()
        found.append(process_time() - start)
    return min(found)


def floor(frame: Frame) -> None:
    """Counts by category, Wilson's limits, latency quantiles and 10,000 replicates, bare."""
    arm, samples = frame.arms[0], frame.samples
    where = (samples.category.codes.astype(np.int64) * 2 + samples.is_attack) * 2
    table = np.bincount(where + arm.records.outcome, minlength=4 * CATEGORIES)
    hits, trials = table.reshape(-1, 2)[:, 1], np.maximum(1, table.reshape(-1, 2).sum(axis=1))
    z, rate = 1.959963984540054, hits / trials
    centre = (rate + z * z / (2 * trials)) / (1 + z * z / trials)
    spread = z * np.sqrt(rate * (1 - rate) / trials + z * z / (4 * trials**2))
    _ = centre - spread, centre + spread
    np.quantile(arm.records.latency_ns, [0.5, 0.95, 0.99])
    four = table.reshape(CATEGORIES, 4).sum(axis=0)
    drawn = np.random.default_rng(7).multinomial(four.sum(), four / four.sum(), size=10_000)
    shares = drawn[:, 2] / (drawn[:, 2] + drawn[:, 3])
    f1 = 2 * drawn[:, 3] / (2 * drawn[:, 3] + drawn[:, 1] + drawn[:, 2])
    np.quantile(shares, [0.025, 0.975])
    np.quantile(f1, [0.025, 0.975])


def figures(frame: Frame) -> None:
    """The same figures by guardmark: with effective sizes, refusals, order-statistic limits."""
    arm = frame.arms[0]
    cells = sort_into_cells(frame, frame.samples.category.codes, CATEGORIES)
    estimate_slices(cells, arm, hits=arm.is_blocked, trials=arm.is_answered, confidence=0.95)
    benign, attacks = estimate_slices(
        sort_into_cells(frame), arm, hits=arm.is_blocked, trials=arm.is_answered, confidence=0.95
    )
    counts = BlockedCounts(EffectiveCounts.of(attacks), EffectiveCounts.of(benign))
    estimate_ratios(frame, arm, counts)
    measure_latency(frame, arm)


def make_frame(*, is_grouped: bool) -> Frame:
    """A million results of one defense, drawn."""
    draw = np.random.default_rng(1)
    attack = draw.random(COUNT) < 0.5
    blocked = draw.random(COUNT) < np.where(attack, 0.9, 0.05)
    if is_grouped:  # samples of a group share their label, so groups do not straddle
        attack = np.arange(COUNT) % GROUPS < GROUPS // 2
    codes = np.arange(COUNT) % (GROUPS if is_grouped else COUNT)
    blank = Facet(names=("",), codes=np.zeros(COUNT, dtype=np.int32))
    names = tuple(map(str, range(GROUPS if is_grouped else COUNT)))
    category = draw.integers(0, CATEGORIES, COUNT).astype(np.int32)
    if is_grouped:
        category = (codes % CATEGORIES).astype(np.int32)
    samples = SampleColumns(
        ids=[""] * COUNT,
        is_attack=attack,
        category=Facet(names=tuple(map(str, range(CATEGORIES))), codes=category),
        subcategory=blank,
        severity=blank,
        language=blank,
        variant=blank,
        technique=blank,
        source=blank,
        group=Facet(names=names, codes=codes.astype(np.int32)),
        length=np.zeros(COUNT, dtype=np.int64),
    )
    part = PartManifest(name="guard", kind="defense", type="pattern")
    arm = DefenseColumn(part=part, records=_records(blocked, draw), threshold=None)
    settings = AnalysisSettings(replicates=10_000)
    return Frame(manifest=MANIFEST, settings=settings, samples=samples, arms=(arm,))


def _records(blocked: NDArray[np.bool_], draw: np.random.Generator) -> RecordColumns:
    none = np.full(COUNT, -1, dtype=np.int8)
    return RecordColumns(
        defense="guard",
        stage=Stage.DEFENSE,
        layer="run",
        sample=np.arange(COUNT),
        repeat=np.zeros(COUNT, dtype=np.int32),
        outcome=blocked.astype(np.int8),
        score=np.full(COUNT, np.nan),
        latency_ns=(draw.lognormal(1, 0.5, COUNT) * 1e6).astype(np.int64),
        error_kind=none,
        answer_mode=none,
        flags=np.zeros(COUNT, dtype=np.uint8),
    )


def bootstrap() -> None:
    """2,000 replicates of F1 and kin over 200,000 groups."""
    draw = np.random.default_rng(2)
    table = np.zeros((GROUPS, 4), dtype=np.int64)
    hits = draw.binomial(5, 0.9, GROUPS // 2)
    table[: GROUPS // 2, 0], table[: GROUPS // 2, 1] = hits, 5 - hits
    alarms = draw.binomial(5, 0.05, GROUPS // 2)
    table[GROUPS // 2 :, 2], table[GROUPS // 2 :, 3] = alarms, 5 - alarms
    sides = (
        effective_counts(summarise(table[:, at], table[:, at : at + 2].sum(1))) for at in (0, 2)
    )
    ratios_of_groups(*sides, correlation=correlate(table))


def read_columns(folder: Path) -> float:
    """CPU seconds to read records into columns, for a million of them."""
    path = folder / "records.sqlite"
    with RecordWriter(path) as writer:
        writer.load_samples(
            Sample(id=f"s-{n}", prompt=Prompt.of_text("x"), label=Label.ATTACK, category="c")
            for n in range(STORED)
        )
        writer.put_manifest(replace(MANIFEST))
        lane = writer.record_batch("guard", Stage.DEFENSE)
        for position in range(STORED):
            decision = BLOCKED if position % 3 else ALLOWED
            lane.add(position, decision, latency_ns=1000 + position)
        writer.flush()
    with RecordReader(path) as reader:
        return best(lambda: record_columns(reader, "guard")) * 1_000_000 / STORED


def measure() -> dict[str, float]:
    """Run this file in a process of its own; return CPU seconds by name."""
    said = subprocess.check_output([sys.executable, __file__])
    found: dict[str, float] = json.loads(said)
    return found


def main() -> None:
    """Measure all and print it."""
    plain = make_frame(is_grouped=False)
    found = {"floor": best(lambda: floor(plain)), "plain": best(lambda: figures(plain))}
    grouped = make_frame(is_grouped=True)
    found["groups"] = best(lambda: figures(grouped))
    found["bootstrap"] = best(bootstrap)
    with tempfile.TemporaryDirectory() as folder:
        found["columns"] = read_columns(Path(folder))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
