"""How much faster two workers of a local Ray are than one, with what Ray costs beside it.

`.venv-ray/bin/python bench/cluster.py [--rounds N] [--samples N]`, on a quiet machine with two
cores; `make ray` makes the environment. Workers ask a classifier that keeps one core busy.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from random import Random
from time import perf_counter

from guardmark.app.parts.loading import load_config
from guardmark.app.run.running import RunOptions, Session, run
from guardmark.app.settings import RunSettings
from guardmark.engine.execution.cluster import Cluster

CLASSIFIER = '''
"""A classifier over hashed pieces of words, in plain Python: some 2 ms a text, on one core."""
from zlib import crc32


def risk(text: str) -> float:
    total = 0
    for turn in range(80):
        for at in range(len(text) - 4):
            total += crc32(text[at : at + 5].encode(), turn) % 3 - 1
    return 1 / (1 + 2.0 ** -min(60, max(-60, total / 50)))
'''
CONFIG = """
version: 1
data: [{{path: samples.jsonl}}]
defenses: {{code: {{type: python, target: "classifier.py:risk", threshold: 0.5}}}}
report: [json]
run: {{engine: ray, address: local, workers: {workers}, cpus_per_worker: 1, batch: 16}}
"""
WORDS = [a + b for a in ("gar", "sal", "mor", "tin", "ves") for b in ("den", "ad", "ning", "der")]
WANTED = 1.7


def row(number: int) -> str:
    """Write one sample, unlike all others: near-copies cost a search of their own."""
    words = Random(number).choices(WORDS, k=24)
    label = "attack" if number % 2 else "benign"
    return json.dumps({"id": f"s{number}", "prompt": " ".join(words), "label": label})


def seconds(folder: Path, workers: int, count: int) -> float:
    """Measure so many samples; return how long the command took."""
    config = folder / f"{workers}-{count}.yaml"
    config.write_text(CONFIG.format(workers=workers))
    out = Path(tempfile.mkdtemp(dir=folder)) / "run"
    began = perf_counter()
    run(load_config(config), RunOptions(out=out, limit=count), Session())
    return perf_counter() - began


def main() -> None:
    """Print the best of some rounds, and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--samples", type=int, default=4000)
    given = parser.parse_args()
    few, many = given.samples // 2, given.samples  # half: every worker is ready long before
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "classifier.py").write_text(CLASSIFIER)
        (folder / "samples.jsonl").write_text("\n".join(map(row, range(many))))
        cluster = Cluster(RunSettings(engine="ray", address="local", workers=2))
        cluster.joined()
        print(*cluster.notes, f"load average {os.getloadavg()[0]:.2f}", sep="; ")
        best = dict[tuple[int, int], float]()
        for _ in range(given.rounds):
            for workers in (1, 2):
                for count in (few, many):
                    took = seconds(folder, workers, count)
                    best[workers, count] = min(took, best.get((workers, count), took))
        cluster.close()
    slopes = {w: (best[w, many] - best[w, few]) / (many - few) for w in (1, 2)}
    for workers, slope in slopes.items():
        fixed = best[workers, few] - few * slope
        print(f"{workers} workers: {slope * 1e3:.2f} ms a sample, fixed {fixed:.1f} s")
    print(f"two workers are {slopes[1] / slopes[2]:.2f} times one; wanted: {WANTED}")
    print(f"load average after it {os.getloadavg()[0]:.2f}: no more than 2.5 on two quiet cores")


if __name__ == "__main__":
    main()
