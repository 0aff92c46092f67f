"""The law of every interval in every JSON and CSV that is written: it holds its own figure."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.golden.folders import read_frozen
from tests.golden.runs import RUNS, GoldenRun

LEAST = 20
"""Intervals that even the smallest of the five runs holds."""


def intervals(document: Any, path: str = "") -> Iterator[tuple[str, float, float, float]]:
    """Every value with both limits in a document, with its place."""
    if isinstance(document, dict):
        told = [document.get(key) for key in ("low", "value", "high")]
        if all(isinstance(each, int | float) for each in told):
            yield path, *map(float, told)  # type: ignore[arg-type]
        for key, each in document.items():
            yield from intervals(each, f"{path}.{key}")
    elif isinstance(document, list):
        for at, each in enumerate(document):
            yield from intervals(each, f"{path}[{at}]")


COUNTS = frozenset({"trials", "pairs", "samples", "groups", "seeds", "n"})


def bare(document: Any, path: str = "") -> Iterator[str]:
    """Every figure with places for limits that tells no count, or no limits and no reason why."""
    if isinstance(document, dict):
        if {"low", "value", "high"} <= document.keys():
            has_limits = (document["low"], document["high"]) != (None, None)
            if not COUNTS & document.keys():
                yield f"{path}: no count"
            if not has_limits and not document.get("reason"):
                yield f"{path}: no limits and no reason"
        for key, each in document.items():
            yield from bare(each, f"{path}.{key}")
    elif isinstance(document, list):
        for at, each in enumerate(document):
            yield from bare(each, f"{path}[{at}]")


def test_a_bare_figure_is_noticed() -> None:
    """The law sees what it is about."""
    assert [*bare({"a": [{"low": 0.1, "value": 0.2, "high": 0.3}]})] == [".a[0]: no count"]
    silent = {"low": None, "value": 0.2, "high": None, "trials": 3}
    assert [*bare(silent)] == [": no limits and no reason"]
    assert [*bare({**silent, "reason": "one group"})] == []


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_every_figure_tells_its_count_and_why_it_has_no_limits(run: GoldenRun) -> None:
    """In every file of a run."""
    wrong = [
        f"{name}{place}"
        for name, content in read_frozen(run).items()
        if name.endswith(".json")
        for place in bare(json.loads(content))
    ]
    assert wrong == []


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_every_interval_that_is_written_holds_its_figure(run: GoldenRun) -> None:
    """Low, value and high in this order, in every file of a run."""
    seen, wrong = 0, []
    for name, content in read_frozen(run).items():
        if name.endswith(".json"):
            for place, low, value, high in intervals(json.loads(content)):
                seen += 1
                if not low <= value <= high:
                    wrong.append(f"{name}{place}: {low}, {value}, {high}")
    assert seen > LEAST
    assert wrong == []


FIGURES = {
    "estimate": ("low", "high", "answered"),
    "median_latency_ms": ("median_latency_low_ms", "median_latency_high_ms", "timed"),
    "attack_success_rate": ("attack_success_low", "attack_success_high", "attacks"),
    "false_alarm_rate": ("false_alarm_low", "false_alarm_high", "benign"),
    "allow_rate": ("allow_low", "allow_high", "guarded"),
}
"""Columns of figures in CSV, and those of their limits and count; in a pivot these are `X low`,
`X high` and `X n`."""
NO_FIGURES = frozenset({"confidence", "effective_n", "design_effect", "score"})
"""Columns of numbers with a fraction that estimate nothing."""
OTHER_TOOLS = "minorbench/"
"""Tables in the format of another program, which has counts but no limits."""


def bare_cells(table: list[dict[str, str]]) -> Iterator[str]:
    """Every figure of a table without its count, or with limits that do not hold it."""
    for row in table:
        for title, cell in row.items():
            told = FIGURES.get(title, (f"{title} low", f"{title} high", f"{title} n"))
            if not cell or title in NO_FIGURES:
                continue
            if told[0] not in row:
                limits = {each for three in FIGURES.values() for each in three}
                is_limit = title in limits or title.endswith((" low", " high"))
                if "." in cell and cell.replace(".", "").isdigit() and not is_limit:
                    yield f"{title}: {cell} has no limits"
                continue
            low, high, count = (row[each] for each in told)
            if not count:
                yield f"{title}: {cell} has no count"
            if low and high and not float(low) <= float(cell) <= float(high):
                yield f"{title}: {low}, {cell}, {high}"


def test_a_bare_cell_is_noticed() -> None:
    """The law sees what it is about."""
    good = {"estimate": "0.5", "low": "0.4", "high": "0.6", "answered": "9"}
    assert [*bare_cells([good])] == []
    assert [*bare_cells([{**good, "answered": ""}])] == ["estimate: 0.5 has no count"]
    assert [*bare_cells([{**good, "high": "0.45"}])] == ["estimate: 0.4, 0.5, 0.45"]
    assert [*bare_cells([{"mean": "0.5"}])] == ["mean: 0.5 has no limits"]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_every_figure_of_a_table_has_its_limits_and_count(run: GoldenRun) -> None:
    """In every CSV of a run, column by column."""
    tables = {
        name: [*csv.DictReader(io.StringIO(content.decode(), newline=""))]
        for name, content in read_frozen(run).items()
        if name.endswith(".csv") and OTHER_TOOLS not in name
    }
    assert any("categories.csv" in name for name in tables)
    wrong = [f"{name}: {each}" for name, table in tables.items() for each in bare_cells(table)]
    assert wrong == []
