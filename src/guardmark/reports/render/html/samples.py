"""Samples to read as HTML: what can be filtered by what, and what a text hides."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from markupsafe import Markup, escape

from guardmark.analysis.defense.bypasses import Flaw
from guardmark.canon.visible import hidden_pieces
from guardmark.core.values import dataclass
from guardmark.reports.document.wording import count_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from guardmark.analysis.defense.bypasses import SampleAnswer
    from guardmark.reports.document.blocks import SampleBrowser, SampleCount, SampleEntry
    from guardmark.reports.render.html.layout import Page

_MOST_CHOICES: Final = 60
_MOST_NAMED: Final = 4  # of the defenses that were mistaken about a sample


@dataclass(frozen=True, slots=True, kw_only=True)
class KindWords:
    """How a page filters by a kind of sample, and what it calls it."""

    token: str
    name: str


KINDS: Final = {
    kind: KindWords(token=f"k{at}", name=kind.value.replace("_", " ").capitalize())
    for at, kind in enumerate(Flaw)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownSample:
    """One sample, ready for the page; without its text where texts are left out."""

    entry: SampleEntry
    markup: Markup | None
    characters: int
    tokens: str
    answers: tuple[SampleAnswer, ...]
    story: tuple[tuple[str, Markup], ...] = ()


def browser_html(block: SampleBrowser, page: Page) -> str:
    """Write a list of samples: how many there are of each kind, and those to read."""
    lines = [f'<div class="browser" id="{escape(block.id)}">', f"<h3>{escape(block.title)}</h3>"]
    if block.counts:
        lines += _counts_table(block.counts)
    if page.text_bytes is None:
        lines.append(
            '<p class="text muted">Texts were left out on request; '
            "each sample is named by the SHA-256 of its content.</p>"
        )
    samples = show_samples(block, page)
    if samples and block.counts:
        lines += _folded_list(block, samples, page)
    elif samples:
        lines += _list(samples)
    lines.append("</div>\n")
    return "\n".join(lines)


def _counts_table(counts: Sequence[SampleCount]) -> list[str]:
    lines = [
        '<div class="scroll">',
        "<table>",
        '<caption class="vh">How many there are, and how to list all of them</caption>',
        (
            '<thead><tr><th scope="col">Kind</th><th scope="col">Meaning</th>'
            '<th scope="col" class="num">In the run</th>'
            '<th scope="col" class="num">Listed here</th>'
            '<th scope="col">All of them</th></tr></thead>'
        ),
        "<tbody>",
    ]
    for count in counts:
        words = KINDS[count.kind]
        lines.append(
            f'<tr><th scope="row">{words.name}</th><td>{escape(count.meaning)}</td>'
            f'<td class="num">{count_text(count.total)}</td>'
            f'<td class="num">{count_text(count.listed)}</td>'
            f"<td><code>{escape(count.command)}</code></td></tr>"
        )
    lines += ["</tbody>", "</table>", "</div>"]
    return lines


def _folded_list(block: SampleBrowser, samples: Sequence[ShownSample], page: Page) -> list[str]:
    """Write a list that opens on request, with what it can be filtered by."""
    has_texts = page.text_bytes is not None
    what = "attack texts among them" if has_texts else "hashes only"
    searched = "Words in texts, ids, categories" if has_texts else "Ids, categories, hashes"
    total = count_text(len(samples))
    return [
        '<details class="all">',
        f'<summary>Read the {total} listed samples <span class="size">{what}</span></summary>',
        '<form class="controls" hidden>',
        '<fieldset class="chips">',
        "<legend>Kind</legend>",
        f'<button type="button" aria-pressed="true" data-kind="">All <span>{total}</span></button>',
        *(_chip(count) for count in block.counts),
        "</fieldset>",
        '<div class="fields">',
        (
            '<label class="wide">Search <input type="search" autocomplete="off" spellcheck="false" '
            f'placeholder="{searched}"></label>'
        ),
        *(_choice(name, choices) for name, choices in filters_of(block, page)),
        "</div>",
        (
            '<p class="count"><span role="status"></span> '
            '<button type="reset">Clear filters</button></p>'
        ),
        "</form>",
        *_list(samples),
        '<p class="more" hidden><button type="button">Show 50 more</button></p>',
        "</details>",
    ]


def _chip(count: SampleCount) -> str:
    words = KINDS[count.kind]
    return (
        f'<button type="button" aria-pressed="false" data-kind="{words.token}">'
        f"{words.name} <span>{count_text(count.listed)}</span></button>"
    )


def _choice(name: str, choices: Sequence[tuple[str, str]]) -> str:
    options = ['<option value="">Any</option>']
    for token, words in choices:
        options.append(f'<option value="{token}">{escape(words)}</option>')
    return f"<label>{escape(name)} <select>{''.join(options)}</select></label>"


def _list(samples: Sequence[ShownSample]) -> list[str]:
    return ['<ol class="samples">', *(_sample_html(sample) for sample in samples), "</ol>"]


def _sample_html(sample: ShownSample) -> str:
    """Write one sample: its head, its text where texts are shown, what each defense said."""
    entry = sample.entry
    lines = [f'<li data-t="{sample.tokens}"><details>{_summary(sample)}']
    if sample.markup is not None:
        lines.append(f'<pre dir="auto">{sample.markup}</pre>')
        for who, text in sample.story:
            lines += [f'<p class="step">{escape(who)}</p>', f'<pre dir="auto">{text}</pre>']
    label = "Attack" if entry.is_attack else "Benign"
    cut = ""
    if sample.markup is not None and sample.characters < entry.characters:
        cut = f", the first {count_text(sample.characters)} shown"
    lines += [
        (
            f'<p class="meta">{label}, {count_text(entry.characters)} characters{cut}. '
            f"SHA-256 <code>{escape(entry.sha256)}</code></p>"
        ),
        "<ul>",
        *(_answer_html(answer) for answer in sample.answers),
        "</ul>",
        "</details></li>",
    ]
    return "\n".join(lines)


def _summary(sample: ShownSample) -> str:
    """Write the head of a sample: its kinds, its id, its facets, who was mistaken."""
    entry = sample.entry
    kinds = [f'<b class="kind {kind.value}">{KINDS[kind].name}</b>' for kind in entry.kinds]
    facets = escape(" · ".join(value for _, value in entry.facets))
    mistaken = [answer.defense for answer in sample.answers if answer.flaw]
    who = ""
    if mistaken:
        what = "let through by" if entry.is_attack else "blocked by"
        who = f'<span class="who">{what} {escape(", ".join(mistaken[:_MOST_NAMED]))}'
        if len(mistaken) > _MOST_NAMED:
            who += f" and {len(mistaken) - _MOST_NAMED} more"
        who += "</span>"
    return (
        f"<summary>{''.join(kinds)}<code>{escape(entry.sample_id)}</code>"
        f'<span class="facets">{facets}</span>{who}</summary>'
    )


def _answer_html(answer: SampleAnswer) -> str:
    words = f"<code>{escape(answer.defense)}</code> {escape(answer.outcome or 'not asked')}"
    if answer.error_kind:
        words += f" ({escape(answer.error_kind)})"
    if answer.flaw:
        words += f", <b>{KINDS[answer.flaw].name.lower()}</b>"
    if answer.score is not None:
        words += f"; score {answer.score:.3f}"
        if answer.threshold is not None:
            words += f", blocks from {answer.threshold:.3f}"
    return f"<li>{words}</li>"


def show_samples(browser: SampleBrowser, page: Page) -> tuple[ShownSample, ...]:
    """Make the samples of a list ready for the page."""
    facets = _facet_tokens(browser)
    return tuple(_sample(entry, page, facets) for entry in browser.entries)


def filters_of(
    browser: SampleBrowser, page: Page
) -> Iterator[tuple[str, Sequence[tuple[str, str]]]]:
    """Yield what samples can be filtered by beside their kind: its name, tokens and words."""
    seen = {answer.defense for entry in browser.entries for answer in entry.answers}
    choices: dict[str, list[tuple[str, str]]] = {
        "Defense": [(f"d{index}", name) for name, index in page.series.items() if name in seen]
    }
    for (facet, value), token in _facet_tokens(browser).items():
        choices.setdefault(facet.capitalize(), []).append((token, value))
    yield from ((name, each) for name, each in choices.items() if 1 < len(each) < _MOST_CHOICES)


def _facet_tokens(browser: SampleBrowser) -> dict[tuple[str, str], str]:
    seen = dict.fromkeys(facet for entry in browser.entries for facet in entry.facets)
    names = list(dict.fromkeys(name for name, _ in seen))
    pairs = sorted(seen, key=lambda pair: (names.index(pair[0]), pair[1]))
    return {pair: f"f{number}" for number, pair in enumerate(pairs)}


def _sample(entry: SampleEntry, page: Page, facets: Mapping[tuple[str, str], str]) -> ShownSample:
    answers = tuple(each for each in entry.answers if each.defense in page.series)
    tokens = [KINDS[kind].token for kind in entry.kinds]
    tokens.extend(facets[facet] for facet in entry.facets)
    for answer in answers:
        if answer.flaw is not None:
            defense = f"d{page.series[answer.defense]}"
            # The pair too: "false alarm of this defense" is more than both by themselves.
            tokens.extend((defense, f"{KINDS[answer.flaw].token}{defense}"))
    markup, characters, story = None, 0, []
    most = page.text_bytes
    if most is not None:
        markup, characters = show_text(entry.excerpt, most_bytes=most)
        story = [(who, show_text(text, most_bytes=most)[0]) for who, text in entry.story]
    return ShownSample(
        entry=entry,
        markup=markup,
        characters=characters,
        tokens=" ".join(tokens),
        answers=answers,
        story=tuple(story),
    )


_SHARE: Final = re.compile(r"(?:&[lg]t; )?\d[\d.,]*\xa0%")
_CLAUSES: Final = re.compile(r"(?<=;) |(?<=,) (?=wrongly )")
_BRACKETS: Final = re.compile(r"\[[^\[\]]{1,40}\]")
_UNITS: Final = re.compile(r"(?<=\d) (?=(?:%|ms|µs|s|points)(?!\w))")


def show_text(text: str, *, most_bytes: int) -> tuple[Markup, int]:
    """Escape a text and spell out what it hides; return it, and how many characters it shows."""
    text = text.replace("\r\n", "\n")
    shown, markup = len(text), _spelled(text)
    size = len(markup.encode())
    while size > most_bytes:
        shown = min(shown - 1, shown * most_bytes // size)
        markup = _spelled(text[:shown])
        size = len(markup.encode())
    return markup, shown


def flowing(text: str) -> str:
    """Keep a figure and its unit on one line, and an interval too."""
    text = _BRACKETS.sub(lambda match: match.group().replace(" ", "\xa0"), text)
    return _UNITS.sub("\xa0", text)


def verdict_line(sentence: str) -> Markup:
    """Set a verdict in clauses, with the shares stressed."""
    clauses = [
        # The clause is escaped before the stress is put in.
        Markup(_SHARE.sub(r"<b>\g<0></b>", str(escape(clause))))  # noqa: S704
        for clause in _CLAUSES.split(flowing(sentence))
    ]
    return Markup(" ").join(Markup("<span>{}</span>").format(clause) for clause in clauses)


def _spelled(text: str) -> Markup:
    mark = Markup("<i>{}</i>")
    return Markup("").join(
        mark.format(piece) if is_hidden else escape(piece)
        for piece, is_hidden in hidden_pieces(text)
    )
