"""The report in a real browser: quiet, inert, usable by mouse, keyboard, phone and reader."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.analysis.small_runs import Runs
from tests.reports.loud_document import LOUD, PLAIN, document
from tests.reports.small_reports import full_analysis

from guardmark.reports.chapters.run_document import build_document
from guardmark.reports.document.blocks import Bullets, section
from guardmark.reports.render.html.page import render_html

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

    from conftest import Opened, Opener

pytestmark = pytest.mark.slow

LAPTOP = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}
SIZES = {"laptop": LAPTOP, "phone": PHONE}
SIGHTS = ["laptop-light", "laptop-dark", "phone-light", "phone-dark"]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of a run with failures, scores, slices and a hostile sample."""
    runs = Runs(folder=tmp_path_factory.mktemp("runs"))
    return render_html(build_document(full_analysis(runs)))


def unfold(page: Page) -> None:
    """Open everything that can be opened."""
    page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")


def quiet(opened: Opened) -> bool:
    """Whether a page asked for nothing and said nothing."""
    return opened.asked == [] and opened.said == []


def shown(page: Page) -> Locator:
    """The samples that are listed now."""
    return page.locator(".samples > li:visible")


def status(page: Page) -> str:
    """What the list says of itself."""
    return page.locator(".browser [role=status]").inner_text()


def sight(name: str) -> dict[str, object]:
    """Size of the window and colours, from a name such as `phone-dark`."""
    size, scheme = name.split("-")
    return {"viewport": SIZES[size], "color_scheme": scheme}


def fits(page: Page) -> bool:
    """Whether nothing has to be scrolled sideways but what scrolls by itself."""
    return bool(page.evaluate("document.documentElement.scrollWidth === window.innerWidth"))


@pytest.mark.parametrize("seen", SIGHTS)
def test_it_fits_and_stays_quiet(report: str, opener: Opener, artifacts: Path, seen: str) -> None:
    """No request, no message, no sideways scrolling; a screenshot for a person to look at."""
    opened = opener.open(report, **sight(seen))
    page = opened.page
    assert fits(page)
    page.screenshot(path=artifacts / f"report-{seen}.png", full_page=True)
    unfold(page)
    page.wait_for_timeout(50)
    assert fits(page)
    page.locator("#samples.browser").screenshot(path=artifacts / f"samples-{seen}.png")
    assert quiet(opened)


@pytest.mark.parametrize("seen", SIGHTS)
def test_no_fault_of_accessibility(report: str, opener: Opener, seen: str) -> None:
    """axe-core finds nothing, as the page opens."""
    assert faults(opener.open(report, **sight(seen)).page) == []


@pytest.mark.parametrize("seen", ["laptop-dark", "phone-light"])
def test_no_fault_of_accessibility_with_everything_unfolded(opener: Opener, seen: str) -> None:
    """Nor in what opens."""
    page = opener.open(render_html(document(PLAIN)), **sight(seen)).page
    unfold(page)
    page.wait_for_timeout(50)
    assert faults(page) == []


def faults(page: Page) -> list[object]:
    """What axe-core finds, small hints apart."""
    axe: Any = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    found = axe.run(page).response["violations"]
    return [
        (each["id"], each["impact"], [node["html"][:200] for node in each["nodes"][:3]])
        for each in found
        if each["impact"] in {"serious", "critical", "moderate"}
    ]


@pytest.mark.parametrize("seen", ["laptop-light", "phone-dark"])
def test_hostile_words_do_nothing(opener: Opener, seen: str) -> None:
    """Names and texts full of scripts, images and broken characters are words only."""
    opened = opener.open(render_html(document(LOUD)), **sight(seen))
    page = opened.page
    unfold(page)
    page.wait_for_timeout(50)
    assert quiet(opened)
    assert page.evaluate("typeof window.owned") == "undefined"
    assert page.locator("img, iframe, object, base, main script").count() == 0
    assert page.title().startswith("</script>")
    assert fits(page)


def test_the_policy_stops_what_would_be_slipped_in(opener: Opener) -> None:
    """Were markup ever to get through, it could neither run nor load."""
    html = render_html(document(PLAIN)).replace(
        "<main>",
        "<main><img src='https://evil.example/p.png'><script>window.owned=1</script>"
        "<b onclick='window.owned=1' style='color:red'>slipped in</b>",
    )
    opened = opener.open(html)
    opened.page.locator("text=slipped in").click()
    assert opened.page.evaluate("typeof window.owned") == "undefined"
    assert opened.stopped == ["https://evil.example/p.png"]
    assert any("Content Security Policy" in line for line in opened.said)


def test_filters_and_search_find_samples(opener: Opener) -> None:
    """By kind, by defense, by facet, by word; and back to all."""
    page = opener.open(render_html(document(PLAIN))).page
    page.locator(".all > summary").click()
    assert status(page) == "Showing 50 of 120 samples."
    assert shown(page).count() == 50

    page.get_by_role("button", name="Bypass").click()
    assert status(page) == "Showing 50 of 60 samples."
    assert page.get_by_role("button", name="Bypass").get_attribute("aria-pressed") == "true"
    assert page.get_by_role("button", name="All 120").get_attribute("aria-pressed") == "false"

    page.get_by_label("Category").select_option(label="plain0")
    assert status(page) == "Showing 20 of 20 samples."
    page.get_by_label("Search").fill("plain0006")
    assert status(page) == "Showing 1 of 1 sample."
    assert shown(page).locator("code").first.inner_text() == "plain0006"
    page.get_by_label("Search").fill("no such words")
    assert status(page) == "No sample fits these filters."

    page.get_by_role("button", name="Clear filters").click()
    page.wait_for_timeout(50)
    assert status(page) == "Showing 50 of 120 samples."
    page.get_by_role("button", name="Show 50 more").click()
    assert shown(page).count() == 100
    page.get_by_role("button", name="Show 50 more").click()
    assert shown(page).count() == 120
    assert page.locator(".more").is_hidden()


def test_a_kind_is_asked_of_the_chosen_defense(opener: Opener) -> None:
    """A bypass of one defense is no bypass of another that failed on the same sample."""
    page = opener.open(render_html(document(PLAIN))).page
    page.locator(".all > summary").click()
    page.get_by_label("Defense").select_option(label="plaintwo")
    assert status(page) == "Showing 50 of 120 samples."
    page.get_by_role("button", name="Bypass").click()
    assert status(page) == "No sample fits these filters."


def test_a_keyboard_is_enough(opener: Opener) -> None:
    """Skip link first; folds open with Enter; focus moves on with the list."""
    page = opener.open(render_html(document(PLAIN))).page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the verdict"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "verdict"
    page.locator("#folded > summary").focus()
    page.keyboard.press("Enter")
    assert page.locator("#folded table").is_visible()
    page.locator(".all > summary").focus()
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Show 50 more").focus()
    page.keyboard.press("Enter")
    ahead = "document.activeElement.closest('li').querySelector('code').textContent"
    assert page.evaluate(ahead) == "plain0050"


def test_all_tables_unfold_at_once(opener: Opener) -> None:
    """One press, and one back."""
    page = opener.open(render_html(document(PLAIN))).page
    page.get_by_role("button", name="Unfold all tables").click()
    assert page.locator("details.fold:not([open])").count() == 0
    page.get_by_role("button", name="Fold all tables").click()
    assert page.locator("details.fold[open]").count() == 0


def test_the_summary_can_be_copied(opener: Opener) -> None:
    """The title, each answer and what to do next, in plain text without the words of links."""
    plain = document(PLAIN)
    bullets = Bullets(lines=("Do this first.",), evidence=("recommendations",))
    advice = section("recommendations", "What to do next", bullets)
    html = render_html(replace(plain, sections=(advice, *plain.sections)))
    page = opener.open(html).page
    page.evaluate("navigator.clipboard.writeText = async text => { document.copied = text; }")
    page.get_by_role("button", name="Copy summary").click()
    page.get_by_role("button", name="Copied").wait_for()
    lines = page.evaluate("document.copied").replace("\xa0", " ").splitlines()
    assert lines[0] == page.locator("h1").inner_text()
    assert "Blocks 91.2 % [88.4, 93.4] of 500 attacks," in lines
    assert [line for line in lines if line.startswith("- ")] == ["- Do this first."]
    assert len(lines) < 20, "no table and no text of a sample"


def test_nothing_is_lost_without_scripts(opener: Opener) -> None:
    """Mail programs switch scripts off: every sample can still be unfolded."""
    page = opener.open(render_html(document(PLAIN)), java_script_enabled=False).page
    assert page.locator(".controls").is_hidden()
    page.locator(".all > summary").click()
    assert shown(page).count() == 120
    shown(page).nth(119).locator("summary").click()
    assert shown(page).nth(119).locator("pre").is_visible()


def test_the_contents_follow_the_reader(opener: Opener) -> None:
    """The link of the section in sight is marked."""
    page = opener.open(render_html(document(PLAIN)), viewport=LAPTOP).page
    assert page.locator("nav [aria-current]").inner_text() == "Verdict"
    page.locator("nav a").nth(2).click()
    page.wait_for_function(
        "document.querySelector('nav [aria-current]').hash === '#charts'", timeout=5000
    )


def test_charts_are_read_out(opener: Opener) -> None:
    """Marks are rows of a table with a head; drawings have names and descriptions."""
    page = opener.open(render_html(document(PLAIN))).page
    chart = page.get_by_role("table", name="plain").filter(has_text="30.0")
    row = chart.get_by_role("row").first
    assert "plaina, plainone" in (row.get_by_role("rowheader").text_content() or "")
    assert "30.0 % [20.0, 40.0]" in (row.text_content() or "")
    assert page.get_by_role("img").count() == 4
    assert "4 stopped; out come" in (page.locator("#flow-d").text_content() or "")


def test_paper_holds_what_is_open(report: str, opener: Opener, artifacts: Path) -> None:
    """Controls stay on the screen; what is folded is left out, and said to be."""
    page = opener.open(report, viewport=LAPTOP).page
    page.emulate_media(media="print")
    for hidden in ("nav", ".tools", ".all"):
        assert page.locator(hidden).first.is_hidden()
    assert page.locator(".paper").is_visible()
    assert page.locator(".card").first.is_visible()
    assert page.locator("#read-first pre").first.is_visible()
    page.pdf(path=artifacts / "report.pdf", format="A4")
    assert (artifacts / "report.pdf").read_bytes().startswith(b"%PDF")
