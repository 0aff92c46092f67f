"""Samples to read, made ready for a page: what can be filtered by what, and what a text hides."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from markupsafe import Markup, escape

from guardmark.analysis.defense.bypasses import Flaw
from guardmark.canon.visible import hidden_pieces

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from guardmark.analysis.defense.bypasses import SampleAnswer
    from guardmark.reports.document.blocks import SampleBrowser, SampleEntry
    from guardmark.reports.render.html.layout import Page

_MOST_CHOICES: Final = 60


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
    if (most := page.text_bytes) is not None:
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
