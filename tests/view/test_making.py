"""Pages are made in few threads, each within a time, and nobody waits for them at the end."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.journeys.command_line import set_up, words

pytest.importorskip("uvicorn", reason="the extra view is not installed")

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from guardmark.view.making import PageMaker
from guardmark.view.pages import spelled

if TYPE_CHECKING:
    from collections.abc import Callable

ASKED = Request({"type": "http"})


def quick(_: Request) -> Response:
    """A page that is there at once."""
    return PlainTextResponse("here")


def held(until: threading.Event) -> Callable[[Request], Response]:
    """A page that waits."""

    def handler(_: Request) -> Response:
        until.wait(10)
        return PlainTextResponse("late")

    return handler


async def test_a_page_that_takes_too_long_is_given_up() -> None:
    """Its reader is told; another page is made meanwhile."""
    until = threading.Event()
    maker = PageMaker(most=2, patience_s=0.1)
    late = await maker.make(held(until), ASKED)
    assert (late.status_code, late.body) == (
        503,
        b"This page takes more than 0.1 s; it was given up.\n",
    )
    assert (await maker.make(quick, ASKED)).status_code == 200
    until.set()


async def test_a_page_that_was_given_up_still_counts_as_one_of_the_few() -> None:
    """Whoever asks for many slow pages gets few threads; once they end there is room again."""
    until = threading.Event()
    maker = PageMaker(most=1, patience_s=0.1)
    assert (await maker.make(held(until), ASKED)).status_code == 503
    assert (await maker.make(quick, ASKED)).status_code == 503
    until.set()
    for _ in range(50):
        await asyncio.sleep(0.02)
        if (await maker.make(quick, ASKED)).status_code == 200:
            break
    assert (await maker.make(quick, ASKED)).status_code == 200


async def test_what_a_page_raises_is_raised_where_it_was_asked_for() -> None:
    """As if it had been made there."""

    def broken(_: Request) -> Response:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await PageMaker().make(broken, ASKED)


def test_a_text_that_is_too_long_for_a_page_is_cut() -> None:
    """Its beginning is shown, and how much was left out."""
    assert spelled("x" * 50_000) == "x" * 50_000
    assert spelled("x" * 60_000) == "x" * 50_000 + " ... (10,000 characters more)"


def ask_in_vain(url: str) -> None:
    """Ask for a page of a server that ends meanwhile."""
    with suppress(OSError, HTTPException):
        urllib.request.urlopen(url, timeout=60)  # noqa: S310 - our own server


@pytest.mark.slow
def test_ctrl_c_ends_the_server_within_a_second_while_a_page_is_made(tmp_path: Path) -> None:
    """A page over many samples takes long; whoever leaves does not wait for it."""
    set_up(tmp_path, count=4)
    slow = tmp_path / "slow.py"
    slow.write_text(
        "import sys, time\n"
        "import guardmark.view.site as site\n"
        "made = site.Answers.page\n"
        "site.Answers.page = lambda *args: time.sleep(30) or made(*args)\n"
        "from guardmark.cli import main\n"
        "sys.argv = ['guardmark', 'view', '.', '--port', '0', '--json', '--no-token']\n"
        "main()\n",
        "utf-8",
    )
    subprocess.run(
        words("run", "bench.yaml", "-o", "out"), cwd=tmp_path, check=True, capture_output=True
    )
    with subprocess.Popen(
        [sys.executable, slow],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        url = json.loads(child.stdout.readline())["url"]
        listed = urllib.request.urlopen(url, timeout=60).read().decode()  # noqa: S310 - our own server
        key = listed.partition("/run/")[2].partition('"')[0]
        waiting = threading.Thread(target=ask_in_vain, args=(f"{url}report/{key}",), daemon=True)
        waiting.start()
        time.sleep(1)
        child.send_signal(signal.SIGINT)
        began = time.monotonic()
        assert child.wait(timeout=20) == 0
        took = time.monotonic() - began
        assert child.stderr is not None
        assert child.stderr.read() == "Reading the runs below .\n"
    assert took < 1.5
