"""What the calls of a run consumed: tokens, and money where a price is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.core.record import FIRST_LAYER
from guardmark.reports.document.blocks import Row, Table
from guardmark.reports.document.cells import columns, name, row
from guardmark.reports.document.wording import count_text

if TYPE_CHECKING:
    from guardmark.analysis.run import RunAnalysis
    from guardmark.reports.document.blocks import Block
    from guardmark.store.usage import PartUsage

SPENDING_TABLE: Final = "spending"
"""Id of the table."""

_STAGES: Final = {
    "defense": "defense",
    "warmup": "warm-up",
    "model": "target model",
    "judge": "judge",
    "try": "attacker's tries",
}


def write(analysis: RunAnalysis) -> tuple[Block, ...]:
    """Write what was consumed; nothing where no service reported any."""
    spent = analysis.spending
    if not spent:
        return ()
    priced = [each.cost for each in spent if each.cost is not None]
    note = (
        f"Together {_money(sum(priced))}, in the currency of the price table."
        if priced
        else "No price is known; prices: in the configuration says what tokens cost."
    )
    note += " Counts what services reported of answered calls; kept answers cost nothing again."
    return (
        Table(
            id=SPENDING_TABLE,
            title="What the calls consumed",
            columns=columns(
                "Part",
                "At",
                "Calls",
                "Kept",
                "Tokens read",
                "Tokens written",
                "Cost",
                texts=("At",),
            ),
            rows=tuple(_row(each) for each in spent),
            note=note,
        ),
    )


def _row(spent: PartUsage) -> Row:
    at = _STAGES.get(spent.stage, spent.stage)
    if spent.layer.partition("/")[0] != FIRST_LAYER:
        at += f" ({spent.layer})"
    cost = "not priced" if spent.cost is None else _money(spent.cost)
    if spent.cost is not None and spent.priced < spent.calls:
        cost += f" for {count_text(spent.priced)}"
    return row(
        name(spent.part),
        at,
        spent.calls,
        spent.recalled,
        _tokens(spent.tokens_read),
        _tokens(spent.tokens_written),
        cost,
    )


def _tokens(found: int | None) -> str:
    return "not reported" if found is None else count_text(found)


def _money(amount: float) -> str:
    return f"{amount:,.4f}" if amount < 100 else f"{amount:,.2f}"
