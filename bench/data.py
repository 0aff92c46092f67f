"""Data for measurements: made up, seeded, of mixed length."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

WORDS = """
please the of and to in for on with as at by from this that order invoice report
meeting garden recipe summary ticket customer weather translate explain water budget
python table river school letter number history music system prompt answer question
list draft ignore disregard forget previous prior above earlier all instructions
secret
""".split()  # noqa: SIM905 - words read best as words
ENTRIES = 7000  # distinct texts; longer data repeat them under new ids


def write(path: Path, count: int) -> Path:
    """Write `count` samples as JSON lines, texts of about 40 words."""
    random = Random(7)
    texts = [
        " ".join(random.choices(WORDS, k=max(5, min(300, int(random.lognormvariate(3.5, 0.6))))))
        for _ in range(min(count, ENTRIES))
    ]
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            row = {
                "id": f"s-{number:07d}",
                "text": texts[number % len(texts)],
                "label": "attack" if number % 2 else "benign",
                "category": "direct_injection" if number % 2 else "cooking",
                "severity": "high" if number % 2 else None,
                "language": "en",
            }
            file.write(json.dumps({k: v for k, v in row.items() if v is not None}) + "\n")
    return path
