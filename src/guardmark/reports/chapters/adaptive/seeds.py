"""What several seeds of the search came to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guardmark.reports.document.blocks import FigureCell, Line, Row, Table, TextCell, Unit
from guardmark.reports.document.cells import columns, row, slug
from guardmark.reports.document.wording import count_text, measure_text, value_text

if TYPE_CHECKING:
    from guardmark.analysis.adaptive.card import AdaptiveCard
    from guardmark.analysis.adaptive.seeds import SeedsCard
    from guardmark.stats.rates.means import SeedMean


_SHOWN: Final = 10  # seeds whose own figures fit a table; `summary.json` has all


def of_mean(mean: SeedMean, unit: Unit = Unit.SHARE) -> FigureCell:
    """Turn a mean over seeds into a cell."""
    return FigureCell(
        value=mean.value,
        low=mean.low,
        high=mean.high,
        unit=unit,
        trials=mean.trials,
        reason=mean.reason,
    )


def headline(card: AdaptiveCard) -> SeedMean | None:
    """Return the mean that stands for the whole measurement, where there is one."""
    told = card.seeds
    return None if told is None or len(told.counted) < told.seeds else told.headline


def seeds_sentence(card: AdaptiveCard) -> str:
    """Say what got through on average over seeds and how far seeds differ; empty for one."""
    told = card.seeds
    if told is None or told.headline is None:
        return ""
    mean = told.headline
    spread = "undefined" if mean.spread is None else f"{100 * mean.spread:.1f} points"
    left_out = f"; {said}" if (said := _left_out(told)) else ""
    ends = f"{value_text(mean.least, Unit.SHARE)} to {value_text(mean.most, Unit.SHARE)}"
    return (
        f"{card.name}: seeds {len(told.counted)}: {measure_text(of_mean(mean))} got through on "
        f"average; between seeds {ends}, standard deviation {spread}{left_out}"
    )


def _left_out(told: SeedsCard) -> str:
    """Say which seed is not counted, and why; empty where all are."""
    if len(told.counted) == told.seeds:
        return ""
    return (
        "seed 1 is left out, since the attacker model (round 5) had its turn there and at no "
        "other seed"
    )


def seeds_table(card: AdaptiveCard) -> Table | None:
    """Return the figures over seeds, each seed's own beside them; None for one seed."""
    told = card.seeds
    if told is None:
        return None
    rows = [
        _row(f"{label} by {each.name}", mean)
        for each in told.rounds
        for label, mean in (("strict", each.strict), ("all proved tiers", each.full))
    ]
    rows += [_row(f"{each.arm} arm", each.at_budget) for each in told.arms]
    rows += [
        _row(f"adaptive minus blind at {count_text(k)}", gain, Unit.POINTS)
        for k, gain in told.gains
    ]
    rows += [
        _row("null minus static", told.null_gain, Unit.POINTS),
        _row("area, adaptive", told.area_adaptive, Unit.NUMBER),
        _row("area, blind", told.area_blind, Unit.NUMBER),
    ]
    if told.mean_tries is not None:
        rows.append(_row("mean tries up to the budget", told.mean_tries, Unit.NUMBER))
    left_out = f" {said.capitalize()}." if (said := _left_out(told)) else ""
    for label, estimate in (
        ("fell at any seed, strict", told.any_seed_strict),
        ("fell at any seed, all proved tiers", told.any_seed_full),
    ):
        blank = TextCell(text="")
        rows.append(row(label, estimate, blank, blank))
    return Table(
        id=f"adaptive-seeds-{slug(card.name)}",
        title=f"{card.name}: seeds {len(told.counted)}",
        columns=columns("Figure", "Mean over seeds", "Spread", "Each seed"),
        rows=tuple(rows),
        note="Rounds 2 to 4 and their control arms were carried out with each seed, each with a "
        "memory of its own; baseline, diagnosis and fixed list were asked once and are the same "
        "at every seed, so their luck is not in the spread. Intervals are over groups of attacks "
        "and seeds; spread: standard deviation between seeds. Fell at any seed is what somebody "
        "gets who carries out all of them: it rises with their number."
        f"{left_out}",
    )


def _row(label: str, mean: SeedMean, unit: Unit = Unit.SHARE) -> Row:
    by_seed = ", ".join(value_text(each, unit) for each in mean.by_seed[:_SHOWN])
    if mean.seeds > _SHOWN:
        by_seed += f" and {count_text(mean.seeds - _SHOWN)} more"
    return row(label, of_mean(mean, unit), _spread_text(mean, unit), by_seed)


def _spread_text(mean: SeedMean, unit: Unit) -> str:
    if mean.spread is None:
        return "undefined"
    if unit in {Unit.SHARE, Unit.POINTS}:
        return f"{100 * mean.spread:.1f} points"
    return value_text(mean.spread, unit)


def first_seed(card: AdaptiveCard) -> str:
    """Say that a table is of the first seed; empty where there is no other."""
    return "Seed 1, but for lines that name their seeds. " if card.seeds is not None else ""


def round_rows(card: AdaptiveCard) -> tuple[Row, ...]:
    """Return a line below the table of rounds for each round of the search, over seeds."""
    if card.seeds is None:
        return ()
    label = f"seeds {len(card.seeds.counted)}"
    return tuple(
        row(f"{label}: {each.name}", of_mean(each.strict), of_mean(each.full), "mean")
        for each in card.seeds.rounds
    )


def arm_rows(card: AdaptiveCard) -> tuple[Row, ...]:
    """Return a line for each arm over seeds, below those of the first one."""
    if card.seeds is None:
        return ()
    label, budget = f"seeds {len(card.seeds.counted)}", TextCell(text=count_text(card.budget))
    return tuple(
        row(f"{label}: {each.arm}", of_mean(each.at_budget), budget) for each in card.seeds.arms
    )


def seed_line(card: AdaptiveCard, arm: str) -> Line | None:
    """Return an arm's mean curve over seeds with its band, by share of the budget."""
    told = card.seeds
    curve = None if told is None else next((c for c in told.arms if c.arm == arm), None)
    if curve is None:
        return None
    start, last = card.rounds[0].full, curve.points[-1][0]
    shares = [(0, start.value, start.low, start.high)]
    shares += [(k, mean.value, mean.low, mean.high) for k, mean in curve.points]
    points, band = [], []
    for k, value, low, high in shares:
        if value is None or low is None or high is None:
            return None
        points.append((k / last, value))
        band.append((low, high))
    return Line(label=arm, points=tuple(points), band=tuple(band))
