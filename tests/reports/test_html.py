"""The HTML page: self-contained, inert whatever it shows, complete, of bounded size."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser

import pytest
from tests.analysis.small_runs import Planned, Runs, allow, attack, benign, block
from tests.reports.loud_document import LOUD, PLAIN, document
from tests.reports.small_reports import bare_analysis, full_analysis

from guardmark.analysis.run import analyse_run
from guardmark.analysis.settings import AnalysisSettings
from guardmark.core.sample import Prompt
from guardmark.reports.chapters.run_document import build_document
from guardmark.reports.document.blocks import Headline, Table
from guardmark.reports.render.html.page import render_html

MEGABYTES_2 = 2_000_000
VOID = {"meta", "link", "input", "br", "img"}


@dataclass
class Page(HTMLParser):
    """What a browser's parser finds: tags in order, attributes, texts."""

    tags: list[tuple[str, tuple[tuple[str, str], ...]]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    inside: list[str] = field(default_factory=list)
    raw: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Start the parser itself."""
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag."""
        self.tags.append((tag, tuple((name, value or "") for name, value in attrs)))
        if tag not in VOID:
            self.inside.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag that closes itself."""
        self.tags.append((tag, tuple((name, value or "") for name, value in attrs)))

    def handle_endtag(self, tag: str) -> None:
        """Every tag is closed where it was opened."""
        assert self.inside.pop() == tag

    def handle_data(self, data: str) -> None:
        """Note a text."""
        if self.inside and self.inside[-1] in {"style", "script"}:
            self.raw[self.inside[-1]] = self.raw.get(self.inside[-1], "") + data
        else:
            self.texts.append(data)

    def values(self, name: str) -> list[str]:
        """The values of an attribute."""
        return [value for _, attrs in self.tags for key, value in attrs if key == name]

    @property
    def text(self) -> str:
        """All texts."""
        return " ".join("".join(self.texts).split())


def parsed(html: str) -> Page:
    """The page as a parser sees it; nothing may be left open."""
    page = Page()
    page.feed(html)
    page.close()
    assert page.inside == []
    return page


def shape(page: Page) -> list[tuple[str, tuple[str, ...]]]:
    """Tags and names of attributes, without what data decides: marks inside shown texts."""
    return [(tag, tuple(name for name, _ in attrs)) for tag, attrs in page.tags if tag != "i"]


def test_equal_documents_give_equal_bytes(runs: Runs) -> None:
    """A page can be compared with the one of a colleague."""
    analysis = full_analysis(runs)
    first = render_html(build_document(analysis))
    assert first == render_html(build_document(analysis))
    assert "\r" not in first


def test_hostile_words_change_no_tag() -> None:
    """Whatever data say, they are words: the same tags, with other words in them."""
    loud, plain = (parsed(render_html(document(text))) for text in (LOUD, PLAIN))
    assert shape(loud) == shape(plain)


def test_hostile_words_are_shown() -> None:
    """What an attack says can be read, as it stands."""
    page = parsed(render_html(document(LOUD)))
    assert "<script>window.owned=1;alert(1)</script>" in page.text
    assert "{{ 7*7 }}{% raw %}" in page.text


def test_every_page_can_be_stored_and_sent() -> None:
    """Half characters and control characters of data would break files and mail."""
    html = render_html(document(LOUD))
    assert html.encode().decode() == html
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", html)


def test_nothing_outside_is_named() -> None:
    """No address but places in the page itself, and an empty icon."""
    page = parsed(render_html(document(LOUD)))
    assert {value for value in page.values("href") if not value.startswith("#")} == {"data:,"}
    assert page.values("src") == page.values("action") == page.values("style") == []
    assert not [name for _, attrs in page.tags for name, _ in attrs if name.startswith("on")]
    assert "url(" not in page.raw["style"]
    assert "@import" not in page.raw["style"]


def test_policy_allows_the_page_itself_and_nothing_else() -> None:
    """The hashes in the policy are those of the one style sheet and the one script."""
    page = parsed(render_html(document(LOUD)))
    tags = Counter(tag for tag, _ in page.tags)
    assert (tags["style"], tags["script"]) == (1, 1)
    policy = next(value for value in page.values("content") if "default-src" in value)
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for name in ("style", "script"):
        digest = base64.b64encode(hashlib.sha256(page.raw[name].encode()).digest()).decode()
        assert f"{name}-src 'sha256-{digest}'" in policy


def test_names_of_places_are_unique_and_found() -> None:
    """Every link, label and description points at something."""
    page = parsed(render_html(document(PLAIN)))
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    wanted = [value[1:] for value in page.values("href") if value.startswith("#")]
    for name in ("aria-labelledby", "aria-describedby"):
        wanted.extend(page.values(name))
    assert set(wanted) <= set(ids)


def test_tables_say_what_their_heads_head() -> None:
    """A screen reader can tell which head a figure stands under."""
    page = parsed(render_html(document(PLAIN)))
    tags = Counter(tag for tag, _ in page.tags)
    assert all("scope" in dict(attrs) for tag, attrs in page.tags if tag == "th")
    plots = sum("plot" in value.split() for value in page.values("class"))
    assert tags["caption"] == tags["table"] - plots


def test_verdict_comes_first_and_every_section_follows(runs: Runs) -> None:
    """Who reads one line reads the right one."""
    report = build_document(full_analysis(runs))
    page = parsed(render_html(report))
    heads = [dict(attrs)["id"] for tag, attrs in page.tags if tag == "h2"]
    assert heads == ["verdict", *(part.id for part in report.sections if not part.empty)]
    for verdict in report.verdicts:
        text = page.text.replace("\xa0", " ")
        assert verdict.reason in text
        assert verdict.defense in text, "rates of many stand in the table"
    assert report.answer[0] in page.text.replace("\xa0", " ").split("Verdict", 1)[1]


def test_cards_stand_in_the_order_of_the_document() -> None:
    """Which is that of merit; beside a table of three or more no card repeats it."""
    told = tuple(Headline(defense=each, sentence="", answer="Yes") for each in "cab")
    plain = replace(document(PLAIN), verdicts=told, lead=())
    cards = r"<code>(.)</code></span> <b class=.answer"
    assert re.findall(cards, render_html(plain)) == list("cab")
    table = next(block for block in document(PLAIN).blocks if isinstance(block, Table))
    tabled = replace(plain, lead=(replace(table, id="of-all"),))
    assert re.findall(cards, render_html(tabled)) == []


def test_undefined_is_said_and_never_zero() -> None:
    """A rate without trials has no dot and no number."""
    page = parsed(render_html(document(PLAIN)))
    assert "undefined no trials" in page.text
    undefined = render_html(document(PLAIN)).split('<span class="label">plainb</span>')[1]
    assert 'class="dot"' not in undefined.split("</tr>")[0]


def test_thin_labels_do_not_hide_the_others() -> None:
    """Many slices of one or two samples are folded away, and counted."""
    page = parsed(render_html(document(PLAIN)))
    assert "9 more with too few samples to rely on" in page.text


def test_a_run_of_nothing_is_a_page(runs: Runs) -> None:
    """No benign samples, one defense, no score: nothing stands empty, and what is missing is said."""
    analysis = bare_analysis(runs, lambda _p, _s: block(), samples=[attack(1)])
    page = parsed(render_html(build_document(analysis)))
    assert "undefined" in page.text
    assert "No adaptive rounds were run" in page.text


def test_texts_are_left_out_on_request() -> None:
    """Hashes stand in; no word of a sample is in the file."""
    words = "the words of an attack"
    report = document(PLAIN, excerpt=words)
    assert words in render_html(report)
    html = render_html(report, texts=False)
    assert words not in html
    assert f"{1:064x}" in html


@pytest.mark.slow
@pytest.mark.parametrize("sign", ["x", "<", "\u200b\u202e", "\U0001f600", "\U000e0041 "])
def test_the_longest_list_stays_below_two_megabytes(sign: str) -> None:
    """500 samples of 500 characters that need much room each."""
    report = document("d" * 40, listed=500, excerpt=(sign * 500)[:500])
    assert len(render_html(report).encode()) < MEGABYTES_2


@pytest.mark.slow
def test_a_run_of_ten_thousand_samples_stays_below_two_megabytes(runs: Runs) -> None:
    """Five defenses over 10,000 samples with many slices."""
    samples = [
        (attack if number % 2 else benign)(
            number,
            prompt=Prompt.of_text(f"{number} {'long <words> & more ' * 40}"),
            language=("de", "en", "fr", "es", "it", "pl", "cs")[number % 7],
            technique=f"technique{number % 40}",
            subcategory=f"subcategory{number % 30}",
            variant=f"variant{number % 9}",
        )
        for number in range(10_000)
    ]

    def answers(shift: int) -> Planned:
        def answer(position: int, sample: object) -> object:
            threat = 3 if getattr(sample, "is_attack", False) else 1
            hit = (position * 7 + shift) % 5 < threat
            return block(0.9) if hit else allow(0.2 + 0.01 * (position % 20))

        return Planned(name=f"defense-number-{shift}", answers=answer, threshold=0.5)  # type: ignore[arg-type]

    with runs.opened(samples, tuple(answers(shift) for shift in range(5))) as reader:
        report = build_document(analyse_run(reader, AnalysisSettings.of(reader.manifest())))
    assert len(render_html(report).encode()) < MEGABYTES_2
