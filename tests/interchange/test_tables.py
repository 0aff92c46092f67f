"""Figures as CSV: every slice, at full precision, safe in a spreadsheet."""

from __future__ import annotations

import csv
import io

from tests.analysis.small_runs import Runs, attack, failed
from tests.reports.small_reports import bare_analysis, full_analysis

from guardmark.interchange.records.writing import HEAD, categories_csv, variants_csv


def test_csv_holds_every_slice_at_full_precision(runs: Runs) -> None:
    """Readable by any CSV reader, safe in a spreadsheet."""
    analysis = full_analysis(runs)
    rows = list(csv.DictReader(io.StringIO(categories_csv(analysis))))
    assert tuple(rows[0]) == HEAD
    first = next(row for row in rows if row["facet"] == "category" and row["defense"] == "words")
    entry = analysis.defenses[1].slice_table("category", is_attack=True).rates[0]
    assert float(first["estimate"]) == entry.rate.value
    assert int(first["errors_counted"]) == entry.rate.successes
    assert not any(row["facet"] == "variant" for row in rows)
    for row in rows:
        assert not row["value"].startswith(("=", "+", "-", "@"))
    assert any(row["value"].startswith("'=") for row in rows)


def test_csv_leaves_undefined_figures_empty(runs: Runs) -> None:
    """Empty, not zero."""
    samples = [attack(n) for n in range(20)]
    text = categories_csv(bare_analysis(runs, lambda _p, _s: failed(), samples=samples))
    row = next(csv.DictReader(io.StringIO(text)))
    assert (row["estimate"], row["low"], row["high"], row["answered"]) == ("", "", "", "0")


def test_variants_have_a_file_of_their_own(runs: Runs) -> None:
    """Variants and techniques."""
    rows = list(csv.DictReader(io.StringIO(variants_csv(full_analysis(runs)))))
    assert {row["facet"] for row in rows} == {"variant", "technique"}
