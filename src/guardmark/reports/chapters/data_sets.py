"""A data set: whether it can carry conclusions, question by question, and what it consists of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from guardmark.core.errors import counted
from guardmark.reports.document.blocks import Document, Table, section
from guardmark.reports.document.cells import name, slug, table_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from guardmark.core.manifest import DataManifest, PartManifest
    from guardmark.datasets.checks.census import Census, Count
    from guardmark.datasets.checks.issues import DataCheck

_ROWS: Final = 16


def check_document(check: DataCheck, shown_as: str) -> Document:
    """Check whether data can support conclusions."""
    of = check.census.total
    counts = (
        f"{counted(of.samples, 'sample')}, {counted(of.attacks, 'attack')} and {of.benign:,} benign"
    )
    asked = (
        section(slug(each.aspect), f"{each.aspect}: {each.status}", each.message, each.details)
        for each in check.findings
    )
    return Document(title=f"Data: {shown_as}", subtitle=counts, sections=tuple(asked))


def training_warnings(parts: Sequence[PartManifest], data: Sequence[DataManifest]) -> Iterator[str]:
    """Name the data that a defense is known to have been trained on."""
    for part in parts:
        known: Any = part.settings.get("trained_on") or {}
        folders = tuple(f"{name}/" for name in known.get("data", ()))
        for each in data:
            if any(file.startswith(folders) for file in each.files):
                yield (
                    f"{part.name} was trained on {each.name} or another part of that set, says "
                    f"{known['source']}: its rates there do not show how it does on texts unlike "
                    "those it learned from."
                )


def census_document(
    census: Census, half_width: Callable[[float], float], *, shown_as: str
) -> Document:
    """Say what a data set consists of, a table for each facet that is stated."""
    facets = {
        "label": (census.total,),
        "category of attacks": census.categories,
        "subcategory of attacks": census.subcategories,
        "severity of attacks": census.severities,
        "topic of benign": census.topics,
        "language": census.languages,
        "technique": census.techniques,
        "variant": census.variants,
        "source": census.sources,
    }
    tables = (_facet(facet, each, half_width) for facet, each in facets.items() if each)
    parts = section("data", "", *tables, *_texts(census))
    return Document(title=f"Data: {shown_as}", subtitle="", sections=(parts,))


def _facet(facet: str, counts: Sequence[Count], half_width: Callable[[float], float]) -> Table:
    shown = counts[:_ROWS] if len(counts) > _ROWS + 1 else counts
    rest = counts[len(shown) :]
    more = f"and {len(rest):,} more with {sum(each.samples for each in rest):,} samples"

    def half(samples: int) -> str:
        if samples:
            return f"{100 * half_width(samples):.1f}"
        return "-"

    return table_of(
        shown,
        {
            facet: lambda each: name(each.value),
            "attacks|±": lambda each: (each.attacks, half(each.attacks)),
            "benign|±": lambda each: (each.benign, half(each.benign)),
            "groups": lambda each: each.groups,
        },
        table_id=slug(facet),
        title="",
        note=more if rest else "",
    )


def _texts(census: Census) -> Iterator[str]:
    lengths = census.lengths
    if lengths is not None:
        yield (
            f"Characters: {lengths.shortest:,} to {lengths.longest:,}; 5 % up to {lengths.p5:,}, "
            f"half up to {lengths.p50:,}, 95 % up to {lengths.p95:,}."
        )
    yield (
        f"{census.conversations:,} conversations of several messages; in "
        f"{census.materials:,} a document or tool result is under test."
    )
    yield from (f"{o.kind}: {o.samples:,} ({', '.join(o.examples)})" for o in census.oddities)
    yield "± is half the interval of a rate of 50 % in points, were all samples independent."
