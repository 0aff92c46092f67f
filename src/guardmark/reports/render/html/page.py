"""A document as one HTML page that needs nothing outside itself."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from markupsafe import Markup, escape

from guardmark.reports.document.wording import count_text, date_text
from guardmark.reports.figures.svg import fit_for_files
from guardmark.reports.render.html.layout import mark_of, page_of
from guardmark.reports.render.html.markup import block_html, headline_html, section_html
from guardmark.reports.render.html.samples import flowing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.reports.document.blocks import Document, Headline, Section
    from guardmark.reports.render.html.layout import Page

_MOST_BYTES: Final = 1_950_000
"""What still passes most mail gateways; texts are cut shorter in a page beyond it."""
_TEXT_BYTES: Final = (2_200, 1_100, 550, 275, 137)
_TEXT: Final = re.compile(r'<pre dir="auto">(.*?)</pre>', re.DOTALL)
_REMARK_BYTES: Final = 40  # of the words that a text was cut
_TOOLS: Final = (
    '<p class="tools"><button type="button" id="copy" hidden>Copy summary</button>'
    '<button type="button" id="folds" hidden>Unfold all tables</button></p>'
)


def render_html(document: Document, *, texts: bool = True) -> str:
    """Render a document as one HTML page that loads nothing, so that it can be mailed."""
    if not texts:
        return _render(document, None)
    html = _render(document, _TEXT_BYTES[0])
    excess = len(html.encode()) - _MOST_BYTES
    if excess <= 0:
        return html
    # How far to cut is reckoned: a page of many defenses takes seconds to draw.
    sizes = [len(text.encode()) - _REMARK_BYTES for text in _TEXT.findall(html)]
    for limit in _TEXT_BYTES[1:]:
        saved = sum(max(0, size - limit) for size in sizes)
        if saved >= excess or (saved and limit == _TEXT_BYTES[-1]):
            return _render(document, limit)
    return html


def page_style() -> tuple[Markup, str]:
    """Return the style of all pages, and its hash for the policy that admits it."""
    style = _asset("report.css")
    return style, _policy_hash(style)


def _render(document: Document, text_bytes: int | None) -> str:
    page = page_of(document, text_bytes=text_bytes)
    shown = [section for section in document.sections if not section.empty]
    lines = [
        *_head(document),
        *_top(document, shown),
        '<div class="wrap body">',
        *_contents(document, shown),
        "<main>",
        *_verdict(document, page),
        *_chapters(document, shown, page),
        "</main>",
        "</div>",
        *_footer(document),
        f"<script>{_asset('report.js')}</script>",
        "</body>",
        "</html>",
    ]
    return fit_for_files("\n".join(lines))


def _head(document: Document) -> list[str]:
    """Write what a browser reads first: no page may load or run what is not in it."""
    style, style_hash = page_style()
    script_hash = _policy_hash(_asset("report.js"))
    policy = (
        f"default-src 'none'; style-src '{style_hash}'; script-src '{script_hash}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    return [
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        '<meta name="referrer" content="no-referrer">',
        f'<meta name="generator" content="guardmark {escape(document.version)}">',
        '<link rel="icon" href="data:,">',
        f"<title>{escape(document.title)}</title>",
        f"<style>{style}</style>",
        "</head>",
        "<body>",
    ]


def _top(document: Document, shown: Sequence[Section]) -> list[str]:
    """Write the head of the page, with a link over it for readers without a mouse."""
    skip = '<a class="skip" href="#verdict">Skip to the verdict</a>'
    if not document.verdicts:
        skip = f'<a class="skip" href="#{escape(shown[0].id)}">Skip to the content</a>'
    return [
        skip,
        '<header class="top">',
        '<div class="wrap">',
        '<p class="brand">guardmark</p>',
        f"<h1>{escape(document.title)}</h1>",
        f'<p class="sub">{escape(document.subtitle)}</p>',
        "</div>",
        "</header>",
    ]


def _contents(document: Document, shown: Sequence[Section]) -> list[str]:
    links = []
    if document.verdicts:
        links.append('<li><a href="#verdict">Verdict</a></li>')
    for section in shown:
        section_id, title = escape(section.id), escape(section.title)
        links.append(f'<li><a href="#{section_id}">{title}</a></li>')
    return ['<nav aria-label="Contents">', "<ul>", *links, "</ul>", "</nav>"]


def _verdict(document: Document, page: Page) -> list[str]:
    """Write the answer: in sentences, for each defense, and as a table with its picture."""
    if not document.verdicts:
        return []
    lines = [
        '<section class="verdict" aria-labelledby="verdict">',
        '<h2 id="verdict" tabindex="-1">Verdict</h2>',
    ]
    style = "answered"
    for sentence in document.answer:
        lines.append(f'<p class="{style}">{escape(flowing(sentence))}</p>')
        style = "text"  # of all but the first
    has_figures = not document.is_tabled
    cards = [headline_html(headline, page, has_figures=has_figures) for headline in document.cards]
    if cards:
        lines += ['<div class="cards">', *cards, "</div>"]
    if document.lead:
        blocks = [block_html(block, page) for block in document.lead]
        lines += ['<div class="lead">', *blocks, "</div>"]
    return [*lines, *_remarks(document, page), _key(document, page), f"{_TOOLS}</section>"]


def _remarks(document: Document, page: Page) -> list[str]:
    """Write what has to be said of each defense that has no card."""
    cards = document.cards
    remarks = []
    for headline in document.verdicts:
        if headline.remarks and not headline.baseline and headline not in cards:
            remarks.append(_remark(headline, page))
    if not remarks:
        return []
    size = f'<span class="size">{count_text(len(remarks))}</span>'
    return [
        '<details class="fold" id="remarks">',
        f"<summary>Remarks on each defense {size}</summary>",
        '<ul class="text">',
        *remarks,
        "</ul>",
        "</details>",
    ]


def _remark(headline: Headline, page: Page) -> str:
    mark = mark_of(page.drawn, headline.defense)
    words = escape(flowing(". ".join(headline.remarks)))
    return f"<li>{mark} <code>{escape(headline.defense)}</code>: {words}.</li>"


def _key(document: Document, page: Page) -> str:
    """Say which defenses are baselines, and what brackets and lines are."""
    words = ""
    baselines = dict.fromkeys(each.defense for each in document.verdicts if each.baseline)
    if baselines and not document.is_tabled:
        names = ", ".join(f"<code>{escape(name)}</code>" for name in baselines)
        if "overview" in page.ids:
            names += ' (<a href="#overview">their rates</a>)'
        words = f"Baselines, which mark the floor and the ceiling: {names}. "
    return f'<p class="key">{words}{_intervals_key(document)}</p>'


def _intervals_key(document: Document) -> str:
    return (
        f"Square brackets hold {100 * document.confidence:g} % confidence intervals; "
        "the lines in drawings span them."
    )


def _chapters(document: Document, shown: Sequence[Section], page: Page) -> list[str]:
    """Write the sections; those for the statistician are folded together at the end."""
    lines = []
    opened = [section for section in shown if not section.folded]
    for section in opened:
        below = ""
        if section is opened[0] and not document.verdicts:
            below = f'<p class="key">{_intervals_key(document)}</p>\n{_TOOLS}'
        lines += _chapter(section, page, below)
    folded = [section for section in shown if section.folded]
    if folded:
        titles = escape(", ".join(section.title for section in folded))
        lines += [
            '<details class="fold chapter" id="statistician">',
            f'<summary>For the statistician <span class="size">{titles}</span></summary>',
        ]
        for section in folded:
            lines += _chapter(section, page, "")
        lines.append("</details>")
    return lines


def _chapter(section: Section, page: Page, below: str) -> list[str]:
    section_id = escape(section.id)
    return [
        f'<section class="s-{section_id}" aria-labelledby="{section_id}">',
        f'<h2 id="{section_id}" tabindex="-1">{escape(section.title)}</h2>',
        section_html(section, page),
        f"{below}</section>",
    ]


def _footer(document: Document) -> list[str]:
    """Say what made the page, and what is left out of it on paper."""
    made = f"Made by guardmark {escape(document.version)} from the records of the run"
    when = f"<code>{escape(document.run)}</code>, {escape(date_text(document.created_utc))}"
    return [
        "<footer>",
        '<div class="wrap">',
        f"<p>{made} {when}. This page loads nothing and sends nothing.</p>",
        (
            '<p class="paper">What is folded on the screen is left out on paper; '
            "unfold it before printing to include it.</p>"
        ),
        "</div>",
        "</footer>",
    ]


@cache
def _asset(name: str) -> Markup:
    path = Path(__file__).parent / "templates" / name
    return Markup(path.read_text(encoding="utf-8"))  # noqa: S704 - a file of this package


def _policy_hash(text: Markup) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
