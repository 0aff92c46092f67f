"""A service that reads another field than it is sent gets no verdict."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from tests.journeys.command_line import typed, write_rows

if TYPE_CHECKING:
    from pathlib import Path

ROWS = [
    {"id": f"s-{n}", "text": f"{label} number {n}", "label": label}
    for n in range(12)
    for label in ("attack", "benign")
]
for number, row in enumerate(ROWS):
    row["id"] = f"s-{number}"


async def reads_input(request: web.Request) -> web.Response:
    """Answer by the field `input`, and 200 to anything else."""
    text = str((await request.json()).get("input", ""))
    return web.json_response({"flagged": text.startswith(("attack", "Ignore"))})


async def test_a_service_that_reads_another_field_gets_no_verdict(
    serve: Any, tmp_path: Path
) -> None:
    """Exit 5, what was sent, and --body as the next step; the probe says it before the run."""
    server = await serve(reads_input)
    write_rows(tmp_path / "data.jsonl", ROWS)
    config = {
        "version": 1,
        "name": "field",
        "data": [{"path": "data.jsonl"}],
        "defenses": {
            "a": {
                "type": "http",
                "url": server.url,
                "body": {"text": {"$input": "text"}},
                "blocked": "$.flagged",
            }
        },
    }
    (tmp_path / "c.yaml").write_text(json.dumps(config), encoding="utf-8")
    done = await typed("run", "c.yaml", "-o", "out", cwd=tmp_path)
    assert done.code == 5, done.err
    assert "two different known texts with the same bytes" in done.err
    assert "No verdict on a: its 24 answers are all alike" in done.err
    assert "--body" in done.err
    told = " ".join(done.out.split())
    assert "No verdict: " in told
    assert "Do not rely" not in told
    config["defenses"]["a"]["body"] = {"input": {"$input": "text"}}  # type: ignore[index]
    (tmp_path / "c.yaml").write_text(json.dumps(config), encoding="utf-8")
    done = await typed("run", "c.yaml", "-o", "right", cwd=tmp_path)
    assert done.code == 0, done.err
    assert "same bytes" not in done.err


async def test_the_one_line_form_says_it_too(serve: Any, tmp_path: Path) -> None:
    """As a first user types it."""
    server = await serve(reads_input)
    typed_words = ("run", "--url", server.url, "--blocked", "$.flagged", "--limit", "60")
    done = await typed(*typed_words, cwd=tmp_path)
    assert done.code == 5, done.err
    assert 'It was sent {"text": {"$input": "text"}}' in done.err


@pytest.mark.parametrize("verb", ["run", "check"])
async def test_a_model_without_a_judge_is_refused(tmp_path: Path, verb: str) -> None:
    """Before a call is paid for."""
    write_rows(tmp_path / "data.jsonl", ROWS)
    config = {
        "version": 1,
        "name": "unjudged",
        "data": [{"path": "data.jsonl"}],
        "defenses": {"a": {"type": "allow-all"}},
        "pipeline": {"guards": ["none"], "model": {"type": "scripted", "otherwise": "Hi."}},
    }
    (tmp_path / "c.yaml").write_text(json.dumps(config), encoding="utf-8")
    done = await typed(verb, "c.yaml", cwd=tmp_path)
    assert done.code == 2
    assert "no judge" in done.err
    assert len(done.err.strip().splitlines()) <= 5
