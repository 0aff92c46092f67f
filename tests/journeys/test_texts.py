"""A text reaches a defense byte for byte, whatever it holds: proved by hash."""

from __future__ import annotations

import asyncio
import json
from hashlib import sha256
from pathlib import Path

import pytest
from aiohttp import web
from tests.conftest import Serve
from tests.journeys.command_line import guardmark, write_rows

pytestmark = pytest.mark.slow

TEXTS = {
    "template": "{{7*7}} ${HOME} $HOME `id` $(id) <%= 7*7 %> #{7*7} {% raw %}",
    "format": "%s %d %(name)s %% {0} {name!r} {",
    "escapes": r"\n \u0041 \x41 \\ \" \' \/",
    "quotes": "\"'`\u201c\u201d</script><!-- ]]> &amp; &#65;",
    "control": "".join(map(chr, range(1, 32))) + "\x7f\x80\x9f",
    "null": "a\x00b",
    "line ends": "a\rb\nc\r\nd\u2028e\u2029f\x85g\x0bh\x0ci",
    "direction": "\u202egnp.exe\u202c \u2066x\u2069 \u200e\u200f\u061c",
    "invisible": "\ufeffa\u200bb\u200cc\u200dd\u2060e\U000e0041\U000e007f",
    "composed": "\u00e9 e\u0301 \ufb01 \uff21 \u212b \u1e9e",
    "planes": "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U00010348 \U0010ffff \ufffe",
    "spaces": "  \t leading and trailing \t  ",
    "yaml": "!!python/object/apply:os.system [id] # no comment\n- *anchor",
    "formula": '=HYPERLINK("http://localhost","x")',
    "one megabyte": "0123456789abcde\u20ac" * 62_000,
}

GUARD = """\
from hashlib import sha256
from pathlib import Path

SEEN = Path(__file__).with_name("seen.txt")

def check(text):
    with SEEN.open("a") as seen:
        seen.write(sha256(text.encode()).hexdigest() + " ")
    return False
"""

WANTED = {sha256(text.encode()).hexdigest() for text in TEXTS.values()}


def lay_out(folder: Path, defense: str) -> None:
    """Write the texts as data, and a configuration with one defense."""
    write_rows(
        folder / "data.jsonl",
        [{"id": name, "text": text, "label": "attack"} for name, text in TEXTS.items()],
    )
    (folder / "bench.yaml").write_text(
        "version: 1\ndata: [{path: data.jsonl}]\nlatency: {warmup: 0}\ndefenses:\n" + defense,
        encoding="utf-8",
    )


def stored(folder: Path) -> set[str]:
    """Content hashes as the results state them."""
    lines = (folder / "results.jsonl").read_text("utf-8").splitlines()
    return {json.loads(line)["sha256"] for line in lines}


def test_to_a_python_function(tmp_path: Path) -> None:
    """No template, no format, no shell, no normalising on the way."""
    lay_out(tmp_path, '  mine: {type: python, target: "guard.py:check"}\n')
    (tmp_path / "guard.py").write_text(GUARD, encoding="utf-8")
    done = guardmark("run", "bench.yaml", "-o", "out", cwd=tmp_path, env={"HOME": "/nowhere"})
    assert done.code == 0, done.err
    seen = (tmp_path / "seen.txt").read_text("utf-8").split()
    assert set(seen) >= WANTED == stored(tmp_path / "out")  # the probe asked about its own texts
    assert sum(each in WANTED for each in seen) == len(TEXTS)


@pytest.mark.parametrize(
    ("body", "sent_as"),
    [
        ("{input: {$input: text}, note: '{{text}}'}", "JSON"),
        ("{messages: [{role: user, content: {$input: text}}], n: 1}", "messages"),
    ],
)
async def test_to_a_service(tmp_path: Path, serve: Serve, body: str, sent_as: str) -> None:
    """The body is built around the text; what the service parses is the text itself."""
    seen: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        said = json.loads(await request.read())
        text = said["input"] if sent_as == "JSON" else said["messages"][0]["content"]
        seen.append(sha256(text.encode()).hexdigest())
        return web.json_response({"flagged": False})

    server = await serve(answer)
    lay_out(
        tmp_path,
        f'  vendor: {{type: http, url: "{server.url}/check", body: {body}, blocked: "$.flagged"}}\n',
    )
    done = await asyncio.to_thread(guardmark, "run", "bench.yaml", "-o", "out", cwd=tmp_path)
    assert done.code == 0, done.err
    assert set(seen) >= WANTED == stored(tmp_path / "out")
    assert json.loads((tmp_path / "out/summary.json").read_text("utf-8"))["defenses"][0]["counts"][
        "attacks"
    ]["allow"] == len(TEXTS)


@pytest.mark.slow
def test_reports_of_such_texts_hold_no_live_control(tmp_path: Path) -> None:
    """Terminal, Markdown and HTML show them without letting them act."""
    lay_out(tmp_path, "  none: {type: allow-all}\n")
    done = guardmark("run", "bench.yaml", "-o", "out", cwd=tmp_path)
    assert done.code == 0, done.err
    shown = guardmark("show", "out", "--bypasses", "--full", cwd=tmp_path).out
    page = (tmp_path / "out/report.html").read_text("utf-8")
    for text in (done.out, done.err, shown, page):
        assert not set(text) & {"\x00", "\x1b", "\u202e", "\u2066"}
    assert "</script><!--" not in page
