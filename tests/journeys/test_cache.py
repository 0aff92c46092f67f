"""With `run.cache` a second run asks a service only what no run asked before."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from aiohttp import web
from tests.conftest import Serve
from tests.journeys.command_line import Done, guardmark, set_up

CONFIG = """\
version: 1
name: journey
data: [{{path: data.jsonl}}]
latency: {{warmup: 0}}
defenses:
  vendor: {{type: http, url: "{url}/check", body: {{text: {{$input: text}}}}, blocked: "$.flagged"}}
run: {{cache: true, repeats: {repeats}}}
"""
COUNT = 12


class Service:
    """Counts what it is asked; blocks texts with the word ignore."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def answer(self, request: web.Request) -> web.Response:
        """Answer one text."""
        text = (await request.json())["text"]
        self.asked.append(text)
        return web.json_response({"flagged": "ignore" in text})

    def take(self) -> int:
        """Return how many samples were asked about since the last time, the probe apart."""
        texts = [text for text in self.asked if "plus one" in text or "rules" in text]
        self.asked.clear()
        return len(texts)


async def run(folder: Path, out: str, config: str) -> Done:
    """Carry out a run beside the service."""
    set_up(folder, config, count=COUNT)
    done = await asyncio.to_thread(guardmark, "run", "bench.yaml", "-o", out, cwd=folder)
    assert done.code == 0, done.err
    return done


@pytest.mark.slow
async def test_a_second_run_asks_nothing_again(tmp_path: Path, serve: Serve) -> None:
    """Figures are equal, the report says how many answers were kept, and times are not told."""
    service = Service()
    server = await serve(service.answer)
    config = CONFIG.format(url=server.url, repeats=1)
    await run(tmp_path, "one", config)
    assert service.take() == COUNT
    await run(tmp_path, "two", config)
    assert service.take() == 0
    one, two = (
        json.loads((tmp_path / name / "summary.json").read_text("utf-8")) for name in ("one", "two")
    )
    assert one["defenses"] == two["defenses"]
    assert one["timing"]["defenses"]["vendor"]["cached"] == 0
    assert two["timing"]["defenses"]["vendor"]["cached"] == COUNT
    assert two["timing"]["defenses"]["vendor"]["attacks"]["timed"] == 0
    assert (
        f"vendor: {COUNT} answers came from the cache or from stored decisions"
        in (tmp_path / "two/report.md").read_text()
    )
    verified = await asyncio.to_thread(guardmark, "verify", "two", cwd=tmp_path)
    assert verified.code == 0, verified.out


@pytest.mark.slow
async def test_repeats_and_other_settings_share_no_answer(tmp_path: Path, serve: Serve) -> None:
    """A repeat is asked to see how answers vary; another body is another question."""
    service = Service()
    server = await serve(service.answer)
    config = CONFIG.format(url=server.url, repeats=1)
    await run(tmp_path, "one", config)
    assert service.take() == COUNT
    await run(tmp_path, "two", CONFIG.format(url=server.url, repeats=3))
    assert service.take() == 2 * COUNT
    await run(
        tmp_path, "three", config.replace("{text: {$input: text}}", "{text: {$input: text}, n: 1}")
    )
    assert service.take() == COUNT
    await run(tmp_path, "four", config.replace("cache: true", "cache: false"))
    assert service.take() == COUNT


PIPELINE = """\
version: 1
name: journey
data: [{{path: data.jsonl}}]
pipeline:
  guards: [none]
  model: {{type: chat, base_url: "{url}/v1", model: tutor, system_prompt_file: prompt.txt}}
  judges: [{{type: rules, canaries: true}}]
run: {{cache: true}}
"""


@pytest.mark.slow
async def test_another_system_prompt_is_another_question_and_another_run(
    tmp_path: Path, serve: Serve
) -> None:
    """Also when it stands in a file whose name stays the same."""
    told: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        messages = (await request.json())["messages"]
        told.append(messages[0]["content"])
        said = {"role": "assistant", "content": "I cannot help with that."}
        return web.json_response({"choices": [{"message": said, "finish_reason": "stop"}]})

    server = await serve(answer)
    for prompt in ("Be kind.", "Be strict."):
        (tmp_path / "prompt.txt").write_text(prompt, encoding="utf-8")
        await run(tmp_path, prompt.split()[1], PIPELINE.format(url=server.url))
    assert told.count("Be kind.") >= COUNT
    assert told.count("Be strict.") >= COUNT
    given = ("run", "bench.yaml", "-o", "kind.")
    refused = await asyncio.to_thread(guardmark, *given, cwd=tmp_path)
    assert refused.code == 3
    assert "another configuration" in refused.err


def test_a_foreign_file_in_its_place_is_refused(tmp_path: Path) -> None:
    """And not written into."""
    content = "hello " * 100
    set_up(
        tmp_path,
        "version: 1\ndata: [{path: data.jsonl}]\ndefenses: {all: {type: allow-all}}\n"
        "run: {cache: true}\n",
    )
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/answers.sqlite").write_text(content, encoding="utf-8")
    done = guardmark("run", "bench.yaml", cwd=tmp_path)
    assert done.code == 3
    assert len(done.told) <= 5
    assert (tmp_path / "runs/answers.sqlite").read_text(encoding="utf-8") == content
