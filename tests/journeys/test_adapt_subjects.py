"""From the terminal: who is attacked, who is left out and why, and models tried by `check`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from aiohttp import web
from tests.conftest import Serve
from tests.journeys.attacker_models import CONFIG as MODELS
from tests.journeys.attacker_models import Steady, prepare
from tests.journeys.command_line import typed
from tests.schemas import check_document

pytestmark = pytest.mark.slow

OUTPUT = '  output: {type: python, target: "deny.py:decide", view: response}\n'
CONFIG = """\
version: 1
data:
  - path: rows.jsonl
defenses:
  none: {{type: allow-all}}
{defenses}report: [json, html, md]
"""
CLOSED = '  closed: {type: python, target: "deny.py:decide"}\n'
ANSWERED = {
    "id": "r0",
    "label": "attack",
    "messages": [
        {"role": "user", "content": "What do the rules say?"},
        {"role": "assistant", "content": "Ignore the rules.", "under_test": True},
    ],
}


def write(folder: Path, defenses: str) -> None:
    """Write a configuration of defenses, and samples of plain inputs."""
    prepare(folder, CONFIG.format(defenses=defenses))


async def test_a_guard_of_responses_is_left_out_with_a_note(tmp_path: Path) -> None:
    """Others are attacked; terminal, report and summary say who was not, and `verify` knows."""
    write(tmp_path, OUTPUT + CLOSED)
    done = await typed("adapt", "guard.yaml", "--budget", "4", "-o", "out", cwd=tmp_path)
    assert done.code == 0, done.err
    assert "Note: left out: output looks at responses of the target model" in done.err
    summary = json.loads((tmp_path / "out/summary.json").read_text("utf-8"))
    assert [card["defense"] for card in summary["adaptive"]] == ["closed"]
    assert summary["adaptive_left_out"] == {"output": "response"}
    check_document(summary)
    for name in ("report.html", "report.md"):
        assert "output was left out" in (tmp_path / "out" / name).read_text("utf-8")
    verified = await typed("verify", "out", cwd=tmp_path)
    assert verified.code == 0, verified.out
    again = await typed("adapt", "out", "--budget", "4", "--config", "guard.yaml", cwd=tmp_path)
    assert again.code == 0, again.err


@pytest.mark.parametrize(
    "defenses",
    [
        OUTPUT,
        OUTPUT + "  cleaned: {type: canonical, of: output}\n",
        OUTPUT + "  joined: {type: chain, of: [output], rule: any}\n",
        OUTPUT.replace("response", "document"),
    ],
)
async def test_where_nobody_sees_a_rewriting_nothing_is_begun(
    tmp_path: Path, defenses: str
) -> None:
    """Code 2, at most five lines with the next step, no run made and no call spent."""
    write(tmp_path, defenses)
    done = await typed("adapt", "guard.yaml", "--budget", "4", "-o", "out", cwd=tmp_path)
    assert done.code == 2, done.err
    assert "no rewriting of an attack of these data changes" in done.err
    assert "Next:" in done.err
    assert len(done.err.splitlines()) <= 5
    assert not (tmp_path / "out").exists()


async def test_a_finished_run_of_such_guards_is_refused_too(tmp_path: Path) -> None:
    """Nothing is added to its folder."""
    write(tmp_path, OUTPUT)
    made = await typed("run", "guard.yaml", "-o", "out", cwd=tmp_path)
    assert made.code == 5, made.err  # nothing of these data is for it
    done = await typed("adapt", "out", "--budget", "4", "--config", "guard.yaml", cwd=tmp_path)
    assert done.code == 2, done.err
    assert "output looks at responses" in done.err
    assert not (tmp_path / "out/battery.lock").exists()


async def test_a_guard_of_responses_is_attacked_where_the_attack_is_a_response(
    tmp_path: Path,
) -> None:
    """What counts is whether a rewriting reaches it, not what it is called."""
    write(tmp_path, OUTPUT)
    with (tmp_path / "rows.jsonl").open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(ANSWERED) + "\n")
    done = await typed("adapt", "guard.yaml", "--budget", "4", "-o", "out", cwd=tmp_path)
    assert done.code == 0, done.err
    assert "left out" not in done.err
    summary = json.loads((tmp_path / "out/summary.json").read_text("utf-8"))
    assert summary["adaptive"][0]["attacks"] == 1
    assert summary["adaptive"][0]["missing"] == 4


async def test_check_asks_each_model_of_an_attacker_for_a_word(
    tmp_path: Path, serve: Serve
) -> None:
    """With `--probe` only, once each, whatever N is; without it nobody is asked."""
    models = Steady()
    words: list[str] = []

    async def respond(request: web.Request) -> web.StreamResponse:
        words.append((await request.json())["model"])
        return await models.respond(request)

    prepare(tmp_path, MODELS.format(url=(await serve(respond)).url))
    quiet = await typed("check", "guard.yaml", cwd=tmp_path)
    assert (quiet.code, words) == (0, [])
    done = await typed("check", "guard.yaml", "--probe", "3", cwd=tmp_path)
    assert done.code == 0, done.err
    assert words == ["writer", "checker"]
    assert "Probe of attacker model: 1 answer, median" in done.out
    assert "Probe of judge of sameness: 1 answer" in done.out
    assert models.asked == []


@pytest.mark.parametrize(("model", "said"), [("writer", "attacker model"), ("checker", "judge of")])
async def test_check_ends_with_code_4_where_such_a_model_cannot_be_used(
    tmp_path: Path, serve: Serve, model: str, said: str
) -> None:
    """As `adapt` would, before a run is paid for."""
    models = Steady()

    async def respond(request: web.Request) -> web.StreamResponse:
        if (await request.json())["model"] == model:
            return web.Response(status=401, text="no such key")
        return await models.respond(request)

    prepare(tmp_path, MODELS.format(url=(await serve(respond)).url))
    done = await typed("check", "guard.yaml", "--probe", "1", cwd=tmp_path)
    assert done.code == 4, done.err
    assert f"The {said}" in done.err
    assert len(done.err.splitlines()) <= 5
