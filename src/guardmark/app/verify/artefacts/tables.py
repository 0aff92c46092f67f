"""Tables of slices against the slices that were counted again, cell by cell."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from guardmark.app.verify.difference import Comparer

Json = dict[str, Any]

_TABLED: Final = (
    "category",
    "subcategory",
    "severity",
    "language",
    "length",
    "technique",
    "source",
)
_VARIANTS: Final = ("variant", "technique")
_SYSTEM: Final = (
    ("attack", "attack_success_rate"),
    ("benign", "over_refusal_rate"),
)


def check_table(path: Path, told: Sequence[Json], comparer: Comparer) -> None:
    """Compare every cell of a CSV of slices."""
    stream = io.StringIO(path.read_text(encoding="utf-8", errors="replace"), newline="")
    rows = list(csv.DictReader(stream))
    comparer.value(path.name, "rows", said=len(rows), found=len(told))
    for number, (row, found) in enumerate(zip(rows, told, strict=False), 2):
        for column, value in found.items():
            place = f"row {number}, {column}"
            comparer.value(path.name, place, said=read_cell(row.get(column), value), found=value)


def recount_categories(summary: Json) -> list[Json]:
    """Return the rows of `categories.csv`, by column."""
    return list(_slices(summary, _TABLED))


def recount_variants(summary: Json) -> list[Json]:
    """Return the rows of `variant_metrics.csv`: slices of defenses, then the arms of a pipeline."""
    return [*_slices(summary, _VARIANTS), *_arms(summary)]


def _slices(summary: Json, facets: Sequence[str]) -> Iterator[Json]:
    for defense in summary["defenses"]:
        times = {
            (table["facet"], table["label"]): table["median_ms"]
            for table in summary["timing"]["defenses"][defense["name"]]["slice_medians"]
        }
        for table in defense["slices"]:
            if table["facet"] not in facets:
                continue
            is_attack = table["label"] == "attack"
            for row in table["rates"]:
                yield {
                    "defense": defense["name"],
                    "facet": table["facet"],
                    "label": table["label"],
                    "rate": "attack_success_rate" if is_attack else "false_positive_rate",
                    "value": row["name"],
                    "asked": row["asked"],
                    **_figures(row["rate"]),
                    "is_greyed": "yes" if row["is_greyed"] else "no",
                    "folded": row["folded"],
                    "median_latency_ms": times[table["facet"], table["label"]][row["name"]],
                }


def _arms(summary: Json) -> Iterator[Json]:
    """Return the rows of a pipeline's arms, whose rates are those of the whole system."""
    for arm in (summary["pipeline"] or {"arms": []})["arms"]:
        for each in arm["variants"]:
            for label, rate in _SYSTEM:
                yield {
                    "defense": arm["name"],
                    "facet": "variant",
                    "label": label,
                    "rate": f"system_{rate}",
                    "value": each["variant"],
                    "asked": None,
                    **_figures(each[rate]),
                    "is_greyed": "yes" if each[rate]["few_groups"] else "no",
                    "folded": 0,
                    "median_latency_ms": None,
                }


def _figures(rate: Json) -> Json:
    return {
        "answered": rate["trials"],
        "errors_counted": rate["successes"],
        "estimate": rate["value"],
        **{
            name: rate[name]
            for name in (
                "low",
                "high",
                "confidence",
                "method",
                "groups",
                "effective_n",
                "design_effect",
            )
        },
    }


def read_cell(text: str | None, beside: object) -> object:
    """Read a cell in the type of what it is compared with."""
    if text is None or (text == "" and beside is None):
        return None
    if isinstance(beside, int | float):
        try:
            return float(text)
        except ValueError:
            return text
    # A cell that a spreadsheet could take for a formula is kept inert by an apostrophe.
    return text[1:] if isinstance(beside, str) and text == f"'{beside}" else text
