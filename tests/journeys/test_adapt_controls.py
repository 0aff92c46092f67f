"""From the terminal: a critic and a benign twin, recorded, replayed, killed, verified and shown."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.conftest import Loopback, Serve
from tests.journeys.attacker_models import CONFIG, Steady, kill_at, prepare
from tests.journeys.command_line import typed
from tests.schemas import check_document

pytestmark = pytest.mark.slow

CRITIC = '  critic: {{type: chat, base_url: "{url}/v1", model: guesser}}\n  twin: 2\n'
FULL = CONFIG.replace("  candidates: 2\n", f"{CRITIC}  candidates: 2\n")


class Guessing(Steady):
    """With a critic, whose answers follow from the question alone too."""

    def __init__(self) -> None:
        super().__init__()
        self.guessed = 0

    async def respond(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        body: dict[str, Any] = await request.json()
        messages = body["messages"]
        if body["model"] != "guesser" or messages[0]["role"] != "system":
            return await super().respond(request)
        self.guessed += 1
        chance = sha256(json.loads(messages[1]["content"])["call"].encode()).digest()[0] % 10
        text = "Hard to say." if chance == 0 else json.dumps({"reason": "", "closeness": chance})
        message = {"role": "assistant", "content": text}
        usage = {"prompt_tokens": 7, "completion_tokens": 3}
        return web.json_response({"choices": [{"message": message}], "usage": usage})


@pytest.fixture
async def guessing(serve: Serve, tmp_path: Path) -> tuple[Guessing, Loopback]:
    """Start all three models, and write a configuration that names them."""
    models = Guessing()
    server = await serve(models.respond)
    prepare(tmp_path, FULL.format(url=server.url))
    return models, server


async def test_critic_and_twin_are_repeated_offline_and_counted_twice(
    tmp_path: Path, guessing: tuple[Guessing, Loopback]
) -> None:
    """The same bytes by cassette and by trace; every figure holds, and a changed one is found."""
    models, server = guessing
    command = ("adapt", "guard.yaml", "-v", "--yes", "--budget", "32")
    first = await typed(*command, "-o", "first", "--record", "tape.jsonl", cwd=tmp_path)
    assert first.code == 0, first.err
    assert "critic: chat guesser" in first.err
    assert "benign text" in " ".join(first.out.split())
    assert "the critic (" in " ".join(first.out.split())
    assert models.guessed > 0
    await server.stop()
    assert (await typed("run", "guard.yaml", "-o", "second", cwd=tmp_path)).code == 0
    again = (
        "adapt",
        "--yes",
        "second",
        "--budget",
        "32",
        "--config",
        "guard.yaml",
        "--replay",
        "first/trace.jsonl",
    )
    second = await typed(*again, "--replay", "tape.jsonl", cwd=tmp_path)
    assert second.code == 0, second.err
    one, two = (
        json.loads((tmp_path / name / "summary.json").read_text("utf-8"))
        for name in ("first", "second")
    )
    assert one["adaptive"] == two["adaptive"]
    assert (tmp_path / "first/trace.jsonl").read_bytes() == (
        tmp_path / "second/trace.jsonl"
    ).read_bytes()
    check_document(one)
    attacker = one["adaptive"][0]["attacker"]
    assert attacker["twin"]["samples"] == 2
    assert attacker["critic"]["guessed"]["trials"] > 0
    assert (
        attacker["spending"]["critic"]["tokens_read"] == 7 * attacker["spending"]["critic"]["calls"]
    )
    verified = await typed("verify", "first", cwd=tmp_path)
    assert verified.code == 0, verified.out
    attacker["twin"]["blocked"]["trials"] += 1
    attacker["critic"]["repairs"] += 1
    (tmp_path / "first/summary.json").write_text(json.dumps(one), encoding="utf-8")
    found = await typed("verify", "first", cwd=tmp_path)
    assert found.code == 1
    assert "attacker.twin.blocked.trials" in found.out
    assert "attacker.critic.repairs" in found.out


async def test_a_kill_between_guesses_loses_nothing(
    tmp_path: Path, guessing: tuple[Guessing, Loopback]
) -> None:
    """After SIGKILL at a question about a benign text, the trace is that of one go."""
    models, _ = guessing
    command = ("adapt", "guard.yaml", "--yes", "--budget", "16", "-o")
    whole = await typed(*command, "whole", cwd=tmp_path)
    assert whole.code == 0, whole.err
    asked = len(models.asked)
    await kill_at(models, 2 * asked - 1, *command, "parts", cwd=tmp_path)
    before = len(models.asked)
    done = await typed(
        "adapt", "parts", "--yes", "--budget", "16", "--config", "guard.yaml", cwd=tmp_path
    )
    assert done.code == 0, done.err
    assert len(models.asked) - before < asked // 2
    assert (tmp_path / "parts/trace.jsonl").read_bytes() == (
        tmp_path / "whole/trace.jsonl"
    ).read_bytes()


async def test_check_asks_a_critic_for_a_word_too(
    tmp_path: Path, guessing: tuple[Guessing, Loopback]
) -> None:
    """As `adapt` does at its start."""
    done = await typed("check", "guard.yaml", "--probe", "1", cwd=tmp_path)
    assert done.code == 0, done.err
    assert "Probe of critic: 1 answer" in done.out


async def test_a_critic_that_cannot_be_used_is_told_before_anything_is_spent(
    tmp_path: Path, serve: Serve
) -> None:
    """Code 4 by its name; no run is begun."""
    models = Steady()

    async def respond(request: web.Request) -> web.StreamResponse:
        if (await request.json())["model"] == "guesser":
            return web.Response(status=401, text="no such key")
        return await models.respond(request)

    prepare(tmp_path, FULL.format(url=(await serve(respond)).url))
    done = await typed("adapt", "guard.yaml", "--yes", "--budget", "8", "-o", "out", cwd=tmp_path)
    assert done.code == 4, done.err
    assert "The critic cannot be used" in done.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("model", "said"),
    [("writer", "the attacker model"), ("checker", "the judge of sameness")],
)
async def test_a_critic_that_is_another_role_too_is_warned_of(
    tmp_path: Path, guessing: tuple[Guessing, Loopback], model: str, said: str
) -> None:
    """Before anything is spent, and in the report."""
    _, server = guessing
    config = FULL.format(url=server.url).replace("model: guesser", f"model: {model}")
    prepare(tmp_path, config)
    done = await typed("adapt", "guard.yaml", "--yes", "--budget", "8", "-o", "out", cwd=tmp_path)
    assert done.code == 0, done.err
    assert f"the critic is the same model as {said}" in done.err
    report = (tmp_path / "out/report.html").read_text("utf-8")
    assert f"the critic is the same model as {said}" in report


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("{attacker: {type: scripted}, crtic: {type: scripted}}", "Did you mean 'critic'"),
        ("{attacker: {type: scripted}, critic: {type: scriptd}}", "Did you mean 'scripted'"),
        ("{attacker: {type: scripted}, twin: -1}", "twin"),
        ("{critic: {type: scripted}}", "a critic guesses for an attacker model: name one"),
    ],
)
async def test_a_misspelt_control_is_told_with_its_place(
    tmp_path: Path, section: str, said: str
) -> None:
    """Mistakes are named before anything runs."""
    prepare(tmp_path, CONFIG.split("adaptive:", maxsplit=1)[0].format() + "report: [json]\n")
    (tmp_path / "attacker.yaml").write_text(f"adaptive: {section}\n", encoding="utf-8")
    done = await typed("adapt", "guard.yaml", "--yes", "--config", "attacker.yaml", cwd=tmp_path)
    assert done.code == 2, done.err
    assert said in done.err
