"""The built site leads nowhere wrong and calls nobody; `make docs` builds it and runs this."""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urlsplit
from zipfile import ZipFile

import pytest

SITE = Path(os.environ.get("GUARDMARK_SITE", ""))
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
LOADING = {"src", "srcset", "poster", "data"}
SHOWN = (
    "index.html",
    "explanation/how-to-read-a-report.html",
    "reference/api.html",
    "reference/configuration.html",
    "gallery/index.html",
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not os.environ.get("GUARDMARK_SITE"), reason="make docs builds the site"),
]


class _Page(HTMLParser):
    """What a page links to, what it loads, and which places in it have a name."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.names: set[str] = set()
        self.unsaid: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.names |= {given[name] for name in ("id", "name") if name in given}
        if tag == "img" and not given.get("alt"):
            self.unsaid.append(given.get("src", ""))
        self.loads += [given[name] for name in LOADING & set(given)]
        if "href" in given:
            loads = tag == "link" and given.get("rel") not in {"canonical", "next", "prev"}
            (self.loads if loads else self.links).append(given["href"])


@pytest.fixture(scope="module")
def pages() -> dict[Path, _Page]:
    """Every page of the site; those of the gallery are reports, which have tests of their own."""
    found = {
        path: _Page(path)
        for path in sorted(SITE.rglob("*.html"))
        if "gallery" not in path.relative_to(SITE).parts or path.name == "index.html"
    }
    assert len(found) > 50
    return found


def test_every_link_leads_to_a_place_that_exists(pages: dict[Path, _Page]) -> None:
    """Pages, files and headings."""
    wrong = []
    for path, page in pages.items():
        for link in page.links:
            if urlsplit(link).scheme or path.name == "404.html":
                continue
            target, name = urldefrag(unquote(link))
            goal = (path.parent / target).resolve() if target else path
            goal = goal / "index.html" if goal.is_dir() else goal
            if not goal.exists() or (name and goal in pages and name not in pages[goal].names):
                wrong.append((path.relative_to(SITE).as_posix(), link))
    assert wrong == []


def test_nothing_is_loaded_from_elsewhere(pages: dict[Path, _Page]) -> None:
    """No font, script, picture or style of another host, in pages and in their styles."""
    outside = [
        (path.relative_to(SITE).as_posix(), address)
        for path, page in pages.items()
        for address in page.loads
        if urlsplit(address).netloc
    ]
    for style in SITE.rglob("*.css"):
        text = style.read_text(encoding="utf-8")
        outside += [
            (style.name, each) for each in re.findall(r"url\(['\"]?((?:https?:)?//[^)]+)", text)
        ]
    assert outside == []


def test_every_picture_is_told_in_words(pages: dict[Path, _Page]) -> None:
    """For those who do not see it."""
    assert [each for page in pages.values() for each in page.unsaid] == []


def test_the_examples_that_pages_name_come_with_the_site(pages: dict[Path, _Page]) -> None:
    """Who installed the package has no checkout."""
    named = {
        name
        for path in pages
        for name in re.findall(r"\bexamples/[\w/.-]+\.\w+", path.read_text(encoding="utf-8"))
        if path.parent.name in {"tutorial", "how-to"} or path.parent == SITE
    }
    with ZipFile(SITE / "examples.zip") as packed:
        assert named - set(packed.namelist()) == set()
    assert len(named) > 10


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The site on the loopback interface."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(SITE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1280, "dark")])
def test_a_browser_asks_nobody_else_and_axe_finds_nothing(
    address: str, width: int, scheme: str
) -> None:
    """On a phone by day and on a desk by night, with a search at the end."""
    api: Any = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    axe: Any = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    browser = next(filter(None, map(shutil.which, BROWSERS)), "")
    if not browser:
        pytest.skip("no Chromium on the path")
    asked: list[str] = []
    faults: list[object] = []
    with api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = opened.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
        page.on("request", lambda request: asked.append(request.url))
        for name in SHOWN:
            page.goto(f"{address}/{name}")
            page.wait_for_load_state("networkidle")
            found = axe.run(page, context="article").response["violations"]
            if page.evaluate("document.documentElement.scrollWidth") > width:
                faults.append((name, "wider than the screen"))
            faults += [
                (name, each["id"], [node["html"][:120] for node in each["nodes"][:3]])
                for each in found
                if each["impact"] in {"serious", "critical"}
            ]
        page.keyboard.press("Control+k")
        page.keyboard.type("exit codes", delay=20)
        page.get_by_text("results").first.wait_for()
        opened.close()
    assert [url for url in asked if not url.startswith(address)] == []
    assert faults == []
