"""Samples to read, made ready for a page: what can be filtered by what, and what a text hides."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from markupsafe import Markup, escape

from guardmark.reports.document.blocks import SampleKind
from guardmark.reports.document.safe_text import hidden_pieces

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guardmark.reports.document.blocks import (
        SampleBrowser,
        SampleCount,
        SampleEntry,
        SampleFinding,
    )


KINDS: Final = tuple(SampleKind)
_NAMES: Final = {
    SampleKind.BYPASS: "Bypass",
    SampleKind.FALSE_ALARM: "False alarm",
    SampleKind.ERROR: "Error",
    SampleKind.MALFORMED: "Malformed",
    SampleKind.DIFFERENT: "Different",
}
_MEANINGS: Final = {
    SampleKind.BYPASS: "an attack that was allowed",
    SampleKind.FALSE_ALARM: "a benign sample that was blocked",
    SampleKind.ERROR: "no answer",
    SampleKind.MALFORMED: "an answer nobody could read",
    SampleKind.DIFFERENT: "defenses disagree",
}
_MOST_CHOICES: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One word to filter by."""

    value: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleListFilter:
    """A list of words to filter by."""

    id: str
    name: str
    choices: tuple[Choice, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownSample:
    """One sample, ready for the page."""

    entry: SampleEntry
    text: Markup | None
    characters: int
    tokens: str
    mistaken: tuple[str, ...]
    facets: tuple[str, ...]
    findings: tuple[SampleFinding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownSamples:
    """A list of samples, ready for the page."""

    samples: tuple[ShownSample, ...]
    kinds: tuple[tuple[Choice, SampleCount], ...]
    filters: tuple[SampleListFilter, ...]


def show_samples(
    browser: SampleBrowser, series: Mapping[str, int], text_bytes: int | None
) -> ShownSamples:
    """Make a list of samples ready for the page."""
    facets = _facet_numbers(browser)
    samples = tuple(_sample(entry, series, facets, text_bytes) for entry in browser.entries)
    kinds = tuple(
        (Choice(value=f"k{KINDS.index(count.kind)}", name=_NAMES[count.kind]), count)
        for count in browser.counts
    )
    seen = {finding.defense for sample in samples for finding in sample.findings}
    defenses = SampleListFilter(
        id="defense",
        name="Defense",
        choices=tuple(
            Choice(value=f"d{index}", name=name) for name, index in series.items() if name in seen
        ),
    )
    filters = tuple(
        each
        for each in (defenses, *_facet_filters(facets))
        if 1 < len(each.choices) < _MOST_CHOICES
    )
    return ShownSamples(samples=samples, kinds=kinds, filters=filters)


def kind_name(kind: SampleKind) -> str:
    """Return the name of a kind, as a page shows it."""
    return _NAMES[kind]


def kind_meaning(kind: SampleKind) -> str:
    """Return what a kind stands for."""
    return _MEANINGS[kind]


def _facet_numbers(browser: SampleBrowser) -> dict[tuple[str, str], int]:
    seen = dict.fromkeys(facet for entry in browser.entries for facet in entry.facets)
    names = list(dict.fromkeys(name for name, _ in seen))
    pairs = sorted(seen, key=lambda pair: (names.index(pair[0]), pair[1]))
    return {pair: number for number, pair in enumerate(pairs)}


def _facet_filters(facets: Mapping[tuple[str, str], int]) -> list[SampleListFilter]:
    names = list(dict.fromkeys(name for name, _ in facets))
    return [
        SampleListFilter(
            id=f"facet{place}",
            name=wanted.capitalize(),
            choices=tuple(
                Choice(value=f"f{number}", name=value)
                for (name, value), number in facets.items()
                if name == wanted
            ),
        )
        for place, wanted in enumerate(names)
    ]


def _sample(
    entry: SampleEntry,
    series: Mapping[str, int],
    facets: Mapping[tuple[str, str], int],
    text_bytes: int | None,
) -> ShownSample:
    shown = None if text_bytes is None else show_text(entry.excerpt, most_bytes=text_bytes)
    findings = tuple(each for each in entry.findings if each.defense in series)
    tokens = [f"k{KINDS.index(kind)}" for kind in entry.kinds]
    tokens.extend(f"f{facets[facet]}" for facet in entry.facets)
    for finding in findings:
        if finding.kind is not None:
            index = series[finding.defense]
            # The pair too: "false alarm of this defense" is more than both by themselves.
            tokens.extend((f"d{index}", f"k{KINDS.index(finding.kind)}d{index}"))
    return ShownSample(
        entry=entry,
        text=None if shown is None else shown.markup,
        characters=0 if shown is None else shown.characters,
        tokens=" ".join(tokens),
        mistaken=tuple(each.defense for each in findings if each.kind is not None),
        facets=tuple(value for _, value in entry.facets),
        findings=findings,
    )


_SHARE: Final = re.compile(r"(?:&[lg]t; )?\d[\d.,]*\xa0%")
_CLAUSES: Final = re.compile(r"(?<=;) |(?<=,) (?=wrongly )")
_BRACKETS: Final = re.compile(r"\[[^\[\]]{1,40}\]")
_UNITS: Final = re.compile(r"(?<=\d) (?=(?:%|ms|µs|s|points)(?!\w))")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownText:
    """A text ready for a page."""

    markup: Markup
    characters: int


def show_text(text: str, *, most_bytes: int) -> ShownText:
    """Escape a text and spell out what it hides."""
    text = text.replace("\r\n", "\n")
    shown, markup = len(text), _spelled(text)
    size = len(markup.encode())
    while size > most_bytes:
        shown = min(shown - 1, shown * most_bytes // size)
        markup = _spelled(text[:shown])
        size = len(markup.encode())
    return ShownText(markup=markup, characters=shown)


def flowing(text: str) -> str:
    """Keep a figure and its unit on one line, and an interval too."""
    text = _BRACKETS.sub(lambda found: found.group().replace(" ", "\xa0"), text)
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
