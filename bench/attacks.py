"""Operator applications with validity checks a second, on one core.

Run as `python bench/attacks.py [--json]`. CPU time, mean over the battery, texts up to 350
characters; the target is 20,000 a second.
"""

from __future__ import annotations

import json
import sys
from time import process_time

from guardmark.attacks.application import apply, seed_for
from guardmark.attacks.battery import battery
from guardmark.core.taxonomy import DEFAULT_TAXONOMY
from guardmark.datasets.builtin import builtin_specs
from guardmark.datasets.sources import load

LONGEST = 350
TARGET = 20_000
ROUNDS = 3


def main() -> None:
    """Print the rate, and the five slowest chains."""
    samples = [
        sample
        for sample in load(builtin_specs("core"), DEFAULT_TAXONOMY).samples()
        if sample.is_attack and len(sample.prompt.text) <= LONGEST
    ]
    seconds: dict[str, float] = {}
    for chain in battery():
        seeds = [seed_for(1, chain.key, sample.id, 0) for sample in samples]
        start = process_time()
        for _ in range(ROUNDS):
            for sample, seed in zip(samples, seeds, strict=True):
                apply(chain, sample.prompt.text, seed=seed, must_keep=sample.must_keep)
        seconds[chain.key] = (process_time() - start) / (ROUNDS * len(samples))
    rate = len(seconds) / sum(seconds.values())
    if "--json" in sys.argv:
        print(json.dumps({"rate": rate}))
        return
    length = sum(len(sample.prompt.text) for sample in samples) / len(samples)
    print(f"{len(samples)} texts, {length:.0f} characters on average")
    print(f"{rate:,.0f} applications a second (target {TARGET:,})")
    for key, took in sorted(seconds.items(), key=lambda pair: -pair[1])[:5]:
        print(f"  {took * 1e6:6.1f} us  {key}")


if __name__ == "__main__":
    main()
