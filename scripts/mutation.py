"""How many small faults the tests notice: mutants drawn at random, and the share that is caught.

    python scripts/mutation.py [--draw N] [--seed N] [--processes N] [ROOM ...]

`mutmut` writes the mutants (tens of thousands: days for all of them); N are drawn from each room,
with equal chances, and the tests that reach them are run. Printed: each mutant that nobody noticed
as soon as it is known, to be read with `mutmut show NAME`; in the end for each room the share
noticed with its interval, functions being its groups. A mutant that no test reaches is not noticed.
Without `--seed` each run draws others, and prints the seed that draws them again. Run by
`make mutation`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import secrets
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from guardmark.stats.rates.clustered import wilson_default

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("stats", "analysis", "app/verify")
NOTICED = {1, 3, 24, -24, 36, 37, 152, 255}  # A test failed, or the time of the tests was used up.
UNNOTICED = {0, 5, 33}  # All tests passed, or there are none.
SECONDS_BETWEEN_LOOKS = 20


def results(room: str) -> dict[str, int | None]:
    """Return the mutants of a room, each with the exit code of its tests or None."""
    found: dict[str, int | None] = {}
    for path in sorted((ROOT / "mutants" / "src" / "guardmark" / room).rglob("*.meta")):
        with contextlib.suppress(json.JSONDecodeError):  # Half written: read at the next look.
            found |= json.loads(path.read_text(encoding="utf-8"))["exit_code_by_key"]
    return found


def mutmut(*arguments: str, rooms: Sequence[str] = ()) -> None:
    """Have mutants tried; the first time they are written, and each test is run once."""
    known = {name for room in rooms for name, code in results(room).items() if code in UNNOTICED}
    with tempfile.TemporaryFile("w+", encoding="utf-8") as told:
        command = [sys.executable, "-m", "mutmut", "run", *arguments]
        running = subprocess.Popen(command, cwd=ROOT, stdout=told, stderr=subprocess.STDOUT)
        while running.poll() is None:
            time.sleep(SECONDS_BETWEEN_LOOKS)
            found = [each for room in rooms for each in results(room).items()]
            for name in sorted({name for name, code in found if code in UNNOTICED} - known):
                known.add(name)
                print(f"  not noticed: {name}", flush=True)
        if running.returncode:
            told.seek(0)
            sys.exit(f"mutmut could not run: {told.read()[-3000:]}")


def function_of(mutant: str) -> str:
    """Return the function that a mutant is one of."""
    return mutant.rpartition("__mutmut_")[0]


def main() -> None:
    """Draw, try and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--draw", type=int, default=150, help="mutants of each room")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument("--processes", type=int, help="how many at a time; default: one a core")
    parser.add_argument("rooms", nargs="*", metavar="ROOM", default=ROOMS, help=", ".join(ROOMS))
    options = parser.parse_args()
    children = ["--max-children", str(options.processes)] if options.processes else []
    print(f"seed {options.seed}", flush=True)
    if any(not results(room) for room in options.rooms):
        mutmut(*children, "guardmark.stats.arguments.x_require_fraction__mutmut_1")
    drawn = {}
    for room in options.rooms:
        names = sorted(results(room))
        drawn[room] = random.Random(options.seed).sample(names, min(options.draw, len(names)))
    mutmut(*children, *(name for names in drawn.values() for name in names), rooms=options.rooms)
    for room, names in drawn.items():
        report(room, names)


def report(room: str, names: list[str]) -> None:
    """Print the share of a room's mutants that was noticed, and the others by name."""
    codes = results(room)
    noticed = {name: codes[name] in NOTICED for name in names if codes[name] in NOTICED | UNNOTICED}
    tried, caught = Counter(map(function_of, noticed)), Counter[str]()
    for name, is_noticed in noticed.items():
        caught[function_of(name)] += is_noticed
    share = wilson_default([caught[each] for each in tried], list(tried.values()))
    if share.value is None or share.low is None or share.high is None:
        print(f"{room}: none of {len(names)} could be tried")
        return
    print(
        f"{room}: {share.value:.1%} [{share.low:.1%}, {share.high:.1%}] of {len(noticed)} mutants "
        f"in {len(tried)} functions noticed, of {len(codes)}; {len(names) - len(noticed)} not tried"
    )
    for name, is_noticed in sorted(noticed.items()):
        if not is_noticed:
            print(f"  not noticed: {name}")


if __name__ == "__main__":
    main()
