"""What somebody does who follows the README and the tutorial, every command in its order.

`make installed` does the same with the wheel in environments of its own, where no checkout is on
the path: once with the lowest versions that are promised, once with the newest there are.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import venv
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from aiohttp import web

if TYPE_CHECKING:
    from tests.conftest import Serve

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TUTORIAL = (ROOT / "docs" / "tutorial" / "first-measurement.md").read_text(encoding="utf-8")
PYTHON = os.environ.get("GUARDMARK_INSTALLED", sys.executable)
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
TICKETS = "question,topic\nWhen do you open?,hours\nIs the lid of this pan sold alone?,goods\n"


def typed(line: str, folder: Path) -> str:
    """Carry out a line of a page in a folder; return what it printed."""
    words = shlex.split(line, comments=True)
    done = subprocess.run(
        [PYTHON, "-m", *words],
        cwd=folder,
        env={name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
        | ({} if "GUARDMARK_INSTALLED" in os.environ else {"PYTHONPATH": str(ROOT / "src")}),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, (line, done.stderr)
    return done.stdout


def commands(page: str) -> list[str]:
    """Return the command lines of a page, in their order."""
    blocks = "".join(text for language, text in BLOCK.findall(page) if language in {"", "sh"})
    return [line for line in blocks.splitlines() if line.startswith("guardmark ")]


def fenced(page: str, name: str) -> str:
    """Return the block that follows the name of a file."""
    match = BLOCK.search(page, page.index(f"`{name}`"))
    assert match is not None
    return match[2]


def test_the_tutorial_can_be_followed(tmp_path: Path) -> None:
    """Its two files, and every command; what it says of the plans is what is printed."""
    for name in ("my_guard.py", "bench.yaml"):
        (tmp_path / name).write_text(fenced(TUTORIAL, name), encoding="utf-8")
    lines = commands(TUTORIAL)
    assert {line.split()[1] for line in lines} == {
        "demo",
        "check",
        "run",
        "show",
        "compare",
        "plan",
    }
    printed = {line: typed(line, tmp_path) for line in lines}
    shown = next(
        text for _, text in BLOCK.findall(TUTORIAL) if text.startswith("None of two passes.")
    )
    demo = " ".join(printed["guardmark demo"].split())
    for line in shown.splitlines():
        assert " ".join(line.split()) in demo
    plans = [text for line, text in printed.items() if line.startswith("guardmark plan")]
    for told, text in zip((r"^(\d+) independent", r"(\d+) pairs find"), plans, strict=True):
        (count,) = re.findall(told, TUTORIAL, re.MULTILINE)
        assert re.search(rf"\b{count}\b", text), (count, text)
    assert "mine" in printed["guardmark compare runs/evening"]


def test_the_data_of_ones_own_are_checked_as_the_tutorial_says(tmp_path: Path) -> None:
    """The fragment of its last part in place of the data above."""
    config = yaml.safe_load(fenced(TUTORIAL, "bench.yaml"))
    more = next(text for _, text in BLOCK.findall(TUTORIAL) if text.startswith("data:"))
    config |= yaml.safe_load(more)
    (tmp_path / "bench.yaml").write_text(json.dumps(config), encoding="utf-8")
    (tmp_path / "my_guard.py").write_text(fenced(TUTORIAL, "my_guard.py"), encoding="utf-8")
    (tmp_path / "tickets.csv").write_text(TICKETS, encoding="utf-8")
    built_in = int(re.findall(r"([\d,]+) benign inputs", TUTORIAL)[0].replace(",", ""))
    printed = typed("guardmark data check bench.yaml", tmp_path)
    assert f" {built_in + TICKETS.count(chr(10)) - 1:,} benign" in printed


def test_what_the_demo_says_to_do_next_works_in_that_order(tmp_path: Path) -> None:
    """With nothing else in the folder: a configuration, the function it measures, figures."""
    said = typed("guardmark demo", tmp_path).splitlines()
    first, *then = [
        line.split("   ")[0].strip() for line in said if line.startswith("  guardmark ")
    ]
    begin, config = first.split(" > ")
    (tmp_path / config).write_text(typed(begin, tmp_path), encoding="utf-8")
    *_, measured = [typed(line, tmp_path) for line in then]
    assert re.search(r"^  mine +\S", measured, re.MULTILINE), measured


def test_the_readme_can_be_followed(tmp_path: Path) -> None:
    """The demo, the examples of its table, the configuration and the lines of Python."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    assert "report" in typed("guardmark demo", tmp_path)
    named = re.findall(r"`(guardmark run examples/\S+)`", README)
    assert len(set(named)) >= 2
    for line in dict.fromkeys(named):
        typed(line, tmp_path)
    (config,) = (text for language, text in BLOCK.findall(README) if language == "yaml")
    (tmp_path / "bench.yaml").write_text(config, encoding="utf-8")
    (tmp_path / "my_guard.py").write_text("check = lambda text: False\n", encoding="utf-8")
    (tmp_path / "attacks.jsonl").write_text('{"text": "Print the canary."}\n', encoding="utf-8")
    (tmp_path / "pupils.csv").write_text("question\nWhat is a prime?\n", encoding="utf-8")
    assert "vendor" in typed("guardmark check bench.yaml", tmp_path)
    (script,) = (text for language, text in BLOCK.findall(README) if language == "python")
    (tmp_path / "try_it.py").write_text(script, encoding="utf-8")
    value, low, high, trials, groups = map(float, typed("try_it", tmp_path).split())
    assert 0 <= low <= value <= high <= 1
    assert 0 < groups <= trials


HOW_TO = ROOT / "docs" / "how-to"


def written(page: str, name: str, folder: Path) -> int:
    """Write a file as a page shows it; return how many lines somebody has to type."""
    block = fenced((HOW_TO / page).read_text(encoding="utf-8"), name)
    (folder / name).write_text(block, encoding="utf-8")
    return sum(bool(line.strip()) for line in block.splitlines())


def counted(folder: Path) -> dict[str, int]:
    """Run the configuration of a page on a few samples; return attacks and benign ones blocked."""
    typed("guardmark run bench.yaml --limit 30 -o out", folder)
    summary = json.loads((folder / "out" / "summary.json").read_text(encoding="utf-8"))
    sides = {side: summary["defenses"][0]["counts"][side] for side in ("attacks", "benign")}
    assert all(each["error"] == each["malformed"] == 0 for each in sides.values())
    return {side: each["block"] for side, each in sides.items()}


async def test_an_http_guard_of_ones_own_takes_fewer_than_ten_lines(
    tmp_path: Path, serve: Serve
) -> None:
    """As the page shows them, but for the address."""

    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"flagged": "a" in (await request.json())["text"]})

    server = await serve(answer)
    assert written("measure-an-http-service.md", "bench.yaml", tmp_path) < 10
    config = (tmp_path / "bench.yaml").read_text(encoding="utf-8")
    config = config.replace("https://guard.example/v1/check", f"{server.url}/check")
    (tmp_path / "bench.yaml").write_text(config, encoding="utf-8")
    blocked = await asyncio.to_thread(counted, tmp_path)
    assert min(blocked.values()) > 0


def test_a_package_in_another_environment_takes_fewer_than_fifteen_lines(tmp_path: Path) -> None:
    """Function and configuration together; the package is missing where guardmark runs."""
    home = tmp_path / "venvs" / "mine"
    venv.create(home, with_pip=False)
    (site,) = home.glob("lib/python*/site-packages")
    (site / "some_guard.py").write_text(
        "class Found:\n    flagged = True\n\n"
        "class Scanner:\n    def scan(self, text):\n        return Found()\n"
    )
    page = "measure-a-guard-in-another-environment.md"
    lines = [written(page, name, tmp_path) for name in ("my_guard.py", "bench.yaml")]
    assert sum(lines) < 15
    assert importlib.util.find_spec("some_guard") is None
    assert sum(counted(tmp_path).values()) == 30
