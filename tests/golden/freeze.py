"""Make the golden runs anew and freeze them: `python -m tests.golden.freeze [NAME ...]`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.golden.folders import carry_out, contents, lay_out, write_frozen
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


def main(words: list[str] | None = None) -> None:
    """Freeze the runs that are named, or all of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden.freeze", description=__doc__)
    names = [run.name for run in RUNS]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"Of: {', '.join(names)}.")
    chosen = parser.parse_args(words).names or names
    unknown = [name for name in chosen if name not in names]
    if unknown:
        parser.error(f"no golden run is called {unknown[0]}; there are: {', '.join(names)}")
    for run in RUNS:
        if run.name in chosen:
            with tempfile.TemporaryDirectory() as folder:
                count = freeze(run, Path(folder) / "work")
            sys.stdout.write(f"{run.name:<10}{count} files\n")


if __name__ == "__main__":
    main()
