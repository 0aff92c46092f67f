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
    contents, searched = "attack texts among them", "Words in texts, ids, categories"
    if page.text_bytes is None:
        contents, searched = "hashes only", "Ids, categories, hashes"
    total = count_text(len(samples))
    lines = [
        '<details class="all">',
        f'<summary>Read the {total} listed samples <span class="size">{contents}</span></summary>',
        '<form class="controls" hidden>',
        '<fieldset class="chips">',
        "<legend>Kind</legend>",
        f'<button type="button" aria-pressed="true" data-kind="">All <span>{total}</span></button>',
    ]
    lines += map(_chip, block.counts)
    lines += [
        "</fieldset>",
        '<div class="fields">',
        (
            '<label class="wide">Search <input type="search" autocomplete="off" spellcheck="false" '
            f'placeholder="{searched}"></label>'
        ),
    ]
    for name, choices in filters_of(block, page):
        lines.append(_choice(name, choices))
    lines += [
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
    return lines


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
    return ['<ol class="samples">', *map(_sample_html, samples), "</ol>"]


def _sample_html(sample: ShownSample) -> str:
    """Write one sample: its head, its text where texts are shown, what each defense said."""
    entry = sample.entry
    lines = [f'<li data-t="{sample.tokens}"><details>{_summary(sample)}']
    if sample.markup is not None:
        lines.append(f'<pre dir="auto">{sample.markup}</pre>')
        for who, text in sample.story:
            lines += [f'<p class="step">{escape(who)}</p>', f'<pre dir="auto">{text}</pre>']
    label, cut = "Benign", ""
    if entry.is_attack:
        label = "Attack"
    if sample.markup is not None and sample.characters < entry.characters:
        cut = f", the first {count_text(sample.characters)} shown"
    lines += [
        (
            f'<p class="meta">{label}, {count_text(entry.characters)} characters{cut}. '
            f"SHA-256 <code>{escape(entry.sha256)}</code></p>"
        ),
        "<ul>",
        *map(_answer_html, sample.answers),
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
    flaw = ""
    if mistaken:
        error = "blocked by"
        if entry.is_attack:
            error = "let through by"
        flaw = f'<span class="who">{error} {escape(", ".join(mistaken[:_MOST_NAMED]))}'
        if len(mistaken) > _MOST_NAMED:
            flaw += f" and {len(mistaken) - _MOST_NAMED} more"
        flaw += "</span>"
    return (
        f"<summary>{''.join(kinds)}<code>{escape(entry.sample_id)}</code>"
        f'<span class="facets">{facets}</span>{flaw}</summary>'
    )


def _answer_html(answer: SampleAnswer) -> str:
    """Write what a defense answered, with its score where it gave one."""
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
    asked: set[str] = set()
    for entry in browser.entries:
        asked.update(answer.defense for answer in entry.answers)
    choices: dict[str, list[tuple[str, str]]] = {"Defense": []}
    for defense, index in page.series.items():
        if defense in asked:
            choices["Defense"].append((f"d{index}", defense))
    for (facet, value), token in _facet_tokens(browser).items():
        choices.setdefault(facet.capitalize(), []).append((token, value))
    for name, of_name in choices.items():
        if 1 < len(of_name) < _MOST_CHOICES:
            yield name, of_name


def _facet_tokens(browser: SampleBrowser) -> dict[tuple[str, str], str]:
    """Return a token for each value of a facet; facets in the order in which they come up."""
    by_facet: dict[str, set[str]] = {}
    for entry in browser.entries:
        for facet, value in entry.facets:
            by_facet.setdefault(facet, set()).add(value)
    tokens: dict[tuple[str, str], str] = {}
    for facet, values in by_facet.items():
        for value in sorted(values):
            tokens[facet, value] = f"f{len(tokens)}"
    return tokens


def _sample(entry: SampleEntry, page: Page, facets: Mapping[tuple[str, str], str]) -> ShownSample:
    """Make one sample ready: cut its texts, and collect the tokens it is found by."""
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
    clauses = []
    for clause in _CLAUSES.split(flowing(sentence)):
        # The clause is escaped before the stress is put in.
        stressed = Markup(_SHARE.sub(r"<b>\g<0></b>", str(escape(clause))))  # noqa: S704
        clauses.append(Markup("<span>{}</span>").format(stressed))
    return Markup(" ").join(clauses)


def _spelled(text: str) -> Markup:
    """Escape a text, with what it hides spelled out and marked."""
    mark = Markup("<i>{}</i>")
    pieces = []
    for piece, is_hidden in hidden_pieces(text):
        if is_hidden:
            pieces.append(mark.format(piece))
        else:
            pieces.append(escape(piece))
    return Markup("").join(pieces)
