"""Which parts of the taxonomy were tested, and which a defense addresses."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

import numpy as np

if TYPE_CHECKING:
    from guardmark.analysis.defense.frame import Frame
    from guardmark.analysis.defense.slices import SliceTable
    from guardmark.analysis.settings import AnalysisSettings
    from guardmark.core.estimate import Estimate


class CategoryStatus(StrEnum):
    """How a defense stands towards a category."""

    ADDRESSED = "addressed"
    NOT_ADDRESSED = "not addressed"
    NOT_ASSESSABLE = "not assessable"
    NOT_TESTED = "not tested"


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoryCount:
    """How many attacks of one category the data holds.

    Attributes:
        name: Of the category, or `category/subcategory`.
        attacks: Attack samples.
        is_declared: Whether the taxonomy of the run declares it.
    """

    name: str
    attacks: int
    is_declared: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TaxonomyCoverage:
    """What of the taxonomy the data touches.

    Attributes:
        categories: Every declared category, then undeclared ones that occur.
        subcategories: Likewise for subcategories.
    """

    DERIVED: ClassVar = ("declared", "tested", "gaps", "undeclared")

    categories: tuple[CategoryCount, ...]
    subcategories: tuple[CategoryCount, ...]

    @property
    def tested(self) -> int:
        """Declared categories with at least one attack."""
        return sum(1 for each in self.categories if each.is_declared and each.attacks)

    @property
    def declared(self) -> int:
        """Declared categories."""
        return sum(1 for each in self.categories if each.is_declared)

    @property
    def gaps(self) -> tuple[str, ...]:
        """Declared categories and subcategories without any attack."""
        both = (*self.categories, *self.subcategories)
        return tuple(each.name for each in both if each.is_declared and not each.attacks)

    @property
    def undeclared(self) -> tuple[str, ...]:
        """Categories and subcategories that occur without being declared."""
        both = (*self.categories, *self.subcategories)
        return tuple(each.name for each in both if not each.is_declared)


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoryStanding:
    """How one defense stands towards one category.

    Attributes:
        category: Its name.
        standing: Addressed when the lower bound of its true positive rate lies above the upper
            bound of the overall false positive rate.
    """

    category: str
    standing: CategoryStatus


def count_taxonomy(frame: Frame) -> TaxonomyCoverage:
    """Count the attacks of every category and subcategory."""
    declared = frame.manifest.categories
    outer = _attacks_by(frame, "category")
    inner = _attacks_by(frame, "subcategory")
    pairs = [f"{name}/{sub}" for name, subs in declared.items() for sub in subs]
    return TaxonomyCoverage(
        categories=_counts(list(declared), outer), subcategories=_counts(pairs, inner)
    )


def assess_categories(
    coverage: TaxonomyCoverage,
    by_category: SliceTable,
    *,
    overall: Estimate,
    settings: AnalysisSettings,
) -> tuple[CategoryStanding, ...]:
    """Tell which categories a defense addresses."""
    rates = {entry.name: entry.rate for entry in by_category.rates}
    found = []
    for category in coverage.categories:
        if not category.is_declared:
            continue
        rate = rates.get(category.name)
        standing = CategoryStatus.NOT_TESTED
        if rate is not None and category.attacks:
            standing = _standing(rate, overall, settings.min_per_category)
        found.append(CategoryStanding(category=category.name, standing=standing))
    return tuple(found)


def _standing(success: Estimate, overall: Estimate, minimum: int) -> CategoryStatus:
    if success.trials < minimum or success.few_groups:
        return CategoryStatus.NOT_ASSESSABLE
    if success.high is None or overall.high is None:
        return CategoryStatus.NOT_ASSESSABLE
    return (
        CategoryStatus.ADDRESSED
        if 1 - success.high > overall.high
        else CategoryStatus.NOT_ADDRESSED
    )


def _attacks_by(frame: Frame, facet: str) -> dict[str, int]:
    column = frame.facet(facet)
    codes = column.codes[frame.samples.is_attack]
    counts = np.bincount(codes, minlength=len(column.names)).tolist()
    return {name: count for name, count in zip(column.names, counts, strict=True) if name and count}


def _counts(declared: list[str], found: dict[str, int]) -> tuple[CategoryCount, ...]:
    known = [CategoryCount(name=name, attacks=found.get(name, 0)) for name in declared]
    others = [
        CategoryCount(name=name, attacks=count, is_declared=False)
        for name, count in sorted(found.items())
        if name not in declared
    ]
    return (*known, *others)
