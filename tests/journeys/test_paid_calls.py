"""Killed with calls in flight, counted where they arrive: nothing paid for is lost but these."""

from __future__ import annotations

import asyncio
import json
import random
import re
import shutil
import signal
from collections import Counter
from pathlib import Path

import pytest
from aiohttp import web
from tests.conftest import Serve
from tests.journeys.attacker_models import Steady, prepare
from tests.journeys.command_line import printed, typed, words

from guardmark.store.integrity import check
from guardmark.store.reader import RecordReader
from guardmark.store.tries import read_tries

pytestmark = pytest.mark.slow

CONCURRENCY = 8
UNSTORED_S = 0.45  # how long an answer may wait for its commit: 0.4 s and a tick
KILLS = 5
BASE = """\
version: 1
data: [{{path: rows.jsonl}}]
defenses:
  far:
    type: http
    url: "{url}/check"
    body: {{text: {{$input: text}}}}
    blocked: "$.flagged"
run: {{concurrency: 8}}
report: [json, html, md]
"""
TARGET = """\
pipeline:
  guards: [none, far]
  model: {{type: chat, base_url: "{url}/target/v1", model: doorman}}
  judges: [{{type: rules, unsafe: ['open']}}]
"""
ATTACKER = """\
adaptive:
  attacker: {{type: chat, base_url: "{url}/v1", model: writer}}
  equivalence: {{type: chat, base_url: "{url}/v1", model: checker}}
  candidates: 2
  streams: 2
  depth: 3
"""


class Services(Steady):
    """A defense, a target model, a judge and two models of an attacker; calls are counted."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.answered: list[float] = []
        self.process: asyncio.subprocess.Process | None = None
        self.kill_at = 0
        self._waits = random.Random(11)

    async def respond(self, request: web.Request) -> web.StreamResponse:
        """Count a call, kill who made it if its time has come, and answer a little later."""
        body = await request.text()
        self.calls[f"{request.path} {body}"] += 1
        self.kill_at -= 1
        if self.kill_at == 0 and self.process is not None:
            self.process.send_signal(signal.SIGKILL)
        await asyncio.sleep(self._waits.uniform(0, 0.02))
        self.answered.append(asyncio.get_running_loop().time())
        if request.path == "/check":
            text = json.loads(body)["text"]
            return web.json_response({"flagged": "soup" not in text and "sesame" not in text})
        if request.path.startswith("/target"):
            text = json.loads(body)["messages"][-1]["content"]
            return web.json_response(
                {
                    "choices": [{"message": {"role": "assistant", "content": text[:80]}}],
                    "usage": {"prompt_tokens": 3, "completion_tokens": 2},
                }
            )
        if request.path.startswith("/judge"):
            verdict = {"label": "safe", "answer_mode": "answered", "reasons": []}
            message = {"role": "assistant", "content": json.dumps(verdict)}
            return web.json_response({"choices": [{"message": message}]})
        return await super().respond(request)

    async def kill_during(self, number: int, *given: object, cwd: Path) -> bool:
        """Type a command, and kill it at its numbered call; return whether it got that far."""
        self.process = await asyncio.create_subprocess_exec(
            *words(*given),
            cwd=cwd,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        self.kill_at = number
        code = await self.process.wait()
        await asyncio.sleep(0.05)  # what was on its way arrives
        self.kill_at = 0
        return code == -signal.SIGKILL


def _stored(folder: Path) -> tuple[int, int]:
    """Count the answers that were paid for, and the calls possibly billed without one."""
    with RecordReader(folder / "records.sqlite") as reader:
        asked = sum(
            not each.is_free and each.subject.account != "verdict" for each in read_tries(reader)
        )
        query = (
            "SELECT count(*) FROM records r JOIN layers l ON l.id = r.layer WHERE l.name = 'run'"
        )
        records = reader.connection.value(query)
        return asked + records, reader.status().possibly_billed


def _figures(folder: Path) -> object:
    """Read the adaptive figures but for times."""
    text = (folder / "summary.json").read_text("utf-8")
    return json.loads(re.sub(r'"seconds": [^,}]*', '"seconds": 0', text))["adaptive"]


class Attack:
    """One attack that is killed again and again, and what each kill cost."""

    def __init__(self, services: Services, folder: Path, probes: set[str]) -> None:
        self.services = services
        self.folder = folder
        self.probes = probes
        self.before = Counter(services.calls)
        self.stored, self.billed = _stored(folder)
        self.lost = 0

    def calls(self, since: Counter[str]) -> Counter[str]:
        """Count the calls since some moment, without what is asked at each start."""
        calls = self.services.calls - since
        return Counter({key: count for key, count in calls.items() if key not in self.probes})

    async def kill(self, number: int) -> bool:
        """Kill it at a call, and compare the calls at the server with what the records say."""
        start, answered = Counter(self.services.calls), len(self.services.answered)
        given = ("adapt", self.folder.name, "--budget", "8", "--yes", "--config", "guard.yaml")
        is_struck = await self.services.kill_during(number, *given, cwd=self.folder.parent)
        assert check(self.folder / "records.sqlite") == []
        times = self.services.answered[answered:]
        recent = sum(time >= times[-1] - UNSTORED_S for time in times)
        stored, billed = _stored(self.folder)
        unanswered = self.calls(start).total() - (stored - self.stored)
        assert 0 <= unanswered <= CONCURRENCY + recent
        assert unanswered <= billed - self.billed <= unanswered + CONCURRENCY
        self.stored, self.billed, self.lost = stored, billed, self.lost + unanswered
        return is_struck


@pytest.mark.parametrize("more", ["", ATTACKER, TARGET + ATTACKER], ids=["plain", "model", "all"])
async def test_a_killed_attack_asks_again_only_what_has_no_answer(
    tmp_path: Path, serve: Serve, more: str
) -> None:
    """Calls are counted at the server; figures are those of the attack nobody disturbed."""
    services = Services()
    server = await serve(services.respond)
    prepare(tmp_path, (BASE + more).format(url=server.url))
    whole, out = tmp_path / "whole", tmp_path / "out"
    await printed("run", "guard.yaml", "-o", "whole", cwd=tmp_path)
    shutil.copytree(whole, out)
    undisturbed = Attack(services, whole, set())
    await printed(
        "adapt", "whole", "--budget", "8", "--yes", "--config", "guard.yaml", cwd=tmp_path
    )
    asked, before = undisturbed.calls(undisturbed.before), Counter(services.calls)
    await printed(
        "adapt", "whole", "--budget", "8", "--yes", "--config", "guard.yaml", cwd=tmp_path
    )
    attack = Attack(services, out, set(services.calls - before))
    asked = Counter({key: count for key, count in asked.items() if key not in attack.probes})

    moments = random.Random(5)
    most = asked.total() // (KILLS + 1)  # so that it never comes to its end
    assert all([await attack.kill(moments.randrange(1, most)) for _ in range(KILLS)])
    done = await typed(
        "adapt", "out", "--budget", "8", "--yes", "--config", "guard.yaml", cwd=tmp_path
    )
    assert done.code == 0, done.err
    assert "possibly billed" in done.err
    assert (out / "trace.jsonl").read_bytes() == (whole / "trace.jsonl").read_bytes()
    assert _figures(out) == _figures(whole)
    again = attack.calls(attack.before)
    assert again.total() == asked.total() + attack.lost
    assert set(again) == set(asked)
    assert all(again[key] <= 1 + KILLS for key, count in asked.items() if count == 1)
    report = (out / "report.md").read_text("utf-8")
    assert f"{attack.billed} calls were under way when a command on this run was killed" in report
    await printed("verify", "out", cwd=tmp_path)


async def test_a_killed_run_counts_the_calls_that_may_have_been_billed(
    tmp_path: Path, serve: Serve
) -> None:
    """The calls of a pipeline are noted before they leave, too."""
    services = Services()
    server = await serve(services.respond)
    prepare(tmp_path, (BASE + TARGET).format(url=server.url))
    given = ("run", "guard.yaml", "-o", "out")
    assert await services.kill_during(9, *given, cwd=tmp_path)
    _, billed = _stored(tmp_path / "out")
    assert 1 <= billed <= 9 + 2 * CONCURRENCY
    done = await typed(*given, cwd=tmp_path)
    assert done.code == 0, done.err
    assert "possibly billed" in done.err
    report = (tmp_path / "out/report.md").read_text("utf-8")
    assert "under way when a command on this run was killed" in report
    assert (await typed("verify", "out", cwd=tmp_path)).code == 0
