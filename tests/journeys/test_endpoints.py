"""Several addresses of one service, from a configuration to the files of a run."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.journeys.command_line import printed

pytestmark = pytest.mark.slow

Serve = Callable[[Callable[[web.Request], Awaitable[web.StreamResponse]]], Awaitable[Any]]
CONFIG = """\
version: 1
name: shared-out
data: [{{builtin: core}}]
defenses:
  guard:
    type: http
    url: {first}/check
    body: {{text: {{$input: text}}}}
    blocked: $.blocked
services:
  {first}: {{base_urls: ["{second}"], concurrency: 4}}
report: [json]
"""


async def test_a_server_lost_in_the_middle_of_a_run_costs_no_answer(
    serve: Serve, tmp_path: Path
) -> None:
    """All samples are answered, and the run says how each address did."""
    answered = 0

    async def dies(request: web.Request) -> web.Response:
        nonlocal answered
        answered += 1
        if answered > 20 and request.transport is not None:
            request.transport.abort()
        return web.json_response({"blocked": "ignore" in (await request.text()).lower()})

    async def lives(request: web.Request) -> web.Response:
        return web.json_response({"blocked": "ignore" in (await request.text()).lower()})

    first, second = await serve(dies), await serve(lives)
    text = CONFIG.format(first=first.url, second=second.url)
    (tmp_path / "bench.yaml").write_text(text, encoding="utf-8")
    said = await printed("run", "bench.yaml", "-o", "run", "--limit", "120", "--json", cwd=tmp_path)
    (guard,) = json.loads(said)["defenses"]
    counts = guard["counts"]
    assert sum(counts[side]["answered"] for side in ("attacks", "benign")) == 120
    lines = (tmp_path / "run" / "endpoints.jsonl").read_text(encoding="utf-8").splitlines()
    told = [json.loads(line) for line in lines]
    by_address = {each["base_url"]: each for each in told}
    assert set(by_address) == {first.url, second.url}
    assert by_address[first.url]["answers"] == 20
    assert by_address[first.url]["times_left_out"] >= 1
    median, _ = by_address[second.url]["quantiles_ms"]
    if median["value"] is None:  # calls that hang together: what they are worth carries no median
        assert (median["low"], median["high"]) == (None, None)
    else:
        assert median["low"] <= median["value"] <= median["high"]
    assert median["trials"] == by_address[second.url]["answers"]
    await printed("report", "run", "-f", "md,json", cwd=tmp_path)
    report = unescape((tmp_path / "run" / "report.md").read_text(encoding="utf-8"))
    for each in by_address.values():
        told = f"{each['answers']:,} answers, {each['failures']:,} failures; median "
        assert f"Endpoint {each['base_url']}: {told}" in report
    assert report.count(", 95 % quantile ") == 2
    await printed("verify", "run", cwd=tmp_path)
