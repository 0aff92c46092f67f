"""What becomes of the folder of a run on a disk: one line of `STORAGE` each."""

from __future__ import annotations

import json
import resource
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest
from tests.journeys.command_line import guardmark, set_up

from guardmark.store.integrity import check

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.slow

RUN: Final = ("run", "bench.yaml", "-o", "out")
GOES_ON, REFUSED, FAILED = 0, 3, 7
"""The same command finishes; the folder is not what it should be; it cannot be written."""


def _written(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda run: (run / name).write_bytes(content) and None


def _cut(name: str, keep: int) -> Callable[[Path], None]:
    return lambda run: (run / name).write_bytes((run / name).read_bytes()[:keep]) and None


def _hole(run: Path) -> None:
    whole = (run / "records.sqlite").read_bytes()
    (run / "records.sqlite").write_bytes(whole[:20_000] + bytes(len(whole) - 20_000))


def _folder(name: str) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        (run / name).unlink()
        (run / name).mkdir()

    return change


def _link(target: str) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        (run / "records.sqlite").unlink()
        (run / "records.sqlite").symlink_to(target)

    return change


def _base(script: str) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        for each in run.iterdir():
            each.unlink()
        with closing(sqlite3.connect(run / "records.sqlite")) as connection:
            connection.executescript(script)

    return change


def _gone(run: Path) -> None:
    shutil.rmtree(run)


def _a_file(run: Path) -> None:
    shutil.rmtree(run)
    run.write_text("x", encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Fault:
    """What was done to a finished run, and what the command of that run then says.

    Attributes:
        change: What is done to its folder.
        exit: The exit code of the same command.
        message: Words of the error.
        then: The exit code of the same command once the disk is as it was.
        fresh: The exit code with `--fresh`.
        room: Bytes that a file may have; 0 for as many as the disk has.
    """

    change: Callable[[Path], object]
    exit: int
    message: str = ""
    then: int = GOES_ON
    fresh: int = GOES_ON
    room: int = 0


STORAGE: Final[dict[str, Fault]] = {
    "nothing": Fault(lambda _: None, GOES_ON),
    "no folder yet": Fault(_gone, GOES_ON),
    "a folder that was emptied": Fault(_base(""), GOES_ON),
    "a database without tables": Fault(_base("PRAGMA journal_mode = WAL"), GOES_ON),
    "what a killed writer left": Fault(_written(".report.html.7.part", b"<html"), GOES_ON),
    "reports cut off": Fault(_cut("report.html", 100), GOES_ON),
    "results cut off": Fault(_cut("results.jsonl", 100), GOES_ON),
    "records cut off": Fault(_cut("records.sqlite", 9_000), REFUSED, "is truncated", REFUSED),
    "records with a hole": Fault(_hole, REFUSED, "damaged", REFUSED),
    "records that are text": Fault(
        _written("records.sqlite", b"x" * 900), REFUSED, "records.sqlite", REFUSED
    ),
    "records of another program": Fault(
        _base("CREATE TABLE theirs (a)"), REFUSED, "another program", REFUSED
    ),
    "records emptied beside reports": Fault(
        _written("records.sqlite", b""), REFUSED, "is empty, but reports", REFUSED
    ),
    "records taken away beside reports": Fault(
        lambda run: (run / "records.sqlite").unlink(), REFUSED, "is missing, but reports", REFUSED
    ),
    "records that are a folder": Fault(
        _folder("records.sqlite"), REFUSED, "a folder in place of a file", REFUSED, REFUSED
    ),
    "a report that is a folder": Fault(
        _folder("report.html"), REFUSED, "a folder in place of a file", REFUSED, REFUSED
    ),
    "records that link to others": Fault(
        _link("../bench.yaml"), REFUSED, "a link in place of a file", REFUSED, REFUSED
    ),
    "records that link to nothing": Fault(
        _link("nowhere"), REFUSED, "a link in place of a file", REFUSED, REFUSED
    ),
    "records that link to themselves": Fault(
        _link("records.sqlite"), REFUSED, "a link in place of a file", REFUSED, REFUSED
    ),
    "a file in place of the folder": Fault(
        _a_file, FAILED, "a file stands where a folder is needed", FAILED, FAILED
    ),
    "a disk full at the first table": Fault(_gone, FAILED, "free disk space", room=4_096),
    "a disk full at the samples": Fault(_gone, FAILED, "free disk space", room=60_000),
    "a disk full at the records": Fault(_gone, FAILED, "free disk space", room=150_000),
}
"""Name to fault: to add a case, add a line."""


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run, its data and its configuration."""
    folder = tmp_path_factory.mktemp("measured")
    set_up(folder)
    done = guardmark(*RUN, cwd=folder)
    assert done.code == GOES_ON, done.err
    return folder


def figures(folder: Path) -> object:
    """What a run came to."""
    assert check(folder / "records.sqlite") == []
    summary = json.loads((folder / "summary.json").read_text("utf-8"))
    return summary["run"]["stored"], [
        (each["counts"], each["rates"]) for each in summary["defenses"]
    ]


@pytest.mark.parametrize("case", STORAGE)
def test_nothing_is_lost_and_the_same_command_says_what_to_do(
    case: str, measured: Path, tmp_path: Path
) -> None:
    """It goes on to the figures of the undisturbed run, or refuses in few lines and changes nothing."""
    fault, work = STORAGE[case], tmp_path / "work"
    shutil.copytree(measured, work)
    fault.change(work / "out")

    def little_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (fault.room, fault.room))

    done = guardmark(*RUN, cwd=work, before=little_room if fault.room else None)
    assert done.code == fault.exit, done.err
    assert fault.message in done.err
    if fault.exit:
        assert "Next: " in done.err
        assert 1 <= len(done.told) <= 5
    for given, code in ((RUN, fault.then), ((*RUN, "--fresh"), fault.fresh)):
        done = guardmark(*given, cwd=work)
        assert done.code == code, done.err
        if code == GOES_ON:
            assert figures(work / "out") == figures(measured / "out")
