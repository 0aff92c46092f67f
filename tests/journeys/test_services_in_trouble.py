"""What goes wrong between guardmark and a service, as a person at the terminal meets it."""

from __future__ import annotations

import asyncio
import json
import resource
import sqlite3
from base64 import b64encode
from pathlib import Path
from urllib.parse import quote

import pytest
from aiohttp import web
from tests.conftest import Serve
from tests.journeys.command_line import Done, guardmark, set_up

from guardmark.net.redaction import Redactor
from guardmark.store.integrity import check
from guardmark.store.reader import RecordReader

pytestmark = pytest.mark.slow

GUARD = """\
version: 1
name: trouble
data: [{{path: data.jsonl}}]
latency: {{warmup: 0}}
defenses:
  vendor:
    type: http
    url: "{url}/check"
    body: {{text: {{$input: text}}}}
    blocked: "$.flagged"
    {more}
services: {{"{url}": {{retries: 1}}}}
run: {{{run}}}
"""
PIPELINE = """\
version: 1
name: trouble
data: [{{path: data.jsonl}}]
pipeline:
  guards: [none]
  model: {{type: chat, base_url: "{url}/v1", model: tutor}}
  judges: [{{type: chat, name: referee, base_url: "{url}/v1", model: referee}}]
services: {{"{url}": {{retries: 0}}}}
"""
COUNT = 40


async def run(folder: Path, *more: object, **how: object) -> Done:
    """Carry out the run beside the service."""
    return await asyncio.to_thread(
        guardmark,
        *("run", "bench.yaml", "-o", "out", *more),
        cwd=folder,
        **how,  # type: ignore[arg-type]
    )


def files_below(folder: Path) -> list[Path]:
    """Every file, hidden ones too."""
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("broken", ["tutor", "referee"])
async def test_a_pipeline_whose_model_or_judge_mostly_fails_is_not_to_be_trusted(
    tmp_path: Path, serve: Serve, broken: str
) -> None:
    """Few answers of many are no measurement, whoever failed; the exit code says so."""
    asked = {"tutor": 0, "referee": 0}

    async def answer(request: web.Request) -> web.Response:
        model = (await request.json())["model"]
        asked[model] += 1
        if model == broken and asked[model] > 10:
            return web.Response(status=500, text="worn out")
        said = '{"label": "safe", "answer_mode": "answered"}' if model == "referee" else "Hello."
        return web.json_response({"choices": [{"message": {"content": said}}]})

    server = await serve(answer)
    set_up(tmp_path, PIPELINE.format(url=server.url), count=COUNT)
    done = await run(tmp_path)
    assert done.code == 5
    who = "the target model" if broken == "tutor" else "the judge"
    assert f"Do not rely on this result: {who}" in done.err
    assert "worn out" in done.err
    # Three lines of ours, no line break spelled out.
    assert any(line.startswith("To read them: guardmark show") for line in done.err.splitlines())


async def test_a_full_disk_under_a_recording_is_no_failure_of_the_defense(
    tmp_path: Path, serve: Serve
) -> None:
    """The run ends with exit 7; what is stored are answers, and it goes on without errors."""

    async def answer(request: web.Request) -> web.Response:
        flagged = "ignore" in (await request.json())["text"]
        return web.json_response({"flagged": flagged, "long": "x" * 40_000})

    server = await serve(answer)
    set_up(tmp_path, GUARD.format(url=server.url, more="", run="concurrency: 4"), count=COUNT)
    little = 1_000_000

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (little, little))

    full = await run(tmp_path, "--record", "cassette.jsonl", before=limited)
    assert full.code == 7, full.err
    assert "cassette.jsonl cannot be written" in full.err
    assert len(full.told) <= 5
    assert check(tmp_path / "out/records.sqlite") == []
    with RecordReader(tmp_path / "out/records.sqlite") as reader:
        assert {record.outcome for record in reader.records()} <= {"allow", "block"}
    done = await run(tmp_path)
    assert done.code == 0, done.err
    counts = json.loads((tmp_path / "out/summary.json").read_text("utf-8"))["defenses"][0]["counts"]
    assert counts["error_kinds"] == {}


SECRET = "sk-planted/Secret+x=12345"  # noqa: S105 - planted to be looked for
FORMS = (
    *(json.dumps, lambda s: json.dumps(s).replace("/", "\\/")),
    lambda s: '"' + "".join(f"\\u{ord(c):04x}" for c in s) + '"',
    *(lambda s: f'"{quote(s, safe="")}"', lambda s: f'"{quote(quote(s, safe=""), safe="")}"'),
    *(lambda s: f'"{b64encode(b"a" + s.encode()).decode()}"', lambda s: f'"{s.encode().hex()}"'),
)


async def test_a_key_is_in_nothing_that_a_run_leaves(tmp_path: Path, serve: Serve) -> None:
    """A service echoes it in answers, errors and redirects; files and terminal do not hold it."""
    asked = 0

    async def answer(request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        key = request.headers["Authorization"]
        form = FORMS[asked % len(FORMS)](key)
        status = (200, 200, 500, 400, 302)[asked % 5] if asked > 5 else 200
        headers = {"Content-Type": "application/json", "X-Echo": key}
        if status == 302:
            headers["Location"] = f"http://localhost:1/?k={SECRET}"
        response = web.StreamResponse(status=status, reason=f"for {key}", headers=headers)
        await response.prepare(request)
        said = f'{{"flagged": {str(asked % 2 == 0).lower()}, "reason": {form}, "k": {{{form}: 1}}}}'
        middle = said.index(form) + len(form) // 2
        for piece in (said[:middle], said[middle:]):  # in the middle of the key
            await response.write(piece.encode())
            await asyncio.sleep(0)
        return response

    server = await serve(answer)
    more = 'api_key: {env: PLANTED}\n    keep_raw: true\n    reason: "$.reason"'
    run_settings = "error_limit: 1.0, cache: true"
    set_up(tmp_path, GUARD.format(url=server.url, more=more, run=run_settings), count=COUNT)
    given = ("--record", "cassette.jsonl", "--debug")
    done = await run(tmp_path, *given, env={"PLANTED": SECRET})
    assert done.code == 0, done.err
    for command in (("verify", "out"), ("show", "out", "--errors"), ("export", "out")):
        told = await asyncio.to_thread(guardmark, *command, cwd=tmp_path)
        done = Done(code=0, out=done.out + told.out, err=done.err + told.err)
    left = {path: path.read_bytes() for path in files_below(tmp_path)}
    assert {"records.sqlite", "cassette.jsonl", "run.log", "report.html"} <= {p.name for p in left}
    assert any(b"[redacted]" in content for content in left.values())
    looking = Redactor()
    looking.hide(SECRET, "PLANTED")
    assert [p.name for p, content in left.items() if looking.names_in(content)] == []
    assert not looking.names_in((done.out + done.err).encode())
    for part in (SECRET, "planted/Secret", SECRET.encode().hex(), quote(SECRET, safe="")):
        assert [p.name for p, content in left.items() if part.encode() in content] == []


async def test_a_key_in_a_finished_folder_is_loud(tmp_path: Path, serve: Serve) -> None:
    """It came by another way than an answer: the file and the variable are named, not the key."""

    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"flagged": "ignore" in (await request.json())["text"]})

    server = await serve(answer)
    more = "api_key: {env: PLANTED}"
    set_up(tmp_path, GUARD.format(url=server.url, more=more, run=""), count=COUNT)
    lines = (tmp_path / "data.jsonl").read_text("utf-8").replace("plus one", f"plus {SECRET}", 1)
    (tmp_path / "data.jsonl").write_text(lines, "utf-8")
    done = await run(tmp_path, env={"PLANTED": SECRET})
    assert done.code == 5
    assert "out/records.sqlite holds the value of PLANTED" in done.err
    assert SECRET not in done.err
    # Who only reads the folder has no key to look for, and reads no variable that it names.
    env = {"PLANTED": SECRET}
    assert (await asyncio.to_thread(guardmark, "report", "out", cwd=tmp_path, env=env)).code == 0


@pytest.mark.slow
async def test_a_damaged_cache_is_told_in_words(tmp_path: Path, serve: Serve) -> None:
    """What cannot be read is asked again or refused; it is never taken for an answer."""

    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"flagged": "ignore" in (await request.json())["text"]})

    server = await serve(answer)
    set_up(tmp_path, GUARD.format(url=server.url, more="", run="cache: true"), count=COUNT)
    assert (await run(tmp_path)).code == 0
    (path,) = [
        p for p in files_below(tmp_path) if p.suffix == ".sqlite" and p.name != "records.sqlite"
    ]
    for damage in ("'[]'", "'{'", '\'{"outcome": "banana"}\'', "NULL", "7"):
        base = sqlite3.connect(path)
        base.execute(f"UPDATE answers SET answer = {damage}")  # noqa: S608 - from above
        base.commit()
        base.close()
        done = await run(tmp_path, "--fresh")
        if damage == "NULL":  # no answer: asked again
            assert done.code == 0, done.err
            continue
        assert done.code == 3, (damage, done.err)
        assert path.name in done.err
        assert len(done.told) <= 5
    path.write_bytes(b"SQLite format 3\x00" + b"\xff" * 8000)
    done = await run(tmp_path, "--fresh")
    assert done.code in {3, 7}
    assert path.name in done.err


async def test_requests_that_were_sent_again_stand_in_every_report(
    tmp_path: Path, serve: Serve
) -> None:
    """Some requests are refused at first: how many answers that cost, why, and how long it took."""
    seen = set[str]()

    async def answer(request: web.Request) -> web.Response:
        text = (await request.json())["text"]
        if text not in seen and text.startswith("Please ignore") and len(text) % 2:
            seen.add(text)
            return web.Response(status=429, headers={"retry-after": "0.01"})
        return web.json_response({"flagged": "ignore" in text})

    server = await serve(answer)
    set_up(tmp_path, GUARD.format(url=server.url, more="", run="concurrency: 4"), count=COUNT)
    done = await run(tmp_path)
    assert done.code == 0, done.err
    out = tmp_path / "out"
    (again,) = json.loads((out / "summary.json").read_text("utf-8"))["timing"]["retries"]
    assert (again["part"], again["stage"]) == ("vendor", "defense")
    assert again["answers"] == COUNT
    assert again["resent"] == len(seen) > 0
    assert again["failures"] == {"429": len(seen)}
    assert again["seconds"] > 0
    share = f"{len(seen)} ({100 * len(seen) / COUNT:.1f} %)"
    for told in (done.out, (out / "report.md").read_text("utf-8")):
        assert "Requests that were sent again" in told
        assert share in told
        assert f"429 {len(seen)} times" in told
    page = (out / "report.html").read_text("utf-8")
    assert f"{len(seen)} answers took more than one request (429)." in page
