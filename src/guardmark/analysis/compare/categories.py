"""Categories against defenses: one rate a cell, and who is clearly lowest in a category."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guardmark.core.values import dataclass
from guardmark.stats.distributions import two_sided_z
from guardmark.stats.rates.clustered import EffectiveCounts
from guardmark.stats.rates.proportion import wilson_limits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guardmark.analysis.defense.defense_analysis import DefenseAnalysis
    from guardmark.core.estimate import Estimate
    from guardmark.stats.rates.proportion import Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoryRow:
    """One category, and the rate of each defense on it.

    Attributes:
        category: Name of the category.
        asked: Most samples that any of the defenses was asked.
        rates: Name of each defense and its rate, or None.
        lowest: The defense whose whole interval lies below all others' intervals, at the error that
            so many categories leave to one (Bonferroni); or empty.
    """

    category: str
    asked: int
    rates: tuple[tuple[str, Estimate | None], ...]
    lowest: str


def _clearly_lowest(rates: Sequence[tuple[str, Estimate | None]], *, categories: int) -> str:
    """Name the defense that is below all others in one of so many categories; empty for none."""
    limits: dict[str, Limits] = {}
    for name, rate in rates:
        if rate is None or rate.value is None or not rate.effective_n:
            return ""
        confidence = 1.0 - (1.0 - rate.confidence) / categories
        worth = EffectiveCounts.of(rate).worth(confidence)
        limits[name] = wilson_limits(rate.value, worth, z=two_sided_z(confidence))
    if len(limits) < 2:
        return ""
    lowest = min(limits, key=lambda name: limits[name].high)
    for name, other in limits.items():
        if name != lowest and other.low <= limits[lowest].high:
            return ""
    return lowest


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
    rows = []
    for category in sorted(rates, key=lambda name: (-asked[name], name)):
        mine = tuple((each.name, rates[category].get(each.name)) for each in defenses)
        rows.append(
            CategoryRow(
                category=category,
                asked=asked[category],
                rates=mine,
                lowest=_clearly_lowest(mine, categories=len(rates)),
            )
        )
    return tuple(rows)
