"""How many small faults the tests notice: mutants drawn at random, and the share that is caught.

    python scripts/mutation.py [--draw N] [--seed N] [ROOM ...]

`mutmut` writes the mutants (tens of thousands: days for all of them); N are drawn from each room,
with equal chances, and the tests that reach them are run. Printed for each room: the share noticed
with its interval, functions being its groups, and the names of those that nobody noticed, to be
read with `mutmut show NAME`. A mutant that no test reaches is not noticed. Run by `make mutation`.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

from guardmark.stats.rates.clustered import wilson_default

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("stats", "analysis", "app/verify")
NOTICED = {1, 3, 24, -24, 36, 37, 152, 255}  # A test failed, or the time of the tests was used up.
UNNOTICED = {0, 5, 33}  # All tests passed, or there are none.


def results(room: str) -> dict[str, int | None]:
    """Return the mutants of a room, each with the exit code of its tests or None."""
    found: dict[str, int | None] = {}
    for path in sorted((ROOT / "mutants" / "src" / "guardmark" / room).rglob("*.meta")):
        found |= json.loads(path.read_text(encoding="utf-8"))["exit_code_by_key"]
    return found


def mutmut(*names: str) -> None:
    """Have mutants tried; the first time they are written, and each test is run once."""
    done = subprocess.run(
        [sys.executable, "-m", "mutmut", "run", *names],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"mutmut could not run: {done.stdout[-3000:]}")


def function_of(mutant: str) -> str:
    """Return the function that a mutant is one of."""
    return mutant.rpartition("__mutmut_")[0]


def main() -> None:
    """Draw, try and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--draw", type=int, default=150, help="mutants of each room")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("rooms", nargs="*", metavar="ROOM", default=ROOMS, help=", ".join(ROOMS))
    options = parser.parse_args()
    if any(not results(room) for room in options.rooms):
        mutmut("guardmark.stats.arguments.x_require_fraction__mutmut_1")
    drawn = {}
    for room in options.rooms:
        names = sorted(results(room))
        drawn[room] = random.Random(options.seed).sample(names, min(options.draw, len(names)))
    mutmut(*(name for names in drawn.values() for name in names))
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
