"""Make the golden runs anew and freeze them: `python -m tests.golden.freeze [NAME ...]`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.golden.comparison import figure_differences, word_difference
from tests.golden.folders import (
    carry_out,
    contents,
    kept,
    lay_out,
    made_once,
    read_frozen,
    unpack,
    write_frozen,
)
from tests.golden.runs import FROZEN, RUNS, WORDS, GoldenRun, step

if TYPE_CHECKING:
    from collections.abc import Mapping

VERIFY = step("verify run --data .")


def freeze(run: GoldenRun, folder: Path) -> int:
    """Make a run, tell it, verify it and keep its files; return how many there are."""
    lay_out(run, folder)
    carry_out((*run.making, *run.retelling, VERIFY), folder)
    files = kept(run, contents(run, folder))
    write_frozen(run, files)
    environment = (folder / "run" / "environment.json").read_bytes()
    (FROZEN / "made-with.json").write_bytes(environment)
    return len(files)


def retell(run: GoldenRun, folder: Path) -> int:
    """Report the frozen records of a run anew; return how many files changed."""
    unpack(run, folder)
    carry_out((*run.retelling, VERIFY), folder)
    frozen, made = read_frozen(run), kept(run, contents(run, folder))
    of_making = made_once(frozen)
    files = {name: frozen[name] for name in frozen if name in of_making}
    changed = len(frozen.keys() - made.keys())
    for name, content in made.items():
        if name in of_making:
            continue
        if _is_unchanged(run, name, frozen, content):
            files[name] = frozen[name]
        else:
            files[name] = content
            changed += 1
    write_frozen(run, files)
    return changed


def _is_unchanged(run: GoldenRun, name: str, frozen: Mapping[str, bytes], content: bytes) -> bool:
    """Tell whether the comparison accepts the frozen file, in both directions."""
    if name not in frozen:
        return False
    if name in WORDS.get(run.name, ()):
        return not word_difference(name, frozen[name], content)
    old, new = {name: frozen[name]}, {name: content}
    return not figure_differences(old, new) and not figure_differences(new, old)


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
