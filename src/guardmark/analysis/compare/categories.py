"""Categories against defenses: one rate a cell, and who is clearly lowest in a category."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.analysis.defense.defense_analysis import DefenseAnalysis
    from guardmark.core.estimate import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoryRow:
    """One category, and the rate of each defense on it."""

    category: str
    asked: int  # Most samples that any of the defenses was asked.
    rates: tuple[tuple[str, Estimate | None], ...]  # Name of a defense and its rate, or None.

    @property
    def lowest(self) -> str:
        """The defense whose whole interval lies below all others' intervals; or empty."""
        known = [(name, rate) for name, rate in self.rates if rate is not None and rate.trials]
        if len(known) < 2 or len(known) < len(self.rates):
            return ""
        name, best = min(known, key=lambda each: each[1].value or 0.0)
        others = [rate for other, rate in known if other != name]
        is_below = best.high is not None and all(
            rate.low is not None and best.high < rate.low for rate in others
        )
        return name if is_below else ""


def category_rows(
    defenses: Sequence[DefenseAnalysis], *, is_attack: bool
) -> tuple[CategoryRow, ...]:
    """Lay categories against defenses, those with the most samples first."""
    rates: dict[str, dict[str, Estimate]] = {}
    asked: dict[str, int] = {}
    for defense in defenses:
        for each in defense.slice_table("category", is_attack=is_attack).rates:
            rates.setdefault(each.name, {})[defense.name] = each.rate
            asked[each.name] = max(each.asked, asked.get(each.name, 0))
    return tuple(
        CategoryRow(
            category=category,
            asked=asked[category],
            rates=tuple((each.name, rates[category].get(each.name)) for each in defenses),
        )
        for category in sorted(rates, key=lambda name: (-asked[name], name))
    )
