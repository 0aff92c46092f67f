"""Working folders of golden runs: laid out, worked in by commands, packed and unpacked."""

from __future__ import annotations

import gzip
import io
import os
import shutil
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Final
from unittest.mock import patch

from tests.golden.comparison import FIGURE_FILES
from tests.golden.runs import FROZEN, INPUTS, WORDS
from tests.journeys.command_line import guardmark

from guardmark.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tests.golden.runs import GoldenRun, Step

MADE_ONCE: Final = frozenset(
    {
        "battery.lock",
        "config.resolved.yaml",
        "data_manifest.json",
        "records.sqlite",
        "target.jsonl",
    }
)
"""Files that only making writes; retelling starts from them."""

LEFT_OUT: Final = frozenset({".lock", "environment.json", "run.log", "seals.jsonl"})
"""Files about the machine, the moment and what was written, which no report reads."""

_SURROUNDINGS: Final = {"COLUMNS": "100", "PYTHONDONTWRITEBYTECODE": "1"}
"""Width of the terminal, which `data check` breaks its lines by; no files beside the inputs."""

_PACKED_FROM: Final = 16 * 1024


def lay_out(run: GoldenRun, folder: Path) -> None:
    """Put the configuration and the data of a run into an empty folder."""
    folder.mkdir(parents=True)
    if (INPUTS / run.name).exists():
        shutil.copytree(
            INPUTS / run.name,
            folder,
            dirs_exist_ok=True,
            ignore=shutil.ignore_patterns("__pycache__"),
        )


def carry_out(steps: Iterable[Step], folder: Path) -> None:
    """Type commands in a folder, keep what they print under `printed/`, check their codes."""
    for each in steps:
        with patch.dict(os.environ, _SURROUNDINGS):
            code, out, err = _typed(each, folder)
        if code != each.code:
            line = " ".join(each.words)
            raise AssertionError(f"guardmark {line}: exit {code}, not {each.code}\n{out}{err}")
        if each.printed:
            path = folder / "printed" / each.printed
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(out.encode())


def _typed(each: Step, folder: Path) -> tuple[int, str, str]:
    if each.builds_parts:
        done = guardmark(*each.words, cwd=folder)
        return done.code, done.out, done.err
    out, err = io.StringIO(), io.StringIO()
    code = 0
    with chdir(folder), redirect_stdout(out), redirect_stderr(err):
        try:
            main(each.words)
        except SystemExit as ended:
            code = int(ended.code or 0)
    return code, out.getvalue(), err.getvalue()


def contents(run: GoldenRun, folder: Path) -> dict[str, bytes]:
    """Read every file that commands left in a working folder, by relative path."""
    given = {path.relative_to(INPUTS / run.name) for path in (INPUTS / run.name).rglob("*")}
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.is_file() and path.name not in LEFT_OUT and name not in given:
            found[name.as_posix()] = path.read_bytes()
    return found


def write_frozen(run: GoldenRun, files: Mapping[str, bytes]) -> None:
    """Replace the frozen files of a run; large ones are packed without a time."""
    home = FROZEN / run.name
    shutil.rmtree(home, ignore_errors=True)
    for name, content in files.items():
        is_packed = len(content) > _PACKED_FROM
        path = home / f"{name}{'.gz' if is_packed else ''}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(content, 9, mtime=0) if is_packed else content)


def read_frozen(run: GoldenRun) -> dict[str, bytes]:
    """Read the frozen files of a run, unpacked, by relative path."""
    home = FROZEN / run.name
    found = {}
    for path in sorted(home.rglob("*")):
        if path.is_file():
            name, content = path.relative_to(home).as_posix(), path.read_bytes()
            is_packed = name.endswith(".gz")
            found[name.removesuffix(".gz")] = gzip.decompress(content) if is_packed else content
    if not found:
        raise AssertionError(f"{home} holds nothing; see tests/golden/README.md")
    return found


def made_once(files: Iterable[str]) -> frozenset[str]:
    """Return which of these files only making writes; they lie beside records."""
    names = set(files)
    return frozenset(
        name
        for name in names
        if name.rpartition("/")[2] in MADE_ONCE
        and f"{name.rpartition('/')[0]}/records.sqlite" in names
    )


def kept(run: GoldenRun, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the files to freeze: records, what carries figures, and the words of one report."""
    wanted = {*made_once(files), *WORDS.get(run.name, ())}
    return {
        name: content
        for name, content in files.items()
        if name in wanted or name.endswith(FIGURE_FILES)
    }


def unpack(run: GoldenRun, folder: Path) -> None:
    """Lay out a run with its frozen records, ready to be told again."""
    lay_out(run, folder)
    frozen = read_frozen(run)
    for name in made_once(frozen):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(frozen[name])
