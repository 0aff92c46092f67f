"""Which run a person means: a folder of one, the newest below a folder, or the last of all."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

OWN_CONFIG: Final = Path("bench.yaml")
"""What `guardmark init > bench.yaml` writes, and what is taken where nothing is named."""


class RunPath(click.Path):
    """The folder of a run; of a folder that holds several the newest, and it is said which."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Find the run; a path without one is refused where it is opened."""
        path = Path(str(super().convert(value, param, ctx)))
        is_last = str(path) == "last" and not path.exists()
        if not is_last and (not path.is_dir() or (path / "records.sqlite").exists()):
            return path
        from guardmark.app.results.opened_run import LAST, RUNS_FOLDER, runs_below
        from guardmark.cli.terminal import tell_note

        if is_last:
            runs = runs_below(Path(RUNS_FOLDER))
        else:
            runs = runs_below(path)
        if not runs or (len(runs) == 1 and not is_last):
            return path
        if is_last:
            tell_note(f"Note: {runs[0]}, the {LAST} of {len(runs):,} below {RUNS_FOLDER}.")
        else:
            tell_note(f"Note: {runs[0]}, the newest of {len(runs):,} runs in {path}.")
        return runs[0]


def last_if_none(
    _context: click.Context, _parameter: click.Parameter, runs: tuple[Path, ...]
) -> tuple[Path, ...]:
    """Take the last run where none is named."""
    return runs or (RunPath().convert("last", None, None),)
