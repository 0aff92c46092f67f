"""A thousand kills: no answer is lost, none is asked for again beyond the bound, no figure moves."""

from __future__ import annotations

import asyncio
import json
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
from guardmark.store.run_dir import read_seals

if TYPE_CHECKING:
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
    before: tuple[str, ...] = ()


SWEEPS: Final = {
    "run": Sweep(config=BASE, command="run guard.yaml -o OUT", kills=4),
    "pipeline": Sweep(config=BASE + TARGET, command="run guard.yaml -o OUT", kills=4),
    "adapt": Sweep(
        config=BASE,
        before=("run guard.yaml -o OUT",),
        command="adapt OUT --config guard.yaml --budget 8",
        kills=4,
    ),
    "adapt with models": Sweep(
        config=BASE + TARGET + ATTACKER,
        before=("run guard.yaml -o OUT",),
        command="adapt OUT --config guard.yaml --budget 8",
        kills=4,
    ),
    "judge": Sweep(
        config=BASE + TARGET,
        before=("run guard.yaml -o OUT",),
        command="judge OUT --config judges.yaml --layer second",
        kills=4,
    ),
}
"""Name to what is killed while a server counts its calls."""

AT_A_MOMENT: Final = {"report": 3, "migration": 3}
"""Name to kills of commands that call nobody, at random moments."""


def told(folder: Path) -> tuple[bytes, bytes]:
    """Every record but warm-ups, which each command makes anew, and every try of a run."""
    lines = (folder / "results.jsonl").read_bytes().splitlines(keepends=True)
    records = b"".join(line for line in lines if json.loads(line)["stage"] != "warmup")
    trace = folder / "trace.jsonl"
    return records, trace.read_bytes() if trace.exists() else b""


def in_folder(command: str, folder: str) -> list[str]:
    """The words of a command on a folder."""
    return command.replace("OUT", folder).split()


@pytest.mark.parametrize("name", SWEEPS)
async def test_killed_at_random_calls(
    name: str, tmp_path: Path, serve: Serve, capsys: pytest.CaptureFixture[str]
) -> None:
    """The records of the undisturbed run, and calls within the bound, counted at the server."""
    sweep, services = SWEEPS[name], Services()
    server = await serve(services.respond)
    prepare(tmp_path, sweep.config.format(url=server.url))
    (tmp_path / "judges.yaml").write_text(JUDGES.format(url=server.url), encoding="utf-8")
    for command in sweep.before:
        await printed(*in_folder(command, "made"), cwd=tmp_path)
    if sweep.before:
        shutil.copytree(tmp_path / "made", tmp_path / "whole")
    start = Counter(services.calls)
    await printed(*in_folder(sweep.command, "whole"), cwd=tmp_path)
    asked = services.calls - start

    moments, lives, kills, again, worst = random.Random(7), 0, 0, 0, 0
    while kills < sweep.kills:
        out = tmp_path / f"life-{lives}"
        if sweep.before:
            shutil.copytree(tmp_path / "made", out)
        start, bound = Counter(services.calls), 0
        given = in_folder(sweep.command, out.name)
        for _ in range(moments.randrange(1, 8)):
            before = len(services.answered)
            moment = moments.randrange(1, max(2, asked.total() * 2 // 3))
            if not await services.kill_during(moment, *given, cwd=tmp_path):
                break
            kills += 1
            times = services.answered[before:]
            recent = sum(time >= times[-1] - UNSTORED_S for time in times) if times else 0
            bound += CONCURRENCY + recent + STARTING
            if (out / "records.sqlite").exists():
                assert check(out / "records.sqlite") == []
        await printed(*given, cwd=tmp_path)
        calls = services.calls - start
        extra = calls.total() - asked.total()
        assert set(calls) == set(asked), "something was asked that the whole run never asks"
        assert 0 <= extra <= bound
        assert record_differences(told(tmp_path / "whole")[0], told(out)[0]) == []
        assert told(tmp_path / "whole")[1] == told(out)[1]
        await printed("verify", out.name, cwd=tmp_path)
        shutil.rmtree(out)
        lives, again, worst = lives + 1, again + extra, max(worst, extra)
    with capsys.disabled():
        sys.stdout.write(
            f"\n{name:<20}{kills:>6} kills {lives:>5} runs {asked.total():>6} calls each"
            f" {again:>7} asked again, at most {worst} in a run; lost 0, figures equal"
        )


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
async def test_killed_at_random_moments(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A report is the old one or the new one; records of an older form are read all the same."""
    run = next(each for each in RUNS if each.name == "adaptive")
    unpack(run, tmp_path / "whole")
    command = ("report", "run", "-f", "html,md,json,csv,junit,sarif")
    if name == "migration":
        command = ("judge", "run", "--human-labels", "labels.csv", "--layer", "again")
    began = asyncio.get_running_loop().time()
    await printed(*command, cwd=tmp_path / "whole")
    took = asyncio.get_running_loop().time() - began
    moments, kills, lives = random.Random(9), 0, 0
    while kills < AT_A_MOMENT[name]:
        work = tmp_path / f"life-{lives}"
        unpack(run, work)
        for _ in range(moments.randrange(1, 6)):
            kills += await killed_after(moments.uniform(0.2, 1) * took, *command, cwd=work)
            assert check(work / "run" / "records.sqlite") == []
            assert read_seals(work / "run").broken == ()
        await printed(*command, cwd=work)
        await printed("verify", "run", cwd=work)
        for path in (tmp_path / "whole" / "run").iterdir():
            if path.suffix in {".csv", ".xml", ".sarif"} or path.name == "summary.json":
                assert path.read_bytes() == (work / "run" / path.name).read_bytes(), path.name
        shutil.rmtree(work)
        lives += 1
    with capsys.disabled():
        sys.stdout.write(f"\n{name:<20}{kills:>6} kills {lives:>5} runs; lost 0, figures equal")
