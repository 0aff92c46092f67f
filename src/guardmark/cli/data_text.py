"""What `guardmark data` prints for a person: findings, counts, hashes."""

from __future__ import annotations

import shutil
import textwrap
from typing import TYPE_CHECKING

import click

from guardmark.cli.terminal import one_line
from guardmark.reports.document.safe_text import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from guardmark.app.data.verbs import BuiltinEntry, DataHash, Deduplicated, Written
    from guardmark.datasets.checks.census import Census, Count
    from guardmark.datasets.checks.issues import DataCheck, DataIssue

_COLOURS = {"ok": "green", "warning": "yellow", "problem": "red", "not assessed": "blue"}
_INDENT = 31
_ROWS = 16
_NAME_WIDTH = 44


def check_lines(check: DataCheck, shown_as: str) -> Iterator[str]:
    """Say what was found, question by question."""
    census = check.census
    yield click.style(clean(shown_as), bold=True) + (
        f": {census.total.samples:,} samples, {census.attacks.samples:,} attacks and "
        f"{census.benign.samples:,} benign"
    )
    for finding in check.findings:
        yield ""
        yield from _finding_lines(finding)


def census_lines(census: Census, half_width: Callable[[float], float]) -> Iterator[str]:
    """Say what a data set consists of."""
    yield from _table("label", (census.total,), half_width)
    facets = (
        ("category of attacks", census.categories),
        ("subcategory of attacks", census.subcategories),
        ("severity of attacks", census.severities),
        ("topic of benign", census.topics),
        ("language", census.languages),
        ("technique", census.techniques),
        ("variant", census.variants),
        ("source", census.sources),
    )
    for name, counts in facets:
        if counts:
            yield ""
            yield from _table(name, counts, half_width)
    yield ""
    lengths = census.lengths
    if lengths is not None:
        yield (
            f"Characters: {lengths.shortest:,} to {lengths.longest:,}; 5 % up to {lengths.p5:,}, "
            f"half up to {lengths.p50:,}, 95 % up to {lengths.p95:,}."
        )
    yield (
        f"{census.conversations:,} conversations of several messages; in {census.materials:,} "
        "a document or tool result is under test."
    )
    for oddity in census.oddities:
        yield f"{oddity.kind}: {oddity.samples:,} ({clean(', '.join(oddity.examples))})"
    yield "± is half the interval of a rate of 50 % in points, were all samples independent."


def hash_lines(found: DataHash) -> Iterator[str]:
    """Say by which hashes a run names the data."""
    yield f"{found.sha256}  {clean(found.name)} (all, as in the manifest of a run)"
    for manifest in found.manifests:
        for name, file_hash in manifest.files.items():
            version = f" version {manifest.version}" if manifest.version else ""
            yield ""
            yield (
                f"{clean(name)}{clean(version)}: {manifest.attacks:,} attacks, "
                f"{manifest.benign:,} benign"
            )
            yield f"  content  {manifest.sha256}"
            yield f"  file     {file_hash}  (for sha256: in a configuration)"


def builtin_lines(entries: Sequence[BuiltinEntry]) -> Iterator[str]:
    """List the data sets that ship with guardmark."""
    for entry in entries:
        name = click.style(f"builtin:{entry.name}", bold=True)
        yield f"{name}  version {entry.version}  {entry.attacks:,} attacks, {entry.benign:,} benign"
        yield f"    {entry.purpose}"
        yield f"    sha256 {entry.sha256}"
        yield f"    card   {entry.card}"


def written_lines(written: Sequence[Written]) -> Iterator[str]:
    """Say which files were written."""
    width = max(len(each.path) for each in written)
    for each in written:
        yield (
            f"{clean(each.path):<{width}}  {each.attacks:,} attacks, {each.benign:,} benign, "
            f"{each.groups:,} groups"
        )
        if each.inert_cells:
            yield (
                f"  {each.inert_cells:,} cells got an apostrophe so that no spreadsheet runs them; "
                "guardmark takes it off again."
            )


def deduplicated_lines(done: Deduplicated, method: str) -> Iterator[str]:
    """Say which file was written and what was left out."""
    yield from written_lines([done.written])
    left_out = len(done.dropped)
    yield f"{left_out:,} {'sample' if left_out == 1 else 'samples'} left out ({method})."
    for each in done.dropped[:_ROWS]:
        names = f"{one_line(each.id, 60)} says what {one_line(each.kept, 60)} says"
        yield f"  {names} ({each.similarity:.2f})"
    if len(done.dropped) > _ROWS:
        yield f"  and {len(done.dropped) - _ROWS:,} more (--json lists all)"


def _finding_lines(finding: DataIssue) -> Iterator[str]:
    mark = click.style(f"{finding.status.value:<14}", fg=_COLOURS[finding.status.value])
    body = textwrap.wrap(clean(finding.message), _width() - _INDENT, break_on_hyphens=False)
    yield f"{mark}{finding.aspect:<{_INDENT - 14}}{body[0]}"
    for line in body[1:]:
        yield " " * _INDENT + line
    for detail in finding.details:
        folded = textwrap.wrap(
            clean(detail),
            _width() - _INDENT - 2,
            break_on_hyphens=False,
            break_long_words=False,
        )
        for index, line in enumerate(folded):
            lead = "· " if index == 0 else "  "
            yield click.style(" " * _INDENT + lead + line, dim=True)


def _table(
    name: str, counts: Sequence[Count], half_width: Callable[[float], float]
) -> Iterator[str]:
    shown = counts[:_ROWS] if len(counts) > _ROWS + 1 else counts
    width = max(len(name), *(len(one_line(c.value, _NAME_WIDTH)) for c in shown)) + 2
    heads = f"{'attacks':>9}{'±':>7}{'benign':>9}{'±':>7}{'groups':>9}"
    yield click.style(f"{name:<{width}}{heads}", bold=True)
    for count in shown:
        cells = "".join(
            f"{number:>9,}{_half(number, half_width):>7}"
            for number in (count.attacks, count.benign)
        )
        yield f"{one_line(count.value, _NAME_WIDTH):<{width}}{cells}{count.groups:>9,}"
    if len(counts) > len(shown):
        rest = counts[len(shown) :]
        yield f"and {len(rest):,} more with {sum(c.samples for c in rest):,} samples"


def _half(samples: int, half_width: Callable[[float], float]) -> str:
    return f"{100 * half_width(samples):.1f}" if samples else "-"


def _width() -> int:
    return min(max(shutil.get_terminal_size((100, 24)).columns, 70), 120)
