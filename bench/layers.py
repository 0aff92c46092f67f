"""Where the cost of a sample goes: calls and own time by layer.

`python bench/layers.py [NAME...]`, of the kinds of work in `bench/calls.py`. Times are those of the
profiler, which doubles them on code of many small calls: read them as shares.
"""

from __future__ import annotations

import os
import pstats
import sys
import tempfile
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parent))

import calls
from table import Bench

LAYERS: Final = (
    ("client (aiohttp)", ("/aiohttp/", "/yarl/", "/multidict/", "/propcache/", "/aiosignal/")),
    ("event loop", ("/asyncio/", "/uvloop/", "/selectors.py", "/socket.py")),
    ("net", ("guardmark/net/",)),
    ("defenses, models, judges", ("guardmark/defenses/", "guardmark/models/", "guardmark/judges/")),
    ("engine", ("guardmark/engine/", "guardmark/core/")),
    ("store", ("guardmark/store/", "/sqlite3/")),
    ("reading data", ("guardmark/datasets/",)),
    ("attacks", ("guardmark/attacks/", "guardmark/adaptive/", "guardmark/canon/")),
    ("figures and reports", ("guardmark/analysis/", "guardmark/stats/", "guardmark/reports/")),
    ("JSON", ("/json/",)),
)
OTHER: Final = "everything else"


def layer_of(file: str) -> str:
    """Return the layer that a file belongs to."""
    path = file.replace("\\", "/")
    for name, pieces in LAYERS:
        if any(piece in path for piece in pieces):
            return name
    return OTHER


def profile(name: str, size: int) -> dict[str, tuple[float, float]]:
    """Carry out a kind of work at a size; return calls and seconds by layer."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        kept = Path(folder) / "profile"
        os.environ["GUARDMARK_CALLS"] = str(kept)
        try:
            for words in calls.WORKS[name].commands(Bench(Path(folder), 1), stack, size):
                calls.calls_of(words)
        finally:
            del os.environ["GUARDMARK_CALLS"]
        return _by_layer(vars(pstats.Stats(str(kept)))["stats"])


def _by_layer(entries: dict[Any, Any]) -> dict[str, tuple[float, float]]:
    """Sum calls and own time; what is written in C counts for whoever called it."""
    counts: defaultdict[str, float] = defaultdict(float)
    seconds: defaultdict[str, float] = defaultdict(float)
    for (file, _, _), (_, count, own, _, callers) in entries.items():
        if file == "~" and callers:
            for (caller, _, _), (_, share, spent, _) in callers.items():
                counts[layer_of(caller)] += share
                seconds[layer_of(caller)] += spent
        else:
            counts[layer_of(file)] += count
            seconds[layer_of(file)] += own
    return {layer: (counts[layer], seconds[layer]) for layer in counts}


def main() -> None:
    """Print a table for each kind of work that is named, W1 if none is."""
    for name in sys.argv[1:] or ["w1"]:
        small, large = calls.WORKS[name].sizes
        few, many = profile(name, small), profile(name, large)
        print(f"{name:<28}{'calls':>8}{'us':>8}   a sample")
        for layer in (*(layer for layer, _ in LAYERS), OTHER):
            before, now = few.get(layer, (0.0, 0.0)), many.get(layer, (0.0, 0.0))
            each = [(b - a) / (large - small) for a, b in zip(before, now, strict=True)]
            print(f"  {layer:<26}{each[0]:>8.1f}{1e6 * each[1]:>8.1f}")


if __name__ == "__main__":
    main()
