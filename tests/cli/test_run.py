"""Commands that measure: what they print at their end, at a terminal, and when they are ended."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from tests.cli.striking import struck
from tests.journeys.command_line import guardmark as in_process_of_its_own
from tests.journeys.command_line import printed, set_up, words

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Type
    from tests.conftest import Serve

GUARD = """\
import os, signal

def check(text):
    '''Answer; the third time somebody presses Ctrl-C.'''
    check.asked = getattr(check, "asked", 0) + 1
    if check.asked == 3:
        os.kill(os.getpid(), signal.SIGINT)
    return "ignore" in text
"""
DEFENSES = "defenses: {mine: {type: python, target: 'guard.py:check'}}\n"
CONFIG = f"version: 1\ndata: [{{path: data.jsonl}}]\n{DEFENSES}latency: {{warmup: 0}}\n"
MATRIX = f"global: {{version: 1, data: [{{path: data.jsonl}}]}}\nrows:\n  - {{id: one, {DEFENSES.strip()}}}\n"
PRICES = "prices: {far: {input_per_1k: 100, output_per_1k: 1}}\n"


@pytest.fixture
def ringing(tmp_path: Path) -> Path:
    """A folder with a configuration whose defense rings once, and a matrix of it."""
    set_up(tmp_path, CONFIG)
    (tmp_path / "guard.py").write_text(GUARD, encoding="utf-8")
    (tmp_path / "matrix.yaml").write_text(MATRIX, encoding="utf-8")
    return tmp_path


def test_an_interrupted_matrix_shows_what_there_is_and_how_to_go_on(ringing: Path) -> None:
    """The table comes first; the same command then does the rest."""
    done = in_process_of_its_own("matrix", "matrix.yaml", "-o", "all", cwd=ringing)
    assert done.code == 130, done.err
    assert "one" in done.out
    assert "Interrupted. Answers so far are saved." in done.err
    assert "To continue: guardmark matrix matrix.yaml -o all" in done.err


def test_an_interrupted_run_says_how_much_is_stored(ringing: Path) -> None:
    """And the command that goes on; there is no report of half a run."""
    done = in_process_of_its_own("run", "bench.yaml", "-o", "out", cwd=ringing)
    assert (done.code, done.out) == (130, "")
    assert "of 12 records are stored in out." in done.err
    assert done.err.rstrip().endswith("To continue: guardmark run bench.yaml -o out")
    assert not (ringing / "out" / "report.html").exists()


def test_an_interrupted_attack_goes_on_in_the_run_that_it_made(ringing: Path) -> None:
    """Given a configuration alone, the folder has no name yet that the same command would find."""
    done = in_process_of_its_own("adapt", "bench.yaml", "--budget", "4", cwd=ringing)
    assert (done.code, done.out) == (130, ""), done.err
    (folder,) = (path.parent for path in ringing.rglob("records.sqlite"))
    assert f"guardmark adapt bench.yaml --budget 4 -o {folder.relative_to(ringing)}" in done.err


def test_an_interrupted_demo_does_not_go_on_to_explain(tmp_path: Path) -> None:
    """What it would say belongs to a report that is not there."""
    done = struck("sqlite3.connect", "", "demo", "-o", "out", cwd=tmp_path)
    assert (done.code, done.out) == (130, ""), done.err
    assert "To continue: guardmark demo -o out" in done.err


def test_a_report_is_opened_where_that_is_asked_for(tmp_path: Path) -> None:
    """By the program of the desktop, once it is written."""
    set_up(tmp_path)
    opener = tmp_path / "programs" / "xdg-open"
    opener.parent.mkdir()
    opener.write_text(
        f'#!/bin/sh\nprintf %s "$1" > {tmp_path}/half\nmv {tmp_path}/half {tmp_path}/opened\n'
    )
    opener.chmod(0o755)
    path = os.pathsep.join([str(opener.parent), os.environ["PATH"]])
    done = in_process_of_its_own(
        "run", "bench.yaml", "-o", "out", "--open", cwd=tmp_path, env={"PATH": path}
    )
    assert done.code == 0, done.err
    for _ in range(500):
        if (tmp_path / "opened").exists():
            break
        time.sleep(0.01)
    assert (tmp_path / "opened").read_text("utf-8") == "out/report.html"


def read(screen: int) -> bytes:
    """What came until now; a terminal that nobody writes to any more is an error."""
    try:
        return os.read(screen, 65_536)
    except OSError:
        return b""


def test_at_a_terminal_init_asks_what_is_to_be_measured(tmp_path: Path) -> None:
    """Return takes a function of Python; a name that is none of those there are is asked for again."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        words("init", "-o", "bench.yaml"), cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    shown, keys = b"", [b"nothing\n", b"http\n"]
    while (more := read(ours)) != b"":
        shown += more
        if keys and shown.count(b"[python]: ") == 3 - len(keys):
            os.write(ours, keys.pop(0))
    os.close(ours)
    assert child.wait(timeout=60) == 0
    assert b"'nothing' is not one of" in shown
    assert b"Wrote bench.yaml." in shown
    expected = in_process_of_its_own("init", "--template", "http", cwd=tmp_path).out
    assert (tmp_path / "bench.yaml").read_text("utf-8") == expected


def test_records_that_are_none_have_no_head(guardmark: Type, tmp_path: Path) -> None:
    """Two shards that no group fell into: nothing to report, to note or to compare with."""
    config = set_up(tmp_path, count=1)
    for shard in ("1/4", "3/4"):
        done = guardmark("run", config, "-o", shard[0], "--shard", shard)
        assert (done.code, done.out) == (0, "")
        assert "No group of the data falls into this shard: there is nothing to report." in done.err
    merged = guardmark("merge", "1", "3", "-o", "all", "--allow-missing")
    assert merged.code == 0
    assert "Merged 2 runs with 0 records into all" in merged.err
    assert "report    all/report.html" in merged.out.splitlines()
    assert not [line for line in merged.out.splitlines() if line.startswith("head ")]
    verified = guardmark("verify", "all")
    assert verified.code == 0
    assert "Head of the records" not in verified.out
    assert guardmark("verify", "all", "--json").json["head"] is None


async def test_a_probe_tells_how_long_all_calls_will_take(tmp_path: Path, serve: Serve) -> None:
    """From the median of a few; what answers of any length cost at most, nobody can tell."""

    async def answer(request: web.Request) -> web.Response:
        body: dict[str, Any] = json.loads(await request.read())
        return web.json_response({"flagged": "ignore" in body["text"]})

    url = (await serve(answer)).url
    service = f"{{type: http, url: '{url}', body: {{text: {{$input: text}}}}, blocked: $.flagged}}"
    set_up(
        tmp_path,
        f"version: 1\ndata: [{{path: data.jsonl}}]\ndefenses: {{far: {service}}}\n" + PRICES,
    )
    told = await printed("check", "bench.yaml", cwd=tmp_path)
    assert re.search(
        r"calls, time unknown \(--probe N measures\), at least \d+\.\d\d at your", told
    )
    probed = await printed("check", "bench.yaml", "--probe", "2", cwd=tmp_path)
    assert "calls, about " in probed
    assert "Probe of far: " in probed
    assert ", median " in probed
