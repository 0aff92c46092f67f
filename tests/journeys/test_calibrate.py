"""From the terminal: labelled pairs to a threshold, and the threshold into a measurement."""

from __future__ import annotations

import json
import random
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from tests.conftest import Loopback, Serve
from tests.journeys.command_line import printed
from tests.journeys.test_adapt_embeddings import ADAPT, Pair, card_of, configure

Json = dict[str, Any]


class Angles:
    """Embeds `base` as (1, 0) and a number as the vector with that cosine to it."""

    def __init__(self) -> None:
        self.calls = 0
        self.failing = 0

    async def respond(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        body: Json = await request.json()
        self.calls += 1
        if self.calls % 100 < self.failing:
            return web.Response(status=400, text="no")
        data = [{"index": i, "embedding": _vector(t)} for i, t in enumerate(body["input"])]
        return web.json_response({"data": data, "usage": {"prompt_tokens": 2}})


def _vector(text: str) -> list[float]:
    try:
        near = float(text.rsplit(" ", 1)[-1])
    except ValueError:
        return [1.0, 0.0]
    return [near, (1 - near * near) ** 0.5]


def pairs(folder: Path, *, count: int = 300) -> Path:
    """Write pairs: different ones below 0.7 but for one in 60, equal ones above 0.6."""
    draw, lines = random.Random(3), []
    for i in range(count):
        near = 0.9 if i % 60 == 0 else draw.uniform(0.1, 0.7)
        lines.append({"a": f"base {i}x", "b": f"b {near:.3f}", "same": False, "group": f"d{i}"})
    for i in range(count // 2):
        near = draw.uniform(0.6, 0.99)
        lines.append({"a": f"base {i}y", "b": f"b {near:.3f}", "same": True})
    path = folder / "pairs.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture
async def angles(serve: Serve, tmp_path: Path) -> tuple[Angles, Loopback]:
    """Start the service, and write the file that names it."""
    server = Angles()
    running = await serve(server.respond)
    said = {"type": "embedding", "base_url": f"{running.url}/v1", "model": "small"}
    text = yaml.safe_dump({"adaptive": {"equivalence": said}})
    (tmp_path / "embeddings.yaml").write_text(text, encoding="utf-8")
    return server, running


CALIBRATE = ("attacks", "calibrate", "pairs.jsonl", "--config", "embeddings.yaml")


@pytest.mark.slow
async def test_pairs_give_a_threshold_and_where_it_comes_from(
    tmp_path: Path, angles: tuple[Angles, Loopback], serve: Serve
) -> None:
    """The table, the fragment, and a report that names the calibration."""
    path = pairs(tmp_path)
    said = await printed(*CALIBRATE, "--record", "tape.jsonl", cwd=tmp_path)
    assert "pairs.jsonl: 450 of 450 pairs have a cosine" in said
    assert "<- chosen" in said
    assert "config    equivalence.yaml" in said
    text = (tmp_path / "equivalence.yaml").read_text(encoding="utf-8")
    fragment = yaml.safe_load(text)["adaptive"]["equivalence"]
    known = fragment["calibration"]
    assert 0.6 < fragment["tau"] == known["tau"] < 0.91
    assert known["sha256"] == sha256(path.read_bytes()).hexdigest()
    assert (known["model"], known["bound"]) == ("small", 0.05)
    assert known["different"] + known["same"] < 450
    _, running = angles
    await running.stop()
    again = await printed(
        *CALIBRATE, "--replay", "tape.jsonl", "-o", "b.yaml", "--json", cwd=tmp_path
    )
    found = json.loads(again)
    assert found["tau"] == fragment["tau"]
    assert (tmp_path / "b.yaml").read_text(encoding="utf-8") == text
    chosen = next(row for row in found["rows"] if row["is_chosen"])
    assert chosen["false_same"]["successes"] == known["false_same"]
    assert chosen["true_same"]["trials"] == known["same"]

    more = {"tau": fragment["tau"], "calibration": known}
    configure(tmp_path, (await serve(Pair().respond)).url, **more)
    out = await printed(*ADAPT, "-v", "-o", "out", cwd=tmp_path)
    assert "tau: pairs.jsonl" in out
    assert "not calibrated" not in out
    told = card_of(tmp_path / "out")["attacker"]["calibration"]
    assert f"{known['false_same']} of {known['different']} different pairs" in told
    lock = (tmp_path / "out" / "battery.lock").read_text(encoding="utf-8")
    assert known["sha256"][:12] in lock


@pytest.mark.slow
async def test_a_few_failures_are_counted_and_many_refused(
    tmp_path: Path, angles: tuple[Angles, Loopback]
) -> None:
    """A pair without a cosine counts for nothing; a tenth of them missing ends it with code 5."""
    pairs(tmp_path)
    server, _ = angles
    server.failing, server.calls = 1, 1
    said = await printed(*CALIBRATE, cwd=tmp_path)
    assert "without one:" in said
    server.failing, server.calls = 30, 40
    told = await printed(*CALIBRATE, "-o", "b.yaml", code=5, cwd=tmp_path)
    assert "have no cosine" in told
    assert not (tmp_path / "b.yaml").exists()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no pair"),
        ("nope\n", "pairs.jsonl:1: is not JSON"),
        ('{"a": "x", "b": "y"}\n', ":1: lacks same."),
        ('{"a": "x", "b": " ", "same": true}\n', ":1: b must be a text"),
        ("\n".join(["[]"] * 9), "and 6 more"),
        ('{"a": "x", "b": "y 0.5", "same": true}\n', "To show a bound of 5 % it takes 73"),
    ],
)
async def test_pairs_that_do_not_do_are_named(
    tmp_path: Path, angles: tuple[Angles, Loopback], text: str, words: str
) -> None:
    """With their lines, in at most five of them."""
    assert angles
    (tmp_path / "pairs.jsonl").write_text(text, encoding="utf-8")
    told = await printed(*CALIBRATE, code=3, cwd=tmp_path)
    assert words in told
    assert len(told.splitlines()) <= 5


@pytest.mark.slow
async def test_a_configuration_without_embeddings_is_named(
    tmp_path: Path, angles: tuple[Angles, Loopback]
) -> None:
    """A model as judge has no tau; a fragment that exists is not overwritten."""
    assert angles
    pairs(tmp_path)
    said = {"adaptive": {"equivalence": {"type": "scripted"}}}
    (tmp_path / "chat.yaml").write_text(yaml.safe_dump(said), encoding="utf-8")
    words = (*CALIBRATE[:-1], "chat.yaml")
    assert "names no embeddings" in await printed(*words, code=2, cwd=tmp_path)
    (tmp_path / "equivalence.yaml").write_text("mine", encoding="utf-8")
    assert "exists" in await printed(*CALIBRATE, code=7, cwd=tmp_path)
