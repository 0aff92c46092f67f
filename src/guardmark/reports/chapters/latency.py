"""How long the defenses take, attacks and benign samples apart; and what calls consumed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.core.manifest import LatencyMode
from guardmark.core.record import FIRST_LAYER
from guardmark.reports.document.blocks import (
    Bullets,
    Histogram,
    Paragraph,
    Row,
    Section,
    Table,
    Tone,
    Unit,
    empty_section,
)
from guardmark.reports.document.cells import columns, name, of_quantile, row, slug
from guardmark.reports.document.wording import count_text, value_text

if TYPE_CHECKING:
    from guardmark.analysis.defense.latency import LatencyHistogram
    from guardmark.analysis.run import DefenseAnalysis, RunAnalysis
    from guardmark.reports.document.blocks import Block
    from guardmark.store.columns import PartUsage


_MODES = {
    LatencyMode.ISOLATED: "one call at a time, so times are those of an idle service",
    LatencyMode.LOADED: "several calls in flight; a slow answer holds back the next call, so "
    "times under a steady stream of requests may be longer",
    LatencyMode.OPEN: "calls at planned times, whether or not earlier ones have ended; times "
    "count from the plan",
}
_MOST_CHARTS = 6


def write(analysis: RunAnalysis) -> Section:
    """Write the section on latency."""
    timed = [each for each in analysis.defenses if _timed(each)]
    remarks = tuple(line for each in analysis.defenses for line in _remarks(each))
    spent = spending_blocks(analysis)
    if not timed:
        nothing = " ".join(["No answer was timed.", *remarks])
        if not spent:
            return empty_section("latency", "Latency", nothing)
        return Section(id="latency", title="Latency", blocks=(Paragraph(text=nothing), *spent))
    latency = timed[0].latency
    blocks: list[Block] = [
        Paragraph(
            text=f"Mode {latency.mode.value}: {_MODES[latency.mode]}. At most "
            f"{count_text(latency.concurrency)} in flight; {count_text(latency.warmup)} warm-up "
            "calls a defense are left out, and so are first calls and answers from the cache."
        ),
        _table(timed),
    ]
    if remarks:
        blocks.append(Bullets(lines=remarks))
    spreads = [(each.name, each.latency.histogram) for each in analysis.candidates]
    charted = [(name_, spread) for name_, spread in spreads if spread is not None]
    blocks.extend(_histogram(*each) for each in charted[:_MOST_CHARTS])
    return Section(id="latency", title="Latency", blocks=(*blocks, *spent))


def _timed(defense: DefenseAnalysis) -> int:
    return defense.latency.attacks.timed + defense.latency.benign.timed


def _table(timed: list[DefenseAnalysis]) -> Table:
    rows = []
    for defense in timed:
        for side in (defense.latency.attacks, defense.latency.benign):
            if not side.timed:
                continue
            rows.append(
                row(
                    name(defense.name),
                    "attacks" if side.is_attack else "benign",
                    *(of_quantile(quantile) for quantile in side.quantiles),
                    side.timed,
                    side.timeouts,
                    tone=Tone.MUTED if defense.is_baseline else Tone.PLAIN,
                )
            )
    return Table(
        id="latency-table",
        title="Service time",
        columns=columns(
            *("Defense", "Samples", "p50", "p95", "p99", "Timed", "Timeouts"), texts=("Samples",)
        ),
        rows=tuple(rows),
        note="Intervals are order statistics and assume no shape. A quantile the sample is too "
        "small for is undefined. Timeouts count as at least as long as was waited.",
    )


def _remarks(defense: DefenseAnalysis) -> list[str]:
    latency, remarks = defense.latency, []
    if latency.cold_ms:
        first = value_text(latency.cold_ms[0], Unit.MILLISECONDS)
        remarks.append(f"{defense.name}: the first call took {first} (cold start, left out).")
    if latency.is_amortised:
        remarks.append(f"{defense.name}: times are shares of a batch's time.")
    if latency.cached:
        remarks.append(f"{defense.name}: {count_text(latency.cached)} answers came from the cache.")
    return remarks


def _histogram(defense: str, spread: LatencyHistogram) -> Histogram:
    series = [("attacks", spread.attacks), ("benign", spread.benign)]
    return Histogram(
        id=f"latency-{slug(defense)}",
        title=f"{defense}: service time",
        axis="Service time",
        unit=Unit.MILLISECONDS,
        edges=spread.edges_ms,
        series=tuple((label, counts) for label, counts in series if any(counts)),
        logarithmic=True,
    )


SPENDING_TABLE: Final = "spending"
"""Id of the table."""

_STAGES: Final = {
    "defense": "defense",
    "warmup": "warm-up",
    "model": "target model",
    "judge": "judge",
    "try": "attacker's tries",
}


def spending_blocks(analysis: RunAnalysis) -> tuple[Block, ...]:
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
                *("Part", "At", "Calls", "Kept", "Tokens read", "Tokens written", "Cost"),
                texts=("At",),
            ),
            rows=tuple(_spending_row(each) for each in spent),
            note=note,
        ),
    )


def _spending_row(spent: PartUsage) -> Row:
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
