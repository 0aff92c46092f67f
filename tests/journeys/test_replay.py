"""`guardmark run --replay FILE`: the file counts also where nobody calls a service."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path

import pytest
from tests.journeys.command_line import CONFIG, guardmark, kill_once_stored, set_up


@pytest.mark.parametrize("content", [None, "no exchange\n"])
def test_a_cassette_that_cannot_be_used_is_told_before_a_run(
    tmp_path: Path, content: str | None
) -> None:
    """A mistyped name is a mistake, whether the defenses call anything or not."""
    set_up(tmp_path, CONFIG, count=6)
    if content is not None:
        (tmp_path / "tape.jsonl").write_text(content, encoding="utf-8")
    done = guardmark("run", "bench.yaml", "-o", "out", "--replay", "tape.jsonl", cwd=tmp_path)
    assert done.code == 2, done.err
    assert "tape.jsonl" in done.err
    assert not (tmp_path / "out").exists()


def test_who_records_where_nothing_is_called_is_told_so(tmp_path: Path) -> None:
    """Otherwise the missing file is found on the day it is needed."""
    set_up(tmp_path, CONFIG, count=6)
    done = guardmark("run", "bench.yaml", "-o", "out", "--record", "tape.jsonl", cwd=tmp_path)
    assert done.code == 0, done.err
    assert "Note: nothing is recorded, since no part of this run calls a service" in done.err
    assert not (tmp_path / "tape.jsonl").exists()


class _Moody(BaseHTTPRequestHandler):
    """Answers no two requests alike."""

    protocol_version = "HTTP/1.1"
    numbers = count(1)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(0.02)
        said = json.dumps({"score": next(self.numbers) / 100_000}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *said: object) -> None:
        pass


@pytest.fixture
def moody() -> Iterator[str]:
    """Address of a service that says something else each time."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Moody) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/check"
        server.shutdown()
        thread.join()


@pytest.mark.slow
def test_a_recording_that_was_killed_and_continued_replays_what_is_stored(
    tmp_path: Path, moody: str
) -> None:
    """What was answered but not yet stored is asked again; the replay gives what counts."""
    guard = f'  far: {{type: http, url: "{moody}", body: {{q: {{$input: text}}}}, score: $.score'
    set_up(tmp_path, CONFIG + guard + ", threshold: 0.005}\nrun: {concurrency: 8}\n", count=300)
    typed = ("run", "bench.yaml", "-o", "out", "--record", "tape.jsonl")
    kill_once_stored(*typed, cwd=tmp_path, tape=tmp_path / "tape.jsonl")
    done = guardmark(*typed, cwd=tmp_path)
    assert done.code == 0, done.err
    done = guardmark("run", "bench.yaml", "-o", "again", "--replay", "tape.jsonl", cwd=tmp_path)
    assert done.code == 0, done.err
    tape = map(json.loads, (tmp_path / "tape.jsonl").read_bytes().splitlines())
    asked = [tuple(line["question"]) for line in tape if "question" in line]
    assert len(asked) > len(set(asked)) == 300, "nothing was in flight at the kill"
    first, second = (decided(tmp_path / name / "results.jsonl") for name in ("out", "again"))
    assert first == second


def decided(path: Path) -> list[tuple[object, ...]]:
    """What a run says of every sample, times apart."""
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [
        (line["defense"], line["id"], line["outcome"], line["score"])
        for line in lines
        if line["stage"] == "defense"
    ]
