"""The area under an attacker's success, and two defenses by it: in words, as a table, as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.reports.document.blocks import Table, Unit
from guardmark.reports.document.cells import columns, figure, name, of_difference, of_ratio, row
from guardmark.reports.document.wording import count_text, measure_text, value_text
from guardmark.reports.encode import Json, difference_json, ratio_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guardmark.analysis.adaptive.area import AreaCard
    from guardmark.analysis.adaptive.card import AdaptiveCard
    from guardmark.analysis.adaptive.pairs import AdaptivePair
    from guardmark.core.estimate import Difference


def area_sentence(card: AdaptiveCard) -> str:
    """Say how large the area under the curve of success is, and what may be missing in it."""
    areas = (card.area.adaptive, card.area.blind)
    area, blind = (measure_text(of_ratio(each, Unit.NUMBER)) for each in areas)
    text = (
        f"{card.name}: area under ASR@k on log k up to {count_text(card.budget)}, of "
        f"{count_text(card.area.adaptive.trials)} attacks: {area} adaptive, {blind} blind "
        "(0: nothing got through, 1: everything at once)"
    )
    if card.area.given_up:
        text += (
            f"; {count_text(card.area.given_up)} held attacks had fewer tries than the budget, so "
            "it may be too low"
        )
    return text


def pair_lines(pairs: Sequence[AdaptivePair]) -> Iterator[str]:
    """Say of every two defenses which holds longer, a line each."""
    for pair in pairs:
        area = measure_text(of_difference(pair.area, Unit.NUMBER))
        outcome = measure_text(of_difference(pair.outcome))
        yield (
            f"{pair.first} minus {pair.second}, same {count_text(pair.attacks)} attacks (above 0: "
            f"{pair.first} falls sooner): area under ASR@k {area}, p "
            f"{value_text(pair.area_adjusted, Unit.P_VALUE)}; fallen by the end "
            f"{outcome}, p {value_text(pair.outcome_adjusted, Unit.P_VALUE)}"
        )


def pairs_table(pairs: Sequence[AdaptivePair]) -> Table | None:
    """Return every two defenses side by side, or None with fewer than two."""
    if not pairs:
        return None
    return Table(
        id="adaptive-pairs",
        title="Defenses under the same attacker, attack by attack",
        columns=columns(
            "First",
            "Second",
            "Attacks",
            "Area",
            "p area",
            "Fallen",
            "p fallen",
            texts=("Second",),
            meanings={
                "Area": "first minus second; above 0 the first falls sooner",
                "Fallen": "by the last round, first minus second",
            },
        ),
        rows=tuple(
            row(
                name(pair.first),
                name(pair.second),
                pair.attacks,
                of_difference(pair.area, Unit.NUMBER),
                figure(pair.area_adjusted, Unit.P_VALUE),
                pair.outcome,
                figure(pair.outcome_adjusted, Unit.P_VALUE),
            )
            for pair in pairs
        ),
        note="Over attacks that both answered. Area: under ASR@k on log k; its p is that of a "
        "permutation test over groups. Fallen: McNemar's test, or its form for groups. Each "
        "column of p is adjusted by Holm over the pairs.",
    )


def area_json(card: AreaCard) -> Json:
    """Encode the areas of a defense."""
    return {
        "adaptive": ratio_json(card.adaptive),
        "blind": ratio_json(card.blind),
        "given_up": card.given_up,
    }


def pairs_json(pairs: Sequence[AdaptivePair]) -> list[Json]:
    """Encode comparisons of defenses under the same attacker."""
    return [
        {
            "first": pair.first,
            "second": pair.second,
            "attacks": pair.attacks,
            "area": _side(pair.area, pair.area_adjusted),
            "outcome": _side(pair.outcome, pair.outcome_adjusted),
        }
        for pair in pairs
    ]


def _side(difference: Difference, adjusted: float | None) -> Json:
    return {"difference": difference_json(difference), "adjusted_p": adjusted}
