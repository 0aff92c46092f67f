"""A run beside a framework, in words: evidence, what is only relevant, what is left open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.reports.document.blocks import Document, muted, section, warning
from guardmark.reports.document.cells import rate_text, table_of, words

if TYPE_CHECKING:
    from guardmark.analysis.crosswalk.crosswalk import CrosswalkRow
    from guardmark.analysis.frameworks.framework import Framework
    from guardmark.reports.document.blocks import Block

_MOST_RATES: Final = 6

NO_CONFORMITY: Final = (
    "This says which figures of the run are evidence for which item, no more. It does not say that "
    "anything conforms to the framework: that takes people, and much that no measurement shows."
)


def crosswalk_document(
    rows: tuple[CrosswalkRow, ...], framework: Framework, *, run: str
) -> Document:
    """Write a run beside a framework."""
    table = table_of(
        rows,
        {
            "Item": lambda each: words(f"{each.item.code} {each.item.title}"),
            "Evidence for it": lambda each: words(_evidence(each)),
            "Only relevant to it": lambda each: words("; ".join(each.relevant)),
            "Left open": lambda each: words("; ".join(each.left_open)),
        },
        table_id="crosswalk",
        title=f"{framework.name}, version {framework.version}",
        texts=("Evidence for it", "Only relevant to it", "Left open"),
    )
    source = muted(f"Codes and titles: {framework.source}, of {framework.date}.")
    return Document(
        title=f"Crosswalk: {framework.name} {framework.version}",
        subtitle=f"run {run}",
        sections=(
            section("crosswalk-of-run", "", _withdrawal(framework), NO_CONFORMITY, table, source),
        ),
    )


def _withdrawal(framework: Framework) -> Block | None:
    """Warn of a version that its publisher replaced."""
    if not framework.withdrawn:
        return None
    text = f"{framework.name} {framework.version} was withdrawn on {framework.withdrawn}."
    if framework.replaced_by:
        text += f" Use its successor: --crosswalk {framework.replaced_by}."
    return warning(text)


def _evidence(row: CrosswalkRow) -> str:
    shown = row.evidence[:_MOST_RATES]
    texts = [f"{each.defense}, {each.what}: {rate_text(each.rate)}" for each in shown]
    if len(row.evidence) > _MOST_RATES:
        texts.append(f"and {len(row.evidence) - _MOST_RATES} more rates")
    return "; ".join([*texts, *row.recorded])
