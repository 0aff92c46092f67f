"""T14: asking a defense in a process of its own: CPU of this process, the worker's left out.

Run as `python bench/processes.py` in a process of its own: prints microseconds a sample as JSON.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from time import process_time
from typing import Any

from guardmark.config.settings import BuildContext
from guardmark.core.sample import Prompt
from guardmark.defenses.command.settings import CommandSettings

BATCH, COUNT, TRIES = 64, 6_400, 5
WORKER = """
import json, sys
for line in sys.stdin:
    question = json.loads(line)
    print(json.dumps({"id": question["id"], "blocked": "7" in question["text"]}), flush=True)
"""


async def cost_us(folder: Path, batch: int, count: int) -> float:
    """Return the CPU of one sample in the quickest of some tries."""
    settings = {"command": [sys.executable, "worker.py"], "batch": batch}
    context = BuildContext(folder=folder, seed=1, services=None, defenses={})
    defense: Any = CommandSettings.model_validate(settings).build("worker", context)
    prompts = [Prompt.of_text(f"Please sort letter {n} of the garden club.") for n in range(count)]
    await defense.start()
    found = []
    for _ in range(TRIES):
        start = process_time()
        for at in range(0, count, batch):
            if batch > 1:
                await defense.decide_batch(prompts[at : at + batch])
            else:
                await defense.decide(prompts[at])
        found.append(process_time() - start)
    await defense.close()
    return 1e6 * min(found) / count


def measure(shrink: int = 1) -> dict[str, float]:
    """Measure in a fresh process."""
    words = [sys.executable, __file__, str(shrink)]
    found: dict[str, float] = json.loads(subprocess.check_output(words))
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        Path(name, "worker.py").write_text(WORKER, encoding="utf-8")
        size = max(BATCH, COUNT // int(sys.argv[1] if sys.argv[1:] else 1))
        costs = {
            "batches": asyncio.run(cost_us(Path(name), BATCH, size)),
            "alone": asyncio.run(cost_us(Path(name), 1, size // 4)),
        }
    print(json.dumps(costs))
