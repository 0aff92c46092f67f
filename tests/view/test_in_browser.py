"""The pages in a real browser: quiet, inert, accessible, live."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.view.site_server import HOSTILE, Site, manifest, meta, serving

from guardmark.store.run_dir import RunDir

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow

ARTIFACTS = Path(__file__).parents[2] / "artifacts" / "pages"
SIGHTS = {
    "laptop-light": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "light"},
    "laptop-dark": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
    "phone-light": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"},
    "phone-dark": {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"},
}
PAGES = ("list", "run", "compare", "history", "report", "nothing")


@dataclass
class Seen:
    """A page, and what it did that it must not do."""

    page: Page
    strays: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


@contextmanager
def seen(browser: Browser, site: Site, **settings: Any) -> Iterator[Seen]:
    """A window that writes down requests to elsewhere and messages."""
    context = browser.new_context(**settings)
    found = Seen(page=context.new_page())
    page = found.page
    page.on(
        "request",
        lambda asked: None if asked.url.startswith(site.url) else found.strays.append(asked.url),
    )
    page.on("console", lambda message: found.said.append(message.text))
    page.on("pageerror", lambda error: found.said.append(str(error)))
    page.on("dialog", lambda dialog: found.said.append(dialog.message))
    yield found
    context.close()


def go(page: Page, site: Site, name: str) -> None:
    """Reach a page as a person does, from the list."""
    page.goto(site.url)
    if name == "run":
        page.get_by_role("link", name="journey").first.click()
    elif name == "report":
        page.get_by_role("link", name="journey").first.click()
        page.get_by_role("link", name="Open the report").click()
    elif name == "compare":
        boxes = page.get_by_role("checkbox", name="Compare journey")
        boxes.nth(0).check()
        boxes.nth(1).check()
        page.get_by_role("button", name="Compare the two ticked runs").click()
    elif name == "history":
        page.get_by_role("link", name="words").first.click()
    elif name == "nothing":
        page.goto(f"{site.url}run/none")
    page.wait_for_load_state()


def faults(page: Page) -> list[object]:
    """What axe-core finds, small hints apart."""
    axe: Any = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    return [
        (each["id"], each["impact"], [node["html"][:200] for node in each["nodes"][:3]])
        for each in axe.run(page).response["violations"]
        if each["impact"] in {"serious", "critical", "moderate"}
    ]


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("name", PAGES)
def test_pages_are_quiet_accessible_and_fit(
    browser: Browser, site: Site, name: str, sight: str
) -> None:
    """No request elsewhere, no message, no fault, no sideways scrolling; a picture to look at."""
    with seen(browser, site, **SIGHTS[sight]) as found:
        page = found.page
        go(page, site, name)
        ARTIFACTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=ARTIFACTS / f"view-{name}-{sight}.png", full_page=True)
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        assert found.strays == []
        if name != "nothing":  # Chromium itself notes the 404
            assert found.said == []
        if name != "report":  # its own tests look at it, and axe needs its origin
            assert faults(page) == []


def test_both_rates_are_seen_on_a_phone_without_swiping(browser: Browser, site: Site) -> None:
    """In the list and on the page of a run."""
    with seen(browser, site, viewport={"width": 390, "height": 844}) as found:
        page = found.page
        for name in ("list", "run"):
            go(page, site, name)
            for head in ("ASR", "FPR"):
                box = page.get_by_role("columnheader", name=head).first.bounding_box()
                assert box is not None
                assert box["x"] + box["width"] <= 390


def test_answers_to_samples_are_seen_on_a_phone_without_swiping(
    browser: Browser, site: Site
) -> None:
    """Each behind the name of its defense; the text of the sample has the whole width."""
    with seen(browser, site, viewport={"width": 390, "height": 844}) as found:
        page = found.page
        go(page, site, "run")
        page.get_by_role("link", name="read its samples").click()
        page.wait_for_load_state()
        assert page.locator(".matrix tbody td").count() > 0
        for box in page.evaluate(
            "[...document.querySelectorAll('.matrix tbody th, .matrix tbody td')]"
            ".map(each => each.getBoundingClientRect().right)"
        ):
            assert box <= 390
        named = "getComputedStyle(document.querySelector('.matrix td'), '::before').content"
        assert "words" in page.evaluate(named)
        ARTIFACTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=ARTIFACTS / "view-samples-phone.png")


def test_keys_go_from_row_to_row(browser: Browser, site: Site) -> None:
    """J and k move, Enter opens, / goes to the first filter."""
    with seen(browser, site) as found:
        page = found.page
        go(page, site, "run")
        page.get_by_role("link", name="read its samples").click()
        rows = page.locator("a.row")
        page.keyboard.press("j")
        page.keyboard.press("j")
        page.keyboard.press("k")
        page.keyboard.press("j")
        assert page.evaluate("document.activeElement.textContent") == rows.nth(1).inner_text()
        page.keyboard.press("/")
        assert page.evaluate("document.activeElement.name") == "flaw"
        assert found.said == []


def test_the_filter_and_the_keyboard_work(browser: Browser, site: Site) -> None:
    """The skip link first; typing and Enter is enough."""
    from playwright.sync_api import expect  # waits for the page that a key press asks for

    with seen(browser, site) as found:
        page = found.page
        status = page.get_by_role("status")
        page.goto(site.url)
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        page.get_by_label("Search").fill("other")
        page.keyboard.press("Enter")
        expect(status).to_have_text("1 of 4 runs.")
        page.get_by_role("link", name="Clear").click()
        expect(status).to_have_text("4 runs.")
        page.get_by_label("State").select_option("damaged")
        page.get_by_role("button", name="Filter").click()
        expect(status).to_have_text("1 of 4 runs.")


def test_a_running_run_moves_by_itself(browser: Browser, runs: Path) -> None:
    """Progress rises without a reload; the page turns when the run is complete."""
    folder = runs / "other"
    meta(folder, "state", "running")
    meta(folder, "planned", "1000")
    with serving(runs) as site, RunDir(path=folder).lock(), seen(browser, site) as found:
        page = found.page
        page.goto(f"{site.url}?words=other")
        assert "of 1,000" in page.locator(".said").inner_text()
        meta(folder, "planned", "2000")
        page.locator(".said", has_text="of 2,000").wait_for(timeout=15000)
        meta(folder, "state", "complete")
        page.wait_for_selector(".state.complete", timeout=15000)
        assert page.locator("progress").count() == 0
        assert found.said == []


def test_hostile_words_do_nothing(browser: Browser, runs: Path) -> None:
    """Neither in names nor in a report that somebody laid there."""
    told = json.loads(manifest(runs / "other"))
    told["name"] = HOSTILE
    meta(runs / "other", "manifest", json.dumps(told))
    (runs / "other" / "report.html").write_text(
        "<script>fetch('/').then(r => r.text()).then(t => { document.title = t; });"
        "try { document.title = parent.document.cookie + localStorage.x; }"
        "catch (e) { document.title = 'kept out'; }</script>"
        "<img src='https://evil.example/p.png'><form action='/'><button>x</button></form>",
        encoding="utf-8",
    )
    with serving(runs) as site, seen(browser, site) as found:
        page = found.page
        page.goto(f"{site.url}?words=other")
        assert page.evaluate("typeof window.owned") == "undefined"
        page.get_by_role("row").nth(1).get_by_role("link").first.click()
        assert page.evaluate("typeof window.owned") == "undefined"
        assert page.locator("img, iframe").count() == 0
        assert found.said == []
        page.get_by_role("link", name="Open the report").click()
        page.wait_for_timeout(300)
        assert page.title() != "kept out"
        assert page.locator("img").count() == 0
        assert found.said == []


def test_another_site_cannot_frame_or_read_the_pages(
    browser: Browser, site: Site, tmp_path: Path
) -> None:
    """As a page of elsewhere would try."""
    page_of_elsewhere = tmp_path / "elsewhere.html"
    page_of_elsewhere.write_text(
        f"<iframe src='{site.url}'></iframe><script>"
        f"fetch('{site.url}progress').then(() => {{ document.title = 'read'; }})"
        ".catch(() => { document.title = 'kept out'; })</script>",
        encoding="utf-8",
    )
    with seen(browser, site) as found:
        page = found.page
        page.goto(page_of_elsewhere.as_uri())
        page.wait_for_function("document.title !== ''", timeout=15000)
        assert page.title() == "kept out"
        assert page.frames[1].url.startswith(("chrome-error:", "about:"))
