"""A service that flags texts, which go on: told apart from those it lets through and blocks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from aiohttp import web
from tests.conftest import Serve
from tests.journeys.arms_around_a_model import arms_of, counts, lay_out
from tests.journeys.command_line import typed

pytestmark = pytest.mark.slow

CONFIG = """\
version: 1
name: flags
data: [{{path: data.jsonl}}]
defenses:
  gate:
    type: http
    url: "{url}/gate"
    body: {{text: {{$input: text}}}}
    action: "$.did[*]"
    actions: {{pass: allow, REVIEW: flag, stop: block}}
  after:
    type: http
    url: "{url}/gate"
    body: {{text: {{$input: messages}}, answer: {{$input: answer}}}}
    action: "$.did[*]"
    actions: {{pass: allow, REVIEW: flag, stop: block}}
pipeline:
  model: {{type: scripted, otherwise: "The word is PLUMCAKE."}}
  judges: [{{type: rules, unsafe: ["PLUMCAKE"]}}]
  arms:
    bare: {{}}
    before: {{input: gate}}
    behind: {{output: after}}
latency: {{warmup: 0}}
report: [json, md]
"""
ROWS = [
    *[("attack", f"Odd order {n}") for n in range(7)],
    *[("attack", f"Bad order {n}") for n in range(5)],
    *[("attack", f"Plain order {n}") for n in range(4)],
    *[("benign", f"Odd question {n}") for n in range(2)],
    *[("benign", f"Plain question {n}") for n in range(9)],
]


async def answer(request: web.Request) -> web.Response:
    """Flag what is odd, stop what is bad, and say all of it."""
    text = json.dumps((await request.json())["text"])
    did = ["pass"]
    if "Odd" in text:
        did.append("REVIEW")
    if "Bad" in text:
        did = ["REVIEW", "stop"]
    return web.json_response({"did": did})


async def test_what_is_flagged_goes_on_and_is_counted(serve: Serve, tmp_path: Path) -> None:
    """Seven of sixteen attacks and two of eleven benign samples; a block that is flagged is one."""
    server = await serve(answer)
    lay_out(tmp_path, CONFIG.format(url=server.url), ROWS)
    done = await typed("run", "bench.yaml", "-o", "out", cwd=tmp_path)
    assert done.code == 0, done.err
    before = arms_of(tmp_path)["before"]
    assert counts(before["system"]["attack_success_rate"]) == (11, 16)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text(encoding="utf-8"))
    inputs, answers = summary["flagged_texts"]
    assert (inputs["defense"], inputs["words"]) == ("gate", ["REVIEW"])
    assert (answers["defense"], answers["words"]) == ("after@output", ["REVIEW"])
    for flagged in (inputs, answers):
        assert (counts(flagged["attacks"]), counts(flagged["benign"])) == ((7, 16), (2, 11))
    report = " ".join((tmp_path / "out" / "report.md").read_text(encoding="utf-8").split())
    assert "Flagged, and let through" in report
    assert "7/16" in report.partition("Flagged, and let through")[2]
