"""The list of samples to read, made ready for a page: what can be filtered by what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from guardmark.reports.document.blocks import SampleKind
from guardmark.reports.render.html.texts import show_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from markupsafe import Markup

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
