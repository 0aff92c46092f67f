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
    total = check.census.total
    counts = (
        f"{counted(total.samples, 'sample')}, {counted(total.attacks, 'attack')} and "
        f"{total.benign:,} benign"
    )
    sections = []
    for finding in check.findings:
        title = f"{finding.aspect}: {finding.status}"
        sections.append(section(slug(finding.aspect), title, finding.message, finding.details))
    return Document(title=f"Data: {shown_as}", subtitle=counts, sections=tuple(sections))


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
    tables = []
    for facet, values in facets.items():
        if values:
            tables.append(_facet(facet, values, half_width))
    parts = section("data", "", *tables, *_texts(census))
    return Document(title=f"Data: {shown_as}", subtitle="", sections=(parts,))


def _facet(facet: str, counts: Sequence[Count], half_width: Callable[[float], float]) -> Table:
    """Lay the first values of a facet; a single further one is shown, several are summed up."""
    shown, note = counts, ""
    if len(counts) > _ROWS + 1:
        shown, rest = counts[:_ROWS], counts[_ROWS:]
        samples = sum(each.samples for each in rest)
        note = f"and {len(rest):,} more with {samples:,} samples"

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
        note=note,
    )


def _texts(census: Census) -> Iterator[str]:
    """Say how long texts are, which are conversations, and what is odd about some."""
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
    for oddity in census.oddities:
        yield f"{oddity.kind}: {oddity.samples:,} ({', '.join(oddity.examples)})"
    yield "± is half the interval of a rate of 50 % in points, were all samples independent."
