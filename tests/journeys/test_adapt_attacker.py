"""From the terminal: an attacker model recorded, replayed, killed, missing and misspelt."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from aiohttp import web
from tests.conftest import Loopback, Serve
from tests.journeys.attacker_models import CONFIG, Steady, kill_at, prepare
from tests.journeys.command_line import typed
from tests.schemas import check_document

from guardmark.app.adapt.attacker import attacker_config
from guardmark.app.parts.loading import builtin_config

pytestmark = pytest.mark.slow

PLAIN = CONFIG.split("adaptive:", maxsplit=1)[0].format() + "report: [json]\n"


@pytest.fixture
async def steady(serve: Serve, tmp_path: Path) -> tuple[Steady, Loopback]:
    """Start both models, and write a configuration that names them."""
    models = Steady()
    server = await serve(models.respond)
    prepare(tmp_path, CONFIG.format(url=server.url))
    return models, server


async def test_an_attack_by_a_model_is_repeated_offline(
    tmp_path: Path, steady: tuple[Steady, Loopback]
) -> None:
    """What was recorded gives the same bytes with the models gone, by cassette or by trace."""
    models, server = steady
    command = ("adapt", "guard.yaml", "-v", "--budget", "16")
    first = await typed(*command, "-o", "first", "--record", "tape.jsonl", cwd=tmp_path)
    assert first.code == 0, first.err
    assert "chat writer; sameness judged by chat checker" in " ".join(first.out.split())
    assert "R5" in first.out
    assert models.asked
    await server.stop()

    second = await typed(*command, "-o", "second", "--replay", "tape.jsonl", cwd=tmp_path)
    assert second.code == 0, second.err
    run = ("run", "guard.yaml", "-o", "third")
    assert (await typed(*run, cwd=tmp_path)).code == 0
    alone = (
        "adapt",
        "third",
        "--budget",
        "16",
        "--config",
        "guard.yaml",
        "--replay",
        "first/trace.jsonl",
    )
    refused = await typed(*alone, cwd=tmp_path)
    assert refused.code == 2
    assert "--replay FILE" in refused.err
    third = await typed(*alone, "--replay", "tape.jsonl", cwd=tmp_path)
    assert third.code == 0, third.err
    traces = {(tmp_path / n / "trace.jsonl").read_bytes() for n in ("first", "second", "third")}
    assert len(traces) == 1
    summaries = [
        json.loads((tmp_path / name / "summary.json").read_text("utf-8"))["adaptive"]
        for name in ("first", "second", "third")
    ]
    assert summaries[0] == summaries[1] == summaries[2]
    assert summaries[0][0]["attacker"]["spending"]["attacker"]["tokens_read"] > 0
    verified = await typed("verify", "first", cwd=tmp_path)
    assert verified.code == 0, verified.out


async def test_a_changed_figure_of_the_attacker_model_is_found(
    tmp_path: Path, steady: tuple[Steady, Loopback]
) -> None:
    """`verify` counts refusals, votes and tokens a second time."""
    done = await typed("adapt", "guard.yaml", "--budget", "16", "-o", "out", cwd=tmp_path)
    assert done.code == 0, done.err
    path = tmp_path / "out" / "summary.json"
    summary = json.loads(path.read_text("utf-8"))
    summary["adaptive"][0]["attacker"]["refused"]["successes"] += 1
    path.write_text(json.dumps(summary), encoding="utf-8")
    found = await typed("verify", "out", cwd=tmp_path)
    assert found.code == 1
    assert "attacker.refused.successes" in found.out


async def test_a_killed_attack_goes_on_without_asking_again(
    tmp_path: Path, steady: tuple[Steady, Loopback]
) -> None:
    """After SIGKILL in the middle of the round, the trace is that of one go."""
    models, _ = steady
    command = ("adapt", "guard.yaml", "--budget", "32", "-o")
    whole = await typed(*command, "whole", cwd=tmp_path)
    assert whole.code == 0, whole.err
    needed = len(models.asked)
    models.asked.clear()
    await kill_at(models, needed - 3, *command, "parts", cwd=tmp_path)
    before = len(models.asked)
    done = await typed("adapt", "parts", "--budget", "32", "--config", "guard.yaml", cwd=tmp_path)
    assert done.code == 0, done.err
    assert len(models.asked) - before < needed // 2
    assert (tmp_path / "parts/trace.jsonl").read_bytes() == (
        tmp_path / "whole/trace.jsonl"
    ).read_bytes()


@pytest.mark.parametrize("status", [401, None])
async def test_an_attacker_model_that_cannot_be_used_is_told_before_anything_is_spent(
    tmp_path: Path, serve: Serve, status: int | None
) -> None:
    """A refused key and a dead server end with code 4, and no run is begun."""

    async def refuse(_: web.Request) -> web.StreamResponse:
        return web.Response(status=status or 500, text="no such key")

    server = await serve(refuse)
    prepare(tmp_path, CONFIG.format(url=server.url))
    if status is None:
        await server.stop()
    done = await typed("adapt", "guard.yaml", "--budget", "16", "-o", "out", cwd=tmp_path)
    assert done.code == 4
    assert "The attacker model cannot be used" in done.err
    assert len(done.err.splitlines()) <= 5
    assert not (tmp_path / "out").exists()


async def test_a_file_of_its_own_names_an_attacker_in_this_process(tmp_path: Path) -> None:
    """A scripted model needs no server and no cassette; without a judge it proves nothing."""
    prepare(tmp_path, PLAIN)
    said = json.dumps({"candidates": [{"strategy": "role", "text": "sesame for everybody"}]})
    (tmp_path / "attacker.yaml").write_text(
        f"adaptive:\n  attacker: {{type: scripted, otherwise: '{said}'}}\n", encoding="utf-8"
    )
    assert (await typed("run", "guard.yaml", "-o", "one", cwd=tmp_path)).code == 0
    assert (await typed("run", "guard.yaml", "-o", "two", cwd=tmp_path)).code == 0
    more = ("-v", "--budget", "16", "--config", "attacker.yaml")
    done = await typed("adapt", "guard.yaml", "-o", "one", *more, cwd=tmp_path)
    assert done.code == 0, done.err
    assert "counts for no rate" in done.err
    assert "nobody judged" in " ".join(done.out.split())
    card = json.loads((tmp_path / "one/summary.json").read_text("utf-8"))["adaptive"][0]
    assert card["attacker"]["unproved"]["successes"] == 4
    assert card["rounds"][-1]["full"]["successes"] == 0
    again = await typed(
        "adapt", "guard.yaml", "-o", "two", *more, "--replay", "one/trace.jsonl", cwd=tmp_path
    )
    assert again.code == 0, again.err
    assert (tmp_path / "one/trace.jsonl").read_bytes() == (
        tmp_path / "two/trace.jsonl"
    ).read_bytes()
    refused = await typed("adapt", "one", "--budget", "16", "--config", "guard.yaml", cwd=tmp_path)
    assert refused.code == 3
    assert "an attacker model on one side only" in refused.err


async def test_a_model_that_is_left_nothing_is_told_of_all_the_same(
    tmp_path: Path, steady: tuple[Steady, Loopback]
) -> None:
    """Where rules bring everything through, nothing is asked, and every figure holds."""
    models, server = steady
    prepare(tmp_path, CONFIG.format(url=server.url))
    (tmp_path / "deny.py").write_text(
        "def decide(text):\n    return 'Ignore the rules' in text\n", encoding="utf-8"
    )
    done = await typed("adapt", "guard.yaml", "-v", "--budget", "8", "-o", "out", cwd=tmp_path)
    assert done.code == 0, done.err
    assert models.asked == []
    assert "left no attack to the attacker model" in " ".join(done.out.split())
    summary = json.loads((tmp_path / "out" / "summary.json").read_text("utf-8"))
    assert summary["adaptive"][0]["rounds"][-1]["round"] == "R5"
    assert summary["adaptive"][0]["attacker"]["refused"]["value"] is None
    check_document(summary)
    verified = await typed("verify", "out", cwd=tmp_path)
    assert verified.code == 0, verified.out


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("{attacker: {type: chatt}}", "Did you mean 'chat'"),
        ("{attacker: {type: chat, model: x}}", "needs a base_url"),
        ("{atacker: {type: scripted}}", "Did you mean 'attacker'"),
        ("{equivalence: {type: scripted}}", "names no attacker model"),
        ("{attacker: {type: scripted}, streams: 0}", "streams"),
    ],
)
async def test_a_misspelt_attacker_is_told_with_its_place(
    tmp_path: Path, section: str, said: str
) -> None:
    """Mistakes are named before anything runs."""
    prepare(tmp_path, PLAIN)
    (tmp_path / "attacker.yaml").write_text(f"adaptive: {section}\n", encoding="utf-8")
    done = await typed("adapt", "guard.yaml", "--config", "attacker.yaml", cwd=tmp_path)
    assert done.code == 2, done.err
    assert said in done.err
    assert "attacker.yaml" in done.err


async def test_one_model_in_both_roles_is_warned_of(
    tmp_path: Path, steady: tuple[Steady, Loopback]
) -> None:
    """A model that judges its own candidates may wave them through; the report says so."""
    _, server = steady
    prepare(tmp_path, CONFIG.format(url=server.url).replace("model: checker", "model: writer"))
    done = await typed("adapt", "guard.yaml", "-v", "--budget", "8", "-o", "out", cwd=tmp_path)
    assert done.code == 0, done.err
    assert "the attacker model judges its own candidates" in done.err
    assert "the attacker model judged its own candidates" in (
        tmp_path / "out/report.html"
    ).read_text("utf-8")


PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "attack-with-a-model.md"
BLOCKS = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_what_the_page_shows_is_a_configuration(tmp_path: Path, number: int) -> None:
    """Every configuration of the page names an attacker model that can be read."""
    path = tmp_path / "attacker.yaml"
    path.write_text(BLOCKS[number], encoding="utf-8")
    found = attacker_config(builtin_config(), path)
    assert found.section.equivalence is not None
    assert ("adaptive", "attacker") in found.loaded.parts
