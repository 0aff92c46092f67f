"""Make the golden runs anew and freeze them: `python -m tests.golden.freeze [NAME ...]`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.golden.comparison import difference
from tests.golden.folders import (
    carry_out,
    contents,
    lay_out,
    made_once,
    read_frozen,
    unpack,
    write_frozen,
)
from tests.golden.runs import FROZEN, RUNS, GoldenRun, step

VERIFY = step("verify run --data .")


def freeze(run: GoldenRun, folder: Path) -> int:
    """Make a run, tell it, verify it and keep its files; return how many there are."""
    lay_out(run, folder)
    carry_out((*run.making, *run.retelling, VERIFY), folder)
    files = contents(run, folder)
    write_frozen(run, files)
    environment = (folder / "run" / "environment.json").read_bytes()
    (FROZEN / "made-with.json").write_bytes(environment)
    return len(files)


def retell(run: GoldenRun, folder: Path) -> int:
    """Tell the frozen records of a run anew and keep what differs; return how many files do."""
    unpack(run, folder)
    carry_out((*run.retelling, VERIFY), folder)
    frozen, made = read_frozen(run), contents(run, folder)
    kept = {*made_once(frozen), *(f"printed/{each.printed}" for each in run.making)}
    told = {name: content for name, content in made.items() if name not in kept}
    changed = [
        name for name in told if name not in frozen or difference(name, frozen[name], told[name])
    ]
    gone = frozen.keys() - made.keys() - kept
    files = {name: content for name, content in frozen.items() if name not in gone}
    write_frozen(run, files | {name: told[name] for name in changed})
    return len(changed) + len(gone)


def main(words: list[str] | None = None) -> None:
    """Freeze the runs that are named, or all of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden.freeze", description=__doc__)
    names = [run.name for run in RUNS]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"Of: {', '.join(names)}.")
    parser.add_argument("--retell", action="store_true", help="Keep records, tell them anew.")
    parsed = parser.parse_args(words)
    chosen, work = parsed.names or names, retell if parsed.retell else freeze
    unknown = [name for name in chosen if name not in names]
    if unknown:
        parser.error(f"no golden run is called {unknown[0]}; there are: {', '.join(names)}")
    for run in RUNS:
        if run.name in chosen:
            with tempfile.TemporaryDirectory() as folder:
                count = work(run, Path(folder) / "work")
            sys.stdout.write(f"{run.name:<10}{count} files\n")


if __name__ == "__main__":
    main()
