"""A thousand kills: no answer is lost, none is asked for again beyond the bound, no figure moves.

`KILL_SHARE=0.1 pytest -m soak tests/soak/test_kill_sweep.py` carries out a tenth of them.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from tests.golden.comparison import record_differences
from tests.golden.folders import unpack
from tests.golden.runs import RUNS
from tests.journeys.attacker_models import prepare
from tests.journeys.command_line import printed, words
from tests.journeys.test_paid_calls import (
    ATTACKER,
    BASE,
    CONCURRENCY,
    TARGET,
    UNSTORED_S,
    Services,
)

from guardmark.store.integrity import check
from guardmark.store.seals import read_seals

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Serve

pytestmark = pytest.mark.soak

STARTING: Final = 16
"""Calls that a command makes before it takes up its work: probes and warm-ups, paid each time."""
JUDGES: Final = """\
judges: [{{type: chat, name: second, base_url: "{url}/judge/v1", model: second}}]
run: {{concurrency: 8}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """A command that is killed at its calls: what it needs, and how often it is killed."""

    config: str
    command: str
    kills: int
    before: str = ""


SWEEPS: Final = {
    "run": Sweep(config=BASE, command="run guard.yaml -o OUT", kills=200),
    "pipeline": Sweep(config=BASE + TARGET, command="run guard.yaml -o OUT", kills=200),
    "adapt": Sweep(
        config=BASE,
        before="run guard.yaml -o OUT",
        command="adapt OUT --config guard.yaml --budget 8",
        kills=120,
    ),
    "adapt, with a target": Sweep(
        config=BASE + TARGET,
        before="run guard.yaml -o OUT",
        command="adapt OUT --config guard.yaml --budget 8",
        kills=80,
    ),
    "adapt, with an attacker": Sweep(
        config=BASE + TARGET + ATTACKER,
        before="run guard.yaml -o OUT",
        command="adapt OUT --config guard.yaml --budget 8",
        kills=100,
    ),
    "judge": Sweep(
        config=BASE + TARGET,
        before="run guard.yaml -o OUT",
        command="judge OUT --config judges.yaml --layer second",
        kills=120,
    ),
}
"""Name to what is killed while a server counts its calls."""

REPORT: Final = ("report", "run", "-f", "html,md,json,csv,junit,sarif")
AT_A_MOMENT: Final[dict[str, tuple[tuple[str, ...], int]]] = {
    "report": (REPORT, 70),
    "migration": (("judge", "run", "--human-labels", "labels.csv", "--layer", "again"), 60),
    "matrix": (("matrix", "matrix.yaml", "-o", "several"), 50),
}
"""Name to a command that calls nobody, and how often it is killed at random moments."""
MATRIX: Final = """\
global: {version: 1, data: [{builtin: core}], report: [json]}
rows:
  - {id: one, defenses: {words: {type: pattern, patterns: [ignore]}}}
  - {id: two, defenses: {none: {type: allow-all}}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What became of one command: a line of the table."""

    name: str
    kills: int
    runs: int
    calls: int = 0
    again: int = 0
    worst: int = 0

    def __str__(self) -> str:
        """Return the line."""
        calls = f"{self.calls:>7}{self.again:>13}{self.worst:>14}" if self.calls else " " * 34
        return f"{self.name:<26}{self.kills:>6}{self.runs:>6}{calls}     0  equal"


HEADS: Final = (
    f"{'command':<26}{'kills':>6}{'runs':>6}{'calls':>7}{'asked again':>13}{'most in a run':>14}"
    "  lost  figures"
)


@pytest.fixture(scope="module")
def table(request: pytest.FixtureRequest) -> Iterator[list[Row]]:
    """The rows of the table that is printed at the end."""
    rows: list[Row] = []
    yield rows
    capture = request.config.pluginmanager.getplugin("capturemanager")
    total = f"{'together':<26}{sum(row.kills for row in rows):>6}"
    with capture.global_and_fixture_disabled():
        sys.stdout.write("\n".join(("", HEADS, *map(str, rows), total, "")))


def share_of(kills: int) -> int:
    """The part of the kills that this sweep carries out."""
    return max(1, round(kills * float(os.environ.get("KILL_SHARE", "1"))))


def told(folder: Path) -> tuple[bytes, bytes]:
    """Every record but warm-ups, which each command makes anew, and every try of a run."""
    lines = (folder / "results.jsonl").read_bytes().splitlines(keepends=True)
    records = b"".join(line for line in lines if json.loads(line)["stage"] != "warmup")
    trace = folder / "trace.jsonl"
    return records, trace.read_bytes() if trace.exists() else b""


def require_equal(whole: Path, out: Path) -> None:
    """Check that a run which was killed holds what the undisturbed one holds."""
    (records, tries), (killed_records, killed_tries) = told(whole), told(out)
    assert record_differences(records, killed_records) == []
    assert tries == killed_tries


def in_folder(command: str, folder: str) -> list[str]:
    """The words of a command on a folder."""
    return command.replace("OUT", folder).split()


@pytest.mark.parametrize("name", SWEEPS)
async def test_killed_at_random_calls(
    name: str, tmp_path: Path, serve: Serve, table: list[Row]
) -> None:
    """The records of the undisturbed run, and calls within the bound, counted at the server."""
    sweep, services = SWEEPS[name], Services()
    server = await serve(services.respond)
    prepare(tmp_path, sweep.config.format(url=server.url))
    (tmp_path / "judges.yaml").write_text(JUDGES.format(url=server.url), encoding="utf-8")
    if sweep.before:
        await printed(*in_folder(sweep.before, "made"), cwd=tmp_path)
        shutil.copytree(tmp_path / "made", tmp_path / "whole")
    start = Counter(services.calls)
    await printed(*in_folder(sweep.command, "whole"), cwd=tmp_path)
    asked = services.calls - start

    moments, lives, kills, again, worst = random.Random(7), 0, 0, 0, 0
    while kills < share_of(sweep.kills):
        out = tmp_path / f"life-{lives}"
        if sweep.before:
            shutil.copytree(tmp_path / "made", out)
        start, bound, struck, starts = Counter(services.calls), 0, 0, 1
        given = in_folder(sweep.command, out.name)
        for _ in range(moments.randrange(1, 16)):
            before, starts = len(services.answered), starts + 1
            moment = moments.randrange(1, max(8, asked.total() // 5))
            if not await services.kill_during(moment, *given, cwd=tmp_path):
                break  # it came to its end before that call
            struck += 1
            times = services.answered[before:]
            recent = sum(time >= times[-1] - UNSTORED_S for time in times) if times else 0
            bound += CONCURRENCY + recent + STARTING
            if (out / "records.sqlite").exists():
                assert check(out / "records.sqlite") == []
        await printed(*given, cwd=tmp_path)
        kills, calls = kills + struck, services.calls - start
        extra = calls.total() - asked.total()
        assert set(calls) == set(asked), "something was asked that the whole run never asks"
        assert 0 <= extra <= bound
        # At most once a start: probes are asked at each, also where a start is not killed.
        assert [each for each in calls.items() if each[1] > asked[each[0]] * starts] == []
        require_equal(tmp_path / "whole", out)
        await printed("verify", out.name, cwd=tmp_path)
        shutil.rmtree(out)
        lives, again, worst = lives + 1, again + extra, max(worst, extra)
    calls_each = {"calls": asked.total(), "again": again, "worst": worst}
    table.append(Row(name=name, kills=kills, runs=lives, **calls_each))


async def killed_after(seconds: float, *given: object, cwd: Path) -> bool:
    """Type a command and kill it after a while; return whether it was still going."""
    process = await asyncio.create_subprocess_exec(
        *words(*given),
        cwd=cwd,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    with suppress(asyncio.TimeoutError):
        await asyncio.wait_for(process.wait(), seconds)
    if process.returncode is None:
        process.send_signal(signal.SIGKILL)
    return await process.wait() == -signal.SIGKILL


@pytest.mark.parametrize("name", AT_A_MOMENT)
async def test_killed_at_random_moments(name: str, tmp_path: Path, table: list[Row]) -> None:
    """A report is the old one or the new one; records of an older form are read all the same."""
    run = next(each for each in RUNS if each.name == "adaptive")
    command, wanted = AT_A_MOMENT[name]

    def lay_out(folder: Path) -> None:
        unpack(run, folder)
        (folder / "matrix.yaml").write_text(MATRIX, encoding="utf-8")

    lay_out(tmp_path / "whole")
    began = asyncio.get_running_loop().time()
    await printed(*command, cwd=tmp_path / "whole")
    took = asyncio.get_running_loop().time() - began
    moments, kills, lives = random.Random(9), 0, 0
    while kills < share_of(wanted):
        work = tmp_path / f"life-{lives}"
        lay_out(work)
        for _ in range(moments.randrange(1, 12)):
            kills += await killed_after(moments.uniform(0.2, 1) * took, *command, cwd=work)
            assert check(work / "run" / "records.sqlite") == []
            assert read_seals(work / "run").broken == ()
        await printed(*command, cwd=work)
        made = ("several/one", "several/two") if name == "matrix" else ("run",)
        for folder in made:
            await printed("verify", folder, cwd=work)
            for path in (tmp_path / "whole" / folder).iterdir():
                if name != "matrix" and is_settled(path):
                    assert path.read_bytes() == (work / folder / path.name).read_bytes(), path
        shutil.rmtree(work)
        lives += 1
    table.append(Row(name=name, kills=kills, runs=lives))


async def test_a_killed_merge(tmp_path: Path, table: list[Row]) -> None:
    """Either there is a whole merged run or none, and the runs that it joins are untouched."""
    command, parts = ("merge", "one", "two", "-o", "joined"), tmp_path / "parts"
    await asyncio.to_thread(lay_out_rows, parts)
    await printed("matrix", "matrix.yaml", "-o", ".", cwd=parts)
    began = asyncio.get_running_loop().time()
    await printed(*command, cwd=parts)
    took = asyncio.get_running_loop().time() - began
    whole = (parts / "joined" / "summary.json").read_bytes()
    moments, kills, lives = random.Random(11), 0, 0
    while kills < share_of(50):
        work = tmp_path / f"life-{lives}"
        for each in ("one", "two"):
            shutil.copytree(parts / each, work / each)
        while not (work / "joined").exists() and moments.random() < 0.9:
            kills += await killed_after(moments.uniform(0.2, 1) * took, *command, cwd=work)
        if not (work / "joined").exists():
            await printed(*command, cwd=work)
        for each in ("one", "two", "joined"):
            await printed("verify", each, cwd=work)
        assert (work / "joined" / "summary.json").read_bytes() == whole
        assert sorted(path.name for path in work.iterdir()) == ["joined", "one", "two"]
        shutil.rmtree(work)
        lives += 1
    table.append(Row(name="merge", kills=kills, runs=lives))


def lay_out_rows(folder: Path) -> None:
    """Lay out what `matrix` measures two runs of."""
    folder.mkdir()
    (folder / "matrix.yaml").write_text(MATRIX, encoding="utf-8")


def is_settled(path: Path) -> bool:
    """Tell whether a file holds neither the time nor the place of its writing."""
    return path.suffix in {".csv", ".xml", ".sarif"} or path.name == "summary.json"
