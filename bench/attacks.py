"""Operator applications with validity checks a second, on one core.

Run as `python bench/attacks.py [--json]`. CPU time, mean over the battery, texts up to 350
characters, beside a floor that a machine and its load slow down alike: NFKD, case folding and
SHA-256 of the same texts, once for each application.
"""

from __future__ import annotations

import json
import sys
from hashlib import sha256
from statistics import median
from time import process_time
from typing import TYPE_CHECKING
from unicodedata import normalize

from guardmark.attacks.application import apply, seed_for
from guardmark.attacks.battery import battery
from guardmark.core.sample import DEFAULT_TAXONOMY
from guardmark.datasets.builtin import builtin_specs
from guardmark.datasets.loading import load

if TYPE_CHECKING:
    from guardmark.core.sample import Sample

LONGEST = 350
TARGET = 20_000
ROUNDS = 3
FLOOR_US = 2.29
"""The floor on the machine of the targets, an application: an estimate, from what it takes here
and how much longer numpy's import takes here than there."""
WANTED = round(1e6 / TARGET / FLOOR_US, 1)
"""The target as a ratio: applications at 20,000 a second to the floor of that machine."""


def main() -> None:
    """Print the rate, its ratio to the floor, and the five slowest chains."""
    samples = [
        sample
        for sample in load(builtin_specs("core"), DEFAULT_TAXONOMY).samples()
        if sample.is_attack and len(sample.prompt.text) <= LONGEST
    ]
    measured = [measure(samples) for _ in range(ROUNDS)]
    seconds = {key: median(chains[key] for chains, _ in measured) for key in measured[0][0]}
    took = [sum(chains.values()) / len(chains) for chains, _ in measured]
    said = {
        "rate": 1 / median(took),
        "floor_us": 1e6 * median(floor for _, floor in measured),
        "ratio": median(each / floor for each, (_, floor) in zip(took, measured, strict=True)),
        "wanted": WANTED,
    }
    if "--json" in sys.argv:
        print(json.dumps(said))
        return
    length = sum(len(sample.prompt.text) for sample in samples) / len(samples)
    print(f"{len(samples)} texts, {length:.0f} characters on average")
    print(f"{said['rate']:,.0f} applications a second (target {TARGET:,})")
    print(f"{said['ratio']:.1f} x a floor of {said['floor_us']:.2f} us (target {WANTED:g} x)")
    for key, took_s in sorted(seconds.items(), key=lambda pair: -pair[1])[:5]:
        print(f"  {took_s * 1e6:6.1f} us  {key}")


def measure(samples: list[Sample]) -> tuple[dict[str, float], float]:
    """Return CPU seconds an application, by chain, and of the floor, a turn each in between."""
    seconds: dict[str, float] = {}
    floor = 0.0
    for chain in battery():
        seeds = [seed_for(1, chain.key, sample.id, 0) for sample in samples]
        start = process_time()
        for sample, seed in zip(samples, seeds, strict=True):
            apply(chain, sample.prompt.text, seed=seed, must_keep=sample.must_keep)
        between = process_time()
        for sample in samples:
            sha256(normalize("NFKD", sample.prompt.text).casefold().encode()).digest()
        seconds[chain.key] = (between - start) / len(samples)
        floor += process_time() - between
    return seconds, floor / (len(samples) * len(seconds))


if __name__ == "__main__":
    main()
